// Who may connect, and on whose account: Host and Origin checks, API keys, principals. Pure
// functions and constant data after start; safe from every thread.
//
// Keys stand in a file, one a line: NAME KEY [weight=N] [rpm=N] [tpm=N] [models=A,B] [admin], where
// KEY is the key itself or "sha256:" and the 64 hex digits of its SHA-256; "#" begins a comment.
// Only digests are kept in memory.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gateway {

using Digest = std::array<std::uint8_t, 32>;

[[nodiscard]] Digest sha256(std::string_view bytes);

struct ApiKey {
    std::string name;
    Digest digest{};
    double weight = 1.0;
    std::uint32_t requests_per_minute = 0;  // rpm; 0: no limit
    std::uint32_t tokens_per_minute = 0;    // tpm; 0: no limit
    std::vector<std::string> models = {};   // what it may use; none named: all
    bool admin = false;

    // On whose account it works.
    [[nodiscard]] actors::Principal principal() const;
    friend bool operator==(const ApiKey&, const ApiKey&) = default;
};

class KeyRing {
 public:
    KeyRing() = default;
    explicit KeyRing(std::vector<ApiKey> keys) : keys_(std::move(keys)) {}

    // The file's keys; the error names the line.
    [[nodiscard]] static Result<KeyRing> load(const std::filesystem::path& path);
    [[nodiscard]] static Result<KeyRing> parse(std::string_view text);

    [[nodiscard]] bool empty() const { return keys_.empty(); }
    [[nodiscard]] const std::vector<ApiKey>& all() const { return keys_; }

    // The key a client showed, or null. Takes the same time whichever it is, and if it is none.
    [[nodiscard]] const ApiKey* find(std::string_view shown) const;
    // This very key, or null where it is none of them.
    [[nodiscard]] const ApiKey* find(const Digest& digest) const;

 private:
    std::vector<ApiKey> keys_;
};

// Names beyond the server's own address that requests may carry.
struct AllowLists {
    std::vector<std::string> hosts;    // host names, without port
    std::vector<std::string> origins;  // whole origins: "https://chat.example.org"
};

// Whether a Host header may address this server: localhost, an IP address (which no DNS answer can
// rebind) or an allowed name. An empty header is refused.
[[nodiscard]] bool host_allowed(std::string_view host_header, const AllowLists& lists);

// Whether a page of `origin` may talk to this server: its own page (same host and port as
// `host_header`) or an allowed origin.
[[nodiscard]] bool origin_allowed(std::string_view origin, std::string_view host_header,
                                  const AllowLists& lists);

// Whose address a request comes from: the peer's, or where that is a trusted proxy, the last one of
// `forwarded_for` (X-Forwarded-For, all its lines) that is none. What stands before it, anybody may
// have written.
[[nodiscard]] std::string client_address(std::string_view peer, std::string_view forwarded_for,
                                         const std::vector<std::string>& trusted_proxies);

// A stable number for a name ("key:alice", "cookie:…", "address:127.0.0.1"), keyed by a secret of
// this process so that it cannot be guessed.
[[nodiscard]] std::uint64_t principal_id(std::string_view name);

// Replaces that secret by one that outlives the process, so that owners are known again after a
// restart. At start, before the first principal_id().
void set_principal_secret(std::string secret);

// `bytes` unguessable bytes from the operating system as lower-case hex.
[[nodiscard]] std::string random_hex(std::size_t bytes);

// The token of "Bearer TOKEN", without surrounding blanks; nullopt where it is another scheme.
[[nodiscard]] std::optional<std::string_view> bearer_token(std::string_view authorization);

// A cookie's value in a Cookie header.
[[nodiscard]] std::optional<std::string_view> cookie_value(std::string_view header,
                                                           std::string_view name);

}  // namespace troupe::gateway
