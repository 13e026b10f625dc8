#include "tools/simulation/expected_answer.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "tools/simulation/fake_backend.hpp"
#include "tools/simulation/letter_tokenizer.hpp"

namespace troupe::simulation {
namespace {

// The longest of the stop strings that `text` ends with.
std::optional<std::size_t> ending(const std::string& text, const std::vector<std::string>& stops) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < stops.size(); ++i) {
        if (!text.ends_with(stops[i])) continue;
        if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    return best;
}

}  // namespace

ExpectedAnswer expected_answer(const actors::Submit& submit, std::uint32_t sequence_tokens_max,
                               std::int32_t vocabulary_size, model::AttentionWindow window) {
    ExpectedAnswer expected;
    if (submit.prefill_only) return expected;
    const model::DecodingParams& params = submit.params;
    const std::size_t room = sequence_tokens_max - submit.prompt.size();
    const std::size_t count =
        params.max_tokens < 0 ? room : std::min(room, static_cast<std::size_t>(params.max_tokens));
    const LetterTokenizer tokenizer;
    std::string text;
    for (const model::TokenId token : FakeBackend::oracle(
             submit.prompt, params, submit.answer_index, count, vocabulary_size, window)) {
        const bool may_end = static_cast<std::int64_t>(expected.tokens.size()) >= params.min_tokens;
        const bool is_stop = std::ranges::count(params.stop_token_ids, token) > 0;
        if (token == kEndToken || (may_end && is_stop)) {
            expected.cause.stop_token = token;
            return expected;
        }
        expected.tokens.push_back(token);
        text += tokenizer.bytes_of(token);
        if (const auto stop = ending(text, params.stop)) {
            expected.cause.stop_string = static_cast<std::int32_t>(*stop);
            return expected;
        }
    }
    expected.reason = actors::FinishReason::length;
    return expected;
}

}  // namespace troupe::simulation
