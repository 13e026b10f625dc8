// Responses that ended, by id: to be read again over HTTP, and to be continued by a later create.
// Bounded by number and by bytes; the oldest go first. Owned by a SessionHub, on its io thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/session_events.hpp"

namespace troupe::actors {

// One turn of a conversation, with all that came before it. Turns are shared, never copied: a chain
// of n turns takes the memory of n turns, however many responses continue it.
struct Turn {
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

// 400; the same for an id that never was and for one that another principal owns.
[[nodiscard]] RequestError previous_response_not_found(std::string_view id);

// `principal` is the owner; to everybody else the response does not exist.
struct StoredResponse {
    std::uint64_t principal = 0;
    Response response;
    std::shared_ptr<const Turn> turn;
};

class ResponseStore {
 public:
    ResponseStore(std::size_t responses_max, std::size_t bytes_max)
        : responses_max_(responses_max), bytes_max_(bytes_max) {}

    // Keeps it, evicting the oldest as needed. One that is larger than the whole store is not kept.
    void put(StoredResponse stored);

    // Null where there is none, or another principal owns it.
    [[nodiscard]] const StoredResponse* find(std::string_view id, std::uint64_t principal) const;

    // False where there is none, or another principal owns it.
    bool erase(std::string_view id, std::uint64_t principal);

    [[nodiscard]] std::size_t size() const { return by_age_.size(); }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
    struct Entry {
        StoredResponse stored;
        std::size_t bytes = 0;
    };
    using Entries = std::list<Entry>;  // oldest first

    void remove(Entries::iterator entry);

    const std::size_t responses_max_;
    const std::size_t bytes_max_;
    Entries by_age_;
    // Keys are views of the entries' own ids.
    std::unordered_map<std::string_view, Entries::iterator> by_id_;
    std::size_t bytes_ = 0;
};

}  // namespace troupe::actors
