// troupe bench sampling: what one draw costs, without a model.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_sampling_bench(Command& bench, Run& run);

}  // namespace troupe::tools
