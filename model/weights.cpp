// Tensor names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, standardized tensor
// names.
#include "model/weights.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "model/architecture.hpp"
#include "model/tensor_reader.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

// What a file may carry and this program would get wrong by ignoring.
void refuse_unsupported(TensorReader& tensors, const GgufFile& file) {
    for (const GgufTensor& tensor : file.tensors()) {
        if (tensors.was_taken(tensor.name)) continue;
        const std::string_view name = tensor.name;
        const char* what = name.ends_with(".bias")                         ? "biases"
                           : name.starts_with("rope_")                     ? "rope factors"
                           : name.find("_norm.") != std::string_view::npos ? "norms"
                                                                           : nullptr;
        if (what == nullptr) continue;
        tensors.fail({ErrorKind::unsupported, fmt::format("tensor {}: {} are not supported here",
                                                          log::escaped(name), what)});
    }
}

void read_rope_factors(TensorReader& tensors, const Hyperparameters& h, ModelWeights& out) {
    const std::uint32_t pairs = h.rope_dimension_count / 2;
    if (h.rope_scale.kind == RopeScaling::long_factors) {
        out.rope_factors = tensors.vector("rope_factors_short.weight", pairs);
        out.rope_factors_long = tensors.vector("rope_factors_long.weight", pairs);
    } else if (tensors.has("rope_freqs.weight")) {
        out.rope_factors = tensors.vector("rope_freqs.weight", pairs);
    }
    for (const std::vector<float>* factors : {&out.rope_factors, &out.rope_factors_long}) {
        if (std::all_of(factors->begin(), factors->end(), [](float f) { return f > 0; })) continue;
        tensors.fail(invalid_input("a rope factor is not positive"));
    }
}

}  // namespace

RowOrder row_order(const Hyperparameters& h) {
    if (h.rope_order == RopeOrder::pairs) return {};
    return {h.head_length, h.rope_dimension_count};
}

Result<ModelWeights> read_weights(const GgufFile& file, const Hyperparameters& h) {
    TensorReader tensors{file};
    ModelWeights weights;
    weights.token_embd = tensors.matrix("token_embd.weight", h.vocabulary_size, h.embedding_length);
    weights.output_norm = tensors.norm("output_norm.weight", h.embedding_length);
    weights.tied_output = !tensors.has("output.weight");
    weights.output = weights.tied_output
                         ? weights.token_embd
                         : tensors.matrix("output.weight", h.vocabulary_size, h.embedding_length);
    read_rope_factors(tensors, h, weights);
    const Architecture& architecture = *find_architecture(h.architecture);
    for (std::uint32_t i = 0; i < h.block_count && !tensors.error(); ++i)
        weights.layers.push_back(architecture.read_layer(tensors, i, h));
    if (!tensors.error()) refuse_unsupported(tensors, file);
    if (tensors.error()) return *tensors.error();
    if (const std::size_t extra = file.tensors().size() - tensors.taken(); extra != 0) {
        log::info("tensors of the model file that are not used: {}", extra);
    }
    return weights;
}

}  // namespace troupe::model
