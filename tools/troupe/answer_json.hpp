// An answer of the local engine as JSON, for scripts.
#pragma once

#include <boost/json/object.hpp>

#include "actors/generation.hpp"

namespace troupe::tools {

// {"text", "finish_reason", "stop_reason", "seed", "usage": {...}, "timings": {...}, "logprobs"?:
// [...]}
[[nodiscard]] boost::json::object answer_json(const actors::Generation& answer,
                                              const model::DecodingParams& params,
                                              const model::Tokenizer& tokenizer);

}  // namespace troupe::tools
