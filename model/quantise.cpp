#include "model/quantise.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "model/half.hpp"
#include "model/quantise_superblocks.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

using Block = std::span<const float, kBlock>;

std::byte* write_u16(std::byte* out, std::uint16_t value) {
    std::memcpy(out, &value, sizeof value);
    return out + sizeof value;
}

float inverse(float d) {
    return d == 0 ? 0.0F : 1 / d;
}

// A quant from 0 to `most`. Where the inverse of a tiny scale overflows a number may be none: 0.
int clipped(float value, int most) {
    if (!(value >= 0)) return 0;
    return static_cast<int>(std::min(value, static_cast<float>(most)));
}

// The quants' low four bits: value j in the low half of byte j, value j + 16 in its high half. For
// five bits the fifth ones go in front, in a little-endian word.
void write_quants(const std::array<int, kBlock>& quants, bool five_bits, std::byte* out) {
    if (five_bits) {
        std::uint32_t high = 0;
        for (std::size_t j = 0; j < kBlock; ++j)
            high |= static_cast<std::uint32_t>(quants[j] >> 4) << j;
        std::memcpy(out, &high, sizeof high);
        out += sizeof high;
    }
    for (std::size_t j = 0; j < kBlock / 2; ++j)
        out[j] = static_cast<std::byte>((quants[j] & 15) | (quants[j + kBlock / 2] & 15) << 4);
}

// Q4_0, Q5_0: the largest number, with its sign, becomes the lowest quant.
template <int kBits>
void quantise_symmetric(Block numbers, std::byte* out) {
    constexpr int kZero = 1 << (kBits - 1);
    const float largest = *std::max_element(
        numbers.begin(), numbers.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float d = largest / -static_cast<float>(kZero);
    const float id = inverse(d);
    std::array<int, kBlock> quants;
    for (std::size_t j = 0; j < kBlock; ++j)
        quants[j] = clipped(numbers[j] * id + (static_cast<float>(kZero) + 0.5F), 2 * kZero - 1);
    write_quants(quants, kBits == 5, write_u16(out, float_to_half(d)));
}

// Q4_1, Q5_1: from the lowest number to the highest.
template <int kBits>
void quantise_with_minimum(Block numbers, std::byte* out) {
    constexpr int kMost = (1 << kBits) - 1;
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    const float minimum = *low;
    const float d = (*high - minimum) / static_cast<float>(kMost);
    const float id = inverse(d);
    std::array<int, kBlock> quants;
    for (std::size_t j = 0; j < kBlock; ++j)
        quants[j] = clipped((numbers[j] - minimum) * id + 0.5F, kMost);
    out = write_u16(out, float_to_half(d));
    write_quants(quants, kBits == 5, write_u16(out, float_to_half(minimum)));
}

void quantise_q8_0(Block numbers, std::byte* out) {
    float largest = 0;
    for (const float number : numbers)
        largest = std::max(largest, std::abs(number));
    const float d = largest / 127;
    const float id = inverse(d);
    out = write_u16(out, float_to_half(d));
    for (std::size_t j = 0; j < kBlock; ++j) {
        const float scaled = numbers[j] * id;
        const int magnitude = clipped(std::round(std::abs(scaled)), 127);
        out[j] = static_cast<std::byte>(scaled < 0 ? -magnitude : magnitude);
    }
}

template <std::size_t kSize = kBlock, class QuantiseBlock>
void each_block(std::span<const float> numbers, std::span<std::byte> out,
                QuantiseBlock quantise_block) {
    const std::size_t blocks = numbers.size() / kSize;
    for (std::size_t i = 0; i < blocks; ++i)
        quantise_block(std::span<const float, kSize>(numbers.subspan(i * kSize, kSize)),
                       out.data() + i * (out.size() / blocks));
}

}  // namespace

void quantise(TensorType type, std::span<const float> numbers, std::span<std::byte> out) {
    const TensorTypeInfo& info = tensor_type_info(type);
    TROUPE_ASSERT(numbers.size() % info.block_size == 0);
    TROUPE_ASSERT(out.size() == numbers.size() / info.block_size * info.block_bytes);
    switch (type) {
        case TensorType::f32:
            if (!out.empty()) std::memcpy(out.data(), numbers.data(), out.size());
            return;
        case TensorType::f16:
            for (std::size_t i = 0; i < numbers.size(); ++i)
                write_u16(out.data() + 2 * i, float_to_half(numbers[i]));
            return;
        case TensorType::bf16:
            for (std::size_t i = 0; i < numbers.size(); ++i)
                write_u16(out.data() + 2 * i, float_to_bfloat16(numbers[i]));
            return;
        case TensorType::q8_0:
            return each_block(numbers, out, quantise_q8_0);
        case TensorType::q4_0:
            return each_block(numbers, out, quantise_symmetric<4>);
        case TensorType::q4_1:
            return each_block(numbers, out, quantise_with_minimum<4>);
        case TensorType::q5_0:
            return each_block(numbers, out, quantise_symmetric<5>);
        case TensorType::q5_1:
            return each_block(numbers, out, quantise_with_minimum<5>);
        case TensorType::q4_k:
            return each_block<kSuperblock>(numbers, out, quantise_q4_k);
        case TensorType::q5_k:
            return each_block<kSuperblock>(numbers, out, quantise_q5_k);
        case TensorType::q6_k:
            return each_block<kSuperblock>(numbers, out, quantise_q6_k);
        default:
            TROUPE_ASSERT(false, "one of kQuantisableTypes");
    }
}

}  // namespace troupe::model
