#include "tools/troupe/decoding_flags.hpp"

#include <fmt/format.h>

#include <charconv>
#include <random>

namespace troupe::tools {
namespace {

Result<std::pair<model::TokenId, float>> parse_bias(const std::string& text) {
    model::TokenId id = 0;
    double bias = 0;
    const char* end = text.data() + text.size();
    const auto after_id = std::from_chars(text.data(), end, id);
    if (after_id.ec == std::errc() && after_id.ptr != end && *after_id.ptr == ':') {
        const auto after_bias = std::from_chars(after_id.ptr + 1, end, bias);
        if (after_bias.ec == std::errc() && after_bias.ptr == end)
            return std::pair{id, static_cast<float>(bias)};
    }
    return invalid_input(fmt::format("--logit-bias {}: wants TOKEN_ID:BIAS", text));
}

}  // namespace

void add_decoding_flags(Command& app, DecodingFlags& flags) {
    auto& p = flags.params;
    const auto group = "Decoding";
    const auto add = [&](const char* name, auto& value, const char* what) {
        app.add(name, value, what).group(group).shows_default();
    };
    add("--temperature", p.temperature, "0: always the likeliest token; up to 2");
    add("--top-k", p.top_k, "keep the K likeliest tokens; 0: all");
    add("--top-p", p.top_p, "keep the likeliest tokens whose probabilities reach P");
    add("--min-p", p.min_p, "keep tokens at least this likely, relative to the likeliest");
    add("--typical-p", p.typical_p, "locally typical sampling; 1: off");
    add("--repetition-penalty", p.repetition_penalty, "divides scores of tokens seen; 1: off");
    add("--frequency-penalty", p.frequency_penalty, "lowers scores by each use in the answer");
    add("--presence-penalty", p.presence_penalty, "lowers scores of tokens used in the answer");
    app.add("--logit-bias", flags.logit_bias, "TOKEN_ID:BIAS, -100 bans; may be repeated")
        .group(group);
    app.add("--seed", flags.seed, "the same seed gives the same answer").group(group);
    app.add("--samplers", flags.samplers, "another order of the steps above")
        .separated_by(',')
        .group(group);
    add("--beam-width", p.beam_width, "beam search with so many beams, up to 16; 1: none");
    add("--length-penalty", p.length_penalty, "beams rank by sum / length^P");
    app.add("--tokens,--max-tokens", p.max_tokens, "length of the answer in tokens").group(group);
    add("--min-tokens", p.min_tokens, "no end before this many tokens");
    app.add_switch("--ignore-eos", p.ignore_eos, "go on past the model's end tokens").group(group);
    app.add("--stop", p.stop, "end the answer at this text; may be repeated").group(group);
    app.add("--stop-token-ids", p.stop_token_ids, "end the answer at these tokens").group(group);
    app.add("--top-logprobs", p.top_logprobs, "show this many alternatives of each token")
        .group(group);
    app.add("--logprobs-mode", flags.logprobs_mode, "of the raw or the processed scores")
        .one_of({"raw", "processed"})
        .group(group);
}

Result<model::DecodingParams> decoding_params(const DecodingFlags& flags,
                                              std::int32_t vocabulary_size) {
    model::DecodingParams params = flags.params;
    params.seed = flags.seed ? static_cast<std::uint64_t>(*flags.seed) : std::random_device{}();
    for (const auto& name : flags.samplers) {
        auto step = model::parse_sampler_step(name);
        if (!step) return step.error();
        params.samplers.push_back(*step);
    }
    for (const auto& text : flags.logit_bias) {
        auto bias = parse_bias(text);
        if (!bias) return bias.error();
        params.logit_bias.push_back(*bias);
    }
    params.logprobs = params.top_logprobs > 0;
    if (flags.logprobs_mode == "processed") params.logprobs_mode = model::LogprobsMode::processed;
    if (auto valid = model::validate(params, vocabulary_size); !valid) return valid.error();
    return params;
}

}  // namespace troupe::tools
