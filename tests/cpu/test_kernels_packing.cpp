// Reading of weight blocks, 16-bit floats, the rope table, repacking, and choosing a set by name.
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "cpu/kernels/rope.hpp"
#include "tests/cpu/kernels_support.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

namespace troupe::test {

TEST_CASE("every 16-bit float widens exactly and comes back", "[cpu][kernels]") {
    for (unsigned bits = 0; bits < 0x10000U; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float value = half_to_float(half);
        const int exponent = static_cast<int>((bits >> 10) & 31U);
        const double mantissa = bits & 1023U;
        if (exponent == 31) {
            REQUIRE(std::isnan(value) == (mantissa != 0.0));
            if (mantissa != 0.0) continue;
        } else {
            const double magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                                                   : std::ldexp(mantissa + 1024.0, exponent - 25);
            REQUIRE(double{value} == (bits & 0x8000U ? -magnitude : magnitude));
        }
        REQUIRE(float_to_half(value) == half);
    }
}

TEST_CASE("floats between two 16-bit floats round to the nearer, ties to even", "[cpu][kernels]") {
    for (std::uint16_t half = 0; half < 0x7BFFU; ++half) {
        const double low = half_to_float(half);
        const double high = half_to_float(static_cast<std::uint16_t>(half + 1));
        const auto middle = static_cast<float>((low + high) / 2.0);
        const auto even = static_cast<std::uint16_t>(half + (half & 1U));
        REQUIRE(float_to_half(middle) == even);
        REQUIRE(float_to_half(std::nextafter(middle, 0.0F)) == half);
        REQUIRE(float_to_half(std::nextafter(middle, 1e9F)) == half + 1);
    }
    REQUIRE(float_to_half(65519.9F) == 0x7BFFU);
    REQUIRE(float_to_half(65520.0F) == 0x7C00U);
    REQUIRE(float_to_half(-1e30F) == 0xFC00U);
}

TEST_CASE("blocks of the default model widen to their reference values", "[cpu][kernels]") {
    if (!have_shared("7-smollm2/dequant.json")) return;
    const auto json = read_json(shared_data("7-smollm2/dequant.json"));
    std::size_t checked = 0;
    for (const auto& tensor : json.at("tensors").as_array()) {
        const auto& name = tensor.at("type").as_string();
        const auto type = name == "Q4_1"   ? WeightType::q4_1
                          : name == "Q8_0" ? WeightType::q8_0
                                           : WeightType::f32;
        const auto* blocks = tensor.as_object().if_contains("blocks");
        if (type == WeightType::f32 || blocks == nullptr) continue;
        for (const auto& block : blocks->as_array()) {
            const auto raw = from_hex(block.at("raw_hex"));
            REQUIRE(raw.size() == raw_row_bytes(type, 32));
            float values[32];
            dequantize_row(type, raw.data(), 32, values);
            const auto& expected = block.at("values").as_array();
            for (std::size_t i = 0; i < 32; ++i) {
                REQUIRE(values[i] == static_cast<float>(expected[i].to_number<double>()));
            }
            ++checked;
        }
    }
    REQUIRE(checked > 0);
}

TEST_CASE("the rope table has the reference angles", "[cpu][kernels]") {
    const auto frequencies = rope_frequencies(64, 100000.0);
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double expected = std::pow(100000.0, -static_cast<double>(i) / 32.0);
        REQUIRE(frequencies[i] == Approx(expected).epsilon(1e-14));
    }
    const RopeTable table(frequencies, 8192);
    REQUIRE(table.positions() == 8192);
    for (std::size_t position = 0; position < 8192; position += 97) {
        for (std::size_t i = 0; i < 32; ++i) {
            const double angle = static_cast<double>(position) * frequencies[i];
            REQUIRE(table.angles(position)[2 * i] == Approx(std::cos(angle)).margin(6e-8));
            REQUIRE(table.angles(position)[2 * i + 1] == Approx(std::sin(angle)).margin(6e-8));
        }
    }
    if (!have_shared("7-smollm2/rope.json")) return;
    const auto json = read_json(shared_data("7-smollm2/rope.json"));
    for (const auto& row : json.at("rows").as_array()) {
        const float* angles = table.angles(row.at("pos").to_number<std::size_t>());
        for (std::size_t i = 0; i < 32; ++i) {
            REQUIRE(angles[2 * i] == Approx(row.at("cos").at(i).to_number<double>()).margin(1e-7));
            REQUIRE(angles[2 * i + 1] ==
                    Approx(row.at("sin").at(i).to_number<double>()).margin(1e-7));
        }
    }
}

