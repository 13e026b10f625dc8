// troupe bench speculation: what drafts are worth. The same requests with and without, in turn,
// through the whole engine.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

void add_speculation_bench(Command& bench, Run& run);

}  // namespace troupe::tools
