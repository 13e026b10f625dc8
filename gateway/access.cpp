#include "gateway/access.hpp"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "runtime/base/assert.hpp"

namespace troupe::gateway {
namespace {

std::string_view trimmed(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](char x, char y) { return lower(x) == lower(y); });
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
    Digest digest{};
    if (hex.size() != 2 * digest.size()) return std::nullopt;
    for (std::size_t i = 0; i < digest.size(); ++i) {
        const char* first = hex.data() + 2 * i;
        if (std::from_chars(first, first + 2, digest[i], 16).ptr != first + 2) return std::nullopt;
    }
    return digest;
}

// "host:port" and "[v6]:port" without the port.
std::string_view host_of(std::string_view host_header) {
    if (host_header.starts_with('[')) {
        const auto close = host_header.find(']');
        return close == std::string_view::npos ? std::string_view{}
                                               : host_header.substr(1, close - 1);
    }
    return host_header.substr(0, host_header.find(':'));
}

std::string& principal_secret() {
    static std::string secret = random_hex(16);
    return secret;
}

Result<void> parse_limit(std::string_view name, std::string_view value, std::uint32_t& limit) {
    const char* end = value.data() + value.size();
    const auto parsed = std::from_chars(value.data(), end, limit);
    if (parsed.ptr != end || parsed.ec != std::errc() || limit == 0)
        return invalid_input(fmt::format("{} must be an integer above 0", name));
    return {};
}

// One of the words after NAME KEY.
Result<void> parse_option(std::string_view word, ApiKey& key) {
    const auto equals = std::min(word.find('='), word.size());
    const auto name = word.substr(0, equals);
    const auto value = word.substr(std::min(equals + 1, word.size()));
    if (name == "rpm") return parse_limit(name, value, key.requests_per_minute);
    if (name == "tpm") return parse_limit(name, value, key.tokens_per_minute);
    if (word == "admin") {
        key.admin = true;
        return {};
    }
    if (name == "weight") {
        const char* end = value.data() + value.size();
        if (std::from_chars(value.data(), end, key.weight).ptr != end ||
            !(key.weight >= 0.01 && key.weight <= 100))
            return invalid_input("weight must be between 0.01 and 100");
        return {};
    }
    if (name != "models") return invalid_input(fmt::format("unknown word \"{}\"", word));
    for (auto rest = value; !rest.empty();) {
        const auto end = std::min(rest.find(','), rest.size());
        if (end > 0) key.models.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (key.models.empty()) return invalid_input("models wants names, with commas between them");
    return {};
}

Result<ApiKey> parse_key_line(std::string_view line) {
    std::istringstream words{std::string(line)};
    ApiKey key;
    std::string secret;
    if (!(words >> key.name >> secret))
        return invalid_input("expected NAME KEY [weight=N] [rpm=N] [tpm=N] [models=A,B] [admin]");
    if (constexpr std::string_view tag = "sha256:"; secret.starts_with(tag)) {
        const auto digest = digest_from_hex(std::string_view(secret).substr(tag.size()));
        if (!digest) return invalid_input("sha256: wants 64 hex digits");
        key.digest = *digest;
    } else if (secret.size() < 16) {
        return invalid_input(
            fmt::format("the key of \"{}\" is shorter than 16 characters", key.name));
    } else {
        key.digest = sha256(secret);
    }
    for (std::string word; words >> word;)
        if (auto parsed = parse_option(word, key); !parsed) return parsed.error();
    return key;
}

// An address as everybody writes it; empty where it is none.
std::string canonical_address(std::string_view text) {
    boost::system::error_code error;
    const auto address = boost::asio::ip::make_address(text, error);
    return error ? std::string() : address.to_string();
}

}  // namespace

void set_principal_secret(std::string secret) {
    principal_secret() = std::move(secret);
}

Digest sha256(std::string_view bytes) {
    Digest digest;
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
    return digest;
}

Result<KeyRing> KeyRing::load(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file)
        return Error{ErrorKind::io, fmt::format("cannot read the key file {}", path.string())};
    std::ostringstream text;
    text << file.rdbuf();
    auto ring = parse(text.str());
    if (!ring)
        return Error{ring.error().kind, fmt::format("{}: {}", path.string(), ring.error().message)};
    return ring;
}

