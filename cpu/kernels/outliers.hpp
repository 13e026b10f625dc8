// The part of a quantised product that outliers make: few columns of weights, in float32, times
// values that were kept as they are. What rows have is sorted by column once for all panels that a
// thread multiplies: mostly many rows have theirs in the same columns, which are then expanded
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

// What the quants of a block's columns are multiplied by, 16 rows; the columns of `half` 0 or 1
// share it (see Kernels::matmul_quantized). Both products are exact.
template <class V, PanelFormat Format>
[[gnu::always_inline]] inline V block_scale(const std::byte* block, std::size_t half) {
    const std::byte* scales = block + quant_bytes(Format);
    const V d = V::load_half(reinterpret_cast<const std::uint16_t*>(scales));
    constexpr std::size_t factors_at = Format == PanelFormat::q6_k ? 32 : 64;
    if constexpr (Format == PanelFormat::q4_k || Format == PanelFormat::q5_k) half = 0;
    if constexpr (Format == PanelFormat::q4_k || Format == PanelFormat::q5_k ||
                  Format == PanelFormat::q6_k) {
        const std::byte* factors = scales + factors_at + half * panel_rows;
        return d * V::load_bytes(reinterpret_cast<const std::int8_t*>(factors));
    }
    return d;
}

// What is added to them, in the forms that have it.
template <class V, PanelFormat Format>
[[gnu::always_inline]] inline V block_minimum(const std::byte* block) {
    const std::byte* scales = block + quant_bytes(Format);
    const V m = V::load_half(reinterpret_cast<const std::uint16_t*>(scales + 32));
    if constexpr (Format == PanelFormat::q4_1) return m;
    return V::set(0.0F) - m * V::load_bytes(reinterpret_cast<const std::int8_t*>(scales + 80));
}

// The weights of one column of a panel's block, 16 rows, each rounded once.
template <class V, PanelFormat Format>
[[gnu::always_inline]] inline V column_weights(const std::byte* block, std::size_t column) {
    constexpr bool bytes = quant_bytes(Format) == 512;
    const std::size_t group = bytes ? column / 4 : column % 16 / 4;
    const auto shift = static_cast<unsigned>(column % 4 * 8 + (bytes || column < 16 ? 0 : 4));
    const V quants = V::load_quants(block + group * 64, shift, bytes ? 255 : 15);
    const V d = block_scale<V, Format>(block, column / 16);
    if constexpr (has_minimum(Format)) {
        return V::fma(d, quants, block_minimum<V, Format>(block));
    } else {
        return d * (quants - V::set(static_cast<float>(quant_offset(Format))));
    }
}

// Calls function(lane, place) for the rows of a block that have an outlier.
template <class Function>
[[gnu::always_inline]] inline void for_each_place(const OutlierBlock& block, Function function) {
    for (std::size_t half = 0; half < tile_rows; half += 8) {
        std::uint64_t places;
        std::memcpy(&places, block.place + half, sizeof(places));
        while (places != 0) {
            const auto shift = static_cast<unsigned>(__builtin_ctzll(places)) / 8 * 8;
            function(half + shift / 8, static_cast<std::size_t>(places >> shift & 255));
            places &= ~(std::uint64_t{255} << shift);
        }
    }
}

[[gnu::always_inline]] inline bool is_list_of(const OutlierList& list, std::uint64_t product,
                                              const ActivationBlock* first, std::size_t rows) {
    return product != 0 && list.product == product && list.first == first && list.rows == rows;
}

// The list that has been made of these rows for this product, or one to make it in.
[[gnu::always_inline]] inline OutlierList& kept_list(OutlierLists& lists, std::uint64_t product,
                                                     const ActivationBlock* first,
                                                     std::size_t rows) {
    for (OutlierList& list : lists.list)
        if (is_list_of(list, product, first, rows)) return list;
    return lists.list[lists.next++ % OutlierLists::kept];
}

// The outliers of rows [begin, end), at most 128 of them. V is the set's vector type.
template <class V, PanelFormat Format>
class Outliers {
 public:
    // `list` is the list of these rows, or becomes it.
    Outliers(const QuantizedRows& x, std::size_t begin, std::size_t end, OutlierList& list,
             std::uint64_t product)
        : rows_(x), begin_(begin), end_(end), list_(list) {
        const ActivationBlock* const first = &x.block(begin, 0);
        if (is_list_of(list, product, first, end - begin)) return;
        list.product = product;
        list.first = first;
        list.rows = end - begin;
        list.listed_blocks = list.column_count = list.entry_count = 0;
        for (std::size_t b = 0; b < x.blocks_of_row(); ++b)
            if (!add_block(b)) return;
    }

