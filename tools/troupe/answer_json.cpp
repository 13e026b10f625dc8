#include "tools/troupe/answer_json.hpp"

#include <boost/json/array.hpp>
#include <cmath>

namespace troupe::tools {
namespace {

namespace json = boost::json;

json::value finite_or_null(float logprob) {
    return std::isfinite(logprob) ? json::value(logprob) : json::value(nullptr);
}

json::array logprobs_json(const actors::Generation& answer, const model::Tokenizer& tokenizer) {
    json::array out;
    for (const auto& score : answer.scores()) {
        json::array top;
        for (const auto& rival : score.top)
            top.push_back({{"id", rival.id},
                           {"token", tokenizer.piece(rival.id)},
                           {"logprob", finite_or_null(rival.logprob)}});
        out.push_back({{"id", score.id},
                       {"token", tokenizer.piece(score.id)},
                       {"logprob", finite_or_null(score.logprob)},
                       {"top", std::move(top)}});
    }
    return out;
}

}  // namespace

json::object answer_json(const actors::Generation& answer, const model::DecodingParams& params,
                         const model::Tokenizer& tokenizer) {
    const auto& usage = answer.usage();
    const auto& timings = answer.timings();
    json::value stop_reason = nullptr;
    if (answer.cause().stop_string >= 0)
        stop_reason = params.stop[static_cast<std::size_t>(answer.cause().stop_string)];
    else if (answer.cause().stop_token >= 0)
        stop_reason = answer.cause().stop_token;
    json::object out{{"text", answer.text()},
                     {"finish_reason", to_string(answer.reason())},
                     {"stop_reason", std::move(stop_reason)},
                     {"seed", params.seed},
                     {"usage",
                      {{"prompt_tokens", usage.prompt_tokens},
                       {"cached_tokens", usage.cached_tokens},
                       {"generated_tokens", usage.generated_tokens},
                       {"draft_tokens", usage.draft_tokens},
                       {"accepted_tokens", usage.accepted_tokens}}},
                     {"timings",
                      {{"prompt_ms", static_cast<double>(timings.prefill_ns) / 1e6},
                       {"decode_ms", static_cast<double>(timings.decode_ns) / 1e6}}}};
    if (params.logprobs) out["logprobs"] = logprobs_json(answer, tokenizer);
    return out;
}

}  // namespace troupe::tools
