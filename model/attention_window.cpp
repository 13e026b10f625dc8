#include "model/attention_window.hpp"

#include <fmt/format.h>

namespace troupe::model {

Result<> check_window(const AttentionWindow& window, std::uint32_t trained) {
    const std::uint64_t tokens = std::uint64_t{window.tokens} + window.sinks;
    if (!window.bounded() || tokens <= trained) return {};
    return invalid_input(
        fmt::format("a window of {} tokens and {} sinks is more than the {} tokens that the model "
                    "was trained for: lower --window",
                    window.tokens, window.sinks, trained));
}

}  // namespace troupe::model
