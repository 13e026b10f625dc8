// Tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, standardized tensor
// names.
#include "model/weights.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

// Takes tensors by name and keeps the first error, so that the caller reads as a list of shapes.
class TensorReader {
 public:
    explicit TensorReader(const GgufFile& file) : file_(file) {}

    Matrix matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns) {
        const GgufTensor* tensor = file_.find_tensor(name);
        if (tensor == nullptr) {
            fail(invalid_input(fmt::format("tensor {} is missing", name)));
            return {};
        }
        ++taken_;
        check_shape(*tensor, rows, columns);
        if (!tensor_type_info(tensor->type).dequantises) {
            fail({ErrorKind::unsupported,
                  fmt::format("tensor {} has type {}, which is not supported", name,
                              to_string(tensor->type))});
        }
        return {tensor->name, tensor->type, rows, columns, tensor->bytes};
    }

    Matrix norm(const std::string& name, std::uint32_t length) {
        const Matrix out = matrix(name, 1, length);
        if (!error_ && out.type != TensorType::f32) {
            fail({ErrorKind::unsupported,
                  fmt::format("tensor {} has type {}, expected F32", name, to_string(out.type))});
        }
        return out;
    }

    void fail(Error error) {
        if (!error_) error_ = std::move(error);
    }
    [[nodiscard]] bool has(std::string_view name) const {
        return file_.find_tensor(name) != nullptr;
    }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }
    [[nodiscard]] std::size_t taken() const { return taken_; }

 private:
    void check_shape(const GgufTensor& tensor, std::uint32_t rows, std::uint32_t columns) {
        if (tensor.dims == std::array<std::uint64_t, 4>{columns, rows, 1, 1}) return;
        const auto dims = std::span{tensor.dims}.first(std::max(1U, tensor.dim_count));
        const std::string expected =
            rows == 1 ? fmt::to_string(columns) : fmt::format("{}x{}", columns, rows);
        fail(invalid_input(fmt::format("tensor {} has shape {}, expected {}", tensor.name,
                                       fmt::join(dims, "x"), expected)));
    }

    const GgufFile& file_;
    std::optional<Error> error_;
    std::size_t taken_ = 0;
};

LlamaLayer read_layer(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h) {
    const auto name = [&](std::string_view part) {
        return fmt::format("blk.{}.{}.weight", index, part);
    };
    LlamaLayer layer;
    layer.attn_norm = tensors.norm(name("attn_norm"), h.embedding_length);
    layer.attn_q = tensors.matrix(name("attn_q"), h.query_length(), h.embedding_length);
    layer.attn_k = tensors.matrix(name("attn_k"), h.kv_length(), h.embedding_length);
    layer.attn_v = tensors.matrix(name("attn_v"), h.kv_length(), h.embedding_length);
    layer.attn_output = tensors.matrix(name("attn_output"), h.embedding_length, h.query_length());
    layer.ffn_norm = tensors.norm(name("ffn_norm"), h.embedding_length);
    layer.ffn_gate = tensors.matrix(name("ffn_gate"), h.feed_forward_length, h.embedding_length);
    layer.ffn_up = tensors.matrix(name("ffn_up"), h.feed_forward_length, h.embedding_length);
    layer.ffn_down = tensors.matrix(name("ffn_down"), h.embedding_length, h.feed_forward_length);
    return layer;
}

// What a file of this architecture may carry and this program would get wrong by ignoring.
void refuse_unsupported(TensorReader& tensors, const GgufFile& file) {
    for (const GgufTensor& tensor : file.tensors()) {
        const bool bias = tensor.name.ends_with(".bias");
        if (!bias && !tensor.name.starts_with("rope_freqs") &&
            !tensor.name.starts_with("rope_factors")) {
            continue;
        }
        tensors.fail({ErrorKind::unsupported,
                      fmt::format("tensor {}: {} are not supported", log::escaped(tensor.name),
                                  bias ? "biases" : "rope factors")});
    }
}

}  // namespace

Result<LlamaWeights> read_llama_weights(const GgufFile& file, const Hyperparameters& h) {
    TensorReader tensors{file};
    refuse_unsupported(tensors, file);

    LlamaWeights weights;
    weights.token_embd = tensors.matrix("token_embd.weight", h.vocabulary_size, h.embedding_length);
    weights.output_norm = tensors.norm("output_norm.weight", h.embedding_length);
    weights.tied_output = !tensors.has("output.weight");
    weights.output = weights.tied_output
                         ? weights.token_embd
                         : tensors.matrix("output.weight", h.vocabulary_size, h.embedding_length);
    for (std::uint32_t i = 0; i < h.block_count && !tensors.error(); ++i) {
        weights.layers.push_back(read_layer(tensors, i, h));
    }
    if (tensors.error()) return *tensors.error();
    if (const std::size_t extra = file.tensors().size() - tensors.taken(); extra != 0) {
        log::info("{} tensors of the model file are not used", extra);
    }
    return weights;
}

}  // namespace troupe::model
