// A scheduler at work without threads: so many requests that decode, a model whose rows draw the
// same token at no cost, a hub that only listens. For what a step of the scheduler costs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "actors/scheduler.hpp"

namespace troupe::simulation {

class SchedulerLoop {
 public:
    // All `running` requests have their prompts computed and room for `steps` tokens more.
    SchedulerLoop(std::uint32_t running, std::uint32_t steps);

    // One turn of the scheduler: results in, cache asked, plan out, events handed over.
    void step();
    // What it planned ends.
    void compute();

 private:
    void submit(std::uint32_t i);

    actors::EngineStats stats_;
    std::unique_ptr<actors::Scheduler> scheduler_;
    std::vector<actors::SchedulerMessage> messages_;
    actors::SchedulerOutput output_;
    actors::Delivery delivery_;
    runtime::TimePoint now_{};
    std::uint32_t decoding_ = 0;  // rows of the last step that drew a token
};

}  // namespace troupe::simulation
