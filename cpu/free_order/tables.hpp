// What the files of an instruction set make; see free_order.hpp.
#pragma once

#include <cstddef>

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

// Pages [begin, end) of the first row's sequence, for the heads of the part (of one KV head):
// the sum of weights times values, its largest score and the sum of its weights, for each head.
struct PartialAttention {
    std::size_t page_begin = 0, page_end = 0;
    float* values = nullptr;  // [heads][head_dim]
    float* largest = nullptr;
    float* sums = nullptr;
};

struct FreeOrderTable {
    Kernels kernels;
    void (*attend_pages)(const AttentionPart& part, const PartialAttention& out) = nullptr;
};

[[nodiscard]] const FreeOrderTable& free_order_avx2();
[[nodiscard]] const FreeOrderTable& free_order_avx512();

}  // namespace troupe::cpu
