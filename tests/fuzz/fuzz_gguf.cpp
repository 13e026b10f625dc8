// Any bytes as a model file: refused or read, never a fault.
#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/tokenizer_gguf.hpp"
#include "model/weights.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace troupe::model;
    const auto file = GgufFile::parse(std::as_bytes(std::span(data, size)));
    if (!file) return 0;
    if (const auto sizes = read_hyperparameters(*file)) (void)read_weights(*file, *sizes);
    (void)load_tokenizer(*file);
    return 0;
}
