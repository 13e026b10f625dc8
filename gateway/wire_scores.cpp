#include "gateway/wire_scores.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "gateway/json_document.hpp"
#include "gateway/json_writer.hpp"

namespace troupe::gateway {
namespace {

void append_token(JsonObject& object, model::TokenId id, float logprob,
                  const model::Tokenizer& tokenizer) {
    object.text("token", token_text(tokenizer, id));
    object.number("logprob", logprob);
    std::string& out = object.field("bytes");
    out += '[';
    bool first = true;
    for (const char byte : tokenizer.bytes_of(id)) {
        if (!first) out += ',';
        first = false;
        append_json_unsigned(out, static_cast<unsigned char>(byte));
    }
    out += ']';
}

// Calls `each(item)` for every item, with commas between, in brackets.
template <class Items, class Each>
void append_list(std::string& out, const Items& items, Each each) {
    out += '[';
    bool first = true;
    for (const auto& item : items) {
        if (!first) out += ',';
        first = false;
        each(item);
    }
    out += ']';
}

double milliseconds(std::int64_t ns) {
    return static_cast<double>(ns / 1000) / 1000.0;
}

}  // namespace

std::string token_text(const model::Tokenizer& tokenizer, model::TokenId id) {
    if (tokenizer.is_control(id)) return std::string(tokenizer.piece(id));
    const std::string_view bytes = tokenizer.bytes_of(id);
    if (is_utf8(bytes)) return std::string(bytes);
    std::string text = "bytes:";
    for (const char byte : bytes)
        fmt::format_to(std::back_inserter(text), "\\x{:02x}", static_cast<unsigned char>(byte));
    return text;
}

void append_scores(std::string& out, std::span<const actors::TokenScore> scores,
                   const model::Tokenizer& tokenizer) {
    append_list(out, scores, [&](const actors::TokenScore& score) {
        JsonObject token(out);
        append_token(token, score.id, score.logprob, tokenizer);
        append_list(token.field("top_logprobs"), score.top, [&](const model::TokenLogprob& rival) {
            JsonObject top(out);
            append_token(top, rival.id, rival.logprob, tokenizer);
            top.close();
        });
        token.close();
    });
}

void append_completion_scores(std::string& out, std::span<const actors::TokenScore> scores,
                              const model::Tokenizer& tokenizer, std::int64_t text_offset) {
    JsonObject object(out);
    append_list(object.field("tokens"), scores, [&](const actors::TokenScore& score) {
        append_json_string(out, token_text(tokenizer, score.id));
    });
    append_list(object.field("token_logprobs"), scores,
                [&](const actors::TokenScore& score) { append_json_number(out, score.logprob); });
    append_list(object.field("top_logprobs"), scores, [&](const actors::TokenScore& score) {
        if (std::isnan(score.logprob)) {
            out += "null";
            return;
        }
        JsonObject top(out);
        for (const model::TokenLogprob& rival : score.top) {
            std::string name;
            append_json_string(name, token_text(tokenizer, rival.id));
            top.number(std::string_view(name).substr(1, name.size() - 2), rival.logprob);
        }
        top.close();
    });
    append_list(object.field("text_offset"), scores, [&](const actors::TokenScore& score) {
        append_json_integer(out, std::max<std::int64_t>(text_offset, 0));
        text_offset += static_cast<std::int64_t>(count_characters(tokenizer.bytes_of(score.id)));
    });
    object.close();
}

std::size_t count_characters(std::string_view text) {
    std::size_t count = 0;
    for (const char byte : text)
        count += (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
    return count;
}

void append_facts(std::string& out, const AnswerFacts& facts, const model::DecodingParams& params,
                  const ServedModel& served) {
    JsonObject object(out);
    object.text("finish_reason", to_string(facts.reason));
    const auto stop = static_cast<std::size_t>(facts.cause.stop_string);
    if (facts.cause.stop_string >= 0 && stop < params.stop.size()) {
        object.text("stop_reason", params.stop[stop]);
    } else if (facts.cause.stop_token >= 0) {
        object.integer("stop_reason", facts.cause.stop_token);
    } else {
        object.null("stop_reason");
    }
    const actors::Timings& times = facts.timings;
    object.number("ttft_ms", milliseconds(times.queued_ns + times.prefill_ns));
    object.number("queued_ms", milliseconds(times.queued_ns));
    object.number("prompt_ms", milliseconds(times.prefill_ns));
    object.number("decode_ms", milliseconds(times.decode_ns));
    // The first token comes with the prefill; the rate is that of the others.
    const std::uint32_t decoded = facts.usage.generated_tokens;
    if (decoded > 1 && times.decode_ns > 0) {
        object.number("tokens_per_second",
                      (decoded - 1) * 1e9 / static_cast<double>(times.decode_ns));
    } else {
        object.null("tokens_per_second");
    }
    object.integer("cached_tokens", facts.usage.cached_tokens);
    if (facts.dropped_messages) {
        JsonObject truncation(object.field("truncation"));
        truncation.integer("dropped_messages", *facts.dropped_messages);
        truncation.close();
    }
    if (facts.system_in_user) object.boolean("system_in_user", true);
    object.integer("draft_tokens", facts.usage.draft_tokens);
    object.integer("accepted_tokens", facts.usage.accepted_tokens);
    object.integer("seed", static_cast<std::int64_t>(params.seed));
    object.text("system_fingerprint", served.system_fingerprint);
    if (facts.best_of > 0) {
        object.integer("best_of", facts.best_of);
        object.number("mean_logprob", facts.mean_logprob);
    }
    append_params(object.field("parameters"), params);
    object.close();
}

void append_params(std::string& out, const model::DecodingParams& params) {
    JsonObject object(out);
    object.number("temperature", params.temperature);
    object.integer("top_k", params.top_k);
    object.number("top_p", params.top_p);
    object.number("min_p", params.min_p);
    object.number("typical_p", params.typical_p);
    object.number("repetition_penalty", params.repetition_penalty);
    object.number("frequency_penalty", params.frequency_penalty);
    object.number("presence_penalty", params.presence_penalty);
    object.integer("beam_width", params.beam_width);
    object.number("length_penalty", params.length_penalty);
    if (params.max_tokens < 0) {
        object.null("max_tokens");
    } else {
        object.integer("max_tokens", params.max_tokens);
    }
    object.integer("min_tokens", params.min_tokens);
    object.boolean("ignore_eos", params.ignore_eos);
    object.boolean("speculation", params.speculation);
    append_list(object.field("stop"), params.stop,
                [&](const std::string& stop) { append_json_string(out, stop); });
    append_list(object.field("stop_token_ids"), params.stop_token_ids,
                [&](model::TokenId id) { append_json_integer(out, id); });
    append_list(object.field("samplers"), params.samplers,
                [&](model::SamplerStep step) { append_json_string(out, model::to_string(step)); });
    object.close();
}

}  // namespace troupe::gateway
