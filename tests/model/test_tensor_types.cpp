// Tensor types: sizes, and dequantisation bit for bit.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "model/gguf.hpp"
#include "model/half.hpp"
#include "model/tensor_types.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/sha256.hpp"

using namespace troupe;
using namespace troupe::model;

namespace {

const std::string kAbc = "abc";

std::vector<float> dequantised(TensorType type, std::span<const std::byte> bytes) {
    const TensorTypeInfo& info = tensor_type_info(type);
    std::vector<float> out(bytes.size() / info.block_bytes * info.block_size);
    dequantise(type, bytes, out);
    return out;
}

// A block of bytes that count up from `first` after the given scale halves.
std::vector<std::byte> block_of(std::size_t size, std::initializer_list<float> halves) {
    std::vector<std::byte> bytes(size);
    for (std::size_t i = 0; i < size; ++i)
        bytes[i] = static_cast<std::byte>(37 * i + 11);
    std::size_t at = 0;
    for (const float half : halves) {
        const std::uint16_t bits = float_to_half(half);
        std::memcpy(bytes.data() + at, &bits, sizeof bits);
        at += sizeof bits;
    }
    return bytes;
}

int byte_at(const std::vector<std::byte>& bytes, std::size_t index) {
    return std::to_integer<int>(bytes[index]);
}

}  // namespace

TEST_CASE("Tensor types know their sizes", "[model][tensor]") {
    CHECK(find_tensor_type(3)->name == "Q4_1");
    CHECK(find_tensor_type(4) == nullptr);
    CHECK(find_tensor_type(43) == nullptr);
    CHECK(tensor_bytes(TensorType::q4_1, 576, 576) == 207360);
    CHECK(tensor_bytes(TensorType::q8_0, 576, 49152) == 30081024);
    CHECK(tensor_bytes(TensorType::f32, 576, 1) == 2304);
    CHECK(tensor_bytes(TensorType::q6_k, 256, 2) == 420);
    CHECK(tensor_bytes(TensorType::q4_1, 0, 5) == 0);
    CHECK(!tensor_bytes(TensorType::q4_1, 48, 1));
    CHECK(!tensor_bytes(TensorType::f32, 1ULL << 62, 1));
    CHECK(!tensor_bytes(TensorType::f32, 1ULL << 32, 1ULL << 32));
}

TEST_CASE("Halves convert exactly, and back to the nearest", "[model][tensor]") {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = half_to_float(half);
        if (value != value) {
            REQUIRE((float_to_half(value) & 0x7E00) == 0x7E00);
            continue;
        }
        REQUIRE(float_to_half(value) == half);
    }
    CHECK(half_to_float(0x3C00) == 1.0F);
    CHECK(half_to_float(0x0001) == 0x1p-24F);
    CHECK(half_to_float(0x7BFF) == 65504.0F);
    CHECK(half_to_float(0xFC00) == -std::numeric_limits<float>::infinity());
    // Halfway cases go to even; the neighbours of a half that is a power of two, too.
    CHECK(float_to_half(1.0F + 0x1p-11F) == 0x3C00);
    CHECK(float_to_half(1.0F + 3 * 0x1p-11F) == 0x3C02);
    CHECK(float_to_half(1.0F + 0x1p-11F + 0x1p-20F) == 0x3C01);
    CHECK(float_to_half(0x1p-25F) == 0x0000);
    CHECK(float_to_half(0x1.8p-25F) == 0x0001);
    CHECK(float_to_half(0x1.8p-24F) == 0x0002);
    CHECK(float_to_half(65519.996F) == 0x7BFF);
    CHECK(float_to_half(65520.0F) == 0x7C00);
    CHECK(float_to_half(-1e30F) == 0xFC00);

    CHECK(bfloat16_to_float(0x3F80) == 1.0F);
    CHECK(float_to_bfloat16(1.0F + 0x1p-8F) == 0x3F80);
    CHECK(float_to_bfloat16(1.0F + 3 * 0x1p-8F) == 0x3F82);
    CHECK(float_to_bfloat16(std::numeric_limits<float>::infinity()) == 0x7F80);
    CHECK((float_to_bfloat16(std::numeric_limits<float>::quiet_NaN()) & 0x7FC0) == 0x7FC0);
}

