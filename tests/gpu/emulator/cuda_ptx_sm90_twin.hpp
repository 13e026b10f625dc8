// The twins of gpu/ptx_sm90.cuh. Products and copies that were started happen when somebody waits
// for them, copies under some seeds as soon as they may: so what is read, overwritten or left out
// too early shows. Sums that are under way are NaNs.
#pragma once

#include <cstdint>

namespace troupe::emulator {

[[nodiscard]] std::uint64_t warpgroup_operand(const void* shared, std::uint32_t rows_on);
void begin_products();
void multiply_64x64x16(float (&c)[32], const std::uint32_t (&a)[4], std::uint64_t b,
                       bool accumulate);
void commit_products();
void wait_for_products(unsigned pending);

void init_barrier(std::uint64_t* barrier, std::uint32_t arrivals);
inline void show_barriers() {}
void arrive(std::uint64_t* barrier);
void arrive_expecting(std::uint64_t* barrier, std::uint32_t bytes);
void wait_for_phase(std::uint64_t* barrier, std::uint32_t parity);
void copy_bytes_async(void* shared, const void* global, std::uint32_t bytes,
                      std::uint64_t* barrier);

}  // namespace troupe::emulator
