#include "cpu/free_order/free_order.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "cpu/free_order/tables.hpp"
#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

// Positions in two stretches a thread and KV head; each piece has memory of its own.
class SplitAttention {
 public:
    explicit SplitAttention(decltype(FreeOrderTable::attend_pages) attend_pages)
        : attend_pages_(attend_pages) {}

    bool operator()(ComputeThreads& threads, std::span<const AttentionPart> parts) {
        if (parts.size() != 1 || parts[0].rows != 1 || parts[0].window > 0) return false;
        const AttentionPart& part = parts[0];
        const std::size_t pages = part.position / page_tokens + 1;
        const std::size_t group = part.heads / part.kv.kv_heads;
        const std::size_t stretches = std::min<std::size_t>(
            std::size_t{kStretchesPerThread} * threads.workers(), pages / kPagesLeast);
        if (stretches < 2 || group > kHeadsMost) return false;
        const std::size_t count = stretches * part.kv.kv_heads;
        room_.resize(count * floats(part, group, pages) + 16);
        threads.run(static_cast<std::uint32_t>(count), [&](std::uint32_t piece, std::uint32_t) {
            const std::size_t kv_head = piece / stretches, n = piece % stretches;
            AttentionPart own = part;
            own.head_begin = kv_head * group;
            own.head_end = own.head_begin + group;
            PartialAttention out = partial(part, group, pages, piece);
            out.page_begin = pages * n / stretches;
            out.page_end = pages * (n + 1) / stretches;
            own.scratch = out.sums + 16;
            attend_pages_(own, out);
        });
        for (std::size_t head = 0; head < part.heads; ++head)
            put_together(part, group, pages, stretches, head);
        return true;
    }

 private:
    static constexpr std::size_t kStretchesPerThread = 2;
    static constexpr std::size_t kPagesLeast = 8;
    static constexpr std::size_t kHeadsMost = 6;  // of a tile of any set

    // Results, two rows of one number a head, and the kernel's scratch.
    static std::size_t floats(const AttentionPart& part, std::size_t group, std::size_t pages) {
        const std::size_t scratch = attention_scratch_floats(pages * page_tokens, part.kv.head_dim);
        return (group * part.kv.head_dim + 32 + scratch + 15) / 16 * 16;
    }
    PartialAttention partial(const AttentionPart& part, std::size_t group, std::size_t pages,
                             std::size_t piece) {
        float* const aligned = reinterpret_cast<float*>(
            (reinterpret_cast<std::uintptr_t>(room_.data()) + 63) / 64 * 64);
        float* const values = aligned + piece * floats(part, group, pages);
        float* const largest = values + (group * part.kv.head_dim + 15) / 16 * 16;
        return {0, 0, values, largest, largest + 16};
    }

    void put_together(const AttentionPart& part, std::size_t group, std::size_t pages,
                      std::size_t stretches, std::size_t head) {
        const std::size_t head_dim = part.kv.head_dim, n = head % group;
        float* const out = part.out + head * head_dim;
        const auto piece = [&](std::size_t i) {
            return partial(part, group, pages, head / group * stretches + i);
        };
        float largest = piece(0).largest[n];
        for (std::size_t i = 1; i < stretches; ++i)
            largest = std::max(largest, piece(i).largest[n]);
        float sum = 0;
        std::fill_n(out, head_dim, 0.0F);
        for (std::size_t i = 0; i < stretches; ++i) {
            const PartialAttention from = piece(i);
            const float factor = std::exp(from.largest[n] - largest);
            sum += factor * from.sums[n];
            for (std::size_t d = 0; d < head_dim; ++d)
                out[d] += factor * from.values[n * head_dim + d];
        }
        for (std::size_t d = 0; d < head_dim; ++d)
            out[d] /= sum;
    }

    decltype(FreeOrderTable::attend_pages) attend_pages_;
    std::vector<float> room_;
};

#if defined(__x86_64__)

void matmul_with_tiles(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part) {
    const bool tiles = part.row_end - part.row_begin >= tile_rows;
    const Kernels& set = tiles ? amx_kernels() : free_order_avx512().kernels;
    set.matmul_quantized(w, x, part);
}

Kernels with_products(const FreeOrderTable& table, decltype(Kernels::matmul_quantized) matmul) {
    Kernels kernels = table.kernels;
    kernels.matmul_quantized = matmul;
    return kernels;
}

FreeOrder free_order_of_name(std::string_view set) {
    if (set == "avx2") {
        static const Kernels kernels =
            with_products(free_order_avx2(), avx2_kernels().matmul_quantized);
        return {&kernels, SplitAttention(free_order_avx2().attend_pages)};
    }
    if (set == "avx_vnni") {
        static const Kernels kernels =
            with_products(free_order_avx2(), avx_vnni_kernels().matmul_quantized);
        return {&kernels, SplitAttention(free_order_avx2().attend_pages)};
    }
    if (set == "avx512") {
        return {&free_order_avx512().kernels, SplitAttention(free_order_avx512().attend_pages)};
    }
    if (set == "amx") {
        static const Kernels kernels = with_products(free_order_avx512(), matmul_with_tiles);
        return {&kernels, SplitAttention(free_order_avx512().attend_pages)};
    }
    return {};
}

#else

FreeOrder free_order_of_name(std::string_view) {
    return {};
}

#endif

}  // namespace

FreeOrder free_order_of(const Kernels& set) {
    return free_order_of_name(set.name);
}

}  // namespace troupe::cpu
