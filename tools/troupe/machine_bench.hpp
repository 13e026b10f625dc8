// troupe bench machine: the limits that other figures are shares of.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_machine_bench(Command& bench, Run& run);

}  // namespace troupe::tools
