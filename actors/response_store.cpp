#include "actors/response_store.hpp"

#include <iterator>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {

std::vector<model::ChatMessage> Turn::messages() const {
    std::vector<const Turn*> turns;
    for (const Turn* turn = this; turn != nullptr; turn = turn->before.get())
        turns.push_back(turn);
    std::vector<model::ChatMessage> all;
    for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
        all.insert(all.end(), (*turn)->input.begin(), (*turn)->input.end());
        if ((*turn)->answered) all.push_back({.role = "assistant", .content = (*turn)->answer});
    }
    return all;
}

std::vector<model::ChatMessage> conversation(const std::optional<std::string>& instructions,
                                             const Turn* before,
                                             const std::vector<model::ChatMessage>& input) {
    std::vector<model::ChatMessage> all;
    if (instructions) all.push_back({.role = "system", .content = *instructions});
    if (before != nullptr) {
        for (model::ChatMessage& message : before->messages())
            all.push_back(std::move(message));
    }
    all.insert(all.end(), input.begin(), input.end());
    return all;
}

std::size_t turn_bytes(const Turn& turn) {
    std::size_t bytes = sizeof turn + turn.id.size() + turn.answer.size();
    for (const model::ChatMessage& message : turn.input)
        bytes += sizeof message + message.content.size() + message.tool_calls_json.size() +
                 message.reasoning.size();
    return bytes;
}

std::size_t stored_bytes(const StoredResponse& stored) {
    constexpr std::size_t kFixedBytes = 256;  // the index, allocations
    std::size_t bytes = kFixedBytes + sizeof stored + stored.json.size();
    for (const Turn* turn = stored.turn.get(); turn != nullptr; turn = turn->before.get())
        bytes += turn_bytes(*turn);
    return bytes;
}

void ResponseStore::put(StoredResponse stored) {
    const std::size_t bytes = stored_bytes(stored);
    erase(stored.id, stored.principal);
    if (bytes > bytes_max_ || responses_max_ == 0) return;
    while (by_age_.size() >= responses_max_ || bytes_ + bytes > bytes_max_)
        remove(by_age_.begin());
    by_age_.push_back({std::move(stored), bytes});
    bytes_ += bytes;
    const auto entry = std::prev(by_age_.end());
    const bool added = by_id_.emplace(entry->stored.id, entry).second;
    TROUPE_ASSERT(added, "response ids are unique");
}

const StoredResponse* ResponseStore::find(std::string_view id, std::uint64_t principal) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->stored.principal != principal) return nullptr;
    return &found->second->stored;
}

bool ResponseStore::erase(std::string_view id, std::uint64_t principal) {
    if (find(id, principal) == nullptr) return false;
    remove(by_id_.find(id)->second);
    return true;
}

void ResponseStore::remove(Entries::iterator entry) {
    by_id_.erase(entry->stored.id);
    bytes_ -= entry->bytes;
    by_age_.erase(entry);
}

}  // namespace troupe::actors
