// The twins of gpu/ptx.cuh: the same names and meanings on the emulated device. A copy that was
// started moves nothing before somebody waits for it, so a missing wait reads what was there.
#pragma once

#include <cstdint>

namespace troupe::emulator {

void mma_16x8x16_twice(float (&c)[4], const std::uint32_t (&a)[8], const std::uint32_t (&b)[4]);
void load_matrices(std::uint32_t (&to)[4], const void* row, std::uint32_t bytes_on);
void load_matrices_transposed(std::uint32_t (&to)[4], const void* row, std::uint32_t bytes_on);
float exp2_approximate(float x);
void copy_async(void* shared, const void* global);
void commit_copies();
void wait_for_copies(unsigned pending);

}  // namespace troupe::emulator
