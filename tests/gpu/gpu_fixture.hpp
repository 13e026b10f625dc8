// For the tests of gpu/: an emulated machine that is new for every test, and backends on it.
#pragma once

#include <cuda_runtime.h>

#include <catch2/catch.hpp>
#include <memory>
#include <random>

#include "gpu/cuda_backend.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"
#include "tests/gpu/emulator/emulator.hpp"

namespace troupe::test {

// Whatever the test before left behind.
struct EmulatorFixture {
    EmulatorFixture() { emulator::reset_machine(); }
    ~EmulatorFixture() {
        emulator::reset_machine();
        emulator::set_seed(0);
    }
};

// Of the tiny model's 512, none of them a control token.
inline Tokens random_tokens(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    Tokens tokens(count);
    for (model::TokenId& token : tokens)
        token = static_cast<model::TokenId>(3 + random() % 500);
    return tokens;
}

// Of a machine with so many cards; on a real one those that it has, perhaps too few.
inline bool have_cards(int count) {
    emulator::reset_machine(count);
    int present = 0;
    return cudaGetDeviceCount(&present) == cudaSuccess && present >= count;
}

// Products of warpgroups; a card without them has nothing to test there.
inline bool have_warpgroups() {
    cudaDeviceProp card{};
    return cudaGetDeviceProperties(&card, 0) == cudaSuccess && card.major == 9 && card.minor == 0;
}

inline gpu::CudaOptions small_cuda_options(int cards = 1) {
    gpu::CudaOptions options;
    options.cards = static_cast<std::uint32_t>(cards);
    options.kv_memory_bytes = std::uint64_t{32} << 20;
    options.context_length_max = 512;
    options.slots_max = 32;
    options.tokens_per_step_max = 256;
    options.end_tokens = {2};
    return options;
}

inline std::unique_ptr<model::Backend> make_cuda(const model::GgufFile& file,
                                                 const gpu::CudaOptions& options) {
    Result<std::unique_ptr<model::Backend>> backend = gpu::make_cuda_backend(file, options);
    if (!backend) FAIL(backend.error().message);
    return std::move(*backend);
}

// The tiny model with matrices of halves, which go to tensor units; null as stories_gguf() is.
inline const model::GgufFile* stories_halves_gguf() {
    static const std::vector<std::byte> bytes = stories260k_gguf(stories260k::Weights::halves);
    static const std::optional<model::GgufFile> file = []() -> std::optional<model::GgufFile> {
        if (bytes.empty()) return std::nullopt;
        return model::GgufFile::parse(bytes).value();
    }();
    return file ? &*file : nullptr;
}

// Float weights, activations, keys and values: what the device is compared with.
inline std::unique_ptr<model::Backend> make_cpu_reference(const model::GgufFile& file,
                                                          const gpu::CudaOptions& options) {
    cpu::CpuOptions reference = small_options();
    reference.arithmetic = cpu::Arithmetic::float32;
    reference.context_length_max = options.context_length_max;
    reference.slots_max = options.slots_max;
    reference.tokens_per_step_max = options.tokens_per_step_max;
    reference.end_tokens = options.end_tokens;
    return make_backend(file, reference);
}

}  // namespace troupe::test
