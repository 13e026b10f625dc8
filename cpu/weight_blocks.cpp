#include "cpu/weight_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "model/half.hpp"
#include "model/superblocks.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

using model::Superblock;
using model::TensorType;

constexpr std::size_t kBlock = block_columns;

// Appends to a row of raw blocks.
class BlockWriter {
 public:
    explicit BlockWriter(std::byte* out) : at_(out) {}

    BlockWriter& half(std::uint16_t bits) {
        std::memcpy(at_, &bits, sizeof bits);
        at_ += sizeof bits;
        return *this;
    }
    BlockWriter& byte(int value) {
        *at_++ = static_cast<std::byte>(value);
        return *this;
    }

 private:
    std::byte* at_;
};

std::uint16_t load_u16(const std::byte* at) {
    std::uint16_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

int nibble(const std::byte* packed, std::size_t j) {
    const int pair = std::to_integer<int>(packed[j % 16]);
    return j < 16 ? pair & 15 : pair >> 4;
}

int fifth_bit(const std::byte* word, std::size_t j) {
    return (std::to_integer<int>(word[j / 8]) >> (j % 8) & 1) << 4;
}

std::uint16_t negated(std::uint16_t half) {
    return half ^ 0x8000U;
}

// Half a block's scale as a half, if one can hold it; any will do for a block of zeros.
std::optional<std::uint16_t> mxfp4_half(const std::byte* block) {
    const float scale = model::mxfp4_half_scale(std::to_integer<std::uint8_t>(block[0]));
    const std::uint16_t half = model::float_to_half(scale);
    if (model::half_to_float(half) == scale) return half;
    for (std::size_t j = 0; j < kBlock; ++j) {
        if (nibble(block + 1, j) % 8 != 0) return std::nullopt;
    }
    return std::uint16_t{0};
}

bool halves_hold_scales(const model::Matrix& matrix) {
    const std::size_t bytes = model::tensor_type_info(TensorType::mxfp4).block_bytes;
    for (std::size_t at = 0; at < matrix.bytes.size(); at += bytes) {
        if (!mxfp4_half(matrix.bytes.data() + at)) return false;
    }
    return true;
}

// ---- Blocks of 32 -------------------------------------------------------------------------------

void rewrite_q5_0(const std::byte* block, BlockWriter& out) {  // as q8_0
    out.half(load_u16(block));
    for (std::size_t j = 0; j < kBlock; ++j)
        out.byte((nibble(block + 6, j) | fifth_bit(block + 2, j)) - 16);
}

void rewrite_q5_1(const std::byte* block, BlockWriter& out) {  // as q5_k, minus minus m
    out.half(load_u16(block)).half(negated(load_u16(block + 2))).byte(1).byte(1);
    for (std::size_t j = 0; j < kBlock; ++j)
        out.byte(nibble(block + 8, j) | fifth_bit(block + 4, j));
}

void rewrite_iq4_nl(const std::byte* block, BlockWriter& out) {  // as q8_0
    out.half(load_u16(block));
    for (std::size_t j = 0; j < kBlock; ++j)
        out.byte(model::kIq4Values[static_cast<std::size_t>(nibble(block + 2, j))]);
}

void rewrite_mxfp4(const std::byte* block, BlockWriter& out) {  // as q8_0
    out.half(mxfp4_half(block).value());
    for (std::size_t j = 0; j < kBlock; ++j)
        out.byte(model::kMxfp4Values[static_cast<std::size_t>(nibble(block + 1, j))]);
}

// ---- Superblocks, a group of 32 at a time -------------------------------------------------------

// As q8_0: scale * quant is within -124 .. 128, so its negative is a byte, of minus d.
void rewrite_q3_k(const Superblock& super, std::size_t first, BlockWriter& out) {
    out.half(negated(super.d));
    for (std::size_t j = first; j < first + kBlock; ++j)
        out.byte(-super.scales[j / 16] * super.quants[j]);
}

// As q4_k (quants two to a byte) or q5_k.
void rewrite_with_minima(const Superblock& super, std::size_t first, bool nibbles,
                         BlockWriter& out) {
    const std::size_t group = first / super.group;
    out.half(super.d).half(super.minimum).byte(super.scales[group]).byte(super.minima[group]);
    const auto* quants = super.quants.data() + first;
    for (std::size_t j = 0; j < (nibbles ? kBlock / 2 : kBlock); ++j)
        out.byte(nibbles ? quants[j] | quants[j + 16] << 4 : quants[j]);
}

// As q6_k.
void rewrite_with_two_scales(const Superblock& super, std::size_t first, BlockWriter& out) {
    out.half(super.d);
    out.byte(super.scales[first / super.group]).byte(super.scales[(first + 16) / super.group]);
    for (std::size_t j = first; j < first + kBlock; ++j)
        out.byte(super.quants[j]);
}

Superblock read_superblock(TensorType type, const std::byte* block) {
    switch (type) {
        case TensorType::q3_k:
            return model::read_q3_k(block);
        case TensorType::q4_k:
            return model::read_q4_k(block);
        case TensorType::q5_k:
            return model::read_q5_k(block);
        case TensorType::q6_k:
            return model::read_q6_k(block);
        default:
            TROUPE_ASSERT(type == TensorType::iq4_xs);
            return model::read_iq4_xs(block);
    }
}

void rewrite_superblock(TensorType type, const std::byte* block, BlockWriter& out) {
    const Superblock super = read_superblock(type, block);
    for (std::size_t first = 0; first < model::kSuperblock; first += kBlock) {
        if (type == TensorType::q3_k) {
            rewrite_q3_k(super, first, out);
        } else if (type == TensorType::q4_k || type == TensorType::q5_k) {
            rewrite_with_minima(super, first, type == TensorType::q4_k, out);
        } else {
            rewrite_with_two_scales(super, first, out);
        }
    }
}

void rewrite_block(TensorType type, const std::byte* block, BlockWriter& out) {
    switch (type) {
        case TensorType::q5_0:
            return rewrite_q5_0(block, out);
        case TensorType::q5_1:
            return rewrite_q5_1(block, out);
        case TensorType::iq4_nl:
            return rewrite_iq4_nl(block, out);
        case TensorType::mxfp4:
            return rewrite_mxfp4(block, out);
        default:
            return rewrite_superblock(type, block, out);
    }
}

}  // namespace

