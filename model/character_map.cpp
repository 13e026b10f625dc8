#include "model/character_map.hpp"

#include <cstring>

#include "model/utf8.hpp"

namespace troupe::model {

namespace {

// A unit of the double array: a node's label, whether it has a value, and where its children are.
bool has_value(std::uint32_t unit) {
    return ((unit >> 8) & 1) == 1;
}
std::uint32_t value_of(std::uint32_t unit) {
    return unit & 0x7FFF'FFFFU;
}
std::uint32_t label_of(std::uint32_t unit) {
    return unit & 0x8000'00FFU;
}
std::uint32_t offset_of(std::uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200U) >> 6);
}

}  // namespace

Result<CharacterMap> CharacterMap::make(std::string_view bytes) {
    std::uint32_t trie_bytes = 0;
    if (bytes.size() < sizeof trie_bytes) return invalid_input("a character map without its size");
    std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
    bytes.remove_prefix(sizeof trie_bytes);
    if (trie_bytes > bytes.size() || trie_bytes % 4 != 0 || trie_bytes == 0) {
        return invalid_input("a character map is shorter than it says");
    }
    CharacterMap made;
    made.units_.resize(trie_bytes / 4);
    std::memcpy(made.units_.data(), bytes.data(), trie_bytes);
    made.strings_ = bytes.substr(trie_bytes);
    return made;
}

CharacterMap::Found CharacterMap::longest_at(std::string_view text) const {
    Found found;
    std::uint32_t at = offset_of(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        at ^= byte;
        if (byte == 0 || at >= units_.size() || label_of(units_[at]) != byte) break;
        const std::uint32_t unit = units_[at];
        at ^= offset_of(unit);
        if (!has_value(unit)) continue;
        if (at >= units_.size()) break;
        const std::uint32_t begin = value_of(units_[at]);
        if (begin >= strings_.size()) continue;
        const std::string_view rest = std::string_view(strings_).substr(begin);
        found = {i + 1, rest.substr(0, rest.find('\0'))};
    }
    return found;
}

std::string CharacterMap::run(std::string_view text) const {
    if (units_.empty()) return std::string(text);
    std::string out;
    while (!text.empty()) {
        const Found found = longest_at(text);
        const std::size_t length = found.length > 0 ? found.length : next_utf8(text).length;
        out += found.length > 0 ? found.becomes : text.substr(0, length);
        text.remove_prefix(length);
    }
    return out;
}

}  // namespace troupe::model
