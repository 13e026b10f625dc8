// Tiles of keys and values on their way from pages to shared memory, where they are halves for
// tensor units, a position a row. A block goes through tiles in two beats: while it multiplies by a
// tile's keys, the values come; while it multiplies by these, the next tile's keys.
//   start_keys(tile), then keys(tile): waits, and returns where they lie; start_values(tile) and
//   values(tile) likewise. A start may follow once the whole block has been past the other's wait.
// What no row of the block sees becomes zeros. A token whose key or value is not finite has a key
// of NaNs and a value of finite numbers, in pages (kv_forms.cuh) or, of int8, from here on: so rows
// that do not see it may multiply its value by a weight of zero.
#pragma once

#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/half_pairs.cuh"
#include "gpu/kernels/kv_forms.cuh"
#include "gpu/ptx.cuh"

namespace troupe::gpu {

// Whose keys and values, and which of them.
struct TileSource {
    std::uint32_t slot, kv_head;
    SeenPositions seen;  // by any row of the block
};

template <unsigned kDims>
struct TileShape {
    static constexpr unsigned kTokens = kDims > 128 ? 32 : 64;
    // Rows lie 16 bytes further apart than they are long: eight that are read at once touch every
    // bank once.
    static constexpr unsigned kStride = kDims + 8;  // halves
    static constexpr std::size_t kBytes = kTokens * kStride * sizeof(std::uint16_t);
    static constexpr unsigned kPieces = kDims / 8;  // of 16 bytes, in a row
    static constexpr unsigned kPages = kTokens / kPageTokens;
};

// Calls visit(page, offset) for the pages of a tile that hold anything seen, by all threads.
template <unsigned kPages, class Visit>
__device__ __forceinline__ void for_seen_pages(const KvPages& kv, const TileSource& from,
                                               std::uint32_t first_position, Visit visit) {
#pragma unroll
    for (unsigned page = 0; page < kPages; ++page) {
        const std::uint32_t begin = first_position + page * kPageTokens;
        const std::uint32_t number = begin / kPageTokens;
        if (from.seen.next_block(number, kPageTokens) != number || begin >= from.seen.end) continue;
        visit(page, kv.block_offset(from.slot, begin, from.kv_head));
    }
}

template <KvForm kForm, unsigned kDims>
class KvTiles;

template <unsigned kDims>
class KvTiles<KvForm::f16, kDims> {
 public:
    using Shape = TileShape<kDims>;
    static constexpr std::size_t kSharedBytes = 2 * Shape::kBytes;

    __device__ KvTiles(const KvPages& kv, const TileSource& from)
        : kv_(kv),
          from_(from),
          keys_(shared_memory<std::uint16_t>()),
          values_(keys_ + Shape::kTokens * Shape::kStride) {}

    __device__ __forceinline__ void start_keys(std::uint32_t tile) { start(kv_.keys, tile, keys_); }
    __device__ __forceinline__ void start_values(std::uint32_t tile) {
        start(kv_.values, tile, values_);
    }
    __device__ __forceinline__ const std::uint16_t* keys(std::uint32_t) { return arrived(keys_); }
    __device__ __forceinline__ const std::uint16_t* values(std::uint32_t) {
        return arrived(values_);
    }

 private:
    __device__ __forceinline__ const std::uint16_t* arrived(const std::uint16_t* tile) {
        ptx::wait_for_copies<0>();
        __syncthreads();
        return tile;
    }
    __device__ __forceinline__ void start(const std::byte* blocks, std::uint32_t tile,
                                          std::uint16_t* to) {
        const std::uint32_t first = tile * Shape::kTokens;
        const bool whole =
            kv_.head_length == kDims && from_.seen.contains_all(first, first + Shape::kTokens);
        const auto row_of = [&](unsigned token) { return to + token * Shape::kStride; };
        const auto is_seen = [&](unsigned token, unsigned d) {
            return from_.seen.contains(first + token) && d < kv_.head_length;
        };
#pragma unroll 1
        for (unsigned i = threadIdx.x; !whole && i < Shape::kTokens * Shape::kPieces;
             i += blockDim.x) {
            const unsigned token = i / Shape::kPieces, d = i % Shape::kPieces * 8;
            if (!is_seen(token, d)) *reinterpret_cast<uint4*>(row_of(token) + d) = uint4{};
        }
        for_seen_pages<Shape::kPages>(kv_, from_, first, [&](unsigned page, std::size_t offset) {
            const auto* const block = reinterpret_cast<const std::uint16_t*>(blocks + offset);
#pragma unroll 4
            for (unsigned i = threadIdx.x; i < kPageTokens * Shape::kPieces; i += blockDim.x) {
                const unsigned of_page = i / Shape::kPieces, d = i % Shape::kPieces * 8;
                const unsigned token = page * kPageTokens + of_page;
                if (!whole && !is_seen(token, d)) continue;
                ptx::copy_async(row_of(token) + d, block + of_page * kv_.head_length + d);
            }
        });
        ptx::commit_copies();
    }

