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
    actors::FinishReason reason = actors::FinishReason::stop;
    actors::StopCause cause;
};

// `sequence_tokens_max`: what context and pool allow for prompt and answer together.
[[nodiscard]] ExpectedAnswer expected_answer(const actors::Submit& submit,
                                             std::uint32_t sequence_tokens_max,
                                             std::int32_t vocabulary_size,
                                             model::AttentionWindow window);

}  // namespace troupe::simulation
