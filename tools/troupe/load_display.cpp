#include "tools/troupe/load_display.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe::tools {
namespace {

constexpr std::chrono::milliseconds kTerminalPause{100};
constexpr std::chrono::milliseconds kLogPause{2000};

}  // namespace

LoadDisplay::LoadDisplay(std::string name, const model::LoadProgress& progress)
    : name_(std::move(name)),
      progress_(progress),
      thread_([this](const std::stop_token& stop) { run(stop); }) {}

LoadDisplay::~LoadDisplay() = default;

void LoadDisplay::run(const std::stop_token& stop) {
    const bool person = ::isatty(STDERR_FILENO) != 0;
    bool shown = false;
    std::unique_lock lock(mutex_);
    while (true) {
        ended_.wait_for(lock, stop, person ? kTerminalPause : kLogPause, [] { return false; });
        if (stop.stop_requested()) break;
        const int percent = static_cast<int>(progress_.loaded() * 100);
        if (person) {
            fmt::print(stderr, "\rloading {}: {} %", name_, percent);
            std::fflush(stderr);
        } else {
            log::info("loading {}: {} %", name_, percent);
        }
        shown = person;
    }
    if (shown) fmt::print(stderr, "\r\033[K");
}

}  // namespace troupe::tools