WeightType packable_type(const model::Matrix& matrix) {
    switch (matrix.type) {
        case TensorType::f16:
            return WeightType::f16;
        case TensorType::bf16:
            return WeightType::bf16;
        case TensorType::q4_0:
            return WeightType::q4_0;
        case TensorType::q4_1:
            return WeightType::q4_1;
        case TensorType::q8_0:
        case TensorType::q5_0:
        case TensorType::iq4_nl:
        case TensorType::q3_k:
            return WeightType::q8_0;
        case TensorType::mxfp4:
            return halves_hold_scales(matrix) ? WeightType::q8_0 : WeightType::f32;
        case TensorType::q4_k:
            return WeightType::q4_k;
        case TensorType::q5_1:
        case TensorType::q5_k:
            return WeightType::q5_k;
        case TensorType::q6_k:
        case TensorType::iq4_xs:
            return WeightType::q6_k;
        default:
            return WeightType::f32;
    }
}

bool is_packable_as_it_is(TensorType from, WeightType to) {
    constexpr std::array<std::pair<TensorType, WeightType>, 6> kSame{
        {{TensorType::f32, WeightType::f32},
         {TensorType::f16, WeightType::f16},
         {TensorType::bf16, WeightType::bf16},
         {TensorType::q4_0, WeightType::q4_0},
         {TensorType::q4_1, WeightType::q4_1},
         {TensorType::q8_0, WeightType::q8_0}}};
    return std::find(kSame.begin(), kSame.end(), std::pair{from, to}) != kSame.end();
}

void rewrite_row(const model::Matrix& matrix, std::size_t row, WeightType to, std::byte* out) {
    const std::span<const std::byte> raw = matrix.row(row);
    if (is_packable_as_it_is(matrix.type, to)) {
        std::memcpy(out, raw.data(), raw.size());
        return;
    }
    if (to == WeightType::f32) {
        std::vector<float> values(matrix.columns);
        model::dequantise(matrix.type, raw, values);
        std::memcpy(out, values.data(), values.size() * sizeof(float));
        return;
    }
    const std::size_t bytes = model::tensor_type_info(matrix.type).block_bytes;
    BlockWriter writer(out);
    for (std::size_t at = 0; at < raw.size(); at += bytes)
        rewrite_block(matrix.type, raw.data() + at, writer);
}

}  // namespace troupe::cpu
