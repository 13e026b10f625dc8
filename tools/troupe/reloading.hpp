// Reads the file of keys and the certificate again while the server runs: on SIGHUP, and within
// two seconds of a change. What is wrong with a file changes nothing but the log. Lives on the main
// lane.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gateway/server.hpp"
#include "gateway/tls.hpp"
#include "runtime/lane.hpp"

namespace troupe::tools {

// Files that are looked at now and then.
class WatchedFiles {
 public:
    explicit WatchedFiles(std::vector<std::filesystem::path> paths);

    // Whether they have changed since the last true, and stood still since the last call: what is
    // being written is not read half.
    [[nodiscard]] bool changed();

 private:
    // Size and time of each, also of what a link leads to; 0 where it is missing.
    [[nodiscard]] std::vector<std::int64_t> look() const;

    std::vector<std::filesystem::path> paths_;
    std::vector<std::int64_t> told_;
    std::vector<std::int64_t> last_;
};

class Reloading {
 public:
    struct Files {
        std::string keys;  // empty where there is none
        std::string certificate;
        std::string certificate_key;
    };

    // From here on SIGHUP does not end the program, where there is something to reload.
    Reloading(runtime::Lane& main, Files files);

    // `server` must outlive the lane.
    void start(gateway::Server& server);
    void cancel();

 private:
    boost::asio::awaitable<void> heed_signals(gateway::Server& server);
    boost::asio::awaitable<void> heed_changes(gateway::Server& server);
    void reload_keys(gateway::Server& server) const;
    void reload_certificate(gateway::Server& server) const;

    runtime::Lane& main_;
    const Files files_;
    WatchedFiles keys_;
    WatchedFiles certificate_;
    boost::asio::signal_set hangup_;
    boost::asio::steady_timer timer_;
    bool cancelled_ = false;
};

}  // namespace troupe::tools
