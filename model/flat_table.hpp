// Hash tables built once when a tokenizer is made and only read afterwards: open addressing, at
// most half full, so that a look-up is one or two cache lines.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/hash_bytes.hpp"
#include "model/token.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {

// Byte strings -> token ids. Keys are views: whoever fills the table keeps them alive.
class PieceTable {
 public:
    explicit PieceTable(std::size_t entries_max = 0)
        : slots_(std::bit_ceil(entries_max * 2 + 1)), mask_(slots_.size() - 1) {}

    // Keeps the first id of a key that comes again.
    void insert(std::string_view key, TokenId id) {
        Slot& slot = slots_[locate(key)];
        if (slot.id >= 0) return;
        TROUPE_ASSERT(2 * ++count_ <= slots_.size(), "more keys than the table was made for");
        slot = {key, id};
        longest_ = std::max(longest_, key.size());
    }

    // The id, or -1.
    [[nodiscard]] TokenId find(std::string_view key) const {
        return key.size() > longest_ ? -1 : slots_[locate(key)].id;
    }

 private:
    struct Slot {
        std::string_view key;
        TokenId id = -1;
    };

    [[nodiscard]] std::size_t locate(std::string_view key) const {
        std::size_t at = hash_bytes(key) & mask_;
        while (slots_[at].id >= 0 && slots_[at].key != key)
            at = (at + 1) & mask_;
        return at;
    }

    std::vector<Slot> slots_;
    std::size_t mask_;
    std::size_t count_ = 0;
    std::size_t longest_ = 0;
};

// Pairs of token ids -> the merge of the two.
struct Merge {
    std::uint32_t rank = 0;  // lower merges first
    TokenId result = -1;
};

class MergeTable {
 public:
    explicit MergeTable(std::size_t entries_max = 0)
        : slots_(std::bit_ceil(entries_max * 2 + 1)), mask_(slots_.size() - 1) {}

    // Keeps the first merge of a pair that comes again.
    void insert(TokenId left, TokenId right, Merge merge) {
        Slot& slot = slots_[locate(pack(left, right))];
        if (slot.merge.result >= 0) return;
        TROUPE_ASSERT(2 * ++count_ <= slots_.size(), "more merges than the table was made for");
        slot = {pack(left, right), merge};
    }

    // `result` is -1 where the pair does not merge.
    [[nodiscard]] Merge find(TokenId left, TokenId right) const {
        return slots_[locate(pack(left, right))].merge;
    }

 private:
    struct Slot {
        std::uint64_t pair = 0;
        Merge merge;
    };

    [[nodiscard]] static std::uint64_t pack(TokenId left, TokenId right) {
        return (std::uint64_t{static_cast<std::uint32_t>(left)} << 32) |
               static_cast<std::uint32_t>(right);
    }

    [[nodiscard]] std::size_t locate(std::uint64_t pair) const {
        std::size_t at = mix64(pair) & mask_;
        while (slots_[at].merge.result >= 0 && slots_[at].pair != pair)
            at = (at + 1) & mask_;
        return at;
    }

    std::vector<Slot> slots_;
    std::size_t mask_;
    std::size_t count_ = 0;
};

}  // namespace troupe::model
