// Kernels against their slow truth, over shapes that fit and shapes that leave a rest; products
// also bit for bit against themselves, in other company. Others have files of their own.
#include <cmath>
#include <random>

#include "gpu/device_memory.hpp"
#include "gpu/device_model.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/matmul.hpp"
#include "gpu/kernels/step_tables.hpp"
#include "model/half.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

std::vector<float> multiply(const MatrixBuffer& w, const std::vector<float>& x, std::uint32_t rows,
                            std::uint32_t columns, const std::vector<float>* add_to = nullptr) {
    Stream stream;
    const auto in = DeviceBuffer<float>::upload(x);
    auto out = add_to != nullptr ? DeviceBuffer<float>::upload(*add_to)
                                 : DeviceBuffer<float>(std::size_t{rows} * w.view.rows);
    matmul({w.view, in.data(), out.data(), rows, columns, columns, w.view.rows, add_to != nullptr},
           stream.get());
    stream.synchronise();
    return out.download();
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "products in float32 agree with sums in double",
                 "[gpu][kernels]") {
    using enum model::TensorType;
    const auto type = GENERATE(f32, bf16);  // the last as f32: a number is too large for a half
    const auto rows = GENERATE(1U, 2U, 8U, 11U);
    CAPTURE(model::to_string(type), rows);
    const std::uint32_t columns = type == f32 ? 172 : 1120;
    Random random(rows);
    RandomMatrix matrix(type, 19, columns, random);
    if (type == bf16) matrix.set_bfloat16(10, 70'000);
    const std::vector<float> x = random_floats(std::size_t{rows} * columns, random);
    const std::vector<float> expected = multiply_truth(matrix, x, rows);
    const MatrixBuffer buffer = upload(matrix);
    const std::vector<float> product = multiply(buffer, x, rows, columns);
    CHECK(error_of(product, expected) < 2e-6);
    // Each row alone gives the same bits.
    for (std::uint32_t row = 0; row < rows; ++row) {
        const std::vector<float> own(x.begin() + row * columns, x.begin() + (row + 1) * columns);
        const std::vector<float> alone = multiply(buffer, own, 1, columns);
        CHECK(same_bits(alone.data(), product.data() + row * 19, 19));
    }
    // Added to what is there.
    const std::vector<float> before = random_floats(product.size(), random);
    std::vector<float> sums = before;
    for (std::size_t i = 0; i < sums.size(); ++i)
        sums[i] += product[i];
    const std::vector<float> added = multiply(buffer, x, rows, columns, &before);
    CHECK(same_bits(added.data(), sums.data(), sums.size()));
}

TEST_CASE_METHOD(EmulatorFixture, "embeddings are the table's rows", "[gpu][kernels]") {
    using enum model::TensorType;
    const auto type = GENERATE(f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k);
    CAPTURE(model::to_string(type));
    const bool superblocks = type == q4_k || type == q5_k || type == q6_k;
    const std::uint32_t width = superblocks ? 512 : 96;
    Random random(3);
    const RandomMatrix table(type, 37, width, random);
    const MatrixBuffer buffer = upload(table);
    Stream stream;
    const auto tokens = DeviceBuffer<std::int32_t>::upload(std::vector{36, 0, 17});
    DeviceBuffer<float> out(3 * width);
    embed({buffer.view, tokens.data(), out.data(), 3, width, width}, stream.get());
    stream.synchronise();
    const std::vector<float> values = out.download();
    // The same bits, but for the sign of a zero in q6_k.
    for (const auto& [row, token] : {std::pair{0, 36}, {1, 0}, {2, 17}}) {
        const auto at = values.begin() + row * static_cast<std::ptrdiff_t>(width);
        CHECK(std::equal(at, at + width, table.values.begin() + token * std::ptrdiff_t{width}));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "norms agree with their truth, of all rows or of some",
                 "[gpu][kernels]") {
    const auto width = GENERATE(8U, 64U, 255U, 256U, 576U, 1000U);
    Random random(width);
    const std::vector<float> x = random_floats(5 * width, random, 3);
    const std::vector<float> weight = random_floats(width, random);
    const std::vector<std::uint32_t> ids{4, 0, 2};
    std::vector<float> expected(3 * width);
    rms_norm_truth(
        {x.data(), weight.data(), ids.data(), expected.data(), 3, width, width, width, 1e-5F});
    Stream stream;
    const auto device_x = DeviceBuffer<float>::upload(x);
    const auto device_weight = DeviceBuffer<float>::upload(weight);
    const auto device_ids = DeviceBuffer<std::uint32_t>::upload(ids);
    DeviceBuffer<float> some(3 * width);
    DeviceBuffer<float> all(5 * width);
    rms_norm({device_x.data(), device_weight.data(), device_ids.data(), some.data(), 3, width,
              width, width, 1e-5F},
             stream.get());
    rms_norm(
        {device_x.data(), device_weight.data(), nullptr, all.data(), 5, width, width, width, 1e-5F},
        stream.get());
    stream.synchronise();
    const std::vector<float> values = some.download();
    CHECK(error_of(values, expected) < 1e-6);
    CHECK(same_bits(values.data(), all.download().data() + 4 * width, width));
}

TEST_CASE_METHOD(EmulatorFixture, "the activation agrees with its truth", "[gpu][kernels]") {
    const auto width = GENERATE(1U, 172U, 256U, 300U);
    Random random(width);
    std::vector<float> in = random_floats(3 * 2 * width, random, 8);
    in[0] = -200;  // e^200 is infinite in float32
    std::vector<float> expected(3 * width);
    silu_mul_truth({in.data(), expected.data(), 3, width, 2 * width, width});
    Stream stream;
    const auto device_in = DeviceBuffer<float>::upload(in);
    DeviceBuffer<float> out(3 * width);
    silu_mul({device_in.data(), out.data(), 3, width, 2 * width, width}, stream.get());
    stream.synchronise();
    CHECK(error_of(out.download(), expected) < 1e-6);
}

TEST_CASE_METHOD(EmulatorFixture, "pages are copied in every layer, keys and values",
                 "[gpu][kernels]") {
    constexpr std::uint32_t kLayers = 2, kPages = 4, kPageBytes = 3 * 320;
    std::vector<std::uint8_t> pool(std::size_t{2} * kLayers * kPages * kPageBytes);
    for (std::size_t i = 0; i < pool.size(); ++i)
        pool[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
    Stream stream;
    const auto device_pool = DeviceBuffer<std::uint8_t>::upload(pool);
    const auto copies = DeviceBuffer<CopiedPage>::upload(std::vector<CopiedPage>{{0, 3}, {2, 1}});
    copy_pages({copies.data(), reinterpret_cast<std::byte*>(device_pool.data()),
                std::size_t{kPages} * kPageBytes, kPageBytes, 2, kLayers},
               stream.get());
    stream.synchronise();
    for (std::size_t half = 0; half < 2 * kLayers; ++half) {
        const auto page = [&](std::size_t i) {
            return pool.begin() + static_cast<std::ptrdiff_t>((half * kPages + i) * kPageBytes);
        };
        std::copy_n(page(0), kPageBytes, page(3));
        std::copy_n(page(2), kPageBytes, page(1));
    }
    CHECK(device_pool.download() == pool);
}