    // Continues the chains acc[end - begin][16], each by ascending column.
    void extend(const std::byte* panel, float* acc) const {
        for (std::size_t first = 0; first < list_.column_count; first += columns_at_once)
            extend_columns(panel, first, acc);
        for (std::size_t b = list_.listed_blocks; b < rows_.blocks_of_row(); ++b)
            extend_unlisted(panel + b * panel_block_bytes(Format), b, acc);
    }

 private:
    using Entry = OutlierList::Entry;
    using Column = OutlierList::Column;
    static constexpr std::size_t columns_at_once = 32;

    [[gnu::always_inline]] static void extend_row(V weights, float x, float* chain) {
        V::fma(weights, V::set(x), V::load(chain)).store(chain);
    }

    // Two loops whose ends are easy to predict; a loop over each column's rows would not have that.
    [[gnu::always_inline]] void extend_columns(const std::byte* panel, std::size_t first,
                                               float* acc) const {
        const bool rest = list_.column_count - first <= columns_at_once;
        const std::size_t count = rest ? list_.column_count - first : columns_at_once;
        const std::size_t end = rest ? list_.entry_count : list_.columns[first + count].entry_begin;
        V weights[columns_at_once];
        for (std::size_t i = 0; i < count; ++i) {
            const Column& column = list_.columns[first + i];
            weights[i] = column_weights<V, Format>(panel + column.block * panel_block_bytes(Format),
                                                   column.place - 1U);
        }
        for (std::size_t i = list_.columns[first].entry_begin; i < end; ++i) {
            const Entry& entry = list_.entries[i];
            extend_row(weights[entry.column % columns_at_once], entry.x,
                       acc + entry.row * panel_rows);
        }
    }

    // Calls function(row from begin_, place, x) for the outliers in block b.
    template <class Function>
    [[gnu::always_inline]] void for_each(std::size_t b, Function function) const {
        for (std::size_t row = begin_ / tile_rows * tile_rows; row < end_; row += tile_rows) {
            const OutlierBlock& block = rows_.outlier(row, b);
            for_each_place(block, [&](std::size_t lane, std::size_t place) {
                if (row + lane < begin_ || row + lane >= end_) return;
                function(row + lane - begin_, place, block.x[lane]);
            });
        }
    }

    // Lists block b's, by place, behind those of the blocks before; false where there is no room.
    bool add_block(std::size_t b) {
        Entry* const entries = list_.entries;
        const std::size_t first = list_.entry_count;
        std::size_t count = first, wanted = 0;
        for_each(b, [&](std::size_t row, std::size_t place, float x) {
            ++wanted;
            if (count == OutlierList::capacity) return;
            std::size_t at = count++;
            for (; at > first && entries[at - 1].column > place; --at)
                entries[at] = entries[at - 1];
            entries[at] = {x, static_cast<std::uint16_t>(row), static_cast<std::uint16_t>(place)};
        });
        if (first + wanted > OutlierList::capacity) return false;
        list_.listed_blocks = b + 1;
        list_.entry_count = count;
        // So far an entry's column is its place; equal ones become one column.
        std::size_t place = 0;
        for (std::size_t i = first; i < count; ++i) {
            if (entries[i].column != place) {
                place = entries[i].column;
                list_.columns[list_.column_count++] = {static_cast<std::uint32_t>(b),
                                                       static_cast<std::uint16_t>(place),
                                                       static_cast<std::uint16_t>(i)};
            }
            entries[i].column = static_cast<std::uint16_t>(list_.column_count - 1);
        }
        return true;
    }

    // Where the list is full, which takes a row with hundreds of outliers.
    void extend_unlisted(const std::byte* block, std::size_t b, float* acc) const {
        for_each(b, [&](std::size_t row, std::size_t place, float x) {
            extend_row(column_weights<V, Format>(block, place - 1), x, acc + row * panel_rows);
        });
    }

    const QuantizedRows& rows_;
    const std::size_t begin_, end_;
    OutlierList& list_;
};

}  // namespace troupe::cpu
