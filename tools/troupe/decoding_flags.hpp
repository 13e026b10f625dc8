// Decoding parameters as command-line flags: the names of docs/decoding.md with dashes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/decoding_params.hpp"
#include "tools/troupe/flags.hpp"

namespace troupe::tools {

struct DecodingFlags {
    model::DecodingParams params;
    std::optional<std::int64_t> seed;  // absent: chosen, and told
    std::vector<std::string> samplers;
    std::vector<std::string> logit_bias;  // "ID:BIAS"
    std::string logprobs_mode = "raw";
};

void add_decoding_flags(Command& app, DecodingFlags& flags);

// The checked parameters; the error names the flag, its value and its range.
[[nodiscard]] Result<model::DecodingParams> decoding_params(const DecodingFlags& flags,
                                                            std::int32_t vocabulary_size);

}  // namespace troupe::tools
