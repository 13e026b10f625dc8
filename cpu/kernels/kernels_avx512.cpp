// The AVX-512 set: VNNI dot products, everything else from the shared templates.
#include "cpu/kernels/avx512_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"
#include "cpu/kernels/vector_avx512.hpp"

namespace troupe::cpu {

const Kernels& avx512_kernels() {
    static constexpr Kernels kernels =
        kernel_table<Avx512Vector>("avx512", matmul_quantized<VnniTile>);
    return kernels;
}

}  // namespace troupe::cpu
