// Attention on tensor units: against its slow truth, and bit for bit against itself, whatever rows
// share a block, whether splits run side by side, and whatever lies where a row does not look.
#include "gpu/kernels/attention.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"
#include "tests/gpu/paged_rows.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

// Consecutive rows of a slot, the first of which is at a position.
struct Rows {
    RowPlace first;
    std::uint32_t count;
};
// A prompt's first rows, some that cross a tile, a page and a split, and one that decodes.
const std::vector<Rows> kSequences{{{0, 0}, 5}, {{2, 250}, 13}, {{1, 601}, 1}};

struct Window {
    std::uint32_t tokens, sinks;
};
// None; one within a split; one without sinks; sinks beyond a tile.
const std::vector<Window> kWindows{{0, 0}, {40, 4}, {17, 0}, {150, 70}};

// What a launch is given.
struct Work {
    std::vector<AttentionItem> items, wide_items;
    std::vector<AttentionMerge> merges;
    std::uint32_t partials = 0;

    // Rows in items of at most `step`.
    void add(std::vector<AttentionItem>& to, const std::vector<Rows>& sequences,
             std::uint32_t step) {
        std::uint32_t row = 0;
        for (const Rows& rows : sequences) {
            for (std::uint32_t i = 0; i < rows.count; i += step) {
                const RowPlace place{rows.first.slot, rows.first.position + i};
                const std::uint32_t count = std::min(step, rows.count - i);
                to.push_back({row + i, place, count, 0,
                              (place.position + count - 1) / kSplitTokens + 1, -1, 0});
            }
            row += rows.count;
        }
    }
    // Each of `whole` as items of a split.
    void cut(const std::vector<AttentionItem>& whole, const Window& window) {
        for (AttentionItem item : whole) {
            const SeenPositions seen =
                seen_by_rows(item.place.position, item.row_count, window.tokens, window.sinks);
            const std::size_t first_item = items.size();
            const std::uint32_t end = item.split_end;
            for (std::uint32_t split = seen.next_block(0, kSplitTokens); split < end;
                 split = seen.next_block(split + 1, kSplitTokens)) {
                item.split_begin = split;
                item.split_end = split + 1;
                item.partial = static_cast<std::int32_t>(partials + items.size() - first_item);
                items.push_back(item);
            }
            const auto splits = static_cast<std::uint32_t>(items.size() - first_item);
            for (std::size_t i = first_item; i < items.size(); ++i)
                items[i].partial_stride = splits;
            for (std::uint32_t row = 0; row < item.row_count; ++row)
                merges.push_back({item.row + row, partials + row * splits, splits});
            partials += item.row_count * splits;
        }
    }
};

// Random queries of the rows of kSequences.
class Attending {
 public:
    Attending(PagedRows& rows, const Window& window)
        : rows_(rows),
          window_(window),
          width_(rows.heads * rows.length),
          q_(random_floats(count() * width_, rows.random, 2)),
          q_sinks_(random_floats(q_.size(), rows.random, 2)),
          device_q_(DeviceBuffer<float>::upload(q_)),
          device_q_sinks_(DeviceBuffer<float>::upload(q_sinks_)) {}

    static std::size_t count() {
        std::size_t rows = 0;
        for (const Rows& sequence : kSequences)
            rows += sequence.count;
        return rows;
    }
    std::vector<float> truth() {
        Work work;
        work.add(work.items, kSequences, 100);
        std::vector<float> out(q_.size());
        Attention p = parameters(work);
        p.q = q_.data();
        p.q_sinks = window_.sinks > 0 ? q_sinks_.data() : nullptr;
        p.out = out.data();
        p.kv = rows_.host();
        p.items = work.items.data();
        attention_truth(p);
        return out;
    }
    std::vector<float> run(const Work& work) {
        Stream stream;
        const DevicePages pages(rows_);
        const auto items = DeviceBuffer<AttentionItem>::upload(work.items);
        const auto wide_items = DeviceBuffer<AttentionItem>::upload(work.wide_items);
        const auto merges = DeviceBuffer<AttentionMerge>::upload(work.merges);
        const DeviceBuffer<float> partials(work.partials *
                                           partial_floats(rows_.heads, rows_.length));
        const DeviceBuffer<float> out(q_.size());
        Attention p = parameters(work);
        p.q = device_q_.data();
        p.q_sinks = window_.sinks > 0 ? device_q_sinks_.data() : nullptr;
        p.out = out.data();
        p.kv = pages.view;
        p.items = items.data();
        p.wide_items = wide_items.data();
        p.merges = merges.data();
        p.partials = partials.data();
        attention(p, stream.get());
        stream.synchronise();
        return out.download();
    }

 private:
    [[nodiscard]] Attention parameters(const Work& work) const {
        Attention p{};
        p.item_count = static_cast<std::uint32_t>(work.items.size());
        p.wide_count = static_cast<std::uint32_t>(work.wide_items.size());
        p.merge_count = static_cast<std::uint32_t>(work.merges.size());
        p.q_stride = p.out_stride = width_;
        p.heads = rows_.heads;
        p.window = window_.tokens;
        p.sinks = window_.sinks;
        p.scale = 1.0F / std::sqrt(static_cast<float>(rows_.length));
        p.in_halves = true;
        return p;
    }

