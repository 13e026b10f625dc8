#include "gateway/metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <vector>

namespace troupe::gateway {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Families {
 public:
    void gauge(const char* name, const char* help, double value) {
        ClientMetric metric;
        metric.gauge.value = value;
        add(name, help, MetricType::Gauge).metric.push_back(std::move(metric));
    }

    void counter(const char* name, const char* help, double value) {
        counters(name, help);
        labelled("", "", value);
    }

    // One with a label: `labelled` adds its samples.
    void counters(const char* name, const char* help) { add(name, help, MetricType::Counter); }
    void gauges(const char* name, const char* help) { add(name, help, MetricType::Gauge); }
    void labelled(const char* label, std::string_view of, double value) {
        ClientMetric metric;
        if (*label != 0) metric.label.push_back({label, std::string(of)});
        const bool is_gauge = families_.back().type == MetricType::Gauge;
        (is_gauge ? metric.gauge.value : metric.counter.value) = value;
        families_.back().metric.push_back(std::move(metric));
    }

    void histogram(const char* name, const char* help, const actors::LatencyHistogram& from) {
        ClientMetric metric;
        std::uint64_t below = 0;
        for (std::size_t i = 0; i < actors::kLatencyBounds_s.size(); ++i) {
            below += from.counts[i].get();
            metric.histogram.bucket.push_back({below, actors::kLatencyBounds_s[i]});
        }
        below += from.counts.back().get();
        metric.histogram.bucket.push_back({below, std::numeric_limits<double>::infinity()});
        metric.histogram.sample_count = below;
        metric.histogram.sample_sum = static_cast<double>(from.sum_ns.get()) * 1e-9;
        add(name, help, MetricType::Histogram).metric.push_back(std::move(metric));
    }

    [[nodiscard]] std::string text() const {
        std::ostringstream out;
        prometheus::TextSerializer().Serialize(out, families_);
        return out.str();
    }

 private:
    MetricFamily& add(const char* name, const char* help, MetricType type) {
        families_.push_back({name, help, type, {}});
        return families_.back();
    }

