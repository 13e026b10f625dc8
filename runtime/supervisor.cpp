#include "runtime/supervisor.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <utility>
#include <variant>

#include "runtime/base/log.hpp"

namespace troupe::runtime {

namespace {

constexpr int signals_max = 2;

constexpr MailboxCapacity mailbox_capacity{
    .normal_max = 1     // EngineFailed
                  + 2   // SessionsDrained, once after draining and once after cancelling
                  + 1,  // EngineStopped
    .control_max = signals_max + 2,  // StopRequested: signals, and commands of the edge
};

void log_error_of(const SupervisorMessage& message) {
    if (const auto* failed = std::get_if<EngineFailed>(&message))
        log::error("the engine gave up: {}", failed->error);
}

}  // namespace

Supervisor::Supervisor(Lane& lane, const SupervisorPolicy& policy, Perform perform)
    : lane_(lane), core_(policy), perform_(std::move(perform)), mailbox_(mailbox_capacity) {}

boost::asio::awaitable<void> Supervisor::run() {
    std::vector<SupervisorMessage> batch;
    while (!core_.finished()) {
        if (const auto deadline = core_.next_deadline()) {
            (void)co_await mailbox_.receive_all_until(lane_, *deadline, batch);
        } else {
            (void)co_await mailbox_.receive_all(batch);
        }
        for (const SupervisorMessage& message : batch) {
            log_error_of(message);
            perform_all(
                std::visit([this](const auto& m) { return core_.on(m, lane_.now()); }, message));
        }
        perform_all(core_.on_time(lane_.now()));
    }
    mailbox_.close();
    if (signals_) signals_->cancel();
}

boost::asio::awaitable<void> Supervisor::watch_signals() {
    signals_.emplace(lane_.context(), SIGTERM, SIGINT);
    for (int received = 0; received < signals_max && !core_.finished(); ++received) {
        const auto [error, signal] =
            co_await signals_->async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
        if (error) co_return;
        log::info("signal {}", signal);
        mailbox_.send_control(StopRequested{});
    }
}

void Supervisor::perform_all(const SupervisorCore::Actions& actions) {
    for (const SupervisorAction action : actions) {
        log::info("supervisor: {}", to_string(action));
        perform_(action);
    }
}

}  // namespace troupe::runtime
