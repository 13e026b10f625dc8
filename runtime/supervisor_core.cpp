#include "runtime/supervisor_core.hpp"

namespace troupe::runtime {

using enum SupervisorAction;

std::string_view to_string(SupervisorAction action) {
    switch (action) {
        case drain_sessions:
            return "drain_sessions";
        case cancel_sessions:
            return "cancel_sessions";
        case stop_engine:
            return "stop_engine";
        case join:
            return "join";
        case exit_now:
            return "exit_now";
    }
    return "unknown";
}

SupervisorCore::Actions SupervisorCore::on(const EngineFailed&, TimePoint now) {
    if (state_ != State::running && state_ != State::draining) return {};
    // No answer can end by itself any more, so there is nothing to wait for.
    exit_code_ = ExitCode::engine_failed;
    const bool was_running = state_ == State::running;
    enter(State::cancelling, now, policy_.cancel_grace);
    if (was_running) return {drain_sessions, cancel_sessions};
    return {cancel_sessions};
}

SupervisorCore::Actions SupervisorCore::on(const StopRequested&, TimePoint now) {
    switch (state_) {
        case State::running:
            enter(State::draining, now, policy_.drain);
            return {drain_sessions};
        case State::draining:
        case State::cancelling:
        case State::stopping_engine:
            exit_code_ = ExitCode::forced;
            return finish(exit_now);
        case State::finished:
            return {};
    }
    return {};
}

SupervisorCore::Actions SupervisorCore::on(const SessionsDrained&, TimePoint now) {
    if (state_ != State::draining && state_ != State::cancelling) return {};
    enter(State::stopping_engine, now, policy_.engine_grace);
    return {stop_engine};
}

SupervisorCore::Actions SupervisorCore::on(const EngineStopped&, TimePoint) {
    if (state_ != State::stopping_engine) return {};
    return finish(join);
}

SupervisorCore::Actions SupervisorCore::on_time(TimePoint now) {
    if (!deadline_ || now < *deadline_) return {};
    switch (state_) {
        case State::draining:
            enter(State::cancelling, now, policy_.cancel_grace);
            return {cancel_sessions};
        case State::cancelling:  // a session that does not end must not keep the device
            enter(State::stopping_engine, now, policy_.engine_grace);
            return {stop_engine};
        case State::stopping_engine:
            exit_code_ = ExitCode::forced;
            return finish(exit_now);
        case State::running:
        case State::finished:
            return {};
    }
    return {};
}

void SupervisorCore::enter(State state, TimePoint now, Duration wait_max) {
    state_ = state;
    deadline_ = now + wait_max;
}

SupervisorCore::Actions SupervisorCore::finish(SupervisorAction last) {
    state_ = State::finished;
    deadline_.reset();
    return {last};
}

}  // namespace troupe::runtime
