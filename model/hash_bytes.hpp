// A fast hash of short byte strings for tables whose keys come from the model file.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace troupe::model {

[[nodiscard]] inline std::uint64_t mix64(std::uint64_t value) {
    // The finaliser of MurmurHash3.
    value ^= value >> 33;
    value *= 0xFF51AFD7ED558CCDULL;
    value ^= value >> 33;
    value *= 0xC4CEB9FE1A85EC53ULL;
    return value ^ (value >> 33);
}

[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes) {
    std::uint64_t hash = 0x9E3779B97F4A7C15ULL ^ bytes.size();
    while (bytes.size() >= 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), 8);
        hash = mix64(hash ^ word);
        bytes.remove_prefix(8);
    }
    std::uint64_t tail = 0;
    std::memcpy(&tail, bytes.data(), bytes.size());
    return mix64(hash ^ tail);
}

}  // namespace troupe::model
