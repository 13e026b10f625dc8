// troupe bench gateway: what a streamed token and an idle WebSocket cost the server.
#pragma once

#include "tools/troupe/command.hpp"

namespace troupe::tools {

// Adds the subcommand to `bench`.
void add_gateway_bench(Command& bench, Run& run);

}  // namespace troupe::tools
