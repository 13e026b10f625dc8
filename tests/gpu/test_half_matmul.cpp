// Products on tensor units: against sums in double of the same halves, and every row's bits against
// those that it has alone, whichever way the launch takes.
#include "gpu/cards.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/half_matmul.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::uint32_t kOutputs = 19;

// In device memory; `view` is for kernels.
struct DeviceHalves {
    DeviceBuffer<std::uint16_t> values;
    DeviceBuffer<float> unscale;
    HalfRows view;

    DeviceHalves(std::uint32_t rows, std::uint32_t columns, HalfOrder order)
        : values(std::size_t{padded_half_rows(order, rows)} * padded_to_chunks(columns)),
          unscale(rows),
          view{values.data(), unscale.data(), padded_to_chunks(columns), order} {}
};

std::vector<float> multiply(const MatrixBuffer& w, const std::vector<float>& x, std::uint32_t rows,
                            std::uint32_t columns, const std::vector<float>* add_to = nullptr,
                            HalfOrder order = HalfOrder::rows) {
    Stream stream;
    const auto in = DeviceBuffer<float>::upload(x);
    const DeviceHalves halves(rows, columns, order);
    auto out = add_to != nullptr ? DeviceBuffer<float>::upload(*add_to)
                                 : DeviceBuffer<float>(std::size_t{rows} * w.view.rows);
    to_halves({in.data(), halves.view, rows, columns, columns}, stream.get());
    half_matmul({w.view, halves.view, out.data(), rows, w.view.rows, add_to != nullptr},
                stream.get());
    stream.synchronise();
    return out.download();
}

// Nine chunks and some; or two, of which a lane has none of the last columns.
std::uint32_t columns_for(model::TensorType type) {
    using enum model::TensorType;
    if (type == f16 || type == bf16) return 172;
    return type == q4_k || type == q5_k || type == q6_k ? 1280 : 1184;
}

// What becomes of a row's values on the way: scaled, rounded to halves, scaled back.
std::vector<float> through_halves(const std::vector<float>& x, std::uint32_t rows,
                                  std::uint32_t columns) {
    std::vector<std::uint16_t> halves(std::size_t{rows} * padded_to_chunks(columns));
    std::vector<float> unscale(rows);
    const std::uint32_t stride = padded_to_chunks(columns);
    to_halves_truth({x.data(), {halves.data(), unscale.data(), stride}, rows, columns, columns});
    std::vector<float> values;
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t c = 0; c < columns; ++c) {
            const std::size_t place = c / 8 * 8 + c % 4 * 2 + c % 8 / 4;
            values.push_back(model::half_to_float(halves[row * stride + place]) * unscale[row]);
        }
    }
    return values;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "activations become the halves of their truth, of any size",
                 "[gpu][kernels]") {
    const auto columns = GENERATE(8U, 64U, 128U, 300U, 576U);
    constexpr std::uint32_t kRows = 5;
    Random random(columns);
    std::vector<float> x = random_floats(kRows * columns, random);
    for (std::uint32_t c = 0; c < columns; ++c) {
        x[columns + c] *= 1e30F;
        x[2 * columns + c] *= 1e-35F;
        x[3 * columns + c] = 0;
    }
    x[4 * columns] = 70'000;  // more than a half can say
    const std::uint32_t stride = padded_to_chunks(columns);
    std::vector<std::uint16_t> expected(std::size_t{kRows} * stride);
    std::vector<float> unscale(kRows);
    to_halves_truth({x.data(), {expected.data(), unscale.data(), stride}, kRows, columns, columns});
    Stream stream;
    const auto in = DeviceBuffer<float>::upload(x);
    const DeviceHalves halves(kRows, columns, HalfOrder::rows);
    to_halves({in.data(), halves.view, kRows, columns, columns}, stream.get());
    stream.synchronise();
    CHECK(halves.values.download() == expected);
    CHECK(halves.unscale.download() == unscale);
    // A half keeps 11 bits.
    for (std::uint32_t row = 0; row < kRows; ++row) {
        const auto part = [&](const std::vector<float>& all) {
            return std::vector<float>(all.begin() + row * columns,
                                      all.begin() + (row + 1) * columns);
        };
        CHECK(error_of(part(through_halves(x, kRows, columns)), part(x)) < 0x1p-11);
    }
}