    std::vector<MetricFamily> families_;
};

constexpr std::array<std::string_view, actors::kRejectReasons> kRefusals{
    "overloaded", "never_fits", "too_wide", "shutting_down"};

double number(auto value) {
    return static_cast<double>(value);
}

void add_gauges(Families& f, const actors::EngineStats& s) {
    f.gauge("troupe_requests_running", "Requests in the batch.", number(s.requests_running.get()));
    f.gauge("troupe_requests_waiting", "Requests that wait for a slot or pages.",
            number(s.requests_waiting.get()));
    f.gauge("troupe_kv_pages_total", "Pages of the KV cache.", number(s.kv_pages_total.get()));
    f.gauge("troupe_kv_pages_leased", "Pages held by live requests.",
            number(s.kv_pages_leased.get()));
    f.gauge("troupe_kv_pages_cached", "Pages kept for their prefix, held by no live request.",
            number(s.kv_pages_cached.get()));
    f.gauge("troupe_kv_cache_usage_perc", "Share of the pages that live requests hold, 0 to 1.",
            number(s.kv_pages_leased.get()) / std::max<double>(1, number(s.kv_pages_total.get())));
    f.gauge("troupe_kv_bytes_per_token", "Keys, values and scales of a token in all layers.",
            number(s.kv_bytes_per_token.get()));
}

void add_counters(Families& f, const actors::EngineStats& s) {
    f.counter("troupe_prompt_tokens_total", "Prompt tokens computed.",
              number(s.prompt_tokens_total.get()));
    f.counter("troupe_generation_tokens_total", "Tokens drawn.",
              number(s.generation_tokens_total.get()));
    f.counter("troupe_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.",
              number(s.prefix_queried_tokens_total.get()));
    f.counter("troupe_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.",
              number(s.prefix_hit_tokens_total.get()));
    f.counter("troupe_spec_decode_num_drafts_total", "Drafts verified (speculative decoding).",
              number(s.drafts_total.get()));
    f.counter("troupe_spec_decode_num_draft_tokens_total", "Tokens of those drafts.",
              number(s.draft_tokens_total.get()));
    f.counter("troupe_spec_decode_num_accepted_tokens_total", "Draft tokens that were right.",
              number(s.accepted_tokens_total.get()));
    f.counter("troupe_cancelled_tokens_total", "Tokens drawn for answers that were cancelled.",
              number(s.cancelled_tokens_total.get()));
    f.counter("troupe_dropped_rows_total", "Tokens drawn for answers that had ended: thrown away.",
              number(s.dropped_rows_total.get()));
    f.counter("troupe_stalls_total", "Gaps of more than half a second within an answer.",
              number(s.stalls_total.get()));
    f.counter("troupe_preemptions_total", "Requests sent back to wait for want of pages.",
              number(s.preemptions_total.get()));
    f.counter("troupe_engine_restarts_total", "Rebuilds of the engine after a fault.",
              number(s.restarts_total.get()));
    f.counter("troupe_steps_total", "Steps of the model.", number(s.steps_total.get()));
    f.counter("troupe_step_seconds_total", "Time the backend spent in steps.",
              number(s.steps_compute_ns_total.get()) * 1e-9);
    f.counters("troupe_step_part_seconds_total",
               "Time of steps in the scheduler, the model, draws, and sending what they gave.");
    f.labelled("part", "plan", number(s.steps_plan_ns_total.get()) * 1e-9);
    const std::int64_t sample_ns = s.steps_sample_ns_total.get();
    f.labelled("part", "forward", number(s.steps_compute_ns_total.get() - sample_ns) * 1e-9);
    f.labelled("part", "sample", number(sample_ns) * 1e-9);
    f.labelled("part", "deliver", number(s.steps_deliver_ns_total.get()) * 1e-9);
    f.counters("troupe_requests_finished_total", "Requests that ended, by reason.");
    for (std::size_t i = 0; i < actors::kFinishReasons; ++i)
        f.labelled("reason", to_string(static_cast<actors::FinishReason>(i)),
                   number(s.finished_total[i].get()));
    f.counters("troupe_requests_rejected_total", "Requests that were refused, by reason.");
    for (std::size_t i = 0; i < kRefusals.size(); ++i)
        f.labelled("reason", kRefusals[i], number(s.rejected_total[i].get()));
}

void add_histograms(Families& f, const actors::EngineStats& s) {
    f.histogram("troupe_request_queue_time_seconds", "From a request's arrival to its first step.",
                s.queue);
    f.histogram("troupe_time_to_first_token_seconds",
                "From a request's arrival to its first token.", s.time_to_first_token);
    f.histogram("troupe_inter_token_seconds", "Between the tokens of an answer.", s.inter_token);
    f.histogram("troupe_e2e_request_latency_seconds",
                "From a request's arrival to its end by stop or length.", s.end_to_end);
    f.histogram("troupe_cancel_seconds", "From a cancel to the release of its pages.", s.cancel);
}

}  // namespace

std::string Metrics::text(const MetricsSources& sources) const {
    Families f;
    f.gauge("troupe_connections", "Open connections.", number(connections_));
    f.gauge("troupe_unread_bytes", "Text that waits for clients to read.",
            number(sources.unread_bytes));
    f.counter("troupe_slow_clients_closed_total", "Connections cut off for reading too slowly.",
              number(slow_clients_));
    if (sources.engine != nullptr) {
        f.counter("troupe_resumes_total", "Readers that came back to a response.",
                  number(sources.resumes));
        add_gauges(f, *sources.engine);
        add_counters(f, *sources.engine);
        add_histograms(f, *sources.engine);
    }
    if (!sources.tokens_of_keys.empty()) {
        f.gauges("troupe_key_tokens_in_flight", "Tokens of a key's requests that run.");
        for (const MetricsSources::KeyTokens& of : sources.tokens_of_keys)
            f.labelled("key", of.key, number(of.tokens));
    }
    return f.text();
}

}  // namespace troupe::gateway
