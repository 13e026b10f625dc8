// The order of a matrix's rows where a file and the forward pass disagree about it. A plain value.
#pragma once

#include <cstdint>

namespace troupe::model {

// Row r of a matrix is row order(r) of the file: the identity, or, of each head's first `rotated`
// rows, the two halves interleaved, so that what is rotated together lies together. Queries and
// keys reordered alike have the same products.
struct RowOrder {
    std::uint32_t head_length = 0;  // 0: the identity
    std::uint32_t rotated = 0;      // even

    [[nodiscard]] constexpr std::uint32_t operator()(std::uint32_t row) const {
        if (head_length == 0) return row;
        const std::uint32_t i = row % head_length;
        if (i >= rotated) return row;
        return row - i + (i % 2 == 0 ? i / 2 : rotated / 2 + i / 2);
    }
    [[nodiscard]] constexpr bool is_identity() const { return head_length == 0; }
    friend bool operator==(const RowOrder&, const RowOrder&) = default;
};

}  // namespace troupe::model
