#include "gateway/json_writer.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>

namespace troupe::gateway {
namespace {

constexpr std::array<bool, 256> make_escaped() {
    std::array<bool, 256> escaped{};
    for (std::size_t byte = 0; byte < 0x20; ++byte)
        escaped[byte] = true;
    escaped['"'] = true;
    escaped['\\'] = true;
    return escaped;
}
constexpr std::array<bool, 256> kEscaped = make_escaped();

void append_escape(std::string& out, unsigned char byte) {
    constexpr std::string_view kHex = "0123456789abcdef";
    switch (byte) {
        case '"':
            out += "\\\"";
            return;
        case '\\':
            out += "\\\\";
            return;
        case '\n':
            out += "\\n";
            return;
        case '\r':
            out += "\\r";
            return;
        case '\t':
            out += "\\t";
            return;
        default:
            out += "\\u00";
            out += kHex[byte >> 4U];
            out += kHex[byte & 0xFU];
    }
}

constexpr std::uint64_t in_each_byte(unsigned char byte) {
    return byte * 0x0101010101010101ULL;
}

// Whether one of eight bytes needs an escape: bit tricks for "below 0x20" and "is zero".
bool any_escaped(const char* eight_bytes) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, eight_bytes, sizeof bytes);
    const std::uint64_t quotes = bytes ^ in_each_byte('"');
    const std::uint64_t backslashes = bytes ^ in_each_byte('\\');
    const std::uint64_t found = ((bytes - in_each_byte(0x20)) & ~bytes) |
                                ((quotes - in_each_byte(1)) & ~quotes) |
                                ((backslashes - in_each_byte(1)) & ~backslashes);
    return (found & in_each_byte(0x80)) != 0;
}

// How many bytes stand before the first that needs an escape.
std::size_t plain_bytes(std::string_view text) {
    std::size_t i = 0;
    while (i + sizeof(std::uint64_t) <= text.size() && !any_escaped(text.data() + i))
        i += sizeof(std::uint64_t);
    while (i < text.size() && !kEscaped[static_cast<unsigned char>(text[i])])
        ++i;
    return i;
}

template <class Integer>
void append_integer(std::string& out, Integer value) {
    std::array<char, 20> digits;  // of the longest there is
    const auto [end, error] = std::to_chars(digits.begin(), digits.end(), value);
    out.append(digits.begin(), end);
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    while (true) {
        const std::size_t plain = plain_bytes(text);
        out.append(text, 0, plain);
        if (plain == text.size()) break;
        append_escape(out, static_cast<unsigned char>(text[plain]));
        text.remove_prefix(plain + 1);
    }
    out += '"';
}

void append_json_number(std::string& out, double value) {
    if (!std::isfinite(value)) {
        out += "null";
        return;
    }
    fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_json_integer(std::string& out, std::int64_t value) {
    append_integer(out, value);
}

void append_json_unsigned(std::string& out, std::uint64_t value) {
    append_integer(out, value);
}

}  // namespace troupe::gateway