    const KvPages& kv_;
    const TileSource& from_;
    std::uint16_t* const keys_;  // [tokens][stride], as the next
    std::uint16_t* const values_;
};

// Blocks are copied as they lie and expanded in shared memory. Keys and values take turns in both
// places: neither is wanted while the other is being multiplied.
template <unsigned kDims>
class KvTiles<KvForm::int8, kDims> {
 public:
    using Shape = TileShape<kDims>;
    static constexpr unsigned kSteps = kv_step_bytes(KvForm::int8);
    // A page: steps and numbers, then, beside keys, the steps of the values.
    static constexpr unsigned kRawPage = kSteps + kPageTokens * kDims + kSteps;
    static constexpr std::size_t kSharedBytes = Shape::kBytes + Shape::kPages * kRawPage;

    __device__ KvTiles(const KvPages& kv, const TileSource& from)
        : kv_(kv),
          from_(from),
          halves_(shared_memory<std::uint16_t>()),
          raw_(shared_memory<std::byte>() + Shape::kBytes) {}

    __device__ __forceinline__ void start_keys(std::uint32_t tile) {
        const std::uint32_t first = tile * Shape::kTokens;
        for_seen_pages<Shape::kPages>(kv_, from_, first, [&](unsigned page, std::size_t offset) {
            std::byte* const to = raw_ + page * kRawPage;
            copy(to, kv_.keys + offset, block_bytes());
            copy(to + kRawPage - kSteps, kv_.values + offset, kSteps);
        });
        ptx::commit_copies();
    }
    __device__ __forceinline__ void start_values(std::uint32_t tile) {
        const std::uint32_t first = tile * Shape::kTokens;
        for_seen_pages<Shape::kPages>(kv_, from_, first, [&](unsigned page, std::size_t offset) {
            copy(raw_ + page * kRawPage, kv_.values + offset, block_bytes());
        });
        ptx::commit_copies();
    }
    __device__ __forceinline__ const std::uint16_t* keys(std::uint32_t tile) {
        return expanded(tile, [](const float* steps, unsigned token) {
            const float of_value = steps[(kRawPage - kSteps) / sizeof(float) + token];
            return finite(of_value) && finite(steps[token]) ? steps[token] : NAN;
        });
    }
    __device__ __forceinline__ const std::uint16_t* values(std::uint32_t tile) {
        return expanded(tile, [](const float* steps, unsigned token) {
            return finite(steps[token]) ? steps[token] : 0.0F;
        });
    }

 private:
    // Whether 127 of such steps are a half. Not so for NaN.
    __device__ static bool finite(float step) { return step <= 65504.0F / 127; }
    __device__ std::uint32_t block_bytes() const { return kSteps + kPageTokens * kv_.head_length; }

    __device__ __forceinline__ void copy(std::byte* to, const std::byte* from,
                                         std::uint32_t bytes) {
        for (std::uint32_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16)
            ptx::copy_async(to + at, from + at);
    }
    // step_of(steps of a page, token in the page).
    template <class StepOf>
    __device__ __forceinline__ const std::uint16_t* expanded(std::uint32_t tile, StepOf step_of) {
        ptx::wait_for_copies<0>();
        __syncthreads();
#pragma unroll 4
        for (unsigned i = threadIdx.x; i < Shape::kTokens * Shape::kPieces; i += blockDim.x) {
            const unsigned token = i / Shape::kPieces, d = i % Shape::kPieces * 8;
            uint4 eight{};
            if (from_.seen.contains(tile * Shape::kTokens + token) && d < kv_.head_length) {
                const std::byte* const page = raw_ + token / kPageTokens * kRawPage;
                const unsigned of_page = token % kPageTokens;
                const float step = step_of(reinterpret_cast<const float*>(page), of_page);
                const uint2 numbers =
                    *reinterpret_cast<const uint2*>(page + kSteps + of_page * kv_.head_length + d);
                eight = {pair_of<0x4140>(numbers.x, step), pair_of<0x4342>(numbers.x, step),
                         pair_of<0x4140>(numbers.y, step), pair_of<0x4342>(numbers.y, step)};
            }
            *reinterpret_cast<uint4*>(halves_ + token * Shape::kStride + d) = eight;
        }
        __syncthreads();
        return halves_;
    }
    // Two bytes of four, n + 128 without a sign as the lower bytes of halves that say 1024 more.
    template <unsigned kBytes>
    __device__ static HalfPair pair_of(std::uint32_t numbers, float step) {
        const HalfPair above = __byte_perm(numbers ^ 0x80808080U, kHalf1024 >> 8, kBytes);
        const __half2 pair = __hsub2(halves_of(above), halves_of(0x64806480U));  // 1152
        return bits_of(__floats2half2_rn(__half2float(pair.x) * step, __half2float(pair.y) * step));
    }

    const KvPages& kv_;
    const TileSource& from_;
    std::uint16_t* const halves_;  // [tokens][stride]
    std::byte* const raw_;         // [pages][kRawPage]
};

}  // namespace troupe::gpu
