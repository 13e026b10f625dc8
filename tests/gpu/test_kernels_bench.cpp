// How long products and attention take; hidden, for tools/gpu-check on a card. The emulated one has
// no speed. Each launch multiplies by another matrix, so many that four times the L2 cache does not
// hold them.
#include <algorithm>
#include <numeric>
#include <random>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/half_matmul.hpp"
#include "gpu/kernels/sample.hpp"
#include "tests/gpu/bench_support.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::uint32_t kWidth = 4096;
constexpr std::uint32_t kRowsMost = 2048;

// As many matrices as the working set asks for, all with the same content.
std::vector<MatrixBuffer> matrices_of(model::TensorType type) {
    Random random(1);
    const RandomMatrix content(type, kWidth, kWidth, random);
    std::vector<MatrixBuffer> matrices;
    for (std::size_t bytes = 0; bytes < working_set_bytes() || matrices.empty();) {
        matrices.push_back(upload(content));
        bytes += matrices.back().data.bytes();
    }
    return matrices;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "time of a copy, what others are compared with", "[.bench]") {
    Stream stream;
    const std::size_t bytes = std::max<std::size_t>(working_set_bytes(), 1U << 24);
    const DeviceBuffer<std::byte> from(bytes), to(bytes);
    const double seconds = median_seconds(stream, [&](int) {
        CUDA_CHECK(
            cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
    });
    report("copy", 0, seconds, 2.0 * static_cast<double>(bytes), 0);
    CHECK(seconds > 0);
}

TEST_CASE_METHOD(EmulatorFixture, "time of products on tensor units", "[.bench]") {
    const auto type = GENERATE(model::TensorType::q4_1, model::TensorType::f16);
    const std::vector<MatrixBuffer> matrices = matrices_of(type);
    Stream stream;
    const auto x = DeviceBuffer<float>::upload(std::vector<float>(kRowsMost * kWidth, 0.5F));
    const DeviceBuffer<std::uint16_t> halves(std::size_t{kRowsMost} * kWidth);
    const DeviceBuffer<float> unscale(kRowsMost), out(std::size_t{kRowsMost} * kWidth);
    const auto order = GENERATE(HalfOrder::rows, HalfOrder::tiles);
    if (order == HalfOrder::tiles && !have_warpgroups()) return;
    const HalfRows view{halves.data(), unscale.data(), kWidth, order};
    to_halves({x.data(), view, kRowsMost, kWidth, kWidth}, stream.get());
    for (const std::uint32_t rows : {1U, 8U, 32U, 64U, 128U, 512U, kRowsMost}) {
        if (order == HalfOrder::tiles && rows <= kNarrowRowsMax) continue;
        const double seconds = median_seconds(stream, [&](int run) {
            const MatrixBuffer& w = matrices[static_cast<std::size_t>(run) % matrices.size()];
            half_matmul({w.view, view, out.data(), rows, kWidth, false}, stream.get());
        });
        const MatrixBuffer& w = matrices.front();
        report(std::string(model::to_string(type)) + " 4096 x 4096" +
                   (order == HalfOrder::tiles ? " by warpgroups" : ""),
               rows, seconds, static_cast<double>(w.data.bytes() + w.scales.bytes()),
               2.0 * rows * kWidth * kWidth);
        CHECK(seconds > 0);
    }
}

namespace {

constexpr std::uint32_t kHeads = 32, kKvHeads = 8, kHeadLength = 128;  // of Llama 3 8B
constexpr std::uint32_t kContext = 16'384;

// Slots of the same length, each with pages of its own, and as many whole caches as the working set
// asks for. The last `rows` positions of each attend.
struct AttentionBench {
    std::uint32_t slots, rows, context;
    KvForm form;
    bool pages_in_order;
    std::uint32_t pages = slots * context / kPageTokens;
    std::size_t cache_bytes = pages * kKvHeads * kv_block_bytes(form, kHeadLength);
    std::size_t caches = working_set_bytes() / (2 * cache_bytes) + 1;
    DeviceBuffer<std::byte> keys = DeviceBuffer<std::byte>::upload(content());
    DeviceBuffer<std::byte> values = DeviceBuffer<std::byte>::upload(content());
    DeviceBuffer<std::uint32_t> page_table = DeviceBuffer<std::uint32_t>::upload(page_order());
    DeviceBuffer<float> q = DeviceBuffer<float>::upload(
        std::vector<float>(std::size_t{slots} * rows * kHeads * kHeadLength, 0.5F));
    DeviceBuffer<float> out = DeviceBuffer<float>(q.size());
    DeviceBuffer<AttentionItem> items{}, wide_items{};
    DeviceBuffer<AttentionMerge> merges{};
    DeviceBuffer<float> partials{};

    [[nodiscard]] std::vector<std::byte> content() const {
        return std::vector(caches * cache_bytes, std::byte{0x21});
    }
    // In order they are what a cache without pages would be.
    [[nodiscard]] std::vector<std::uint32_t> page_order() const {
        std::vector<std::uint32_t> table(pages);
        std::iota(table.begin(), table.end(), 0U);
        if (!pages_in_order) std::shuffle(table.begin(), table.end(), std::mt19937(7));
        return table;
    }
    // As StepBuilder cuts it: a decoding row into splits, a prompt into wide items.
    Attention prepare() {
        std::vector<AttentionItem> narrow, wide;
        std::vector<AttentionMerge> merged;
        const std::uint32_t splits = context / kSplitTokens;
        const std::uint32_t step = item_rows(kHeads / kKvHeads, kHeadLength).wide;
        for (std::uint32_t slot = 0; slot < slots; ++slot) {
            const RowPlace place{slot, context - rows};
            for (std::uint32_t i = 0; i < rows && rows > 1; i += step)
                wide.push_back(
                    {slot * rows + i, {slot, place.position + i}, step, 0, splits, -1, 0});
            if (rows > 1) continue;
            merged.push_back({slot, slot * splits, splits});
            for (std::uint32_t i = 0; i < splits; ++i)
                narrow.push_back({slot, place, 1, i, i + 1,
                                  static_cast<std::int32_t>(slot * splits + i), splits});
        }
        items = DeviceBuffer<AttentionItem>::upload(narrow);
        wide_items = DeviceBuffer<AttentionItem>::upload(wide);
        merges = DeviceBuffer<AttentionMerge>::upload(merged);
        partials = DeviceBuffer<float>(narrow.size() * partial_floats(kHeads, kHeadLength));
        Attention p{};
        p.q = q.data();
        p.out = out.data();
        p.kv = {keys.data(), values.data(), page_table.data(), {context / kPageTokens, 0},
                form,        kKvHeads,      kHeadLength};
        p.items = items.data();
        p.wide_items = wide_items.data();
        p.merges = merges.data();
        p.partials = partials.data();
        p.item_count = static_cast<std::uint32_t>(narrow.size());
        p.wide_count = static_cast<std::uint32_t>(wide.size());
        p.merge_count = static_cast<std::uint32_t>(merged.size());
        p.q_stride = p.out_stride = kHeads * kHeadLength;
        p.heads = kHeads;
        p.scale = 0.088F;
        p.in_halves = true;
        return p;
    }
};

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "time of attention on tensor units", "[.bench]") {
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    const bool in_order = GENERATE(false, true);
    const auto [slots, rows, context] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t>({{1, 1, kContext},
                                                                     {16, 1, kContext},
                                                                     {64, 1, kContext / 4},
                                                                     {64, 1, 256},
                                                                     {1, 128, kContext},
                                                                     {1, kRowsMost, kContext},
                                                                     {1, kContext, kContext}}));
    if (in_order && (rows > 1 || form == KvForm::int8)) return;
    AttentionBench bench{slots, rows, context, form, in_order};
    Attention p = bench.prepare();
    Stream stream;
    const double seconds = median_seconds(stream, [&](int run) {
        const std::size_t cache = static_cast<std::size_t>(run) % bench.caches;
        p.kv.keys = bench.keys.data() + cache * bench.cache_bytes;
        p.kv.values = bench.values.data() + cache * bench.cache_bytes;
        attention(p, stream.get());
    });
    const double seen = (2.0 * context - rows + 1) / 2;  // positions a row, on average
    report("attention of " + std::to_string(slots) + " x " + std::to_string(context) +
               (form == KvForm::int8 ? " in int8" : " in f16") +
               (in_order ? ", pages in order" : ""),
           slots * rows, seconds, 2.0 * static_cast<double>(bench.cache_bytes),
           4.0 * slots * rows * kHeads * kHeadLength * seen);
    CHECK(seconds > 0);
}

