// Reads a JSON file of reference values, and bytes that it has as hexadecimal digits. Tests only.
#pragma once

#include <boost/json.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

// Throws if the file is not there or not JSON.
inline boost::json::value read_json(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    file.exceptions(std::ios::failbit | std::ios::badbit);
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    return boost::json::parse(text);
}

inline std::vector<std::byte> from_hex(std::string_view digits) {
    std::vector<std::byte> bytes(digits.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        std::uint8_t byte = 0;
        std::from_chars(digits.data() + 2 * i, digits.data() + 2 * i + 2, byte, 16);
        bytes[i] = std::byte{byte};
    }
    return bytes;
}
inline std::vector<std::byte> from_hex(const boost::json::value& text) {
    return from_hex(std::string_view(text.as_string()));
}

}  // namespace troupe::test
