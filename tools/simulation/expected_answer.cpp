#include "tools/simulation/expected_answer.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "actors/beam_group.hpp"
#include "model/beam_search.hpp"
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

std::size_t answer_max(const actors::Submit& submit, const Room& room) {
    std::uint32_t tokens = room.sequence_tokens_max;
    const auto prompt = static_cast<std::uint32_t>(submit.prompt.size());
    if (submit.params.beams()) {
        const auto width = static_cast<std::uint32_t>(submit.params.beam_width);
        tokens = std::min(tokens, actors::beam_tokens_max(width, prompt, room.pages_total));
    }
    const std::int32_t asked = submit.params.max_tokens;
    return asked < 0 ? tokens - prompt
                     : std::min(tokens - prompt, static_cast<std::uint32_t>(asked));
}

// The search over whole sequences, computed afresh at every step.
std::vector<model::TokenId> beam_answer(const actors::Submit& submit, std::size_t count,
                                        const Room& room, std::uint32_t answer) {
    if (count == 0) return {};
    model::BeamSearch search(submit.params, std::vector{kEndToken},
                             static_cast<std::uint32_t>(count));
    std::vector<std::vector<model::TokenId>> beams{submit.prompt};
    while (!search.done()) {
        std::vector<std::vector<model::TokenLogprob>> rows;
        for (const auto& beam : beams) {
            rows.push_back(FakeBackend::oracle_row(beam, search.candidates_needed(),
                                                   room.vocabulary_size, room.window));
        }
        search.advance(rows);
        std::vector<std::vector<model::TokenId>> next;
        for (const auto& move : search.moves()) {
            next.push_back(beams[move.parent]);
            next.back().push_back(move.token);
        }
        beams = std::move(next);
    }
    const auto answers = search.answers(answer + 1);
    return answers.size() > answer ? answers[answer].tokens : std::vector<model::TokenId>{};
}

}  // namespace

ExpectedAnswer expected_answer(const actors::Submit& submit, const Room& room,
                               std::uint32_t answer) {
    ExpectedAnswer expected;
    if (submit.score_prompt)
        expected.prompt_scores = FakeBackend::oracle_scores(submit.prompt, room.window);
    if (submit.prefill_only) return expected;
    const model::DecodingParams& params = submit.params;
    const std::size_t count = answer_max(submit, room);
    const LetterTokenizer tokenizer;
    std::string text;
    for (const model::TokenId token :
         params.beams() ? beam_answer(submit, count, room, answer)
                        : FakeBackend::oracle(submit.prompt, params, submit.answer_index, count,
                                              room.vocabulary_size, room.window)) {
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
