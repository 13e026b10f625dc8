// The Backend that runs on the processor. It belongs to the executor's thread, which is the first
// of its compute threads; a step is computed in wait().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cpu/forward.hpp"
#include "cpu/packed_model.hpp"
#include "model/backend.hpp"
#include "model/gguf.hpp"
#include "model/load_progress.hpp"
#include "model/token.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

struct CpuOptions {
    std::uint32_t threads = 0;  // the caller's included; 0: one a core
    Arithmetic arithmetic = Arithmetic::native;
    std::string instruction_set = "auto";  // or as kernel_names() says
    std::optional<KvType> kv_type;         // absent: f16; with float32 arithmetic f32
    model::AttentionWindow window;         // with its sinks at most what the model was trained for
    std::uint64_t kv_memory_bytes = 0;     // 0: all slots full, but at most a quarter of the memory
    std::uint32_t kv_pages = 0;            // not 0: exactly so many, whatever the line above says
    std::uint32_t context_length_max = 0;  // 0: what the model was trained for; 2^24 with a window
    std::uint32_t slots_max = 256;
    std::uint32_t tokens_per_step_max = 512;
    bool huge_pages = true;
    std::vector<model::TokenId> end_tokens;   // all that end an answer, for min_tokens, ignore_eos
    model::LoadProgress* progress = nullptr;  // told of the weights as they are packed
    TapFunction tap;                          // for tests: sees the activations between the stages
    const Kernels* kernels = nullptr;         // for measuring: these instead of a set
    AttendFunction attend;                    // likewise
};

// `file` must outlive the backend: embeddings are read from its mapping. Errors, each saying what
// to change: those of reading the model; unsupported instruction sets; a window that is too wide;
// no memory for weights or KV cache; threads that the system refuses.
[[nodiscard]] Result<std::unique_ptr<model::Backend>> make_cpu_backend(const model::GgufFile& file,
                                                                       const CpuOptions& options);

}  // namespace troupe::cpu
