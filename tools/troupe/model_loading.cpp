#include "tools/troupe/model_loading.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cpu/cpu_backend.hpp"
#include "gpu/cuda_backend.hpp"
#include "model/drafting_backend.hpp"
#include "model/known_models.hpp"
#include "model/model_file.hpp"
#include "model/tokenizer_gguf.hpp"
#include "model/toy_backend.hpp"
#include "model/toy_model.hpp"
#include "runtime/base/log.hpp"
#include "tools/troupe/load_display.hpp"

namespace troupe::tools {
namespace {

// Not where the card is an emulated one: it is there for --backend cuda, which asks for it.
constexpr bool kAutoTriesCuda = TROUPE_AUTO_TRIES_CUDA;

// For files without a chat template: models that continue text rather than chat.
constexpr std::string_view kPlainTemplate =
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ '\\n' }}"
    "{% endif %}{% endfor %}";

std::string piece_of(const model::Tokenizer& tokenizer, std::optional<model::TokenId> id) {
    return id ? std::string(tokenizer.piece(*id)) : std::string();
}

Result<void> add_template(LoadedModel& loaded, std::string_view source) {
    auto compiled =
        model::ChatTemplate::compile(source, piece_of(*loaded.tokenizer, loaded.tokenizer->bos()),
                                     piece_of(*loaded.tokenizer, loaded.tokenizer->eos()));
    if (!compiled)
        return Error{compiled.error().kind,
                     fmt::format("the model's chat template: {}", compiled.error().message)};
    loaded.chat_template = std::make_unique<const model::ChatTemplate>(std::move(*compiled));
    return {};
}

Result<LoadedModel> load_toy() {
    LoadedModel loaded;
    loaded.id = "toy";
    loaded.tokenizer = std::make_unique<const model::ToyTokenizer>();
    if (auto added = add_template(loaded, model::kToyChatTemplate); !added) return added.error();
    return loaded;
}

Result<LoadedModel> load_file(const std::string& argument) {
    const auto path = model::find_model(argument);
    if (!path) return path.error();
    LoadedModel loaded;
    loaded.id = model::model_name(*path);
    auto file = model::open_model(*path);
    if (!file) return file.error();
    loaded.file = std::make_unique<model::GgufFile>(std::move(*file));
    auto tokenizer = model::load_tokenizer(*loaded.file);
    if (!tokenizer) return tokenizer.error();
    loaded.tokenizer = std::move(*tokenizer);
    auto source = loaded.file->find_string("tokenizer.chat_template");
    if (!source) return source.error();
    if (!*source) log::warn("{} has no chat template: messages are joined line by line", loaded.id);
    if (auto added = add_template(loaded, source->value_or(kPlainTemplate)); !added)
        return added.error();
    return loaded;
}

// One of the backends on its way. Of a model that drafts for another, the other's description is
// given: it gets as many pages, and room in a step to catch up.
struct Making {
    const LoadedModel& loaded;
    const BackendFlags& flags;
    model::LoadProgress& progress;
    const model::BackendInfo* draft_of = nullptr;
};

std::unique_ptr<model::Backend> make_toy_backend(const Making& making) {
    model::ToyBackendOptions options;
    if (making.flags.context_max != 0) options.context_length = making.flags.context_max;
    options.slots_max = making.flags.running_max;
    if (making.draft_of != nullptr) options.tokens_per_step_max += options.slots_max;
    return std::make_unique<model::ToyBackend>(options);
}

// What the options of every backend have.
template <class Options>
void set_common(Options& options, const Making& making) {
    const BackendFlags& flags = making.flags;
    options.progress = &making.progress;
    options.kv_memory_bytes = flags.kv_memory_bytes;
    options.context_length_max = flags.context_max;
    options.slots_max = flags.running_max;
    options.tokens_per_step_max = flags.step_tokens_max;
    if (making.draft_of != nullptr) {
        options.kv_pages = making.draft_of->pages_total;
        options.context_length_max = making.draft_of->context_length;
        options.tokens_per_step_max += options.slots_max;
    }
    const auto ends = making.loaded.tokenizer->end_tokens();
    options.end_tokens.assign(ends.begin(), ends.end());
}

Result<std::unique_ptr<model::Backend>> make_cpu_backend(const Making& making) {
    const BackendFlags& flags = making.flags;
    cpu::CpuOptions options;
    options.threads = flags.threads;
    options.arithmetic =
        flags.arithmetic == "float32" ? cpu::Arithmetic::float32 : cpu::Arithmetic::native;
    options.instruction_set = flags.instruction_set;
    for (const cpu::KvType type : cpu::kv_types)
        if (flags.kv_type == to_string(type)) options.kv_type = type;
    if (flags.window != 0) options.window = {flags.window, flags.sinks};
    set_common(options, making);
    return cpu::make_cpu_backend(*making.loaded.file, options);
}

Result<std::unique_ptr<model::Backend>> make_cuda_backend(const Making& making) {
    const BackendFlags& flags = making.flags;
    if (flags.kv_type == "f32" || flags.kv_type == "int4")
        return Error{ErrorKind::unsupported,
                     fmt::format("the CUDA backend has no KV cache of {}: use --kv f16 or int8, or "
                                 "--backend cpu",
                                 flags.kv_type)};
    gpu::CudaOptions options;
    options.first_card = flags.gpu;
    options.cards = flags.gpus;
    options.graphs = !flags.eager;
    if (flags.kv_type == "int8") options.kv_form = gpu::KvForm::int8;
    if (flags.window != 0) options.window = {flags.window, flags.sinks};
    set_common(options, making);
    return gpu::make_cuda_backend(*making.loaded.file, options);
}

