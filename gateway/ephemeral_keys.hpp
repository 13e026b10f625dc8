// Short-lived keys, which a page may have where the key itself must not go: each works on its
// owner's account until it expires, or its owner's key is taken away. Lives with the connections of
// an io thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/access.hpp"
#include "runtime/clock.hpp"

namespace troupe::gateway {

class EphemeralKeys {
 public:
    struct Owner {
        actors::Principal principal;
        Digest key{};
    };

    // "ek_" and random digits; nothing where kKeysMax are valid already.
    [[nodiscard]] std::optional<std::string> issue(const Owner& owner, runtime::TimePoint now,
                                                   std::chrono::seconds life);

    // Null where it is none, or has expired.
    [[nodiscard]] const Owner* find(std::string_view shown, runtime::TimePoint now) const;

    static constexpr std::size_t kKeysMax = 16'384;

 private:
    struct Entry {
        Owner owner;
        runtime::TimePoint expires_at;
    };
    std::map<Digest, Entry> entries_;  // by the key's digest: comparing those tells nothing
};

}  // namespace troupe::gateway
