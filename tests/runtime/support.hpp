// What several tests of the runtime share.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/lane.hpp"

namespace troupe::test {

// "lane coroutine: what", sorted: in which order handlers end is Asio's affair.
inline std::vector<std::string> lines(const std::vector<runtime::LaneFailure>& failures) {
    std::vector<std::string> out;
    for (const auto& [lane, coroutine, what] : failures) {
        out.push_back(lane + " " + coroutine + ": " + what);
    }
    std::ranges::sort(out);
    return out;
}

// Collects failures from any thread.
class FailureLog {
 public:
    runtime::FailureHandler handler() {
        return [this](const runtime::LaneFailure& failure) {
            const std::lock_guard lock(mutex_);
            failures_.push_back(failure);
        };
    }
    std::vector<runtime::LaneFailure> failures() const {
        const std::lock_guard lock(mutex_);
        return failures_;
    }

 private:
    mutable std::mutex mutex_;
    std::vector<runtime::LaneFailure> failures_;
};

// What an assertion says when `function` runs, in a process of its own; empty if none failed. For
// use while the test has no other thread.
template <class Function>
std::string assertion_of(Function function) {
    std::array<int, 2> pipe_ends{};
    if (pipe(pipe_ends.data()) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        std::signal(SIGABRT, SIG_DFL);
        function();
        _exit(0);
    }
    close(pipe_ends[1]);
    std::string said;
    std::array<char, 256> bytes{};
    for (ssize_t count = 0; (count = read(pipe_ends[0], bytes.data(), bytes.size())) > 0;) {
        said.append(bytes.data(), static_cast<std::size_t>(count));
    }
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? said : std::string();
}

}  // namespace troupe::test
