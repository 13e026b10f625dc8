// The table of tensor types and the plain dequantisers.
#include "model/tensor_types.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "model/half.hpp"
#include "model/superblocks.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

using enum TensorType;

constexpr std::array kTypes{
    TensorTypeInfo{f32, "F32", 1, 4, true},
    TensorTypeInfo{f16, "F16", 1, 2, true},
    TensorTypeInfo{q4_0, "Q4_0", 32, 18, true},
    TensorTypeInfo{q4_1, "Q4_1", 32, 20, true},
    TensorTypeInfo{q5_0, "Q5_0", 32, 22, true},
    TensorTypeInfo{q5_1, "Q5_1", 32, 24, true},
    TensorTypeInfo{q8_0, "Q8_0", 32, 34, true},
    TensorTypeInfo{q8_1, "Q8_1", 32, 36},
    TensorTypeInfo{q2_k, "Q2_K", 256, 84, true},
    TensorTypeInfo{q3_k, "Q3_K", 256, 110, true},
    TensorTypeInfo{q4_k, "Q4_K", 256, 144, true},
    TensorTypeInfo{q5_k, "Q5_K", 256, 176, true},
    TensorTypeInfo{q6_k, "Q6_K", 256, 210, true},
    TensorTypeInfo{q8_k, "Q8_K", 256, 292},
    TensorTypeInfo{iq2_xxs, "IQ2_XXS", 256, 66},
    TensorTypeInfo{iq2_xs, "IQ2_XS", 256, 74},
    TensorTypeInfo{iq3_xxs, "IQ3_XXS", 256, 98},
    TensorTypeInfo{iq1_s, "IQ1_S", 256, 50},
    TensorTypeInfo{iq4_nl, "IQ4_NL", 32, 18, true},
    TensorTypeInfo{iq3_s, "IQ3_S", 256, 110},
    TensorTypeInfo{iq2_s, "IQ2_S", 256, 82},
    TensorTypeInfo{iq4_xs, "IQ4_XS", 256, 136, true},
    TensorTypeInfo{i8, "I8", 1, 1},
    TensorTypeInfo{i16, "I16", 1, 2},
    TensorTypeInfo{i32, "I32", 1, 4},
    TensorTypeInfo{i64, "I64", 1, 8},
    TensorTypeInfo{f64, "F64", 1, 8},
    TensorTypeInfo{iq1_m, "IQ1_M", 256, 56},
    TensorTypeInfo{bf16, "BF16", 1, 2, true},
    TensorTypeInfo{tq1_0, "TQ1_0", 256, 54},
    TensorTypeInfo{tq2_0, "TQ2_0", 256, 66},
    TensorTypeInfo{mxfp4, "MXFP4", 32, 17, true},
    TensorTypeInfo{nvfp4, "NVFP4", 64, 36},
    TensorTypeInfo{q1_0, "Q1_0", 128, 18},
    TensorTypeInfo{q2_0, "Q2_0", 64, 18},
};

float load_half(const std::byte* at) {
    return half_to_float(load_u16(at));
}

// Value j of a block in the low half of byte j, value j + 16 in its high half.
int nibble(const std::byte* packed, std::size_t j) {
    const int byte = std::to_integer<int>(packed[j % 16]);
    return j < 16 ? byte & 0xF : byte >> 4;
}

// The fifth bit of value j, worth 16: bit j of a little-endian 32-bit word.
int fifth_bit(const std::byte* word, std::size_t j) {
    return ((std::to_integer<int>(word[j / 8]) >> (j % 8)) & 1) << 4;
}

void dequantise_q4_0(const std::byte* block, float* out) {  // half d, 16 bytes
    const float d = load_half(block);
    for (std::size_t j = 0; j < kBlock; ++j) {
        out[j] = d * static_cast<float>(nibble(block + 2, j) - 8);
    }
}

void dequantise_q4_1(const std::byte* block, float* out) {  // half d, half m, 16 bytes
    const float d = load_half(block);
    const float m = load_half(block + 2);
    for (std::size_t j = 0; j < kBlock; ++j) {
        out[j] = d * static_cast<float>(nibble(block + 4, j)) + m;
    }
}

void dequantise_q5_0(const std::byte* block, float* out) {  // half d, 4 bytes of bits, 16 bytes
    const float d = load_half(block);
    for (std::size_t j = 0; j < kBlock; ++j) {
        out[j] = d * static_cast<float>((nibble(block + 6, j) | fifth_bit(block + 2, j)) - 16);
    }
}

void dequantise_q5_1(const std::byte* block, float* out) {  // half d, half m, 4 bytes, 16 bytes
    const float d = load_half(block);
    const float m = load_half(block + 2);
    for (std::size_t j = 0; j < kBlock; ++j) {
        out[j] = d * static_cast<float>(nibble(block + 8, j) | fifth_bit(block + 4, j)) + m;
    }
}

void dequantise_q8_0(const std::byte* block, float* out) {  // half d, 32 int8
    const float d = load_half(block);
    for (std::size_t j = 0; j < kBlock; ++j) {
        out[j] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + j]));
    }
}

