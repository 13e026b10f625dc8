// Tells people how far a model has been loaded: a line on a terminal that is written over, or,
// where stderr is no terminal, a log line now and then. Owns a thread for that, from its begin to
// its end; a load that takes an instant shows nothing.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "model/load_progress.hpp"

namespace troupe::tools {

class LoadDisplay {
 public:
    // `progress` must outlive it.
    LoadDisplay(std::string name, const model::LoadProgress& progress);
    ~LoadDisplay();
    LoadDisplay(const LoadDisplay&) = delete;
    LoadDisplay& operator=(const LoadDisplay&) = delete;

 private:
    void run(const std::stop_token& stop);

    const std::string name_;
    const model::LoadProgress& progress_;
    std::mutex mutex_;
    std::condition_variable_any ended_;
    std::jthread thread_;  // last: it uses all of the above
};

}  // namespace troupe::tools
