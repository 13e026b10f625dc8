#include "model/decoding_params.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

namespace troupe::model {
namespace {

struct NamedStep {
    std::string_view name;
    SamplerStep step;
};

constexpr std::array<NamedStep, 6> kStepNames{{{"penalties", SamplerStep::penalties},
                                               {"temperature", SamplerStep::temperature},
                                               {"top_k", SamplerStep::top_k},
                                               {"typical_p", SamplerStep::typical_p},
                                               {"top_p", SamplerStep::top_p},
                                               {"min_p", SamplerStep::min_p}}};

Error out_of_range(std::string_view field, double value, std::string_view range) {
    return invalid_input(fmt::format("{} is {}, but must be {}", field, value, range));
}

// The comparisons are written so that NaN fails them.
Result<void> validate_ranges(const DecodingParams& p) {
    if (!(p.temperature >= 0 && p.temperature <= 2))
        return out_of_range("temperature", p.temperature, "between 0 and 2");
    if (p.top_k < -1) return out_of_range("top_k", p.top_k, "-1, 0 or a positive integer");
    if (!(p.top_p >= 0 && p.top_p <= 1)) return out_of_range("top_p", p.top_p, "between 0 and 1");
    if (!(p.min_p >= 0 && p.min_p <= 1)) return out_of_range("min_p", p.min_p, "between 0 and 1");
    if (!(p.typical_p > 0 && p.typical_p <= 1))
        return out_of_range("typical_p", p.typical_p, "above 0 and at most 1");
    if (!(p.repetition_penalty > 0 && std::isfinite(p.repetition_penalty)))
        return out_of_range("repetition_penalty", p.repetition_penalty, "above 0 and finite");
    if (!(p.frequency_penalty >= -2 && p.frequency_penalty <= 2))
        return out_of_range("frequency_penalty", p.frequency_penalty, "between -2 and 2");
    if (!(p.presence_penalty >= -2 && p.presence_penalty <= 2))
        return out_of_range("presence_penalty", p.presence_penalty, "between -2 and 2");
    if (p.beam_width < 1 || p.beam_width > 16)
        return out_of_range("beam_width", p.beam_width, "between 1 and 16");
    if (!(p.length_penalty >= -10 && p.length_penalty <= 10))
        return out_of_range("length_penalty", p.length_penalty, "between -10 and 10");
    if (p.max_tokens < -1) return out_of_range("max_tokens", p.max_tokens, "0 or more");
    if (p.min_tokens < 0) return out_of_range("min_tokens", p.min_tokens, "0 or more");
    if (p.top_logprobs < 0 || p.top_logprobs > 20)
        return out_of_range("top_logprobs", p.top_logprobs, "between 0 and 20");
    return {};
}

std::optional<BeamConflict> conflict(std::string_view field, double value,
                                     std::string_view allowed) {
    return BeamConflict{
        std::string(field),
        fmt::format("{} is {}, but with beam_width it must be {}", field, value, allowed)};
}

}  // namespace

std::optional<BeamConflict> find_beam_conflict(const DecodingParams& p) {
    if (!p.beams()) return std::nullopt;
    if (!p.greedy() && p.temperature != 1) return conflict("temperature", p.temperature, "0 or 1");
    if (p.top_k > 0) return conflict("top_k", p.top_k, "0 or -1");
    if (p.top_p < 1) return conflict("top_p", p.top_p, "1");
    if (p.min_p > 0) return conflict("min_p", p.min_p, "0");
    if (p.typical_p < 1) return conflict("typical_p", p.typical_p, "1");
    if (p.repetition_penalty != 1) return conflict("repetition_penalty", p.repetition_penalty, "1");
    if (p.frequency_penalty != 0) return conflict("frequency_penalty", p.frequency_penalty, "0");
    if (p.presence_penalty != 0) return conflict("presence_penalty", p.presence_penalty, "0");
    if (p.top_logprobs > 0) return conflict("top_logprobs", p.top_logprobs, "0");
    if (!p.logit_bias.empty())
        return BeamConflict{"logit_bias", "logit_bias and beam_width do not go together"};
    if (!p.samplers.empty())
        return BeamConflict{"samplers", "samplers and beam_width do not go together"};
    return std::nullopt;
}

Result<void> validate(const DecodingParams& p, std::int32_t vocabulary_size) {
    if (auto ranges = validate_ranges(p); !ranges) return ranges;
    for (const auto& [id, bias] : p.logit_bias) {
        if (id < 0 || id >= vocabulary_size)
            return out_of_range("logit_bias token", id,
                                fmt::format("a token id below {}", vocabulary_size));
        if (!(bias >= -100 && bias <= 100))
            return out_of_range("logit_bias", bias, "between -100 and 100");
    }
    if (p.stop.size() > 16)
        return out_of_range("the number of stop strings", static_cast<double>(p.stop.size()),
                            "at most 16");
    for (const auto& stop : p.stop)
        if (stop.empty())
            return invalid_input("stop holds an empty string, which matches everything");
    for (const TokenId id : p.stop_token_ids)
        if (id < 0 || id >= vocabulary_size)
            return out_of_range("stop_token_ids", id,
                                fmt::format("a token id below {}", vocabulary_size));
    if (auto clash = find_beam_conflict(p)) return invalid_input(std::move(clash->message));
    return {};
}

std::string_view to_string(SamplerStep step) {
    return kStepNames[static_cast<std::size_t>(step)].name;
}

Result<SamplerStep> parse_sampler_step(std::string_view name) {
    for (const auto& known : kStepNames)
        if (known.name == name) return known.step;
    return invalid_input(fmt::format(
        "samplers names \"{}\"; known are penalties, temperature, top_k, typical_p, top_p, min_p",
        name));
}

}  // namespace troupe::model
