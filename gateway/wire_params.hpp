// Reads the decoding parameters of docs/decoding.md from a request's JSON: names, aliases, ranges
// and defaults, the same at every door. Pure; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "gateway/json_document.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

// The doors differ in how log-probabilities are asked for.
enum class Door : std::uint8_t { responses, chat_completions, completions };

struct WireParams {
    model::DecodingParams params;  // `seed` is set only where seed_given
    bool seed_given = false;
    std::uint32_t answers = 1;     // n
    std::uint32_t candidates = 1;  // best_of: so many are drawn, the best n told; n without it
    bool drop_old_turns = false;   // truncation "auto"
    std::optional<std::chrono::milliseconds> deadline{};  // from the request's arrival
};

// Absent and null mean the served model's default. Errors name field, value and range.
[[nodiscard]] WireResult<WireParams> read_params(const JsonFields& fields,
                                                 const ServedModel& served, Door door);

// 404 model_not_found unless `model` is absent or a name of the served model.
[[nodiscard]] WireResult<> check_model(const JsonFields& fields, const ServedModel& served);

}  // namespace troupe::gateway