TEST_CASE("stacked matrices pack as one, panel by panel", "[cpu][kernels]") {
    Random random;
    const RawWeights first(WeightType::q4_1, 20, 64, random),
        second(WeightType::q4_1, 9, 64, random);
    const Packed whole({first.matrix, second.matrix}, PanelFormat::q4_1);
    Packed pieces({first.matrix, second.matrix}, PanelFormat::q4_1);
    std::memset(pieces.memory.data(), 0xFF, pieces.memory.bytes());
    const RawMatrix parts[] = {first.matrix, second.matrix};
    REQUIRE(pack_panels(parts, 1, 2, pieces.matrix).has_value());
    REQUIRE(pack_panels(parts, 0, 1, pieces.matrix).has_value());
    REQUIRE(std::memcmp(pieces.matrix.data, whole.matrix.data,
                        packed_bytes(PanelFormat::q4_1, 29, 64)) == 0);

    const Packed wide({first.matrix, second.matrix}, PanelFormat::f32);
    for (std::size_t r = 0; r < 32; ++r) {
        const auto* panel = reinterpret_cast<const float*>(wide.matrix.panel(r / 16));
        const auto row = r < 20   ? first.row(r)
                         : r < 29 ? second.row(r - 20)
                                  : std::vector<float>(64, 0.0F);
        for (std::size_t k = 0; k < 64; ++k)
            REQUIRE(panel[k * 16 + r % 16] == row[k]);
    }
}

TEST_CASE("a scale that is not finite is refused with its row", "[cpu][kernels]") {
    Random random;
    for (const WeightType type :
         {WeightType::q4_0, WeightType::q4_1, WeightType::q8_0, WeightType::q4_k, WeightType::q5_k,
          WeightType::q6_k, WeightType::f32, WeightType::f16, WeightType::bf16}) {
        RawWeights raw(type, 18, 32, random);
        std::byte* row = raw.bytes.data() + 17 * raw_row_bytes(type, 32);
        if (type == WeightType::f32) {
            const float nan = std::numeric_limits<float>::quiet_NaN();
            std::memcpy(row, &nan, 4);
        } else if (type == WeightType::bf16) {
            const std::uint16_t infinity = 0x7F80;
            std::memcpy(row, &infinity, 2);
        } else {
            put_half(row + (has_minimum(native_panel_format(type)) ? 2 : 0), 1e9F);
        }
        const PanelFormat format = native_panel_format(type);
        auto memory = AlignedBuffer::allocate(packed_bytes(format, 18, 32)).value();
        const PackedMatrix matrix{format, 18, 32, memory.data()};
        const auto result = pack_panels({&raw.matrix, 1}, 0, 2, matrix);
        REQUIRE(result.has_error());
        REQUIRE(result.error().kind == ErrorKind::invalid_input);
        REQUIRE(result.error().message.find("17") != std::string::npos);
    }
}

TEST_CASE("sets are found by name", "[cpu][kernels]") {
    REQUIRE(find_kernels("plain").value() == &plain_kernels());
    REQUIRE(find_kernels("auto").value() == available_kernels().back());
    const auto unknown = find_kernels("mmx");
    REQUIRE(unknown.has_error());
    REQUIRE(unknown.error().kind == ErrorKind::invalid_input);
    REQUIRE(unknown.error().message.find("plain") != std::string::npos);
    for (const Kernels* set : available_kernels())
        REQUIRE(find_kernels(set->name).value() == set);
}

}  // namespace troupe::test
