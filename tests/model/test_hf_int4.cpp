// 4-bit weights of AWQ and GPTQ against their definition, written out.
#include <catch2/catch.hpp>
#include <random>

#include "model/half.hpp"
#include "model/hf_int4.hpp"
#include "tests/support/gguf_writer.hpp"

namespace troupe::model {
namespace {

using Method = HfQuantisation::Method;

// A matrix by its numbers, and how it is stored.
struct Plain {
    std::uint64_t rows = 16, columns = 128, group_columns = 64;
    std::vector<int> quants;            // [rows][columns]
    std::vector<int> zeros;             // [groups][rows]
    std::vector<std::uint16_t> scales;  // [groups][rows]
    std::vector<std::int32_t> groups;   // [columns]

    explicit Plain(bool zeros_vary) {
        std::mt19937 random(5);
        for (std::uint64_t i = 0; i < rows * columns; ++i)
            quants.push_back(static_cast<int>(random() % 16));
        for (std::uint64_t i = 0; i < columns / group_columns * rows; ++i) {
            zeros.push_back(zeros_vary ? static_cast<int>(random() % 16) : 8);
            scales.push_back(float_to_half(static_cast<float>(random() % 1000 + 1) / 7000));
        }
        for (std::uint64_t i = 0; i < columns; ++i)
            groups.push_back(static_cast<std::int32_t>(i / group_columns));
    }
    [[nodiscard]] float value(std::uint64_t row, std::uint64_t column) const {
        const std::uint64_t at = static_cast<std::uint64_t>(groups[column]) * rows + row;
        return half_to_float(scales[at]) *
               static_cast<float>(quants[row * columns + column] - zeros[at]);
    }
};

// The tensors that hold it, with the bytes they view.
struct Stored {
    std::vector<std::uint32_t> weights, zeros;
    std::vector<std::uint16_t> scales;
    std::vector<std::int32_t> groups;
    SafeTensor weight_tensor, zero_tensor, scale_tensor, group_tensor;
    Int4Matrix matrix;

    // As AutoAWQ packs: element order[i] of eight neighbours goes to bits 4i.
    static std::vector<std::uint32_t> packed_along_rows(const std::vector<int>& numbers,
                                                        bool is_awq, int minus) {
        constexpr std::array order{0, 2, 4, 6, 1, 3, 5, 7};
        std::vector<std::uint32_t> words;
        for (std::size_t at = 0; at < numbers.size(); at += 8) {
            std::uint32_t word = 0;
            for (std::size_t i = 0; i < 8; ++i) {
                const auto from = at + (is_awq ? static_cast<std::size_t>(order[i]) : i);
                word |= static_cast<std::uint32_t>((numbers[from] - minus) & 15) << (4 * i);
            }
            words.push_back(word);
        }
        return words;
    }

    Stored(const Plain& plain, HfQuantisation how) : scales(plain.scales), groups(plain.groups) {
        const bool is_awq = how.method == Method::awq;
        zeros = packed_along_rows(plain.zeros, is_awq, how.zeros_are_less_one ? 1 : 0);
        if (is_awq) {
            std::vector<int> by_column;
            for (std::uint64_t column = 0; column < plain.columns; ++column)
                for (std::uint64_t row = 0; row < plain.rows; ++row)
                    by_column.push_back(plain.quants[row * plain.columns + column]);
            weights = packed_along_rows(by_column, true, 0);
        } else {
            for (std::uint64_t column = 0; column < plain.columns; column += 8) {
                for (std::uint64_t row = 0; row < plain.rows; ++row) {
                    std::uint32_t word = 0;
                    for (std::uint64_t i = 0; i < 8; ++i) {
                        const int quant = plain.quants[row * plain.columns + column + i];
                        word |= static_cast<std::uint32_t>(quant) << (4 * i);
                    }
                    weights.push_back(word);
                }
            }
        }
        const std::uint64_t count = plain.columns / plain.group_columns, words = plain.rows / 8;
        weight_tensor = tensor(TensorType::i32, weights);
        weight_tensor.shape =
            is_awq ? std::vector{plain.columns, words} : std::vector{plain.columns / 8, plain.rows};
        zero_tensor = tensor(TensorType::i32, zeros);
        zero_tensor.shape = {count, words};
        scale_tensor = tensor(TensorType::f16, scales);
        scale_tensor.shape = {count, plain.rows};
        group_tensor = tensor(TensorType::i32, groups);
        group_tensor.shape = {plain.columns};
        matrix = {&weight_tensor, &zero_tensor, &scale_tensor, is_awq ? nullptr : &group_tensor};
    }
    Stored(const Stored&) = delete;
    Stored& operator=(const Stored&) = delete;

