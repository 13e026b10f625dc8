// Another program, run to its end on the caller's thread. A signal that asks troupe to end while
// signals are held ends that program first, so that what it has left can be cleaned up.
#pragma once

#include <signal.h>

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::tools {

// SIGINT, SIGTERM and SIGHUP wait until its end; the calling thread must be the only one.
class HeldSignals {
 public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    // Runs `command`, found in the PATH, with nothing to read; what it prints goes to stderr, what
    // it says on stderr into the file `errors`. Its exit code, or 128 and the number of the signal
    // that ended it. Errors: not_found where there is no such program; cancelled by a signal to
    // this one; io.
    [[nodiscard]] Result<int> run(const std::vector<std::string>& command,
                                  const std::filesystem::path& errors);

 private:
    sigset_t held_{};
    sigset_t before_{};
};

}  // namespace troupe::tools
