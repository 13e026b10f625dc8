// Rewriting a file's rows for packing: no value changes, whatever the type.
#include <bit>
#include <boost/json.hpp>

#include "cpu/weight_blocks.hpp"
#include "tests/cpu/kernels_support.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

namespace troupe::test {
namespace {

using model::TensorType;

model::Matrix one_row(const model::TensorTypeInfo& info, const std::vector<std::byte>& blocks) {
    model::Matrix matrix;
    matrix.type = info.type;
    matrix.rows = 1;
    matrix.columns = static_cast<std::uint32_t>(blocks.size() / info.block_bytes * info.block_size);
    matrix.bytes = blocks;
    return matrix;
}

std::vector<float> rewritten(const model::Matrix& matrix) {
    const WeightType type = packable_type(matrix);
    std::vector<std::byte> raw(raw_row_bytes(type, matrix.columns));
    rewrite_row(matrix, 0, type, raw.data());
    std::vector<float> values(matrix.columns);
    dequantize_row(type, raw.data(), matrix.columns, values.data());
    return values;
}

}  // namespace

TEST_CASE("Rewritten rows hold the values of the file's", "[cpu][weights]") {
    const auto reference = read_json(test_data("gguf_blocks/blocks.json"));
    for (const auto& entry : reference.at("types").as_object()) {
        const std::string name{entry.key()};
        CAPTURE(name);
        std::uint32_t number = 0;
        while (model::find_tensor_type(number) == nullptr ||
               model::find_tensor_type(number)->name != name)
            ++number;
        const auto blocks = test::from_hex(entry.value().at("blocks"));
        const auto bytes = test::from_hex(entry.value().at("values"));
        const std::vector<float> values =
            rewritten(one_row(*model::find_tensor_type(number), blocks));
        REQUIRE(values.size() * sizeof(float) == bytes.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            float expected = 0;
            std::memcpy(&expected, bytes.data() + i * sizeof(float), sizeof(float));
            CAPTURE(i);
            REQUIRE(values[i] == expected);
        }
    }
}

TEST_CASE("MXFP4 is packed as bytes where halves hold its scales", "[cpu][weights]") {
    const model::TensorTypeInfo& info = model::tensor_type_info(TensorType::mxfp4);
    std::vector<std::byte> blocks(2 * info.block_bytes, std::byte{0x71});
    blocks[0] = blocks[info.block_bytes] = std::byte{120};
    CHECK(packable_type(one_row(info, blocks)) == WeightType::q8_0);
    blocks[0] = std::byte{90};  // 2^-38
    CHECK(packable_type(one_row(info, blocks)) == WeightType::f32);
    std::fill_n(blocks.begin() + 1, 16, std::byte{0x80});  // but nothing to scale
    CHECK(packable_type(one_row(info, blocks)) == WeightType::q8_0);
    for (const float value : rewritten(one_row(info, blocks)))
        CHECK(std::abs(value) < 1);
}

}  // namespace troupe::test
