// Rotation, the store into pages and attention against their slow truths, in every form of the
// cache and behind a window; attention in float32 also bit for bit against itself, cut up in
// another way.
#include <algorithm>
#include <cmath>

#include "cpu/kernels/kernels.hpp"
#include "gpu/device_memory.hpp"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/elements.hpp"
#include "model/half.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"
#include "tests/gpu/paged_rows.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

// The vectors of one head, at some positions of a slot.
std::vector<float> read_vectors(const KvPages& kv, const std::byte* blocks,
                                const std::vector<RowPlace>& places, std::uint32_t head) {
    std::vector<float> all;
    for (const RowPlace& place : places) {
        const std::byte* const block = blocks + kv.block_offset(place.slot, place.position, head);
        const std::size_t at = place.position % gpu::kPageTokens * kv.head_length;
        for (std::size_t d = at; d < at + kv.head_length; ++d) {
            if (kv.form == KvForm::f16) {
                all.push_back(
                    model::half_to_float(reinterpret_cast<const std::uint16_t*>(block)[d]));
            } else {
                const float step =
                    reinterpret_cast<const float*>(block)[place.position % gpu::kPageTokens];
                all.push_back(step * static_cast<float>(static_cast<std::int8_t>(
                                         block[kv_step_bytes(kv.form) + d])));
            }
        }
    }
    return all;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "rotation and store agree with their truth", "[gpu][kernels]") {
    const auto [heads, kv_heads, length, rotated] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(
            {{8, 4, 8, 8}, {9, 3, 64, 64}, {4, 4, 80, 32}, {2, 1, 256, 256}}));
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    const bool sinks = GENERATE(false, true);
    PagedRows rows(heads, kv_heads, length, form);
    const std::uint32_t stride = (heads + 2 * kv_heads) * length;
    std::vector<float> qkv = random_floats(4 * stride, rows.random);
    // Two rows beyond the table, and one of those looks at sinks from within.
    constexpr std::uint32_t kTableRows = 200;
    const std::vector<float> table = random_floats(kTableRows * rotated, rows.random);
    const std::vector<float> far = random_floats(2 * rotated, rows.random);
    const std::vector<RowPlace> places{{0, 0}, {2, 319}, {1, 17}, {2, 31}};
    const std::vector<AngleRows> angle_rows{
        {0, 0}, {kTableRows + 1, 24}, {17, 17}, {kTableRows, 9}};
    Stream stream;
    DevicePages pages(rows);
    const auto device_qkv = DeviceBuffer<float>::upload(qkv);
    const auto device_table = DeviceBuffer<float>::upload(table);
    const auto device_far = DeviceBuffer<float>::upload(far);
    const auto device_places = DeviceBuffer<RowPlace>::upload(places);
    const auto device_angle_rows = DeviceBuffer<AngleRows>::upload(angle_rows);
    const DeviceBuffer<float> device_sinks_q(sinks ? 4 * heads * length : 0);
    // Norms of heads where there are sinks, too.
    const std::vector<float> bias = random_floats(stride, rows.random);
    const std::vector<float> norms = random_floats(2 * length, rows.random);
    const auto device_bias = DeviceBuffer<float>::upload(bias);
    const auto device_norms = DeviceBuffer<float>::upload(norms);
    const auto inputs_at = [&](const float* b, const float* n) {
        return HeadInputs{b, sinks ? n : nullptr, sinks ? n + length : nullptr, 1e-5F};
    };
    rope_store({device_qkv.data(),
                device_sinks_q.data(),
                inputs_at(device_bias.data(), device_norms.data()),
                {device_table.data(), device_far.data(), kTableRows, rotated},
                device_places.data(),
                device_angle_rows.data(),
                pages.view,
                4,
                stride,
                heads},
               stream.get());
    stream.synchronise();
    std::vector<float> sinks_q(device_sinks_q.size());
    rope_store_truth({qkv.data(),
                      sinks ? sinks_q.data() : nullptr,
                      inputs_at(bias.data(), norms.data()),
                      {table.data(), far.data(), kTableRows, rotated},
                      places.data(),
                      angle_rows.data(),
                      rows.host(),
                      4,
                      stride,
                      heads});
    CHECK(error_of(device_qkv.download(), qkv) < 1e-6);
    if (sinks) CHECK(error_of(device_sinks_q.download(), sinks_q) < 1e-6);
    PagedRows stored = rows;
    stored.keys = pages.keys.download();
    stored.values = pages.values.download();
    CHECK(stored.values == rows.values);
    for (std::uint32_t head = 0; head < kv_heads; ++head) {
        const double one_step = form == KvForm::f16 ? 0x1p-10 : 1.0 / 127;
        CHECK(error_of(read_vectors(stored.host(), stored.keys.data(), places, head),
                       read_vectors(rows.host(), rows.keys.data(), places, head)) < one_step);
    }
}