Result<KeyRing> KeyRing::parse(std::string_view text) {
    std::vector<ApiKey> keys;
    int number = 0;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        const auto whole = text.substr(0, end);
        const auto line = trimmed(whole.substr(0, whole.find('#')));
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        if (line.empty()) continue;
        auto key = parse_key_line(line);
        if (!key) return invalid_input(fmt::format("line {}: {}", number, key.error().message));
        if (std::any_of(keys.begin(), keys.end(), [&](auto& k) { return k.name == key->name; }))
            return invalid_input(
                fmt::format("line {}: the name \"{}\" stands twice", number, key->name));
        keys.push_back(std::move(*key));
    }
    if (keys.empty()) return invalid_input("holds no key");
    return KeyRing(std::move(keys));
}

actors::Principal ApiKey::principal() const {
    return {.id = principal_id("key:" + name),
            .weight = weight,
            .requests_per_minute = requests_per_minute,
            .tokens_per_minute = tokens_per_minute};
}

const ApiKey* KeyRing::find(const Digest& digest) const {
    const auto found = std::find_if(keys_.begin(), keys_.end(),
                                    [&digest](const ApiKey& key) { return key.digest == digest; });
    return found != keys_.end() ? &*found : nullptr;
}

const ApiKey* KeyRing::find(std::string_view shown) const {
    const Digest digest = sha256(shown);
    const ApiKey* found = nullptr;
    for (const ApiKey& key : keys_)
        if (CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0) found = &key;
    return found;
}

bool host_allowed(std::string_view host_header, const AllowLists& lists) {
    const std::string_view host = host_of(host_header);
    if (host.empty()) return false;
    if (equal_ignoring_case(host, "localhost")) return true;
    boost::system::error_code not_an_address;
    boost::asio::ip::make_address(host, not_an_address);
    if (!not_an_address) return true;
    return std::any_of(lists.hosts.begin(), lists.hosts.end(),
                       [&](const auto& allowed) { return equal_ignoring_case(allowed, host); });
}

bool origin_allowed(std::string_view origin, std::string_view host_header,
                    const AllowLists& lists) {
    for (const std::string_view scheme : {"http://", "https://"})
        if (origin.starts_with(scheme) &&
            equal_ignoring_case(origin.substr(scheme.size()), host_header))
            return true;
    return std::any_of(lists.origins.begin(), lists.origins.end(),
                       [&](const auto& allowed) { return equal_ignoring_case(allowed, origin); });
}

std::string client_address(std::string_view peer, std::string_view forwarded_for,
                           const std::vector<std::string>& trusted_proxies) {
    const auto trusted = [&](const std::string& address) {
        return std::any_of(trusted_proxies.begin(), trusted_proxies.end(),
                           [&](const auto& proxy) { return canonical_address(proxy) == address; });
    };
    std::string client(peer);
    while (trusted(client) && !forwarded_for.empty()) {
        const auto comma = forwarded_for.rfind(',');
        const auto last = comma == std::string_view::npos ? 0 : comma + 1;
        std::string before = canonical_address(trimmed(forwarded_for.substr(last)));
        if (before.empty()) break;
        client = std::move(before);
        forwarded_for = forwarded_for.substr(0, last == 0 ? 0 : last - 1);
    }
    return client;
}

std::uint64_t principal_id(std::string_view name) {
    const Digest digest = sha256(principal_secret() + std::string(name));
    std::uint64_t id = 0;
    for (std::size_t i = 0; i < 8; ++i)
        id = id << 8 | digest[i];
    return id;
}

std::string random_hex(std::size_t bytes) {
    std::vector<unsigned char> raw(bytes);
    TROUPE_ASSERT(RAND_bytes(raw.data(), static_cast<int>(bytes)) == 1, "no entropy");
    std::string hex;
    for (const unsigned char byte : raw)
        fmt::format_to(std::back_inserter(hex), "{:02x}", byte);
    return hex;
}

std::optional<std::string_view> bearer_token(std::string_view authorization) {
    constexpr std::string_view scheme = "bearer ";
    if (authorization.size() < scheme.size() ||
        !equal_ignoring_case(authorization.substr(0, scheme.size()), scheme))
        return std::nullopt;
    return trimmed(authorization.substr(scheme.size()));
}

std::optional<std::string_view> cookie_value(std::string_view header, std::string_view name) {
    while (!header.empty()) {
        const auto end = std::min(header.find(';'), header.size());
        const auto pair = trimmed(header.substr(0, end));
        header.remove_prefix(std::min(end + 1, header.size()));
        if (pair.size() > name.size() && pair.starts_with(name) && pair[name.size()] == '=')
            return pair.substr(name.size() + 1);
    }
    return std::nullopt;
}

}  // namespace troupe::gateway
