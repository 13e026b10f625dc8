// The supervisor's shell, on the main lane: feeds messages, signals and time to SupervisorCore and
// performs what it says, in order, through the function its owner gives.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/signal_set.hpp>
#include <functional>
#include <optional>

#include "runtime/address.hpp"
#include "runtime/lane.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/supervisor_core.hpp"

namespace troupe::runtime {

class Supervisor {
 public:
    // Starts an action and returns; its answer, where it has one, comes as a message. After join
    // or exit_now nothing more is asked.
    using Perform = std::function<void(SupervisorAction)>;

    Supervisor(Lane& lane, const SupervisorPolicy& policy, Perform perform);

    [[nodiscard]] Address<SupervisorMessage> address() noexcept {
        return Address<SupervisorMessage>(mailbox_);
    }

    // To be spawned on the lane; ends once the core has finished.
    [[nodiscard]] boost::asio::awaitable<void> run();
    // To be spawned on the lane where the process has signals: SIGTERM and SIGINT become
    // StopRequested. Ends with run() or after the second signal, the last that can matter.
    [[nodiscard]] boost::asio::awaitable<void> watch_signals();

    [[nodiscard]] ExitCode exit_code() const noexcept { return core_.exit_code(); }

 private:
    void perform_all(const SupervisorCore::Actions& actions);

    Lane& lane_;
    SupervisorCore core_;
    const Perform perform_;
    Mailbox<SupervisorMessage> mailbox_;
    std::optional<boost::asio::signal_set> signals_;  // while watch_signals() runs
};

}  // namespace troupe::runtime