Result<std::unique_ptr<model::Backend>> make_one(const Making& making) {
    const BackendFlags& flags = making.flags;
    if (!making.loaded.file) {
        if (flags.window != 0)
            return invalid_input("the toy looks at the last word alone: leave --window out");
        return make_toy_backend(making);
    }
    const bool chose_cards = flags.gpu != 0 || flags.gpus != 1;
    if (flags.backend == "cpu" && chose_cards)
        return invalid_input("--gpu and --gpus are for --backend cuda: leave them out for the CPU");
    if (flags.backend == "cpu" && flags.eager)
        return invalid_input("--enforce-eager is for --backend cuda: leave it out for the CPU");
    if (flags.backend == "cuda" || (flags.backend == "auto" && (kAutoTriesCuda || chose_cards))) {
        auto backend = make_cuda_backend(making);
        const bool fall_back = flags.backend == "auto" && !chose_cards && !backend &&
                               backend.error().kind == ErrorKind::unsupported;
        if (!fall_back) return backend;
        log::info("{}; running on the CPU", backend.error().message);
    }
    return make_cpu_backend(making);
}

// The first id that the two vocabularies spell differently, or nullopt.
std::optional<model::TokenId> first_difference(const model::Tokenizer& a,
                                               const model::Tokenizer& b) {
    const auto both = std::min(a.vocabulary_size(), b.vocabulary_size());
    for (model::TokenId id = 0; id < both; ++id) {
        if (a.piece(id) != b.piece(id)) return id;
    }
    return a.vocabulary_size() == b.vocabulary_size() ? std::nullopt : std::optional(both);
}

}  // namespace

void add_backend_flags(Command& command, BackendFlags& flags) {
    const auto group = "Model";
    const auto add = [&](const char* name, auto& value, const char* what) {
        return command.add(name, value, what).group(group).shows_default();
    };
    add("--model,-m", flags.model,
        "a GGUF file, a Hugging Face folder, the name of a pulled model, or toy: a built-in model "
        "of ten words")
        .required();
    add("--backend", flags.backend, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
    add("--gpu", flags.gpu, "the card of --backend cuda, counted from 0; of several the first")
        .within(0, 1023);
    add("--gpus", flags.gpus, "cards that share the model, from that one on").within(1, 1024);
    command
        .add_switch("--enforce-eager", flags.eager,
                    "with --backend cuda: start every kernel by itself, without CUDA graphs")
        .group(group);
    add("--threads", flags.threads, "compute threads; 0: one a core").within(0, 1024);
    add("--arithmetic", flags.arithmetic,
        "native: int8 activations for quantised weights; float32: slow, for checking")
        .one_of({"native", "float32"});
    add("--isa", flags.instruction_set, "instruction set: auto, plain, avx2, avx_vnni, avx512 or amx");
    add("--kv", flags.kv_type,
        "form of the KV cache: f16, f32, int8 or int4; auto: f16, with --arithmetic float32 f32")
        .one_of({"auto", "f16", "f32", "int8", "int4"});
    const auto window =
        add("--window", flags.window,
            "tokens look back at so many, and may then go on past what the model was "
            "trained for; 0: at all");
    add("--sinks", flags.sinks, "beside the window, look at the first tokens, too").needs(window);
    add("--kv-memory", flags.kv_memory_bytes,
        "bytes for the KV cache, such as 512MB; 0: up to a quarter of the memory")
        .bytes();
    add("--max-context", flags.context_max,
        "tokens of prompt and answer; 0: what the model allows");
    add("--max-running", flags.running_max, "requests that run at once").within(1, 4096);
    add("--max-step-tokens", flags.step_tokens_max, "tokens in one step of the model")
        .within(16, 8192);
}

Result<LoadedModel> load_model(const std::string& argument) {
    return argument == "toy" ? load_toy() : load_file(argument);
}

Result<void> load_draft_model(LoadedModel& loaded, const std::string& argument) {
    auto draft = load_model(argument);
    if (!draft) return draft.error();
    if (const auto id = first_difference(*loaded.tokenizer, *draft->tokenizer))
        return Error{ErrorKind::unsupported,
                     fmt::format("{} cannot draft for {}: their vocabularies differ, first in "
                                 "token {}",
                                 draft->id, loaded.id, *id)};
    loaded.draft = std::make_unique<LoadedModel>(std::move(*draft));
    return {};
}

Result<std::unique_ptr<model::Backend>> make_backend(const LoadedModel& loaded,
                                                     const BackendFlags& flags,
                                                     model::LoadProgress* watched) {
    model::LoadProgress unwatched;
    model::LoadProgress& progress = watched != nullptr ? *watched : unwatched;
    for (const LoadedModel* each = &loaded; each != nullptr; each = each->draft.get())
        if (each->file) progress.expect(each->file->size_bytes());
    const LoadDisplay display(loaded.id, progress);
    auto target = make_one({loaded, flags, progress});
    if (!target || !loaded.draft) return target;
    auto draft = make_one({*loaded.draft, flags, progress, &(*target)->info()});
    if (!draft)
        return Error{draft.error().kind, fmt::format("the draft model: {}", draft.error().message)};
    return std::make_unique<model::DraftingBackend>(std::move(*target), std::move(*draft));
}

}  // namespace troupe::tools
