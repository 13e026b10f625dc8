// How keys and values lie in pages, and how a position finds its page. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::gpu {

inline constexpr std::uint32_t kPageTokens = 16;

// A block is one head's keys, or values, of a page:
//   f16   halves [16 tokens][head length]
//   int8  float step[16 tokens], then int8 [16 tokens][head length]: a number stands for q * step,
//         step = max|x| / 127 of the token and head, q = round_half_even(x * (127 / max|x|))
enum class KvForm : std::uint32_t { f16, int8 };

[[nodiscard]] constexpr std::size_t kv_step_bytes(KvForm form) {
    return form == KvForm::int8 ? kPageTokens * sizeof(float) : 0;
}
[[nodiscard]] constexpr std::size_t kv_number_bytes(KvForm form) {
    return form == KvForm::int8 ? 1 : sizeof(std::uint16_t);
}
// A multiple of 16, as heads have an even length.
[[nodiscard]] constexpr std::size_t kv_block_bytes(KvForm form, std::uint32_t head_length) {
    return kv_step_bytes(form) + kPageTokens * kv_number_bytes(form) * head_length;
}

// Which word of a slot's page table holds entry i, the page of positions [16 i, 16 i + 16). Behind
// a window entries come and go: those from `kept` on share `turning` words, each with the latest.
struct PageTableShape {
    std::uint32_t kept = 0;
    std::uint32_t turning = 0;  // 0: every entry has a word of its own

    [[nodiscard]] constexpr std::uint32_t width() const { return kept + turning; }
    [[nodiscard]] constexpr std::uint32_t word_of(std::uint32_t entry) const {
        return entry < kept || turning == 0 ? entry : kept + (entry - kept) % turning;
    }
};

// One layer's keys and values, each [pages][kv heads] blocks.
struct KvPages {
    std::byte* keys;
    std::byte* values;
    const std::uint32_t* page_table;  // [slots][table.width()]
    PageTableShape table;
    KvForm form;
    std::uint32_t kv_heads, head_length;

    // Of either, the block with a position of a slot, in bytes from the first.
    [[nodiscard]] constexpr std::size_t block_offset(std::uint32_t slot, std::uint32_t position,
                                                     std::uint32_t head) const {
        const std::uint32_t word = table.word_of(position / kPageTokens);
        const std::size_t page = page_table[std::size_t{slot} * table.width() + word];
        return (page * kv_heads + head) * kv_block_bytes(form, head_length);
    }
};

// Of a row that only fills up a step: nothing is stored for it.
inline constexpr std::uint32_t kNoSlot = 0xFFFFFFFFU;

// Where a row stands.
struct RowPlace {
    std::uint32_t slot;
    std::uint32_t position;
};

}  // namespace troupe::gpu
