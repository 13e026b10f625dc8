// The Backend that runs on a CUDA card, or on several that share a model: weights and KV cache in
// device memory. It belongs to the executor's thread. A step is started in submit() and read in
// wait(), so that the card has the next one before the host has looked at the last.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/kernels/kv_pages.hpp"
#include "model/attention_window.hpp"
#include "model/backend.hpp"
#include "model/gguf.hpp"
#include "model/load_progress.hpp"
#include "model/token.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

struct CudaOptions {
    std::uint32_t first_card = 0;
    std::uint32_t cards = 1;  // that share the model, from the first on
    KvForm kv_form = KvForm::f16;
    model::AttentionWindow window;         // with its sinks at most what the model was trained for
    std::uint64_t kv_memory_bytes = 0;     // 0: all slots full, but at most what the card has left
    std::uint32_t kv_pages = 0;            // not 0: exactly so many, whatever the line above says
    std::uint32_t context_length_max = 0;  // 0: what the model was trained for; 2^24 with a window
    std::uint32_t slots_max = 256;
    std::uint32_t tokens_per_step_max = 512;
    bool graphs = true;       // false: small steps, too, are launched kernel by kernel
    bool time_steps = false;  // StepResult::idle_ns, for benches: costs some us a step
    model::LoadProgress* progress = nullptr;  // told of the weights as they are uploaded
    std::vector<model::TokenId> end_tokens;   // all that end an answer, for min_tokens, ignore_eos
};

// `file` must outlive the backend: after a fault of the device, which nothing on it survives,
// reset() reads it again. Errors, each saying what to change: unsupported where there are not so
// many cards, no driver, or none that this build can use, or where so many cannot share the model;
// those of reading the model; a window that is too wide; out_of_memory for weights or KV cache that
// the card has no room for.
[[nodiscard]] Result<std::unique_ptr<model::Backend>> make_cuda_backend(const model::GgufFile& file,
                                                                        const CudaOptions& options);

}  // namespace troupe::gpu