TEST_CASE_METHOD(EmulatorFixture, "time of draws on the device", "[.bench]") {
    constexpr std::uint32_t kRows = 128, kVocabulary = 49'152;
    const bool greedy = GENERATE(true, false);
    Random random(2);
    const std::vector<float> row = random_floats(kVocabulary, random, 3);
    std::vector<float> all;
    std::vector<SampleRow> rows;
    for (std::uint32_t i = 0; i < kRows; ++i) {
        all.insert(all.end(), row.begin(), row.end());
        SampleRow& draw = rows.emplace_back();
        draw.temperature = greedy ? 0 : 0.8;
        draw.top_k = greedy ? 0 : 40;
        draw.top_p = greedy ? 1 : 0.95;
        draw.repetition_penalty = 1;
        draw.seed = draw.slot = draw.score_row = i;
    }
    Stream stream;
    const auto scores = DeviceBuffer<float>::upload(all);
    const auto device_rows = DeviceBuffer<SampleRow>::upload(rows);
    const DeviceBuffer<SampleResult> results(kRows);
    const DeviceBuffer<float> edited(all.size());
    const DeviceBuffer<std::uint32_t> counts(all.size());
    const DeviceBuffer<std::int32_t> drawn(kRows);
    Sample p{};
    p.rows = device_rows.data();
    p.results = results.data();
    p.scores = scores.data();
    p.edited = edited.data();
    p.counts = counts.data();
    p.drawn = drawn.data();
    p.count = kRows;
    p.vocabulary = kVocabulary;
    const double seconds = median_seconds(stream, [&](int) { sample(p, stream.get()); });
    CHECK(results.download().front().failed == 0);
    report(greedy ? "draws, greedy" : "draws, top-k and top-p", kRows, seconds,
           static_cast<double>(scores.bytes()), 0);
}
