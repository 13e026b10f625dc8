// Chat completions and completions on the wire: reads their bodies, writes their objects and chunks
// in OpenAI's form. Pure; any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gateway/json_document.hpp"
#include "gateway/served_model.hpp"
#include "gateway/wire_scores.hpp"
#include "model/chat_message.hpp"

namespace troupe::gateway {

// A prompt of /v1/completions: text, or token ids as they are.
using CompletionPrompt = std::variant<std::string, std::vector<model::TokenId>>;

struct CompletionRequest {
    bool chat = true;
    std::vector<model::ChatMessage> messages;  // chat
    std::string tools_json;                    // chat: what the model may call; empty: nothing
    std::vector<CompletionPrompt> prompts;     // completions
    model::DecodingParams params;
    bool seed_given = false;
    std::uint32_t answers = 1;     // n, for each prompt
    std::uint32_t candidates = 1;  // best_of, for each prompt: n or more
    bool drop_old_turns = false;
    std::optional<std::chrono::milliseconds> deadline;  // from the request's arrival
    bool stream = false;
    bool include_usage = false;
    bool continuous_usage = false;  // and so far, in every chunk
    bool echo = false;              // completions: the prompt stands before the answer

    [[nodiscard]] bool ranks() const { return candidates > answers; }
    [[nodiscard]] bool scores_prompts() const { return echo && params.logprobs; }
};

[[nodiscard]] WireResult<CompletionRequest> read_chat_body(std::string_view body,
                                                           const ServedModel& served);
[[nodiscard]] WireResult<CompletionRequest> read_completion_body(std::string_view body,
                                                                 const ServedModel& served);

// What all objects of one call share.
struct CompletionHead {
    bool chat = true;
    bool include_usage = false;
    std::string id;
    std::int64_t created = 0;  // Unix seconds
    const ServedModel& served;
    const model::DecodingParams& params;
};

// A stretch of an answer, or all of it.
struct CompletionText {
    std::uint32_t index = 0;  // of the choice
    std::string_view text;
    std::span<const actors::TokenScore> scores;
    std::int64_t text_offset = 0;  // characters of this choice before the first of `scores`
};

// What a choice has cost so far; absent where the client has not asked for it in every chunk.
struct UsageSoFar {
    std::uint32_t prompt_tokens = 0;
    std::uint32_t completion_tokens = 0;
};
using MaybeUsage = std::optional<UsageSoFar>;

// One chunk each: {role: "assistant", content: ""} · text · the end · usage alone.
void append_role_chunk(std::string& out, const CompletionHead& head, std::uint32_t index,
                       MaybeUsage usage);
void append_text_chunk(std::string& out, const CompletionHead& head, const CompletionText& text,
                       MaybeUsage usage);
void append_finish_chunk(std::string& out, const CompletionHead& head, std::uint32_t index,
                         const AnswerFacts& facts, MaybeUsage usage);
void append_usage_chunk(std::string& out, const CompletionHead& head, const actors::Usage& usage);

// The whole object, of all choices in order; equally many texts and facts.
void append_completion(std::string& out, const CompletionHead& head,
                       std::span<const CompletionText> texts, std::span<const AnswerFacts> facts,
                       const actors::Usage& usage);

}  // namespace troupe::gateway
