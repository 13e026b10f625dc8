#include "gateway/wire_completion.hpp"

#include "gateway/json_writer.hpp"

namespace troupe::gateway {
namespace {

// OpenAI knows no other ends; `troupe` tells them apart.
std::string_view finish_reason(actors::FinishReason reason) {
    return reason == actors::FinishReason::stop ? "stop" : "length";
}

void append_counts(JsonObject& object, UsageSoFar usage) {
    object.integer("prompt_tokens", usage.prompt_tokens);
    object.integer("completion_tokens", usage.completion_tokens);
    object.integer("total_tokens", std::uint64_t{usage.prompt_tokens} + usage.completion_tokens);
}

void append_usage(std::string& out, const actors::Usage& usage) {
    JsonObject object(out);
    append_counts(object, {usage.prompt_tokens, usage.generated_tokens});
    JsonObject details(object.field("prompt_tokens_details"));
    details.integer("cached_tokens", usage.cached_tokens);
    details.close();
    JsonObject completion(object.field("completion_tokens_details"));
    completion.integer("reasoning_tokens", 0U);
    completion.integer("accepted_prediction_tokens", usage.accepted_tokens);
    completion.integer("rejected_prediction_tokens", usage.draft_tokens - usage.accepted_tokens);
    completion.close();
    object.close();
}

void append_head(JsonObject& object, const CompletionHead& head, bool chunk) {
    object.text("id", head.id);
    object.text("object", head.chat ? (chunk ? "chat.completion.chunk" : "chat.completion")
                                    : "text_completion");
    object.integer("created", head.created);
    object.text("model", head.served.id);
    object.text("system_fingerprint", head.served.system_fingerprint);
}

void append_logprobs(JsonObject& choice, const CompletionHead& head, const CompletionText& text) {
    if (!head.params.logprobs) {
        choice.null("logprobs");
    } else if (head.chat) {
        JsonObject logprobs(choice.field("logprobs"));
        append_scores(logprobs.field("content"), text.scores, head.served.tokenizer);
        logprobs.null("refusal");
        logprobs.close();
    } else {
        append_completion_scores(choice.field("logprobs"), text.scores, head.served.tokenizer,
                                 text.text_offset);
    }
}

// `write_choice(choice)` adds what follows the index.
template <class WriteChoice>
void append_chunk(std::string& out, const CompletionHead& head, std::uint32_t index,
                  MaybeUsage usage, WriteChoice write_choice) {
    JsonObject object(out);
    append_head(object, head, true);
    object.field("choices") += '[';
    JsonObject choice(out);
    choice.integer("index", index);
    write_choice(choice);
    choice.close();
    out += ']';
    if (usage) {
        JsonObject so_far(object.field("usage"));
        append_counts(so_far, *usage);
        so_far.close();
    } else if (head.include_usage) {
        object.null("usage");
    }
    object.close();
}

}  // namespace

void append_role_chunk(std::string& out, const CompletionHead& head, std::uint32_t index,
                       MaybeUsage usage) {
    append_chunk(out, head, index, usage, [](JsonObject& choice) {
        choice.json("delta", R"({"role":"assistant","content":""})");
        choice.null("logprobs");
        choice.null("finish_reason");
    });
}

void append_text_chunk(std::string& out, const CompletionHead& head, const CompletionText& text,
                       MaybeUsage usage) {
    append_chunk(out, head, text.index, usage, [&](JsonObject& choice) {
        if (head.chat) {
            JsonObject delta(choice.field("delta"));
            delta.text("content", text.text);
            delta.close();
        } else {
            choice.text("text", text.text);
        }
        append_logprobs(choice, head, text);
        choice.null("finish_reason");
    });
}

void append_finish_chunk(std::string& out, const CompletionHead& head, std::uint32_t index,
                         const AnswerFacts& facts, MaybeUsage usage) {
    append_chunk(out, head, index, usage, [&](JsonObject& choice) {
        if (head.chat) {
            choice.json("delta", "{}");
        } else {
            choice.text("text", "");
        }
        choice.null("logprobs");
        choice.text("finish_reason", finish_reason(facts.reason));
        append_facts(choice.field("troupe"), facts, head.params, head.served);
    });
}

void append_usage_chunk(std::string& out, const CompletionHead& head, const actors::Usage& usage) {
    JsonObject object(out);
    append_head(object, head, true);
    object.json("choices", "[]");
    append_usage(object.field("usage"), usage);
    object.close();
}

void append_completion(std::string& out, const CompletionHead& head,
                       std::span<const CompletionText> texts, std::span<const AnswerFacts> facts,
                       const actors::Usage& usage) {
    JsonObject object(out);
    append_head(object, head, false);
    object.field("choices") += '[';
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (i > 0) out += ',';
        JsonObject choice(out);
        choice.integer("index", texts[i].index);
        if (head.chat) {
            JsonObject message(choice.field("message"));
            message.text("role", "assistant");
            message.text("content", texts[i].text);
            message.null("refusal");
            message.close();
        } else {
            choice.text("text", texts[i].text);
        }
        append_logprobs(choice, head, texts[i]);
        choice.text("finish_reason", finish_reason(facts[i].reason));
        append_facts(choice.field("troupe"), facts[i], head.params, head.served);
        choice.close();
    }
    out += ']';
    append_usage(object.field("usage"), usage);
    object.close();
}

}  // namespace troupe::gateway
