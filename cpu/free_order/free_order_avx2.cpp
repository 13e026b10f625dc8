// The AVX2 set in free order, but for the products: those of the set that it goes with.
#include "cpu/free_order/free_elements.hpp"
#include "cpu/kernels/vector_avx2.hpp"

namespace troupe::cpu {

const FreeOrderTable& free_order_avx2() {
    static const FreeOrderTable table = free_order_table<Avx2Vector>(nullptr);
    return table;
}

}  // namespace troupe::cpu
