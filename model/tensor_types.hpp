// The element types of GGML tensors: what their blocks look like, and how a row of them becomes
// float32. Pure functions; the dequantisers are the definition that every kernel is tested against.
// Layouts: ggml/src/ggml-common.h of the ggml project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace troupe::model {

// Numbered as in the file. The numbers 4, 5, 31-33 and 36-38 were withdrawn by the format.
enum class TensorType : std::uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q8_1 = 9,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    q8_k = 15,
    iq2_xxs = 16,
    iq2_xs = 17,
    iq3_xxs = 18,
    iq1_s = 19,
    iq4_nl = 20,
    iq3_s = 21,
    iq2_s = 22,
    iq4_xs = 23,
    i8 = 24,
    i16 = 25,
    i32 = 26,
    i64 = 27,
    f64 = 28,
    iq1_m = 29,
    bf16 = 30,
    tq1_0 = 34,
    tq2_0 = 35,
    mxfp4 = 39,
    nvfp4 = 40,
    q1_0 = 41,
    q2_0 = 42,
};

// Elements a block of Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL and MXFP4.
inline constexpr std::size_t kBlock = 32;

struct TensorTypeInfo {
    TensorType type = TensorType::f32;
    std::string_view name;          // "Q4_1"
    std::uint32_t block_size = 1;   // elements a block
    std::uint32_t block_bytes = 0;  // bytes a block
    bool dequantises = false;       // dequantise() knows it
};

// Null for a number that no type has.
[[nodiscard]] const TensorTypeInfo* find_tensor_type(std::uint32_t number);
// `type` must be a named enumerator.
[[nodiscard]] const TensorTypeInfo& tensor_type_info(TensorType type);
[[nodiscard]] std::string_view to_string(TensorType type);

// Bytes of `rows` rows of `row_length` elements; empty if a row is not a whole number of blocks or
// the size does not fit 64 bits.
[[nodiscard]] std::optional<std::uint64_t> tensor_bytes(TensorType type, std::uint64_t row_length,
                                                        std::uint64_t rows);

// Turns whole blocks into float32: out.size() elements, a multiple of the type's block size, from
// exactly their bytes. Bit-exact: one float32 rounding where the formula has one, none elsewhere.
// `type` must be one that `dequantises`.
void dequantise(TensorType type, std::span<const std::byte> blocks, std::span<float> out);

}  // namespace troupe::model