void dequantise_iq4_nl(const std::byte* block, float* out) {  // half d, 16 bytes
    const float d = load_half(block);
    for (std::size_t j = 0; j < kBlock; ++j) {
        const auto q = static_cast<std::size_t>(nibble(block + 2, j));
        out[j] = d * static_cast<float>(kIq4Values[q]);
    }
}

void dequantise_mxfp4(const std::byte* block, float* out) {  // exponent byte, 16 bytes
    const float half_scale = mxfp4_half_scale(std::to_integer<std::uint8_t>(block[0]));
    for (std::size_t j = 0; j < kBlock; ++j) {
        const auto q = static_cast<std::size_t>(nibble(block + 1, j));
        out[j] = half_scale * static_cast<float>(kMxfp4Values[q]);
    }
}

// The products with scales are exact in float32, so only the last operation rounds.
template <Superblock (*Read)(const std::byte*)>
void dequantise_superblock(const std::byte* block, float* out) {
    const Superblock super = Read(block);
    const float d = half_to_float(super.d);
    const float minimum = half_to_float(super.minimum);
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const std::size_t group = j / super.group;
        const float scale = d * static_cast<float>(super.scales[group]);
        out[j] = scale * static_cast<float>(super.quants[j]) -
                 minimum * static_cast<float>(super.minima[group]);
    }
}

template <class DequantiseBlock>
void each_block(const std::byte* blocks, const TensorTypeInfo& info, std::span<float> out,
                DequantiseBlock dequantise_block) {
    for (std::size_t i = 0; i < out.size() / info.block_size; ++i) {
        dequantise_block(blocks + i * info.block_bytes, out.data() + i * info.block_size);
    }
}

}  // namespace

const TensorTypeInfo* find_tensor_type(std::uint32_t number) {
    const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const TensorTypeInfo& info) {
        return static_cast<std::uint32_t>(info.type) == number;
    });
    return it == kTypes.end() ? nullptr : &*it;
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
    const TensorTypeInfo* info = find_tensor_type(static_cast<std::uint32_t>(type));
    TROUPE_ASSERT(info != nullptr);
    return *info;
}

std::string_view to_string(TensorType type) {
    return tensor_type_info(type).name;
}

std::optional<std::uint64_t> tensor_bytes(TensorType type, std::uint64_t row_length,
                                          std::uint64_t rows) {
    const TensorTypeInfo& info = tensor_type_info(type);
    if (row_length % info.block_size != 0) return std::nullopt;
    std::uint64_t bytes = row_length / info.block_size;
    if (__builtin_mul_overflow(bytes, std::uint64_t{info.block_bytes}, &bytes)) return std::nullopt;
    if (__builtin_mul_overflow(bytes, rows, &bytes)) return std::nullopt;
    return bytes;
}

void dequantise(TensorType type, std::span<const std::byte> blocks, std::span<float> out) {
    const TensorTypeInfo& info = tensor_type_info(type);
    TROUPE_ASSERT(info.dequantises);
    TROUPE_ASSERT(out.size() % info.block_size == 0);
    TROUPE_ASSERT(blocks.size() == out.size() / info.block_size * info.block_bytes);
    const std::byte* in = blocks.data();
    switch (type) {
        case f32:
            if (!out.empty()) std::memcpy(out.data(), in, blocks.size());
            return;
        case f16:
            for (std::size_t i = 0; i < out.size(); ++i)
                out[i] = load_half(in + 2 * i);
            return;
        case bf16:
            for (std::size_t i = 0; i < out.size(); ++i) {
                out[i] = bfloat16_to_float(load_u16(in + 2 * i));
            }
            return;
        case q4_0:
            return each_block(in, info, out, dequantise_q4_0);
        case q4_1:
            return each_block(in, info, out, dequantise_q4_1);
        case q5_0:
            return each_block(in, info, out, dequantise_q5_0);
        case q5_1:
            return each_block(in, info, out, dequantise_q5_1);
        case q8_0:
            return each_block(in, info, out, dequantise_q8_0);
        case iq4_nl:
            return each_block(in, info, out, dequantise_iq4_nl);
        case mxfp4:
            return each_block(in, info, out, dequantise_mxfp4);
        case q2_k:
            return each_block(in, info, out, dequantise_superblock<read_q2_k>);
        case q3_k:
            return each_block(in, info, out, dequantise_superblock<read_q3_k>);
        case q4_k:
            return each_block(in, info, out, dequantise_superblock<read_q4_k>);
        case q5_k:
            return each_block(in, info, out, dequantise_superblock<read_q5_k>);
        case q6_k:
            return each_block(in, info, out, dequantise_superblock<read_q6_k>);
        case iq4_xs:
            return each_block(in, info, out, dequantise_superblock<read_iq4_xs>);
        default:
            TROUPE_ASSERT(false, "the table says that this type dequantises");
    }
}

}  // namespace troupe::model
