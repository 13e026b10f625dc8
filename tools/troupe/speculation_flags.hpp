// Speculative decoding as command-line flags: where drafts come from.
#pragma once

#include <string>

#include "actors/scheduler.hpp"
#include "tools/troupe/flags.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {

struct SpeculationFlags {
    std::string mode = "auto";
    std::string draft_model;
};

void add_speculation_flags(Command& app, SpeculationFlags& flags);

// What the scheduler is told; gives `loaded` its draft model, where the flags want one. Errors: a
// mode that lacks its model; those of load_draft_model.
[[nodiscard]] Result<actors::SpeculationSettings> prepare_speculation(const SpeculationFlags& flags,
                                                                      LoadedModel& loaded);

}  // namespace troupe::tools
