#include "gpu/forward.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/kernels/matmul.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

// The most columns of a product, as halves.
std::uint32_t widest_input(const model::Hyperparameters& hp) {
    return padded_to_chunks(
        std::max({hp.embedding_length, hp.query_length(), hp.feed_forward_length}));
}

std::uint32_t size_of(const auto& array) {
    return static_cast<std::uint32_t>(array.size());
}

}  // namespace

Forward::Forward(const DeviceModel& model, const RotaryFrequencies& frequencies,
                 const Limits& limits)
    : model_(model),
      hp_(model.hp),
      limits_(limits),
      angles_(DeviceBuffer<float>::upload(frequencies.table(limits.angle_table_rows))),
      page_table_(std::size_t{limits.slots_max} * limits.page_table.width()),
      counts_(std::size_t{limits.slots_max} * hp_.vocabulary_size),
      drawn_(limits.slots_max),
      tokens_(limits.rows_max),
      x_(std::size_t{limits.rows_max} * hp_.embedding_length),
      normed_(std::size_t{std::max(limits.rows_max, limits.score_rows_max)} * hp_.embedding_length),
      qkv_(std::size_t{limits.rows_max} * (hp_.query_length() + 2 * hp_.kv_length())),
      sinks_q_(limits.window.sinks > 0 ? std::size_t{limits.rows_max} * hp_.query_length() : 0),
      attended_(std::size_t{limits.rows_max} * hp_.query_length()),
      gate_up_(std::size_t{limits.rows_max} * 2 * hp_.feed_forward_length),
      ffn_(std::size_t{limits.rows_max} * hp_.feed_forward_length),
      halves_(std::size_t{std::max(limits.rows_max, limits.score_rows_max)} * widest_input(hp_)),
      unscale_(std::max(limits.rows_max, limits.score_rows_max)),
      partials_(limits.partials_max * partial_floats(hp_.head_count, hp_.head_length)),
      scores_(std::size_t{limits.score_rows_max} * hp_.vocabulary_size) {}

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

void Forward::run_layers(const LayerSizes& sizes, const StepPointers& pointers,
                         const Stream& stream) {
    if (sizes.rows == 0) return;
    TROUPE_ASSERT(sizes.rows <= limits_.rows_max);
    embed({model_.token_embd.view, tokens_.data(), x_.data(), sizes.rows, hp_.embedding_length,
           hp_.embedding_length},
          stream.get());
    for (std::uint32_t layer = 0; layer < hp_.block_count; ++layer) {
        attention_block(layer, sizes, pointers, stream);
        ffn_block(layer, sizes.rows, stream);
    }
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
    normalise(x_.data(), weights.attention_norm, rows, nullptr, stream);
    multiply(weights.qkv.view, normed_.data(), hp_.embedding_length, qkv_.data(), rows, false,
             stream);
    const KvPages kv = kv_pages(layer);
    const HeadInputs inputs{weights.qkv_bias.data(), weights.q_norm.data(), weights.k_norm.data(),
                            hp_.rms_epsilon};
    rope_store({qkv_.data(), sinks_q_.data(), inputs, rope_angles(pointers), pointers.places,
                pointers.angle_rows, kv, rows, qkv_length, hp_.head_count},
               stream.get());
    attention({qkv_.data(), sinks_q_.data(), attended_.data(), kv, pointers.items, pointers.merges,
               partials_.data(), sizes.items, sizes.merges, qkv_length, hp_.query_length(),
               hp_.head_count, limits_.window.tokens, limits_.window.sinks,
               1.0F / std::sqrt(static_cast<float>(hp_.head_length))},
              stream.get());
    multiply(weights.attention_output.view, attended_.data(), hp_.query_length(), x_.data(), rows,
             true, stream);
}

// x += W_down (silu(W_gate norm(x)) * (W_up norm(x)))
void Forward::ffn_block(std::uint32_t layer, std::uint32_t rows, const Stream& stream) {
    const DeviceLayer& weights = model_.layers[layer];
    const std::uint32_t width = hp_.feed_forward_length;
    normalise(x_.data(), weights.ffn_norm, rows, nullptr, stream);
    multiply(weights.gate_up.view, normed_.data(), hp_.embedding_length, gate_up_.data(), rows,
             false, stream);
    silu_mul({gate_up_.data(), ffn_.data(), rows, width, 2 * width, width}, stream.get());
    multiply(weights.down.view, ffn_.data(), width, x_.data(), rows, true, stream);
}

void Forward::normalise(const float* x, const DeviceBuffer<float>& weight, std::uint32_t rows,
                        const std::uint32_t* row_ids, const Stream& stream) {
    rms_norm({x, weight.data(), row_ids, normed_.data(), rows, hp_.embedding_length,
              hp_.embedding_length, hp_.embedding_length, hp_.rms_epsilon},
             stream.get());
}

void Forward::multiply(const WeightMatrix& w, const float* x, std::uint32_t columns, float* out,
                       std::uint32_t rows, bool add, const Stream& stream) {
    if (w.type == WeightType::f32) {
        return matmul({w, x, out, rows, columns, columns, w.rows, add}, stream.get());
    }
    const HalfRows halves{halves_.data(), unscale_.data(), padded_to_chunks(columns)};
    to_halves({x, halves, rows, columns, columns}, stream.get());
    half_matmul({w, halves, out, rows, w.rows, add}, stream.get());
}

void Forward::score(const std::uint32_t* row_ids, std::uint32_t count, const Stream& stream) {
    TROUPE_ASSERT(count <= limits_.score_rows_max);
    normalise(x_.data(), model_.output_norm, count, row_ids, stream);
    multiply(model_.head(), normed_.data(), hp_.embedding_length, scores_.data(), count, false,
             stream);
}

}  // namespace troupe::gpu
