#include "model/utf8.hpp"

#include "runtime/base/assert.hpp"

namespace troupe::model {

namespace {

// What a lead byte allows: how many bytes in all, and the range of the second one.
struct Lead {
    int length = 0;  // 0: no code point begins with this byte
    unsigned char second_min = 0x80;
    unsigned char second_max = 0xBF;
};

Lead classify(unsigned char byte) {
    if (byte >= 0xC2 && byte <= 0xDF) return {2};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte >= 0xE1 && byte <= 0xEF) return {3};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte >= 0xF1 && byte <= 0xF3) return {4};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {};
}

}  // namespace

Utf8Unit next_utf8(std::string_view bytes) {
    TROUPE_ASSERT(!bytes.empty());
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (first < 0x80) return {Utf8Form::complete, 1, first};
    const Lead lead = classify(first);
    if (lead.length == 0) return {Utf8Form::ill_formed, 1, 0};

    char32_t code_point = first & (0x7F >> lead.length);
    for (int i = 1; i < lead.length; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (at == bytes.size()) return {Utf8Form::incomplete, at, 0};
        const auto byte = static_cast<unsigned char>(bytes[at]);
        const unsigned char min = i == 1 ? lead.second_min : 0x80;
        const unsigned char max = i == 1 ? lead.second_max : 0xBF;
        if (byte < min || byte > max) return {Utf8Form::ill_formed, at, 0};
        code_point = (code_point << 6) | (byte & 0x3F);
    }
    return {Utf8Form::complete, static_cast<std::size_t>(lead.length), code_point};
}

std::size_t utf8_run_length(std::string_view bytes, bool well_formed) {
    std::size_t at = 0;
    while (at < bytes.size()) {
        const Utf8Unit unit = next_utf8(bytes.substr(at));
        if ((unit.form == Utf8Form::complete) != well_formed) break;
        at += unit.length;
    }
    return at;
}

void append_utf8(std::string& out, char32_t code_point) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code_point < 0x80) {
        put(code_point);
    } else if (code_point < 0x800) {
        put(0xC0 | (code_point >> 6));
        put(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        put(0xE0 | (code_point >> 12));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    } else {
        put(0xF0 | (code_point >> 18));
        put(0x80 | ((code_point >> 12) & 0x3F));
        put(0x80 | ((code_point >> 6) & 0x3F));
        put(0x80 | (code_point & 0x3F));
    }
}

}  // namespace troupe::model