namespace {

// Stores what `qkv` ([tokens][query, key, value][length], of one head, not rotated) has for the
// first positions of slot 0, as the device does.
void store_on_device(PagedRows& rows, const std::vector<float>& qkv) {
    const auto tokens = static_cast<std::uint32_t>(qkv.size() / (3 * rows.length));
    std::vector<RowPlace> places;
    for (std::uint32_t i = 0; i < tokens; ++i)
        places.push_back({0, i});
    Stream stream;
    DevicePages pages(rows);
    const auto device_qkv = DeviceBuffer<float>::upload(qkv);
    const auto device_places = DeviceBuffer<RowPlace>::upload(places);
    const auto angle_rows = DeviceBuffer<AngleRows>::upload(std::vector<AngleRows>(tokens));
    rope_store({device_qkv.data(),
                nullptr,
                {},
                {nullptr, nullptr, 1, 0},
                device_places.data(),
                angle_rows.data(),
                pages.view,
                tokens,
                3 * rows.length,
                1},
               stream.get());
    stream.synchronise();
    rows.keys = pages.keys.download();
    rows.values = pages.values.download();
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture,
                 "a token that halves cannot hold has a key of NaNs, a value of zeros",
                 "[gpu][kernels]") {
    constexpr std::uint32_t kLength = 72, kTokens = 5;
    PagedRows rows(1, 1, kLength, KvForm::f16);
    std::vector<float> qkv = random_floats(kTokens * 3 * kLength, rows.random);
    qkv[0 * 3 * kLength + kLength + 7] = NAN;         // a key
    qkv[1 * 3 * kLength + 2 * kLength + 70] = 65520;  // a value
    qkv[2 * 3 * kLength + 2 * kLength + 1] = -INFINITY;
    qkv[3 * 3 * kLength + 2 * kLength + 1] = 65519;
    qkv[4 * 3 * kLength + 7] = INFINITY;  // a query, which nobody stores
    store_on_device(rows, qkv);
    const std::vector<RowPlace> places{{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}};
    const std::vector<float> keys = read_vectors(rows.host(), rows.keys.data(), places, 0);
    const std::vector<float> values = read_vectors(rows.host(), rows.values.data(), places, 0);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        CAPTURE(i / kLength, i % kLength);
        const bool held = i / kLength >= 3;
        CHECK(std::isnan(keys[i]) == !held);
        CHECK((values[i] == 0) == !held);
    }
}

TEST_CASE_METHOD(EmulatorFixture, "in int8 the device stores the numbers and steps of the CPU",
                 "[gpu][kernels]") {
    constexpr std::uint32_t kLength = 72, kTokens = 5;
    PagedRows rows(1, 1, kLength, KvForm::int8);
    std::vector<float> qkv = random_floats(kTokens * 3 * kLength, rows.random, 3);
    std::fill_n(qkv.begin() + 3 * kLength, 3 * kLength, 1e-32F);  // all become zeros
    qkv[2 * 3 * kLength + kLength + 7] = NAN;
    qkv[3 * 3 * kLength + 2 * kLength + 7] = -INFINITY;
    store_on_device(rows, qkv);

    const std::size_t block = cpu::kv_block_bytes(cpu::KvType::int8, kLength, cpu::KvPart::keys);
    std::vector<std::byte> cpu_keys(block + 64), cpu_values(block + 64);
    const auto aligned = [](std::vector<std::byte>& bytes) {
        return bytes.data() + (64 - reinterpret_cast<std::uintptr_t>(bytes.data()) % 64) % 64;
    };
    const cpu::KvPages kv{
        cpu::KvType::int8, aligned(cpu_keys), aligned(cpu_values), block, 1, kLength};
    const cpu::Kernels& kernels = cpu::plain_kernels();
    for (std::uint32_t i = 0; i < kTokens; ++i) {
        const float* const key = qkv.data() + (3 * i + 1) * kLength;
        kernels.store_kv(kv, 0, i, key, key + kLength);
    }
    const std::size_t at = rows.page_table[0] * kv_block_bytes(KvForm::int8, kLength);
    const std::vector<std::byte>&keys = rows.keys, &values = rows.values;
    CHECK(std::memcmp(keys.data() + at, kv.k, kTokens * sizeof(float)) == 0);
    CHECK(std::memcmp(values.data() + at, kv.v, kTokens * sizeof(float)) == 0);
    const std::size_t numbers = kv_step_bytes(KvForm::int8);
    CHECK(std::memcmp(values.data() + at + numbers, kv.v + numbers, kTokens * kLength) == 0);
    for (std::uint32_t i = 0; i < kTokens; ++i) {
        for (std::uint32_t d = 0; d < kLength; ++d) {
            CAPTURE(i, d);
            CHECK(keys[at + numbers + i * kLength + d] == kv.k[numbers + d * gpu::kPageTokens + i]);
        }
    }
}

