// troupe bench invariance: what it costs that a request's answer depends on that request alone, bit
// for bit: the engine with its own kernels and with those of free order, in turn.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_invariance_bench(Command& bench, Run& run);

}  // namespace troupe::tools
