// How the KV cache lies in memory, in each of its forms. A page holds 16 tokens of one layer: a
// block a KV head for the keys, and another for the values. Owns nothing.
//
//   f32, f16   keys [head_dim][16 tokens], values [16 tokens][head_dim]
//   int8       float step[16 tokens], then int8 numbers laid out as above
//   int4       half scale[groups][2][16 tokens] (step, offset), then the groups' bytes:
//              keys [groups][24][16 tokens], values [16 tokens][groups][16]
//
// A group is 32 channels of one token; a head that is no whole number of groups is filled up.
// Values have 4 bits: byte j of a group holds number j (low) and j + 16 (high). Keys have 6, as an
// error in a key moves a whole token's weight (docs/decoding.md has the figures): 16 bytes with
// their low 4 bits, as for values, then 8 with the high 2 of numbers j, j + 8, j + 16 and j + 24.
// What a number stands for:
//   int8  q * step             step = max|x| / 127
//   int4  fma(q, step, offset) step = (max x - min x) / 15 (keys: 63), offset = min x, as halves
// Every token is quantised by itself, from its own numbers alone: the cache holds the same bits
// however tokens came into it. Functions are always inlined: they are used by files compiled for
// different instruction sets, which must not share code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace troupe::cpu {

inline constexpr std::size_t page_tokens = 16;
inline constexpr std::size_t kv_group_channels = 32;
inline constexpr std::size_t kv_head_dim_max = 512;

enum class KvType : std::uint8_t { f16, f32, int8, int4 };
inline constexpr KvType kv_types[] = {KvType::f32, KvType::f16, KvType::int8, KvType::int4};

[[nodiscard]] constexpr std::string_view to_string(KvType type) {
    switch (type) {
        case KvType::f16:
            return "f16";
        case KvType::f32:
            return "f32";
        case KvType::int8:
            return "int8";
        case KvType::int4:
            return "int4";
    }
    return "";
}

enum class KvPart : std::uint8_t { keys, values };

[[nodiscard, gnu::always_inline]] constexpr std::size_t kv_groups(std::size_t head_dim) {
    return (head_dim + kv_group_channels - 1) / kv_group_channels;
}

// Bytes of a group's numbers in int4.
[[nodiscard, gnu::always_inline]] constexpr std::size_t kv_group_bytes(KvPart part) {
    return part == KvPart::keys ? 24 : 16;
}

// Bytes before a block's numbers: those of its scales.
[[nodiscard, gnu::always_inline]] constexpr std::size_t kv_scale_bytes(KvType type,
                                                                       std::size_t head_dim) {
    switch (type) {
        case KvType::int8:
            return page_tokens * sizeof(float);
        case KvType::int4:
            return kv_groups(head_dim) * 2 * page_tokens * sizeof(std::uint16_t);
        default:
            return 0;
    }
}

// Bytes of a token's numbers in such a block.
[[nodiscard, gnu::always_inline]] constexpr std::size_t kv_number_bytes(KvType type,
                                                                        std::size_t head_dim,
                                                                        KvPart part) {
    switch (type) {
        case KvType::f32:
            return head_dim * sizeof(float);
        case KvType::f16:
            return head_dim * sizeof(std::uint16_t);
        case KvType::int8:
            return head_dim;
        case KvType::int4:
            return kv_groups(head_dim) * kv_group_bytes(part);
    }
    return 0;
}

// Bytes of one KV head's keys, or values, in a page: whole cache lines.
[[nodiscard, gnu::always_inline]] constexpr std::size_t kv_block_bytes(KvType type,
                                                                       std::size_t head_dim,
                                                                       KvPart part) {
    const std::size_t bytes =
        kv_scale_bytes(type, head_dim) + kv_number_bytes(type, head_dim, part) * page_tokens;
    return (bytes + 63) / 64 * 64;
}

// One layer's pages, which start on 64 bytes. Slots never written may hold any bits.
struct KvPages {
    KvType type = KvType::f16;
    std::byte* k = nullptr;
    std::byte* v = nullptr;
    std::size_t page_stride = 0;  // bytes between pages, at least those of all heads' blocks
    std::size_t kv_heads = 0;
    std::size_t head_dim = 0;  // a multiple of 4, at most kv_head_dim_max

    // One head's block in a page.
    [[nodiscard, gnu::always_inline]] std::byte* block(KvPart part, std::size_t page,
                                                       std::size_t head) const {
        return (part == KvPart::keys ? k : v) + page * page_stride +
               head * kv_block_bytes(type, head_dim, part);
    }
};

}  // namespace troupe::cpu
