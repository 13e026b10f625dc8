// troupe bench sharing: the KV memory of several answers to one prompt, as one call's n answers, as
// beams, and as requests that may share nothing.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_sharing_bench(Command& bench, Run& run);

}  // namespace troupe::tools
