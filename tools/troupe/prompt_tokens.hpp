// A prompt of the command line as tokens.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {

// Plain text with BOS where the model wants one or, as `chat`, one turn of a user. Errors: no
// tokens at all; what the chat template refuses.
[[nodiscard]] Result<std::vector<model::TokenId>> prompt_tokens(const LoadedModel& loaded,
                                                                std::string_view prompt, bool chat);

}  // namespace troupe::tools
