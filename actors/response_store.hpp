// Responses that ended, by id, in memory: to be read again over HTTP, and to be continued by a
// later create. Bounded by number and by bytes; the oldest go first. Owned by a ResponseArchive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <string_view>
#include <unordered_map>

#include "actors/stored_response.hpp"

namespace troupe::actors {

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
