#include "gateway/ephemeral_keys.hpp"

namespace troupe::gateway {

std::optional<std::string> EphemeralKeys::issue(const Owner& owner, runtime::TimePoint now,
                                                std::chrono::seconds life) {
    if (entries_.size() >= kKeysMax)
        std::erase_if(entries_,
                      [now](const auto& entry) { return entry.second.expires_at <= now; });
    if (entries_.size() >= kKeysMax) return std::nullopt;
    std::string key = "ek_" + random_hex(24);
    entries_.emplace(sha256(key), Entry{owner, now + life});
    return key;
}

const EphemeralKeys::Owner* EphemeralKeys::find(std::string_view shown,
                                                runtime::TimePoint now) const {
    const auto found = entries_.find(sha256(shown));
    if (found == entries_.end() || found->second.expires_at <= now) return nullptr;
    return &found->second.owner;
}

}  // namespace troupe::gateway
