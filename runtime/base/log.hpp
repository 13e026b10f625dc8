// The log: one line an event on stderr, through spdlog. Safe from every thread. What a person or a
// model wrote is passed through `escaped` first, so that a log line is always one printable line.
#pragma once

#include <spdlog/spdlog.h>

#include <string>
#include <string_view>

namespace troupe::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

enum class Level { debug, info, warn, error, off };

// Sets format and level for the process; call once, before threads start.
void set_up(Level level);

// Control bytes, quotes, backslashes and bytes above 0x7E as \xNN; cut to `bytes_max` with "...".
[[nodiscard]] std::string escaped(std::string_view text, std::size_t bytes_max = 200);

}  // namespace troupe::log
