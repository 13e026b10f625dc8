// troupe bench scheduler: what the scheduler itself costs a step, without a model.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_scheduler_bench(Command& bench, Run& run);

}  // namespace troupe::tools