TEST_CASE_METHOD(EmulatorFixture, "attention agrees with its truth, cut into splits or not",
                 "[gpu][kernels]") {
    const auto [heads, kv_heads, length] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t>(
            {{8, 4, 8}, {9, 3, 64}, {2, 2, 80}, {1, 1, 256}}));
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    // None; one within splits; one that leaves a split and a page between out; sinks beyond a tile.
    const auto [window, sinks] =
        GENERATE(table<std::uint32_t, std::uint32_t>({{0, 0}, {40, 4}, {17, 0}, {30, 33}}));
    CAPTURE(heads, kv_heads, length, static_cast<int>(form), window, sinks);
    PagedRows rows(heads, kv_heads, length, form);
    const std::vector<RowPlace> places{{0, 0}, {2, 16}, {1, 32}, {2, 255}, {0, 256}, {1, 319}};
    const auto count = static_cast<std::uint32_t>(places.size());
    const std::uint32_t width = heads * length;
    const std::vector<float> q = random_floats(std::size_t{count} * width, rows.random);
    const std::vector<float> q_sinks = random_floats(q.size(), rows.random);
    std::vector<AttentionItem> whole;
    std::vector<AttentionItem> cut;
    std::vector<AttentionMerge> merges;
    for (std::uint32_t row = 0; row < count; ++row) {
        const std::uint32_t end = places[row].position / kSplitTokens + 1;
        whole.push_back({row, places[row], 1, 0, end, -1, 0});
        const SeenPositions seen = seen_positions(places[row].position, window, sinks);
        const auto begin = static_cast<std::uint32_t>(cut.size());
        for (std::uint32_t s = seen.next_block(0, kSplitTokens); s < end;
             s = seen.next_block(s + 1, kSplitTokens))
            cut.push_back(
                {row, places[row], 1, s, s + 1, static_cast<std::int32_t>(cut.size()), 0});
        merges.push_back({row, begin, static_cast<std::uint32_t>(cut.size()) - begin});
    }
    const float scale = 1.0F / std::sqrt(static_cast<float>(length));
    std::vector<float> expected(q.size());
    attention_truth({q.data(), q_sinks.data(), expected.data(), rows.host(), whole.data(), nullptr,
                     nullptr, nullptr, count, 0, 0, width, width, heads, window, sinks, scale,
                     false});

    Stream stream;
    const DevicePages pages(rows);
    const auto device_q = DeviceBuffer<float>::upload(q);
    const auto device_q_sinks = DeviceBuffer<float>::upload(q_sinks);
    const auto run = [&](const std::vector<AttentionItem>& items,
                         const std::vector<AttentionMerge>& merged) {
        const auto device_items = DeviceBuffer<AttentionItem>::upload(items);
        const auto device_merges = DeviceBuffer<AttentionMerge>::upload(merged);
        DeviceBuffer<float> partials(cut.size() * partial_floats(heads, length));
        DeviceBuffer<float> out(q.size());
        attention(
            {device_q.data(), sinks > 0 ? device_q_sinks.data() : nullptr, out.data(), pages.view,
             device_items.data(), nullptr, device_merges.data(), partials.data(),
             static_cast<std::uint32_t>(items.size()), 0, static_cast<std::uint32_t>(merged.size()),
             width, width, heads, window, sinks, scale, false},
            stream.get());
        stream.synchronise();
        return out.download();
    };
    const std::vector<float> attended = run(whole, {});
    CHECK(error_of(attended, expected) < 4e-6);
    CHECK(run(cut, merges) == attended);
}

TEST_CASE("behind a window a row jumps over what it does not see", "[gpu][kernels]") {
    const SeenPositions seen = seen_positions(5000, 300, 20);
    CHECK(seen.contains(19));
    CHECK_FALSE(seen.contains(20));
    CHECK_FALSE(seen.contains(4700));
    CHECK(seen.contains(4701));
    CHECK(seen.contains(5000));
    CHECK_FALSE(seen.contains(5001));
    CHECK(seen.next_block(0, 256) == 0);
    CHECK(seen.next_block(1, 256) == 18);
    CHECK(seen.next_block(19, 256) == 19);
    const SeenPositions all = seen_positions(5000, 0, 0);
    CHECK(all.next_block(7, 256) == 7);
    const SeenPositions early = seen_positions(10, 300, 20);  // everything is a sink
    CHECK(early.sinks_end == 11);
    CHECK(early.contains(10));
    CHECK_FALSE(early.contains(11));
    CHECK(early.next_block(0, 32) == 0);
}

TEST_CASE("behind a window entries of a page table take turns", "[gpu][kernels]") {
    constexpr PageTableShape shape{2, 5};
    CHECK(shape.width() == 7);
    CHECK(shape.word_of(1) == 1);
    CHECK(shape.word_of(2) == 2);
    CHECK(shape.word_of(6) == 6);
    CHECK(shape.word_of(7) == 2);
    CHECK(shape.word_of(1U << 20) < 7);
}
