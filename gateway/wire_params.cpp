#include "gateway/wire_params.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

namespace troupe::gateway {
namespace {

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kStopStringsMax = 16;
constexpr std::size_t kTokenListMax = 1024;
constexpr std::int64_t kDeadlineMsMax = 24 * 60 * 60 * 1000;
constexpr std::int64_t kBestOfMax = 20;

WireResult<> read_number(const JsonFields& fields, std::string_view name, double least, double most,
                         double& target) {
    std::optional<double> value;
    TROUPE_TRY_ASSIGN(value, fields.number(name, least, most));
    if (value) target = *value;
    return {};
}

WireResult<> read_boolean(const JsonFields& fields, std::string_view name, bool& target) {
    std::optional<bool> value;
    TROUPE_TRY_ASSIGN(value, fields.boolean(name));
    if (value) target = *value;
    return {};
}

// Larger than an int32 is "as much as there is room for", never an overflow.
WireResult<> read_count(const JsonFields& fields, std::string_view name, std::int64_t least,
                        std::int32_t& target) {
    std::optional<std::int64_t> value;
    TROUPE_TRY_ASSIGN(value, fields.integer(name, least, kInt64Max));
    if (value) target = static_cast<std::int32_t>(std::min(*value, kInt32Max));
    return {};
}

// Zero and one that are not themselves allowed: the smallest double above 0.
constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();

WireResult<> read_sampling(const JsonFields& fields, model::DecodingParams& p) {
    struct Number {
        std::string_view name;
        double least;
        double most;
        double& target;
    };
    const Number numbers[] = {
        {"temperature", 0, 2, p.temperature},
        {"top_p", 0, 1, p.top_p},
        {"min_p", 0, 1, p.min_p},
        {"typical_p", kAboveZero, 1, p.typical_p},
        {"repetition_penalty", kAboveZero, std::numeric_limits<double>::max(),
         p.repetition_penalty},
        {"frequency_penalty", -2, 2, p.frequency_penalty},
        {"presence_penalty", -2, 2, p.presence_penalty},
    };
    for (const Number& number : numbers) {
        if (auto read = read_number(fields, number.name, number.least, number.most, number.target);
            !read)
            return read;
    }
    return read_count(fields, "top_k", -1, p.top_k);
}

WireResult<> read_lengths(const JsonFields& fields, model::DecodingParams& p) {
    // The newest name wins; an older one beside it is not even looked at.
    for (const std::string_view name :
         {"max_output_tokens", "max_completion_tokens", "max_tokens"}) {
        if (!fields.has(name)) continue;
        if (auto read = read_count(fields, name, 0, p.max_tokens); !read) return read;
        break;
    }
    if (auto read = read_count(fields, "min_tokens", 0, p.min_tokens); !read) return read;
    if (auto read = read_boolean(fields, "ignore_eos", p.ignore_eos); !read) return read;
    return read_boolean(fields, "include_stop_str_in_output", p.include_stop);
}

WireResult<> add_stop(const JsonElement& element, model::DecodingParams& p) {
    std::string_view text;
    if (element.get(text) != simdjson::SUCCESS)
        return invalid_parameter("stop", fmt::format("stop holds {}, but must be a string or a "
                                                     "list of strings.",
                                                     excerpt(element)));
    if (text.empty())
        return invalid_parameter("stop", "stop holds an empty string, which matches everything.");
    if (p.stop.size() == kStopStringsMax)
        return invalid_parameter("stop",
                                 fmt::format("stop holds more than {} strings.", kStopStringsMax));
    p.stop.emplace_back(text);
    return {};
}

WireResult<> read_stops(const JsonFields& fields, model::DecodingParams& p) {
    const auto value = fields.find("stop");
    if (!value) return {};
    p.stop.clear();
    simdjson::dom::array list;
    if (value->get(list) != simdjson::SUCCESS) return add_stop(*value, p);
    for (const JsonElement element : list) {
        if (auto added = add_stop(element, p); !added) return added;
    }
    return {};
}

WireResult<> read_stop_tokens(const JsonFields& fields, std::int64_t vocabulary_size,
                              model::DecodingParams& p) {
    const auto value = fields.find("stop_token_ids");
    if (!value) return {};
    const auto refuse = [&](const JsonElement& what) {
        return invalid_parameter(
            "stop_token_ids",
            fmt::format("stop_token_ids has {}, but must be a list of at most {} integers between "
                        "0 and {}.",
                        excerpt(what), kTokenListMax, vocabulary_size - 1));
    };
    p.stop_token_ids.clear();
    simdjson::dom::array list;
    if (value->get(list) != simdjson::SUCCESS || list.size() > kTokenListMax) return refuse(*value);
    for (const JsonElement element : list) {
        std::int64_t id = 0;
        if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= vocabulary_size)
            return refuse(element);
        p.stop_token_ids.push_back(static_cast<model::TokenId>(id));
    }
    return {};
}

// {"token id": bias, ...}; a key that comes twice counts once, the last.
WireResult<> read_logit_bias(const JsonFields& fields, std::int64_t vocabulary_size,
                             model::DecodingParams& p) {
    const auto value = fields.find("logit_bias");
    if (!value) return {};
    simdjson::dom::object object;
    if (value->get(object) != simdjson::SUCCESS || object.size() > kTokenListMax)
        return invalid_parameter("logit_bias",
                                 fmt::format("logit_bias is {}, but must be an object of at most "
                                             "{} token ids with a number each.",
                                             excerpt(*value), kTokenListMax));
    p.logit_bias.clear();
    for (const simdjson::dom::key_value_pair field : object) {
        std::int64_t id = -1;
        const auto [end, code] =
            std::from_chars(field.key.data(), field.key.data() + field.key.size(), id);
        if (code != std::errc() || end != field.key.data() + field.key.size() || id < 0 ||
            id >= vocabulary_size)
            return invalid_parameter(
                "logit_bias",
                fmt::format("logit_bias names the token \"{}\", but a token id is an integer "
                            "between 0 and {}.",
                            field.key.substr(0, 40), vocabulary_size - 1));
        double bias = 0;
        if (field.value.get(bias) != simdjson::SUCCESS || !(bias >= -100 && bias <= 100))
            return invalid_parameter(
                "logit_bias", fmt::format("logit_bias of token {} is {}, but must be a number "
                                          "between -100 and 100.",
                                          id, excerpt(field.value)));
        const auto token = static_cast<model::TokenId>(id);
        std::erase_if(p.logit_bias, [token](const auto& entry) { return entry.first == token; });
        p.logit_bias.emplace_back(token, static_cast<float>(bias));
    }
    return {};
}

WireResult<> read_samplers(const JsonFields& fields, model::DecodingParams& p) {
    const auto value = fields.find("samplers");
    if (!value) return {};
    simdjson::dom::array list;
    if (value->get(list) != simdjson::SUCCESS)
        return invalid_parameter("samplers", fmt::format("samplers is {}, but must be a list of "
                                                         "step names.",
                                                         excerpt(*value)));
    p.samplers.clear();
    for (const JsonElement element : list) {
        std::string_view name;
        if (element.get(name) != simdjson::SUCCESS)
            return invalid_parameter("samplers", fmt::format("samplers holds {}, but must hold "
                                                             "step names.",
                                                             excerpt(element)));
        const auto step = model::parse_sampler_step(name.substr(0, 40));
        if (!step) return invalid_parameter("samplers", step.error().message);
        if (std::find(p.samplers.begin(), p.samplers.end(), *step) != p.samplers.end())
            return invalid_parameter("samplers", fmt::format("samplers names \"{}\" twice.", name));
        p.samplers.push_back(*step);
    }
    return {};
}

// chat: logprobs true + top_logprobs. completions: logprobs is the number. responses: top_logprobs,
// or `include` naming message.output_text.logprobs.
WireResult<> read_logprobs(const JsonFields& fields, Door door, model::DecodingParams& p) {
    std::optional<std::int64_t> top;
    if (door == Door::completions) {
        TROUPE_TRY_ASSIGN(top, fields.integer("logprobs", 0, 20));
        if (top) p.logprobs = true;
    } else {
        TROUPE_TRY_ASSIGN(top, fields.integer("top_logprobs", 0, 20));
    }
    if (door == Door::chat_completions) {
        if (auto read = read_boolean(fields, "logprobs", p.logprobs); !read) return read;
        if (top.value_or(0) > 0 && !p.logprobs)
            return invalid_parameter("top_logprobs", "top_logprobs needs logprobs to be true.");
    }
    if (door == Door::responses) {
        if (top.value_or(0) > 0) p.logprobs = true;
        simdjson::dom::array include;
        if (const auto value = fields.find("include");
            value && value->get(include) == simdjson::SUCCESS) {
            for (const JsonElement element : include) {
                std::string_view name;
                if (element.get(name) == simdjson::SUCCESS &&
                    name == "message.output_text.logprobs")
                    p.logprobs = true;
            }
        }
    }
    if (top) p.top_logprobs = static_cast<std::int32_t>(*top);

    std::optional<std::string> mode;
    TROUPE_TRY_ASSIGN(mode, fields.string("logprobs_mode"));
    if (!mode) return {};
    if (*mode != "raw" && *mode != "processed")
        return invalid_parameter("logprobs_mode",
                                 fmt::format("logprobs_mode is \"{}\", but must be \"raw\" or "
                                             "\"processed\".",
                                             mode->substr(0, 40)));
    p.logprobs_mode = *mode == "raw" ? model::LogprobsMode::raw : model::LogprobsMode::processed;
    return {};
}

WireResult<> read_beams(const JsonFields& fields, model::DecodingParams& p) {
    std::optional<std::int64_t> width;
    TROUPE_TRY_ASSIGN(width, fields.integer("beam_width", 1, 16));
    if (width) p.beam_width = static_cast<std::int32_t>(*width);
    return read_number(fields, "length_penalty", -10, 10, p.length_penalty);
}

WireResult<> read_answers(const JsonFields& fields, const ServedModel& served, WireParams& read) {
    std::optional<std::int64_t> n;
    TROUPE_TRY_ASSIGN(n, fields.integer("n", 1, served.limits.answers_max));
    std::optional<std::int64_t> best_of;
    TROUPE_TRY_ASSIGN(best_of, fields.integer("best_of", 1, kBestOfMax));
    read.answers = static_cast<std::uint32_t>(n.value_or(1));
    read.candidates = best_of ? static_cast<std::uint32_t>(*best_of) : read.answers;
    if (read.candidates < read.answers)
        return invalid_parameter("best_of", fmt::format("best_of is {}, but must be at least n, "
                                                        "which is {}.",
                                                        read.candidates, read.answers));
    if (!read.params.beams()) return {};
    if (read.candidates != read.answers)
        return invalid_parameter("best_of",
                                 fmt::format("best_of is {}, but with beam_width it must be n, "
                                             "which is {}.",
                                             read.candidates, read.answers));
    const auto width = static_cast<std::uint32_t>(read.params.beam_width);
    if (read.answers > width)
        return invalid_parameter("n", fmt::format("n is {}, but with a beam_width of {} it must "
                                                  "be between 1 and {}.",
                                                  read.answers, width, width));
    return {};
}

// What of a conversation that is too long may be left out. A completion's prompt has no turns.
WireResult<> read_truncation(const JsonFields& fields, Door door, bool& drop_old_turns) {
    std::optional<std::string> truncation;
    TROUPE_TRY_ASSIGN(truncation, fields.string("truncation"));
    if (!truncation || *truncation == "disabled") return {};
    if (*truncation != "auto")
        return invalid_parameter("truncation",
                                 fmt::format("truncation is \"{}\", but must be \"auto\" or "
                                             "\"disabled\".",
                                             truncation->substr(0, 40)));
    if (door == Door::completions)
        return unsupported("truncation",
                           "truncation \"auto\" leaves out old turns, but a completion's prompt "
                           "has none.");
    drop_old_turns = true;
    return {};
}

WireResult<> read_deadline(const JsonFields& fields,
                           std::optional<std::chrono::milliseconds>& deadline) {
    std::optional<std::int64_t> value;
    TROUPE_TRY_ASSIGN(value, fields.integer("deadline_ms", 1, kDeadlineMsMax));
    if (value) deadline = std::chrono::milliseconds(*value);
    return {};
}

}  // namespace

