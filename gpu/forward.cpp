#include "gpu/forward.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/kernels/matmul.hpp"
#include "gpu/kernels/rank_parts.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

// The most columns of a product, as halves.
std::uint32_t widest_input(const model::Hyperparameters& hp) {
    return padded_to_chunks(
        std::max({hp.embedding_length, hp.query_length(), hp.feed_forward_length}));
}

// Of one rank nothing is gathered.
std::size_t gathered_floats(const DeviceModel& model, const Forward::Limits& limits) {
    if (model.rank.alone()) return 0;
    const std::uint32_t score_part =
        share_of(model.hp.vocabulary_size, {0, model.rank.ranks}).count;
    return model.rank.ranks * std::max(std::size_t{limits.rows_max} * model.hp.embedding_length,
                                       std::size_t{limits.score_rows_max} * score_part);
}

std::uint32_t size_of(const auto& array) {
    return static_cast<std::uint32_t>(array.size());
}

}  // namespace

Forward::Forward(const DeviceModel& model, const RotaryFrequencies& frequencies,
                 const Limits& limits)
    : model_(model),
      hp_(model.hp),
      rank_(model.rank),
      limits_(limits),
      angles_(DeviceBuffer<float>::upload(frequencies.table(limits.angle_table_rows))),
      page_table_(std::size_t{limits.slots_max} * limits.page_table.width()),
      counts_(rank_.rank == 0 ? std::size_t{limits.slots_max} * hp_.vocabulary_size : 0),
      drawn_(limits.slots_max),
      tokens_(limits.rows_max),
      x_(std::size_t{limits.rows_max} * hp_.embedding_length),
      normed_(std::size_t{std::max(limits.rows_max, limits.score_rows_max)} * hp_.embedding_length),
      qkv_(std::size_t{limits.rows_max} * (hp_.query_length() + 2 * hp_.kv_length())),
      sinks_q_(limits.window.sinks > 0 ? std::size_t{limits.rows_max} * hp_.query_length() : 0),
      attended_(std::size_t{limits.rows_max} * hp_.query_length()),
      gate_up_(std::size_t{limits.rows_max} * 2 * hp_.feed_forward_length),
      ffn_(std::size_t{limits.rows_max} * hp_.feed_forward_length),
      halves_(std::size_t{std::max(padded_half_rows(order_of(limits.rows_max), limits.rows_max),
                                   limits.score_rows_max)} *
              widest_input(hp_)),
      unscale_(std::max(limits.rows_max, limits.score_rows_max)),
      partials_(limits.partials_max * partial_floats(hp_.head_count, hp_.head_length)),
      gathered_(gathered_floats(model, limits)),
      scores_(rank_.rank == 0 ? std::size_t{limits.score_rows_max} * hp_.vocabulary_size : 0) {
    TROUPE_ASSERT(model.head().rows > 0, "a rank without tokens of its own");
}

HalfOrder Forward::order_of(std::uint32_t rows) const {
    return limits_.warpgroups && rows > kNarrowRowsMax ? HalfOrder::tiles : HalfOrder::rows;
}

std::size_t Forward::score_part_width() const {
    return share_of(hp_.vocabulary_size, {0, rank_.ranks}).count;
}

std::uint64_t Forward::page_bytes() const {
    return std::uint64_t{2} * hp_.block_count * hp_.head_count_kv *
           kv_block_bytes(limits_.kv_form, hp_.head_length);
}

void Forward::allocate_pages(std::uint32_t pages) {
    layer_bytes_ = pages * page_bytes() / (2 * hp_.block_count);
    pool_ = DeviceBuffer<std::byte>(2 * hp_.block_count * layer_bytes_);
}

KvPages Forward::kv_pages(std::uint32_t layer) const {
    std::byte* const keys = pool_.data() + 2 * layer * layer_bytes_;
    return {keys,
            keys + layer_bytes_,
            page_table_.data(),
            limits_.page_table,
            limits_.kv_form,
            hp_.head_count_kv,
            hp_.head_length};
}

RopeAngles Forward::rope_angles(const StepPointers& pointers) const {
    return {angles_.data(), pointers.far_angles, limits_.angle_table_rows,
            hp_.rope_dimension_count};
}

void Forward::embed_rows(std::uint32_t rows, const Stream& stream) {
    TROUPE_ASSERT(rows <= limits_.rows_max);
    embed({model_.token_embd.view, tokens_.data(), x_.data(), rows, hp_.embedding_length,
           hp_.embedding_length},
          stream.get());
}

void Forward::apply_books(const StepArrays& arrays, const StepPointers& pointers,
                          const Stream& stream) {
    TROUPE_ASSERT(arrays.given.size() <= limits_.rows_max);
    StepTables tables{};
    tables.grants = pointers.grants;
    tables.cleared_counts = pointers.cleared_counts;
    tables.count_edits = pointers.count_edits;
    tables.grant_count = size_of(arrays.grants);
    tables.cleared_count = size_of(arrays.cleared_counts);
    tables.edit_count = size_of(arrays.count_edits);
    tables.given = pointers.given;
    tables.places = pointers.places;
    tables.row_counts = pointers.row_counts;
    tables.rows = size_of(arrays.given);
    tables.page_table = page_table_.data();
    tables.page_table_width = limits_.page_table.width();
    tables.counts = counts_.data();
    tables.vocabulary = hp_.vocabulary_size;
    tables.drawn = drawn_.data();
    tables.tokens = tokens_.data();
    apply_tables(tables, stream.get());
    const std::uint64_t layer_page_bytes = page_bytes() / (2 * hp_.block_count);
    copy_pages(
        {pointers.copies, pool_.data(), layer_bytes_, static_cast<std::uint32_t>(layer_page_bytes),
         size_of(arrays.copies), hp_.block_count},
        stream.get());
}