    template <class T>
    static SafeTensor tensor(TensorType type, const std::vector<T>& numbers) {
        return {.name = "t", .type = type, .shape = {}, .bytes = std::as_bytes(std::span(numbers))};
    }
};

TensorType check_unpacked(const Plain& plain, HfQuantisation how) {
    const Stored stored(plain, how);
    const auto made = unpack_int4(stored.matrix, how);
    REQUIRE(made.has_value());
    REQUIRE(made->rows == plain.rows);
    REQUIRE(made->columns == plain.columns);
    std::vector<float> values(plain.rows * plain.columns);
    dequantise(made->type, made->bytes, values);
    std::size_t wrong = 0;
    for (std::uint64_t row = 0; row < plain.rows; ++row)
        for (std::uint64_t column = 0; column < plain.columns; ++column)
            wrong += values[row * plain.columns + column] != plain.value(row, column) ? 1 : 0;
    CHECK(wrong == 0);
    return made->type;
}

constexpr HfQuantisation kAwq{Method::awq, false};
constexpr HfQuantisation kGptq{Method::gptq, true};
constexpr HfQuantisation kGptqV2{Method::gptq, false};

}  // namespace

TEST_CASE("AWQ and GPTQ matrices keep every value", "[model][int4]") {
    for (const HfQuantisation& how : {kAwq, kGptq, kGptqV2}) {
        CAPTURE(static_cast<int>(how.method), how.zeros_are_less_one);
        CHECK(check_unpacked(Plain(true), how) == TensorType::q8_0);
        CHECK(check_unpacked(Plain(false), how) == TensorType::q4_0);
    }
}

TEST_CASE("GPTQ's order by activation keeps every value", "[model][int4]") {
    Plain plain(true);
    std::shuffle(plain.groups.begin(), plain.groups.end(), std::mt19937(9));
    CHECK(check_unpacked(plain, kGptq) == TensorType::f32);
    // In whole blocks it needs no float32.
    for (std::size_t i = 0; i < plain.columns; ++i)
        plain.groups[i] = static_cast<std::int32_t>(i / 32 % 2);
    CHECK(check_unpacked(plain, kGptq) == TensorType::q8_0);
}

TEST_CASE("Parts of a 4-bit matrix that do not fit together are refused", "[model][int4]") {
    const auto refusal = [](const HfQuantisation& how, auto edit) {
        Stored stored(Plain(true), how);
        edit(stored);
        const auto made = unpack_int4(stored.matrix, how);
        return made ? "(accepted)" : made.error().message;
    };
    CHECK(refusal(kAwq, [](Stored& s) { s.matrix.zeros = nullptr; }) ==
          "one of qweight, qzeros and scales is missing");
    CHECK(refusal(kAwq, [](Stored& s) { s.scale_tensor.type = TensorType::bf16; }) ==
          "scales are BF16, expected F16");
    CHECK(refusal(kAwq, [](Stored& s) { s.zero_tensor.type = TensorType::f32; }) ==
          "qweight, qzeros and scales are not matrices of I32, I32 and F16");
    CHECK(refusal(kAwq, [](Stored& s) {
              s.weight_tensor.shape = {128, 3};
          }) == "qweight 128x3, qzeros 2x2 and scales 2x16 do not fit together");
    CHECK(refusal(kGptq, [](Stored& s) {
              s.zero_tensor.shape = {3, 2};
          }) == "qweight 16x16, qzeros 3x2 and scales 2x16 do not fit together");
    CHECK(refusal(kGptq, [](Stored& s) { s.groups[7] = 2; }) ==
          "g_idx[7] is 2, but there are 2 groups");
    CHECK(refusal(kGptq, [](Stored& s) { s.groups[3] = -1; }) ==
          "g_idx[3] is -1, but there are 2 groups");
    CHECK(refusal(kGptq, [](Stored& s) { s.group_tensor.shape = {64}; }) ==
          "g_idx is not 128 numbers of I32");
}

}  // namespace troupe::model
