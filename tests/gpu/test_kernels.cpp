// Every kernel against its slow truth, over shapes that fit and shapes that leave a rest; products
// and attention also bit for bit against themselves, in other company.
#include <cmath>
#include <random>

#include "gpu/device_memory.hpp"
#include "gpu/device_model.hpp"
#include "gpu/kernels/attention.hpp"
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
    const auto type = GENERATE(f32, q5_0);  // the last as f32
    const auto rows = GENERATE(1U, 2U, 8U, 11U);
    CAPTURE(model::to_string(type), rows);
    const std::uint32_t columns = type == f32 ? 172 : 1120;
    Random random(rows);
    const RandomMatrix matrix(type, 19, columns, random);
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
    const auto type = GENERATE(f32, f16, bf16, q8_0, q4_0, q4_1);
    Random random(3);
    const RandomMatrix table(type, 37, 96, random);
    const MatrixBuffer buffer = upload(table);
    Stream stream;
    const auto tokens = DeviceBuffer<std::int32_t>::upload(std::vector{36, 0, 17});
    DeviceBuffer<float> out(3 * 96);
    embed({buffer.view, tokens.data(), out.data(), 3, 96, 96}, stream.get());
    stream.synchronise();
    const std::vector<float> values = out.download();
    CHECK(same_bits(values.data(), table.values.data() + 36 * 96, 96));
    CHECK(same_bits(values.data() + 96, table.values.data(), 96));
    CHECK(same_bits(values.data() + 192, table.values.data() + 17 * 96, 96));
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

namespace {

// Rows of sequences that lie in pages in no order.
struct PagedRows {
    static constexpr std::uint32_t kPages = 64;
    static constexpr std::uint32_t kPagesPerSlot = 20;
    static constexpr std::uint32_t kSlots = 3;

    std::uint32_t heads, kv_heads, length;
    Random random;
    std::vector<std::uint32_t> page_table;
    std::vector<std::uint16_t> keys, values;

    PagedRows(std::uint32_t heads_, std::uint32_t kv_heads_, std::uint32_t length_)
        : heads(heads_), kv_heads(kv_heads_), length(length_), random(heads_ * length_) {
        std::vector<std::uint32_t> pages(kPages);
        for (std::uint32_t i = 0; i < kPages; ++i)
            pages[i] = i;
        std::shuffle(pages.begin(), pages.end(), random);
        page_table.assign(pages.begin(), pages.begin() + kSlots * kPagesPerSlot);
        const std::size_t size = std::size_t{kPages} * kv_heads * gpu::kPageTokens * length;
        for (std::vector<std::uint16_t>* half : {&keys, &values}) {
            for (const float value : random_floats(size, random))
                half->push_back(model::float_to_half(value));
        }
    }
    KvPages host() {
        return {keys.data(), values.data(), page_table.data(), kPagesPerSlot, kv_heads, length};
    }
};

struct DevicePages {
    DeviceBuffer<std::uint16_t> keys, values;
    DeviceBuffer<std::uint32_t> page_table;
    KvPages view;

    explicit DevicePages(const PagedRows& rows)
        : keys(DeviceBuffer<std::uint16_t>::upload(rows.keys)),
          values(DeviceBuffer<std::uint16_t>::upload(rows.values)),
          page_table(DeviceBuffer<std::uint32_t>::upload(rows.page_table)),
          view{keys.data(),   values.data(), page_table.data(), PagedRows::kPagesPerSlot,
               rows.kv_heads, rows.length} {}
};

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "rotation and store agree with their truth", "[gpu][kernels]") {
    const auto [heads, kv_heads, length, rotated] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(
            {{8, 4, 8, 8}, {9, 3, 64, 64}, {4, 4, 80, 32}, {2, 1, 256, 256}}));
    PagedRows rows(heads, kv_heads, length);
    const std::uint32_t stride = (heads + 2 * kv_heads) * length;
    std::vector<float> qkv = random_floats(4 * stride, rows.random);
    const std::vector<float> angles = random_floats(320 * rotated, rows.random);
    const std::vector<RowPlace> places{{0, 0}, {2, 319}, {1, 17}, {2, 31}};
    Stream stream;
    DevicePages pages(rows);
    const auto device_qkv = DeviceBuffer<float>::upload(qkv);
    const auto device_angles = DeviceBuffer<float>::upload(angles);
    const auto device_places = DeviceBuffer<RowPlace>::upload(places);
    rope_store({device_qkv.data(), device_angles.data(), device_places.data(), pages.view, 4,
                stride, heads, rotated},
               stream.get());
    stream.synchronise();
    rope_store_truth(
        {qkv.data(), angles.data(), places.data(), rows.host(), 4, stride, heads, rotated});
    std::vector<float> rotated_queries = device_qkv.download();
    for (std::size_t row = 0; row < 4; ++row) {
        const auto queries = [&](const std::vector<float>& all) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * stride);
            return std::vector<float>(begin, begin + heads * length);
        };
        CHECK(error_of(queries(rotated_queries), queries(qkv)) < 1e-6);
    }
    const auto floats = [](const std::vector<std::uint16_t>& halves) {
        std::vector<float> values;
        for (const std::uint16_t half : halves)
            values.push_back(model::half_to_float(half));
        return values;
    };
    CHECK(error_of(floats(pages.keys.download()), floats(rows.keys)) < 1e-3);
    CHECK(pages.values.download() == rows.values);
}

