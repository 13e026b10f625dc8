#include "actors/engine_trace.hpp"

#include <variant>

namespace troupe::actors {
namespace {

std::int64_t number(auto value) {
    return static_cast<std::int64_t>(value);
}

void trace_finished(runtime::Trace& trace, runtime::TimePoint now, const Finished& finished) {
    const runtime::Duration queued(finished.queued_ns);
    const runtime::Duration prefill(finished.prefill_ns);
    const runtime::Duration decode(finished.decode_ns);
    const auto id = number(finished.request);
    const Usage& usage = finished.usage;
    const auto planned_at = now - decode - prefill;
    trace.record({planned_at - queued, kRequestTrack, "queue", id, 0, queued});
    trace.record({planned_at, kRequestTrack, "prefill", id, number(usage.prompt_tokens), prefill});
    trace.record(
        {now - decode, kRequestTrack, "decode", id, number(usage.generated_tokens), decode});
    trace.record({now, kRequestTrack, to_string(finished.reason), id, 0});
}

}  // namespace

void trace_messages(runtime::Trace& trace, std::string_view executor, runtime::TimePoint now,
                    std::span<const SchedulerMessage> messages) {
    for (const SchedulerMessage& message : messages) {
        if (const auto* submit = std::get_if<Submit>(&message)) {
            trace.record({now, kRequestTrack, "submit", number(submit->request),
                          number(submit->prompt.size())});
        } else if (const auto* done = std::get_if<StepDone>(&message)) {
            const runtime::Duration took(done->result->compute_ns);
            trace.record({now - took, executor, "compute", number(done->plan->step),
                          number(done->plan->sequences.size()), took});
        } else if (std::holds_alternative<ExecutorFailed>(message)) {
            trace.record({now, executor, "failed"});
        }
    }
}

void trace_endings(runtime::Trace& trace, runtime::TimePoint now, const Delivery& delivery) {
    for (const SessionEvent& event : delivery.events) {
        if (const auto* finished = std::get_if<Finished>(&event)) {
            trace_finished(trace, now, *finished);
        } else if (const auto* rejected = std::get_if<Rejected>(&event)) {
            trace.record({now, kRequestTrack, "rejected", number(rejected->request)});
        }
    }
}

}  // namespace troupe::actors
