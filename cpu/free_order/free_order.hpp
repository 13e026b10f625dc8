// The kernels as they could be if a row's result might depend on more than that row, on the order
// of whatever is quickest to add up: for measuring what "same request, same answer" costs, never
// for serving. find_kernels() does not know them. What is free here:
//   products of 1 to 8 rows: even and odd blocks, and minima, in sums of their own
//   attention of a row that sees much: one pass over the pages with a running maximum
//   attention of a single row: positions shared out among the threads, then put together
//   norms in four sums; all element-wise kernels compiled with -ffast-math
#pragma once

#include "cpu/forward.hpp"
#include "cpu/kernels/kernels.hpp"

namespace troupe::cpu {

struct FreeOrder {
    const Kernels* kernels = nullptr;
    AttendFunction attend;
};

// What goes with a set that this machine can run; without kernels where nothing was written for it.
[[nodiscard]] FreeOrder free_order_of(const Kernels& set);

}  // namespace troupe::cpu
