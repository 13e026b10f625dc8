#include "model/byte_level.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "model/utf8.hpp"

namespace troupe::model {

namespace {

constexpr std::size_t spellings_end = 0x144;  // the last one is U+0143

constexpr bool spells_itself(unsigned byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_spellings() {
    std::array<char32_t, 256> spellings{};
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
        spellings[byte] = spells_itself(byte) ? char32_t{byte} : next++;
    }
    return spellings;
}

constexpr std::array<int, spellings_end> make_bytes() {
    std::array<int, spellings_end> bytes{};
    bytes.fill(-1);
    const auto spellings = make_spellings();
    for (unsigned byte = 0; byte < 256; ++byte)
        bytes[spellings[byte]] = static_cast<int>(byte);
    return bytes;
}

constexpr std::array<char32_t, 256> spelling_of_byte = make_spellings();
constexpr std::array<int, spellings_end> byte_of_spelling = make_bytes();

}  // namespace

void append_byte_spelling(std::string& out, unsigned char byte) {
    append_utf8(out, spelling_of_byte[byte]);
}

std::string byte_piece(unsigned byte) {
    return fmt::format("<0x{:02X}>", byte);
}

std::size_t marked_word_length(std::string_view text) {
    std::size_t at = 0;
    while (text.substr(at).starts_with(space_mark))
        at += space_mark.size();
    return std::min(text.find(space_mark, at), text.size());
}

void append_marked_bytes(std::string& out, std::string_view piece, bool is_byte) {
    unsigned byte = 0;
    if (is_byte && piece.size() == 6 && piece.starts_with("<0x") &&
        std::from_chars(piece.data() + 3, piece.data() + 5, byte, 16).ptr == piece.data() + 5) {
        out.push_back(static_cast<char>(byte));
        return;
    }
    while (!piece.empty()) {
        const std::size_t length = piece.starts_with(space_mark) ? space_mark.size() : 1;
        out.push_back(length > 1 ? ' ' : piece[0]);
        piece.remove_prefix(length);
    }
}

void append_spelled_bytes(std::string& out, std::string_view piece) {
    const std::size_t begin = out.size();
    for (std::size_t at = 0; at < piece.size();) {
        const Utf8Unit unit = next_utf8(piece.substr(at));
        const bool spells = unit.form == Utf8Form::complete && unit.code_point < spellings_end &&
                            byte_of_spelling[unit.code_point] >= 0;
        if (!spells) {
            out.resize(begin);
            out += piece;
            return;
        }
        out.push_back(static_cast<char>(byte_of_spelling[unit.code_point]));
        at += unit.length;
    }
}

}  // namespace troupe::model
