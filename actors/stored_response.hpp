// What is kept of a response that ended: plain values, as sessions, the archive and the storage
// pass them around.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat_message.hpp"

namespace troupe::actors {

// One turn of a conversation, with all that came before it. Turns are shared, never copied: a chain
// of n turns takes the memory of n turns, however many responses continue it.
struct Turn {
    std::string id;  // of the response whose turn it is
    std::shared_ptr<const Turn> before;
    std::vector<model::ChatMessage> input;
    std::string answer;
    bool answered = false;  // false: nothing was generated, `answer` is no message

    // Everything that this turn and those before it said, oldest first.
    [[nodiscard]] std::vector<model::ChatMessage> messages() const;
};

// What a create is answered from: instructions as a system message, all turns before (null: none),
// then the new input.
[[nodiscard]] std::vector<model::ChatMessage> conversation(
    const std::optional<std::string>& instructions, const Turn* before,
    const std::vector<model::ChatMessage>& input);

// `principal` is the owner; to everybody else the response does not exist.
struct StoredResponse {
    std::uint64_t principal = 0;
    std::string id;
    std::int64_t created_at = 0;       // Unix seconds
    bool completed = true;             // else incomplete: which terminal event it had
    std::uint64_t last_sequence = 0;   // of its terminal event
    std::string json;                  // the response object, as clients read it
    std::shared_ptr<const Turn> turn;  // never null
};

// What became of the wish to keep a response.
enum class Keeping : std::uint8_t {
    kept,
    pending,  // with the storage: the answer comes later
    refused,  // the storage has too much to do
};

// Its memory, about, with all turns that it keeps alive, also those that others keep, too.
[[nodiscard]] std::size_t stored_bytes(const StoredResponse& stored);
[[nodiscard]] std::size_t turn_bytes(const Turn& turn);  // without those before it

}  // namespace troupe::actors