WireResult<WireParams> read_params(const JsonFields& fields, const ServedModel& served, Door door) {
    WireParams read{.params = served.defaults};
    model::DecodingParams& p = read.params;
    const std::int64_t vocabulary_size = served.tokenizer.vocabulary_size();
    if (auto done = read_sampling(fields, p); !done) return done.error();
    if (auto done = read_lengths(fields, p); !done) return done.error();
    if (auto done = read_stops(fields, p); !done) return done.error();
    if (auto done = read_stop_tokens(fields, vocabulary_size, p); !done) return done.error();
    if (auto done = read_logit_bias(fields, vocabulary_size, p); !done) return done.error();
    if (auto done = read_samplers(fields, p); !done) return done.error();
    if (auto done = read_logprobs(fields, door, p); !done) return done.error();
    if (auto done = read_beams(fields, p); !done) return done.error();
    if (auto done = read_answers(fields, served, read); !done) return done.error();
    if (auto done = read_truncation(fields, door, read.drop_old_turns); !done) return done.error();
    if (auto done = read_deadline(fields, read.deadline); !done) return done.error();
    if (auto done = read_boolean(fields, "speculation", p.speculation); !done) return done.error();
    std::optional<std::int64_t> seed;
    TROUPE_TRY_ASSIGN(seed, fields.integer("seed", kInt64Min, kInt64Max));
    if (seed) p.seed = static_cast<std::uint64_t>(*seed);
    read.seed_given = seed.has_value();
    if (auto clash = model::find_beam_conflict(p))
        return invalid_parameter(clash->field, clash->message + ".");
    if (auto valid = model::validate(p, served.tokenizer.vocabulary_size()); !valid)
        return invalid_parameter({}, valid.error().message);
    return read;
}

WireResult<> check_model(const JsonFields& fields, const ServedModel& served) {
    std::optional<std::string> name;
    TROUPE_TRY_ASSIGN(name, fields.string("model"));
    if (!name || served.answers_to(*name)) return {};
    return actors::RequestError{
        .status = 404,
        .code = "model_not_found",
        .message = fmt::format("The model \"{}\" is not served here; this server has \"{}\".",
                               name->substr(0, 100), served.id),
        .param = "model"};
}

}  // namespace troupe::gateway
