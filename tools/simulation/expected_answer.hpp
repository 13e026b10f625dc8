// What a client must get for a request, worked out from the fake model's oracle and the rules of
// docs/decoding.md by the plainest code there is: no batches, no pages, no streaming.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/messages.hpp"
#include "model/attention_window.hpp"

namespace troupe::simulation {

struct ExpectedAnswer {
    std::vector<model::TokenId> tokens;  // as the client hears them: without an end token
    std::vector<float> prompt_scores;    // where they are asked for
    actors::FinishReason reason = actors::FinishReason::stop;
    actors::StopCause cause;
};

// What bounds an answer beside its own parameters.
struct Room {
    std::uint32_t sequence_tokens_max = 0;  // what context and pool allow for prompt and answer
    std::uint32_t pages_total = 0;
    std::int32_t vocabulary_size = 0;
    model::AttentionWindow window{};
};

// `answer`: of Submit::answers, which one.
[[nodiscard]] ExpectedAnswer expected_answer(const actors::Submit& submit, const Room& room,
                                             std::uint32_t answer = 0);

}  // namespace troupe::simulation