TEST_CASE_METHOD(EmulatorFixture, "products on tensor units agree with sums in double of halves",
                 "[gpu][kernels]") {
    using enum model::TensorType;
    const auto type = GENERATE(f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k, q5_0);
    const auto rows = GENERATE(1U, 8U, 11U, 66U);  // the last the wide way
    CAPTURE(model::to_string(type), rows);
    const std::uint32_t columns = columns_for(type);
    Random random(rows);
    const RandomMatrix matrix(type, kOutputs, columns, random);
    const std::vector<float> x = random_floats(std::size_t{rows} * columns, random);
    const MatrixBuffer buffer = upload(matrix);
    const std::vector<float> product = multiply(buffer, x, rows, columns);

    RandomMatrix rounded = matrix;
    for (float& value : rounded.values)
        value = model::half_to_float(model::float_to_half(value));
    const std::vector<float> halves = through_halves(x, rows, columns);
    CHECK(error_of(product, multiply_truth(rounded, halves, rows)) < 1e-5);
    CHECK(error_of(product, multiply_truth(matrix, x, rows)) < 1e-3);
    for (const std::uint32_t row : {0U, rows / 2, rows - 1}) {
        const std::vector<float> own(x.begin() + row * columns, x.begin() + (row + 1) * columns);
        const std::vector<float> alone = multiply(buffer, own, 1, columns);
        CHECK(same_bits(alone.data(), product.data() + row * kOutputs, kOutputs));
    }
    const std::vector<float> before = random_floats(product.size(), random);
    std::vector<float> sums = before;
    for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] += product[i];
    CHECK(multiply(buffer, x, rows, columns, &before) == sums);
}

