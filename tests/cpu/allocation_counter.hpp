// Counts what operator new gives out in this test program, on all threads.
#pragma once

#include <cstddef>

namespace troupe::test {

[[nodiscard]] std::size_t allocation_count();

}  // namespace troupe::test
