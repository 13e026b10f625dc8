#include "cpu/block_pass.hpp"

#include <array>

namespace troupe::cpu {

void BlockPass::tap_input(std::string_view name) const {
    const FloatBuffer& floats = forward_.normed_.floats;
    forward_.tap(name, layer_, floats.data(), rows(), forward_.hp_.embedding_length, floats.stride);
}

void BlockPass::norm_attention_input() {
    forward_.normalise(weights_.attention_norm, weights_.qkv, rows());
    tap_input("attn-norm");
}

void BlockPass::take_attention_input() {
    forward_.take_input(weights_.qkv, rows());
}

void BlockPass::project_queries_keys_values() {
    Forward& f = forward_;
    const model::Hyperparameters& hp = f.hp_;
    float* out = f.qkv_.data();
    for (const PackedMatrix& part : weights_.qkv) {
        f.multiply(part, f.normed_, rows(), out, f.qkv_.stride, Accumulate::store);
        out += part.rows;
    }
    f.add_to_rows(f.qkv_, weights_.qkv_bias, rows());
    const float* const k = f.qkv_.data() + hp.query_length();
    f.tap("q", layer_, f.qkv_.data(), rows(), hp.query_length(), f.qkv_.stride);
    f.tap("k", layer_, k, rows(), hp.kv_length(), f.qkv_.stride);
    f.tap("v", layer_, k + hp.kv_length(), rows(), hp.kv_length(), f.qkv_.stride);
}

void BlockPass::norm_queries_and_keys() {
    forward_.norm_heads(weights_.q_norm, weights_.k_norm, rows());
}

void BlockPass::rotate_and_store() {
    Forward& f = forward_;
    const float* const k = f.qkv_.data() + f.hp_.query_length();
    f.rotate_and_store(layer_, batch_);
    f.tap("q-rope", layer_, f.qkv_.data(), rows(), f.hp_.query_length(), f.qkv_.stride);
    f.tap("k-rope", layer_, k, rows(), f.hp_.kv_length(), f.qkv_.stride);
}

void BlockPass::attend() {
    Forward& f = forward_;
    f.attend(layer_, batch_);
    f.tap("attn", layer_, f.attended_.floats.data(), rows(), f.hp_.query_length(),
          f.attended_.floats.stride);
}

void BlockPass::add_attention() {
    Forward& f = forward_;
    f.multiply(weights_.attention_output, f.attended_, rows(), f.x_.data(), f.x_.stride,
               Accumulate::add);
    f.tap("ffn-inp", layer_, f.x_.data(), rows(), f.hp_.embedding_length, f.x_.stride);
}

void BlockPass::add_normed_attention() {
    forward_.add_normed(weights_.attention_output, forward_.attended_, weights_.attention_post_norm,
                        rows());
}

void BlockPass::norm_feed_forward_input() {
    forward_.normalise(weights_.ffn_norm, std::array{weights_.gate, weights_.up}, rows());
    tap_input("ffn-norm");
}

void BlockPass::take_feed_forward_input() {
    forward_.take_input(std::array{weights_.gate, weights_.up}, rows());
}

void BlockPass::gate_up(Gate gate) {
    Forward& f = forward_;
    f.gate_up({weights_.gate, weights_.up, weights_.down}, f.normed_, gate, rows());
    f.tap("ffn-act", layer_, f.ffn_.floats.data(), rows(), f.hp_.feed_forward_length,
          f.ffn_.floats.stride);
}

void BlockPass::add_feed_forward() {
    Forward& f = forward_;
    f.multiply(weights_.down, f.ffn_, rows(), f.x_.data(), f.x_.stride, Accumulate::add);
}

void BlockPass::add_normed_feed_forward() {
    forward_.add_normed(weights_.down, forward_.ffn_, weights_.ffn_post_norm, rows());
}

void BlockPass::norm_router_input() {
    forward_.normalise(weights_.ffn_norm, {&weights_.router, 1}, rows());
    tap_input("ffn-norm");
}

void BlockPass::add_experts(Gate gate) {
    forward_.add_experts(weights_, gate, rows());
}

}  // namespace troupe::cpu