TEST_CASE_METHOD(EmulatorFixture, "many rows on tensor units have the bits of few",
                 "[gpu][kernels]") {
    // 150 weight rows and 130 of activations: rests of blocks on both sides.
    constexpr std::uint32_t kRows = 130, kWeightRows = 150, kColumns = 320;
    Random random(2);
    const RandomMatrix matrix(model::TensorType::q4_1, kWeightRows, kColumns, random);
    const std::vector<float> x = random_floats(std::size_t{kRows} * kColumns, random);
    const MatrixBuffer buffer = upload(matrix);
    const std::vector<float> all = multiply(buffer, x, kRows, kColumns);
    for (std::uint32_t begin = 0; begin < kRows; begin += 40) {
        const std::uint32_t count = std::min(40U, kRows - begin);
        const std::vector<float> own(x.begin() + begin * kColumns,
                                     x.begin() + (begin + count) * kColumns);
        const std::vector<float> some = multiply(buffer, own, count, kColumns);
        CHECK(same_bits(some.data(), all.data() + begin * kWeightRows, some.size()));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "activations lie in tiles as their truth says",
                 "[gpu][kernels]") {
    constexpr std::uint32_t kRows = 130, kColumns = 300;
    Random random(3);
    const std::vector<float> x = random_floats(std::size_t{kRows} * kColumns, random);
    Stream stream;
    const auto in = DeviceBuffer<float>::upload(x);
    const DeviceHalves halves(kRows, kColumns, HalfOrder::tiles);
    std::vector<std::uint16_t> expected = halves.values.download();
    std::vector<float> unscale(kRows);
    to_halves_truth({x.data(),
                     {expected.data(), unscale.data(), halves.view.stride, HalfOrder::tiles},
                     kRows,
                     kColumns,
                     kColumns});
    to_halves({in.data(), halves.view, kRows, kColumns, kColumns}, stream.get());
    stream.synchronise();
    CHECK(halves.values.download() == expected);
    CHECK(halves.unscale.download() == unscale);
    // Row 129 is the second tile's second; column 200 of chunk 1 is 72 = 2 * 32 + 1 * 8 + 0.
    const std::size_t group = 16 + 1 * 4 + 0, stride = halves.view.stride;
    CHECK(expected[(stride / 8 + group) * 128 * 8 + 1 * 8 + 2 * 2] ==
          model::float_to_half(x[129 * kColumns + 200] / unscale[129]));
}

TEST_CASE_METHOD(EmulatorFixture, "norm and activation write the halves that their floats become",
                 "[gpu][kernels]") {
    const auto order = GENERATE(HalfOrder::rows, HalfOrder::tiles);
    const auto columns = GENERATE(64U, 300U);
    constexpr std::uint32_t kRows = 5;
    Random random(columns);
    const auto in =
        DeviceBuffer<float>::upload(random_floats(std::size_t{kRows} * 2 * columns, random));
    const auto weight = DeviceBuffer<float>::upload(random_floats(columns, random));
    const auto ids = DeviceBuffer<std::uint32_t>::upload(std::vector<std::uint32_t>{4, 0, 1, 3, 2});
    Stream stream;
    DeviceBuffer<float> floats(std::size_t{kRows} * columns);
    const DeviceHalves expected(kRows, columns, order), halves(kRows, columns, order);
    const auto check = [&] {
        to_halves({floats.data(), expected.view, kRows, columns, columns}, stream.get());
        stream.synchronise();
        CHECK(halves.values.download() == expected.values.download());
        CHECK(halves.unscale.download() == expected.unscale.download());
    };
    RmsNorm norm{in.data(), weight.data(), ids.data(), floats.data(), kRows,
                 columns,   2 * columns,   columns,    1e-5F,         {}};
    rms_norm(norm, stream.get());
    norm.halves = halves.view;
    rms_norm(norm, stream.get());
    check();
    SiluMul silu{in.data(), floats.data(), kRows, columns, 2 * columns, columns, {}};
    silu_mul(silu, stream.get());
    silu.halves = halves.view;
    silu_mul(silu, stream.get());
    check();
}

TEST_CASE_METHOD(EmulatorFixture, "products of warpgroups have the bits of a warp's",
                 "[gpu][kernels]") {
    if (!have_warpgroups()) return;
    using enum model::TensorType;
    const auto type = GENERATE(f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k);
    // Rests of blocks on both sides.
    const auto [rows, outputs] = GENERATE(std::pair{66U, 19U}, std::pair{130U, 150U});
    const auto seed = GENERATE(0U, 4U, 6U);
    CAPTURE(model::to_string(type), rows, seed);
    emulator::set_seed(seed);
    const std::uint32_t columns = columns_for(type);
    Random random(rows);
    const RandomMatrix matrix(type, outputs, columns, random);
    const std::vector<float> x = random_floats(std::size_t{rows} * columns, random);
    const MatrixBuffer buffer = upload(matrix);
    const std::vector<float> by_warps = multiply(buffer, x, rows, columns);
    const std::vector<float> by_warpgroups =
        multiply(buffer, x, rows, columns, nullptr, HalfOrder::tiles);
    CHECK(same_bits(by_warps.data(), by_warpgroups.data(), by_warps.size()));
    const std::vector<float> before = random_floats(by_warps.size(), random);
    CHECK(multiply(buffer, x, rows, columns, &before) ==
          multiply(buffer, x, rows, columns, &before, HalfOrder::tiles));
}

TEST_CASE_METHOD(EmulatorFixture, "a card's warpgroups agree with its warps", "[gpu][kernels]") {
    CHECK(find_cards(0, 1).value().warpgroups == have_warpgroups());
}

TEST_CASE_METHOD(EmulatorFixture, "numbers too large for a half are multiplied in float32",
                 "[gpu][kernels]") {
    Random random(1);
    RandomMatrix matrix(model::TensorType::bf16, 4, 32, random);
    CHECK(upload(matrix).view.type == WeightType::bf16);
    matrix.set_bfloat16(5, 70'000);
    CHECK(upload(matrix).view.type == WeightType::f32);
}
