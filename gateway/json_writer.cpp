#include "gateway/json_writer.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
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

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    std::size_t copied = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (!kEscaped[byte]) continue;
        out.append(text, copied, i - copied);
        append_escape(out, byte);
        copied = i + 1;
    }
    out.append(text, copied, text.size() - copied);
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
    fmt::format_to(std::back_inserter(out), "{}", value);
}

void append_json_unsigned(std::string& out, std::uint64_t value) {
    fmt::format_to(std::back_inserter(out), "{}", value);
}

}  // namespace troupe::gateway
