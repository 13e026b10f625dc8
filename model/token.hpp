// The one type that every layer shares: a token's id in the model's vocabulary.
#pragma once

#include <cstdint>

namespace troupe::model {

using TokenId = std::int32_t;

}  // namespace troupe::model