TEST_CASE("Blocks dequantise by their formulas", "[model][tensor]") {
    SECTION("Q4_0: d * (q - 8)") {
        const auto block = block_of(18, {0.25F});
        const auto out = dequantised(TensorType::q4_0, block);
        for (std::size_t j = 0; j < 16; ++j) {
            CHECK(out[j] == 0.25F * static_cast<float>((byte_at(block, 2 + j) & 15) - 8));
            CHECK(out[j + 16] == 0.25F * static_cast<float>((byte_at(block, 2 + j) >> 4) - 8));
        }
    }
    SECTION("Q5_0: d * (q - 16)") {
        const auto block = block_of(22, {-0.5F});
        const auto out = dequantised(TensorType::q5_0, block);
        std::uint32_t high = 0;
        std::memcpy(&high, block.data() + 2, 4);
        for (std::size_t j = 0; j < 32; ++j) {
            const int byte = byte_at(block, 6 + j % 16);
            const int q = (j < 16 ? byte & 15 : byte >> 4) + 16 * static_cast<int>(high >> j & 1);
            CHECK(out[j] == -0.5F * static_cast<float>(q - 16));
        }
    }
    SECTION("Q5_1: d * q + m") {
        const auto block = block_of(24, {0.125F, 3.0F});
        const auto out = dequantised(TensorType::q5_1, block);
        std::uint32_t high = 0;
        std::memcpy(&high, block.data() + 4, 4);
        for (std::size_t j = 0; j < 32; ++j) {
            const int byte = byte_at(block, 8 + j % 16);
            const int q = (j < 16 ? byte & 15 : byte >> 4) + 16 * static_cast<int>(high >> j & 1);
            CHECK(out[j] == 0.125F * static_cast<float>(q) + 3.0F);
        }
    }
    SECTION("F16, BF16, F32") {
        const std::vector<std::uint16_t> halves{0x3C00, 0xC000};
        CHECK(dequantised(TensorType::f16, std::as_bytes(std::span{halves})) ==
              std::vector<float>{1, -2});
        const std::vector<std::uint16_t> brains{0x3F80, 0xC000};
        CHECK(dequantised(TensorType::bf16, std::as_bytes(std::span{brains})) ==
              std::vector<float>{1, -2});
        const std::vector<float> floats{1.5F, -7};
        CHECK(dequantised(TensorType::f32, std::as_bytes(std::span{floats})) == floats);
    }
}

TEST_CASE("Every quantisation dequantises to what PyPI's gguf makes of it, bit for bit",
          "[model][tensor]") {
    const auto reference = test::read_json(test::test_data("gguf_blocks/blocks.json"));
    for (const auto& entry : reference.at("types").as_object()) {
        const std::string name{entry.key()};
        INFO(name);
        std::uint32_t number = 0;
        while (find_tensor_type(number) == nullptr || find_tensor_type(number)->name != name)
            ++number;
        const auto blocks = test::from_hex(entry.value().at("blocks"));
        const auto values = test::from_hex(entry.value().at("values"));
        const auto got = dequantised(find_tensor_type(number)->type, blocks);
        REQUIRE(got.size() * sizeof(float) == values.size());
        CHECK(std::memcmp(got.data(), values.data(), values.size()) == 0);
    }
}

TEST_CASE("The reference hash of the next test is SHA-256", "[model][tensor]") {
    CHECK(test::sha256_hex(std::as_bytes(std::span{kAbc})) ==
          "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("The default model's blocks dequantise to the reference, bit for bit",
          "[model][tensor]") {
    const auto path = test::default_model();
    if (path.empty() || !test::have_shared("7-smollm2/dequant.json")) return;
    const auto file = GgufFile::open(path);
    REQUIRE(file.has_value());
    const auto reference = test::read_json(test::shared_data("7-smollm2/dequant.json"));
    for (const auto& expected : reference.at("tensors").as_array()) {
        const std::string name{expected.at("name").as_string()};
        INFO(name);
        const GgufTensor* tensor = file->find_tensor(name);
        REQUIRE(tensor != nullptr);
        CHECK(to_string(tensor->type) == std::string{expected.at("type").as_string()});
        const auto values = dequantised(tensor->type, tensor->bytes);
        CHECK(test::sha256_hex(std::as_bytes(std::span{values})) ==
              std::string{expected.at("sha256_f32le").as_string()});

        const auto* blocks = expected.as_object().if_contains("blocks");
        if (blocks == nullptr) continue;
        const TensorTypeInfo& info = tensor_type_info(tensor->type);
        for (const auto& block : blocks->as_array()) {
            const auto index = block.at("block").to_number<std::size_t>();
            const auto raw = test::from_hex(block.at("raw_hex"));
            REQUIRE(std::memcmp(raw.data(), tensor->bytes.data() + index * info.block_bytes,
                                raw.size()) == 0);
            const auto want = block.at("values").as_array();
            const auto got = dequantised(tensor->type, raw);
            REQUIRE(got.size() == want.size());
            for (std::size_t i = 0; i < want.size(); ++i) {
                CHECK(got[i] == want[i].to_number<float>());
            }
        }
    }
}
