// What runs a model. One implementation a kind of hardware; the scheduler never knows which. All
// calls come from one thread, the executor's; a backend may have threads of its own behind it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "model/attention_window.hpp"
#include "model/step.hpp"

namespace troupe::model {

// A backend that can no longer compute (a lost device, say) throws this from submit or wait. It
// ends the engine group, which is then rebuilt; a fault of one sequence is SequenceResult::failed
// instead.
class BackendError : public std::runtime_error {
 public:
    using std::runtime_error::runtime_error;
};

struct BackendInfo {
    std::string kind;         // "cpu", "cuda", "toy"
    std::string arithmetic;   // e.g. "int8 avx512": for people
    std::string fingerprint;  // changes exactly when answers may change: part of system_fingerprint
    std::int32_t vocabulary_size = 0;
    std::uint32_t context_length = 0;       // tokens a slot may hold
    std::uint32_t slots_max = 0;            // slots open at once
    std::uint32_t pages_total = 0;          // pages 0 .. pages_total - 1
    std::uint32_t tokens_per_step_max = 0;  // the most tokens a plan may carry
    std::string kv_type;                    // "f16", "f32", "int8", "int4"
    std::uint64_t kv_bytes_per_token = 0;   // over all layers, keys and values
    AttentionWindow window;                 // what a token looks back at
    std::uint64_t weight_bytes = 0;
    bool drafts = false;  // has a draft model of its own: takes kDraftToken
};

class Backend {
 public:
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    virtual ~Backend() = default;

    [[nodiscard]] virtual const BackendInfo& info() const = 0;

    // Begins a step. At most two may be outstanding; the plan must live until its wait returns.
    virtual void submit(const StepPlan& plan) = 0;

    // Blocks until the oldest outstanding step is done and fills `result` (cleared first).
    virtual void wait(StepResult& result) = 0;

    // Forgets every slot; pages keep whatever they held. For the rebuild of an engine group.
    virtual void reset() = 0;
};

}  // namespace troupe::model