// x += W_o attention(rope(W_qkv norm(x))), with biases and norms of heads where there are any
void Forward::attention_block(std::uint32_t layer, const LayerSizes& sizes,
                              const StepPointers& pointers, const Stream& stream) {
    const DeviceLayer& weights = model_.layers[layer];
    const std::uint32_t rows = sizes.rows;
    const std::uint32_t qkv_length = hp_.query_length() + 2 * hp_.kv_length();
    normalise(weights.attention_norm, weights.qkv.view, rows, nullptr, stream);
    multiply(weights.qkv.view, normed_, hp_.embedding_length, qkv_.data(), rows, false, stream);
    const KvPages kv = kv_pages(layer);
    const HeadInputs inputs{weights.qkv_bias.data(), weights.q_norm.data(), weights.k_norm.data(),
                            hp_.rms_epsilon};
    rope_store({qkv_.data(), sinks_q_.data(), inputs, rope_angles(pointers), pointers.places,
                pointers.angle_rows, kv, rows, qkv_length, hp_.head_count},
               stream.get());
    attention(
        {qkv_.data(), sinks_q_.data(), attended_.data(), kv, pointers.items, pointers.wide_items,
         pointers.merges, partials_.data(), sizes.items, sizes.wide_items, sizes.merges, qkv_length,
         hp_.query_length(), hp_.head_count, limits_.window.tokens, limits_.window.sinks,
         1.0F / std::sqrt(static_cast<float>(hp_.head_length)), model_.attends_in_halves()},
        stream.get());
    const HalfRows halves = halves_for(weights.attention_output.view, hp_.query_length(), rows);
    if (halves.values != nullptr) {
        to_halves({attended_.data(), halves, rows, hp_.query_length(), hp_.query_length()},
                  stream.get());
    }
    multiply_to_residual(weights.attention_output.view, attended_, hp_.query_length(), rows,
                         stream);
}

// x += W_down (silu(W_gate norm(x)) * (W_up norm(x)))
void Forward::ffn_block(std::uint32_t layer, std::uint32_t rows, const Stream& stream) {
    const DeviceLayer& weights = model_.layers[layer];
    const std::uint32_t width = hp_.feed_forward_length;
    normalise(weights.ffn_norm, weights.gate_up.view, rows, nullptr, stream);
    multiply(weights.gate_up.view, normed_, hp_.embedding_length, gate_up_.data(), rows, false,
             stream);
    silu_mul({gate_up_.data(), ffn_.data(), rows, width, 2 * width, width,
              halves_for(weights.down.view, width, rows)},
             stream.get());
    multiply_to_residual(weights.down.view, ffn_, width, rows, stream);
}

// x += W y, or this rank's part of that sum to where parts are gathered.
void Forward::multiply_to_residual(const WeightMatrix& w, const DeviceBuffer<float>& y,
                                   std::uint32_t columns, std::uint32_t rows,
                                   const Stream& stream) {
    if (rank_.alone()) return multiply(w, y, columns, x_.data(), rows, true, stream);
    float* const part = gathered_.data() + std::size_t{rank_.rank} * rows * width();
    multiply(w, y, columns, part, rows, false, stream);
}

void Forward::add_gathered(std::uint32_t rows, const Stream& stream) {
    add_parts({gathered_.data(), x_.data(), rows * width(), rank_.ranks}, stream.get());
}

// Rows of the residual stream, as `consumer` wants them.
void Forward::normalise(const DeviceBuffer<float>& weight, const WeightMatrix& consumer,
                        std::uint32_t rows, const std::uint32_t* row_ids, const Stream& stream) {
    rms_norm({x_.data(), weight.data(), row_ids, normed_.data(), rows, hp_.embedding_length,
              hp_.embedding_length, hp_.embedding_length, hp_.rms_epsilon,
              halves_for(consumer, hp_.embedding_length, rows)},
             stream.get());
}

// Where what is multiplied next lies, if it is halves; without values where it is floats.
HalfRows Forward::halves_for(const WeightMatrix& w, std::uint32_t columns,
                             std::uint32_t rows) const {
    if (w.type == WeightType::f32) return {};
    return {halves_.data(), unscale_.data(), padded_to_chunks(columns), order_of(rows)};
}

// Of `x`, or of the halves that have been made in its place.
void Forward::multiply(const WeightMatrix& w, const DeviceBuffer<float>& x, std::uint32_t columns,
                       float* out, std::uint32_t rows, bool add, const Stream& stream) {
    const HalfRows halves = halves_for(w, columns, rows);
    if (halves.values == nullptr) {
        return matmul({w, x.data(), out, rows, columns, columns, w.rows, add}, stream.get());
    }
    half_matmul({w, halves, out, rows, w.rows, add}, stream.get());
}

void Forward::score(const std::uint32_t* row_ids, std::uint32_t count, const Stream& stream) {
    TROUPE_ASSERT(count <= limits_.score_rows_max);
    normalise(model_.output_norm, model_.head(), count, row_ids, stream);
    const std::size_t part = rank_.rank * count * score_part_width();
    multiply(model_.head(), normed_, hp_.embedding_length,
             rank_.alone() ? scores_.data() : gathered_.data() + part, count, false, stream);
}

void Forward::join_gathered(std::uint32_t count, const Stream& stream) {
    join_columns({gathered_.data(), scores_.data(), count,
                  static_cast<std::uint32_t>(score_part_width()), hp_.vocabulary_size},
                 stream.get());
}

}  // namespace troupe::gpu