TEST_CASE_METHOD(EmulatorFixture, "attention agrees with its truth, cut into splits or not",
                 "[gpu][kernels]") {
    const auto [heads, kv_heads, length] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t>(
            {{8, 4, 8}, {9, 3, 64}, {2, 2, 80}, {4, 1, 128}, {1, 1, 256}}));
    CAPTURE(heads, kv_heads, length);
    PagedRows rows(heads, kv_heads, length);
    const std::vector<RowPlace> places{{0, 0},  {1, 15},  {2, 16},  {0, 31},
                                       {1, 32}, {2, 255}, {0, 256}, {1, 319}};
    const auto count = static_cast<std::uint32_t>(places.size());
    const std::uint32_t width = heads * length;
    const std::vector<float> q = random_floats(std::size_t{count} * width, rows.random);
    std::vector<AttentionItem> whole;
    std::vector<AttentionItem> cut;
    std::vector<AttentionMerge> merges;
    for (std::uint32_t row = 0; row < count; ++row) {
        const std::uint32_t splits = places[row].position / kSplitTokens + 1;
        whole.push_back({row, places[row], 0, splits, -1});
        merges.push_back({row, static_cast<std::uint32_t>(cut.size()), splits});
        for (std::uint32_t s = 0; s < splits; ++s)
            cut.push_back({row, places[row], s, s + 1, static_cast<std::int32_t>(cut.size())});
    }
    const float scale = 1.0F / std::sqrt(static_cast<float>(length));
    std::vector<float> expected(q.size());
    attention_truth({q.data(), expected.data(), rows.host(), whole.data(), nullptr, nullptr, count,
                     0, width, width, heads, scale});

    Stream stream;
    const DevicePages pages(rows);
    const auto device_q = DeviceBuffer<float>::upload(q);
    const auto run = [&](const std::vector<AttentionItem>& items,
                         const std::vector<AttentionMerge>& merged) {
        const auto device_items = DeviceBuffer<AttentionItem>::upload(items);
        const auto device_merges = DeviceBuffer<AttentionMerge>::upload(merged);
        DeviceBuffer<float> partials(cut.size() * partial_floats(heads, length));
        DeviceBuffer<float> out(q.size());
        attention({device_q.data(), out.data(), pages.view, device_items.data(),
                   device_merges.data(), partials.data(), static_cast<std::uint32_t>(items.size()),
                   static_cast<std::uint32_t>(merged.size()), width, width, heads, scale},
                  stream.get());
        stream.synchronise();
        return out.download();
    };
    const std::vector<float> values = run(whole, {});
    CHECK(error_of(values, expected) < 2e-6);
    CHECK(run(cut, merges) == values);
}

TEST_CASE_METHOD(EmulatorFixture, "pages are copied as far as asked, in every layer",
                 "[gpu][kernels]") {
    constexpr std::uint32_t kLayers = 2, kHeads = 3, kLength = 8, kPages = 4;
    constexpr std::size_t kPageValues = kHeads * gpu::kPageTokens * kLength;
    std::vector<std::uint16_t> pool(2 * kLayers * kPages * kPageValues);
    for (std::size_t i = 0; i < pool.size(); ++i)
        pool[i] = static_cast<std::uint16_t>(i * 7);
    Stream stream;
    const auto device_pool = DeviceBuffer<std::uint16_t>::upload(pool);
    const auto copies = DeviceBuffer<CopiedPage>::upload(std::vector<CopiedPage>{{0, 3, 5}});
    copy_pages(
        {copies.data(), device_pool.data(), kPages * kPageValues, 1, kLayers, kHeads, kLength},
        stream.get());
    stream.synchronise();
    for (std::size_t half = 0; half < 2 * kLayers; ++half) {
        for (std::size_t i = 0; i < kPageValues; ++i) {
            if (i / kLength % gpu::kPageTokens >= 5) continue;
            pool[(half * kPages + 3) * kPageValues + i] = pool[half * kPages * kPageValues + i];
        }
    }
    CHECK(device_pool.download() == pool);
}