    PagedRows& rows_;
    const Window window_;
    const std::uint32_t width_;
    const std::vector<float> q_, q_sinks_;  // [rows][heads][length]
    const DeviceBuffer<float> device_q_, device_q_sinks_;
};

ItemRows item_rows_of(const PagedRows& rows) {
    return item_rows(rows.heads / rows.kv_heads, rows.length);
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "attention in halves agrees with its truth", "[gpu][kernels]") {
    const auto [heads, kv_heads, length] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t>({{8, 4, 8},
                                                                     {3, 1, 64},
                                                                     {7, 1, 40},
                                                                     {2, 2, 80},
                                                                     {4, 1, 128},
                                                                     {8, 1, 128},
                                                                     {5, 1, 96},
                                                                     {2, 1, 256},
                                                                     {32, 1, 16}}));
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    const Window window = GENERATE(from_range(kWindows));
    CAPTURE(heads, kv_heads, length, static_cast<int>(form), window.tokens, window.sinks);
    PagedRows rows(heads, kv_heads, length, form);
    Attending attending(rows, window);
    Work work;
    work.add(work.items, kSequences, item_rows_of(rows).narrow);
    // Numbers of int8 are rounded once more, to halves.
    const double tolerance = form == KvForm::int8 ? 2e-3 : 1e-3;
    CHECK(error_of(attending.run(work), attending.truth()) < tolerance);
}

TEST_CASE_METHOD(EmulatorFixture, "in halves a row's bits do not depend on who shares its block",
                 "[gpu][kernels]") {
    const auto [heads, kv_heads, length] =
        GENERATE(table<std::uint32_t, std::uint32_t, std::uint32_t>(
            {{8, 4, 8}, {3, 1, 64}, {4, 2, 128}, {2, 1, 256}}));
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    const Window window = GENERATE(from_range(kWindows));
    CAPTURE(heads, kv_heads, length, static_cast<int>(form), window.tokens, window.sinks);
    PagedRows rows(heads, kv_heads, length, form);
    Attending attending(rows, window);
    const ItemRows most = item_rows_of(rows);
    Work alone;
    alone.add(alone.items, kSequences, 1);
    const std::vector<float> expected = attending.run(alone);
    for (const std::uint32_t step : {2U, 3U, most.narrow, most.wide}) {
        CAPTURE(step);
        emulator::set_seed(step);
        Work whole;
        whole.add(step > most.narrow ? whole.wide_items : whole.items, kSequences, step);
        CHECK(attending.run(whole) == expected);
        if (step > most.narrow) continue;
        Work cut;
        cut.cut(whole.items, window);
        CHECK(attending.run(cut) == expected);
    }
    Work cut_alone;
    cut_alone.cut(alone.items, window);
    CHECK(attending.run(cut_alone) == expected);
}

namespace {

// What a token is in the middle of a step that goes wrong: its key NaNs, its value huge; of int8
// the value's step a NaN.
void spoil(PagedRows& rows, std::uint32_t slot, std::uint32_t position) {
    const std::uint32_t token = position % gpu::kPageTokens;
    for (std::uint32_t head = 0; head < rows.kv_heads; ++head) {
        const KvPages kv = rows.host();
        const std::size_t at = kv.block_offset(slot, position, head);
        if (rows.form == KvForm::int8) {
            const float nan = NAN;
            std::memcpy(rows.values.data() + at + token * sizeof nan, &nan, sizeof nan);
            continue;
        }
        for (std::uint32_t d = 0; d < rows.length; ++d) {
            const std::uint16_t nan = 0x7E00, largest = 0x7BFF;
            const std::size_t to = at + (token * rows.length + d) * sizeof nan;
            std::memcpy(rows.keys.data() + to, &nan, sizeof nan);
            std::memcpy(rows.values.data() + to, &largest, sizeof largest);
        }
    }
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "in halves a row does not feel the tokens that it does not see",
                 "[gpu][kernels]") {
    const auto form = GENERATE(KvForm::f16, KvForm::int8);
    const std::uint32_t heads = 4;
    PagedRows rows(heads, 2, 64, form);
    Attending attending(rows, {0, 0});
    Work work;
    work.add(work.items, kSequences, item_rows_of(rows).narrow);
    const std::vector<float> before = attending.run(work);
    // The last of thirteen rows, and what lies behind it and behind the others.
    for (std::uint32_t position = 262; position < 320; ++position)
        spoil(rows, 2, position);
    spoil(rows, 0, 5);
    spoil(rows, 1, 602);
    const std::vector<float> after = attending.run(work);
    const std::size_t width = std::size_t{heads} * rows.length;
    const std::size_t spoilt = 5 + 12;  // number of the row that sees position 262
    CHECK(same_bits(after.data(), before.data(), spoilt * width));
    CHECK(same_bits(after.data() + (spoilt + 1) * width, before.data() + (spoilt + 1) * width,
                    before.size() - (spoilt + 1) * width));
    for (std::size_t i = spoilt * width; i < (spoilt + 1) * width; ++i)
        CHECK(std::isnan(after[i]));
}
