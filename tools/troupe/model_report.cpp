#include "tools/troupe/model_report.hpp"

#include <fmt/format.h>

#include <string>

#include "cpu/weight_blocks.hpp"
#include "model/chat_template.hpp"
#include "model/tokenizer_gguf.hpp"
#include "model/weights.hpp"
#include "runtime/base/log.hpp"

namespace troupe::tools {
namespace {

std::uint64_t computed_bytes(const model::Matrix& matrix) {
    if (matrix.rows == 0) return 0;
    const auto type = cpu::packable_type(matrix);
    return std::uint64_t{matrix.rows} * cpu::raw_row_bytes(type, matrix.columns);
}

// Packed matrices; a tied head is packed once more than the embedding, which stays in the file.
std::uint64_t computed_bytes(const model::ModelWeights& weights) {
    std::uint64_t bytes = computed_bytes(weights.output);
    for (const model::LayerWeights& layer : weights.layers) {
        for (const model::Matrix* matrix :
             {&layer.attn_q, &layer.attn_k, &layer.attn_v, &layer.attn_output, &layer.ffn_gate,
              &layer.ffn_up, &layer.ffn_down, &layer.router})
            bytes += computed_bytes(*matrix);
        for (const model::ExpertWeights& expert : layer.experts)
            bytes += computed_bytes(expert.gate) + computed_bytes(expert.up) +
                     computed_bytes(expert.down);
    }
    return bytes;
}

void add_types(const model::GgufFile& file, ModelReport& out) {
    for (const auto& tensor : file.tensors()) {
        for (TensorSums* sums : {&out.total, &out.by_type[std::string(to_string(tensor.type))]}) {
            ++sums->tensors;
            sums->parameters += tensor.element_count();
            sums->bytes += tensor.bytes.size();
        }
    }
}

void add_sizes(const model::GgufFile& file, std::uint64_t users, std::uint64_t context,
               ModelReport& out) {
    const auto sizes = model::read_hyperparameters(file);
    if (!sizes) {
        out.why_not = sizes.error().message;
        return;
    }
    out.sizes = *sizes;
    const auto weights = model::read_weights(file, *sizes);
    if (!weights) {
        out.why_not = weights.error().message;
        return;
    }
    ModelMemory memory{.users = users,
                       .context = context == 0 ? sizes->context_length : context,
                       .weight_bytes = computed_bytes(*weights)};
    memory.kv_bytes_per_token = 2ULL * sizes->block_count * sizes->kv_length() * 2;
    memory.kv_bytes = memory.kv_bytes_per_token * memory.users * memory.context;
    out.memory = memory;
    if (memory.context > sizes->context_length)
        out.warnings.push_back(fmt::format("it was trained for {} tokens, not for {}",
                                           sizes->context_length, memory.context));
    if (sizes->context_length < 1024)
        out.warnings.push_back(
            fmt::format("its context is short: {} tokens", sizes->context_length));
}

void add_tokenizer(const model::GgufFile& file, ModelReport& out) {
    const auto tokenizer = model::load_tokenizer(file);
    if (!tokenizer) {
        if (!out.why_not) out.why_not = tokenizer.error().message;
        return;
    }
    const auto name = [&](model::TokenId id) {
        return fmt::format("{} ({})", log::escaped((*tokenizer)->piece(id), 60), id);
    };
    const auto add = [&](const char* role, std::optional<model::TokenId> id) {
        if (id) out.special_tokens.emplace_back(role, name(*id));
    };
    add("bos", (*tokenizer)->bos());
    add("eos", (*tokenizer)->eos());
    std::string ends;
    for (const model::TokenId id : (*tokenizer)->end_tokens())
        ends += (ends.empty() ? "" : ", ") + name(id);
    if (!ends.empty())
        out.special_tokens.emplace_back("ends", ends);
    else
        out.warnings.emplace_back("no token ends an answer");
    const auto model = file.find_string("tokenizer.ggml.model");
    const auto pre = file.find_string("tokenizer.ggml.pre");
    if (model && *model == "gpt2" && (!pre || !*pre || **pre == "default"))
        out.warnings.emplace_back("it names no pre-tokenizer: GPT-2's is used, which may be wrong");
}

void add_template(const model::GgufFile& file, ModelReport& out) {
    const auto source = file.find_string("tokenizer.chat_template");
    out.has_chat_template = source && *source;
    if (!out.has_chat_template) {
        out.warnings.emplace_back("no chat template: messages are joined line by line");
        return;
    }
    const auto compiled = model::ChatTemplate::compile(**source, "", "");
    if (!compiled)
        out.warnings.push_back(
            fmt::format("its chat template is refused: {}", compiled.error().message));
}

}  // namespace

ModelReport describe_model(const model::GgufFile& file, const std::string& name,
                           std::uint64_t users, std::uint64_t context) {
    ModelReport out;
    out.name = name;
    if (const auto found = file.find_string("general.architecture"); found && *found)
        out.architecture = log::escaped(**found, 60);
    add_types(file, out);
    add_sizes(file, users, context, out);
    add_tokenizer(file, out);
    add_template(file, out);
    return out;
}

}  // namespace troupe::tools
