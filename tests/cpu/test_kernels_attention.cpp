// Attention over pages: plain against a softmax in double, every set against plain bit for bit, and
// rows attended alone, in chunks or with other heads against the whole.
#include "tests/cpu/attention_support.hpp"

namespace troupe::test {

TEST_CASE("plain attention is near the exact softmax", "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : kv_types) {
            constexpr std::size_t tokens = 37;
            Cache cache(shape, type, tokens, random);
            cache.store(plain_kernels(), tokens);
            const auto q = random.floats(tokens * shape.heads * shape.head_dim, 2.0F);
            std::vector<float> out(q.size());
            attend(plain_kernels(), shape, cache, q, {0, tokens, 0, shape.heads}, out);
            for (std::size_t i = 0; i < tokens * shape.heads; ++i) {
                const auto expected = exact(shape, cache, q, i / shape.heads, i % shape.heads);
                for (std::size_t d = 0; d < shape.head_dim; ++d) {
                    REQUIRE(out[i * shape.head_dim + d] == Approx(expected[d]).margin(3e-6));
                }
            }
        }
    }
}

TEST_CASE("attention in chunks, alone and by heads has plain's bits in every set",
          "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : kv_types) {
            const std::size_t tokens = 40 + random.below(60);
            Cache cache(shape, type, tokens, random);
            cache.store(plain_kernels(), tokens);
            const auto q = random.floats(tokens * shape.heads * shape.head_dim, 3.0F);
            std::vector<float> expected(q.size());
            attend(plain_kernels(), shape, cache, q, {0, tokens, 0, shape.heads}, expected);
            for (const Kernels* kernels : available_kernels()) {
                std::vector<float> whole(q.size()), chunks(q.size()), alone(q.size());
                attend(*kernels, shape, cache, q, {0, tokens, 0, shape.heads}, whole);
                for (std::size_t at = 0; at < tokens;) {
                    const std::size_t rows = std::min(tokens - at, 1 + random.below(23));
                    const std::size_t split = random.below(shape.heads + 1);
                    attend(*kernels, shape, cache, q, {at, rows, 0, split}, chunks);
                    attend(*kernels, shape, cache, q, {at, rows, split, shape.heads}, chunks);
                    at += rows;
                }
                for (std::size_t i = 0; i < tokens * shape.heads; ++i) {
                    const std::size_t head = i % shape.heads;
                    attend(*kernels, shape, cache, q, {i / shape.heads, 1, head, head + 1}, alone);
                }
                CAPTURE(kernels->name, shape.heads, shape.kv_heads, shape.head_dim, tokens);
                REQUIRE(same_bits(whole, expected));
                REQUIRE(same_bits(chunks, expected));
                REQUIRE(same_bits(alone, expected));
            }
        }
    }
}

TEST_CASE("scores far apart and very large still sum to one", "[cpu][kernels][attention]") {
    Random random;
    const Heads shape{2, 1, 8};
    constexpr std::size_t tokens = 40;
    Cache cache(shape, KvType::f32, tokens, random);
    std::fill(cache.v.begin(), cache.v.end(), 1.0F);
    for (const Kernels* kernels : available_kernels()) {
        cache.store(*kernels, tokens);
        const auto q = random.floats(tokens * 16, 1e6F);
        std::vector<float> out(q.size());
        attend(*kernels, shape, cache, q, {0, tokens, 0, 2}, out);
        for (const float x : out)
            REQUIRE(x == Approx(1.0F).epsilon(1e-6));
    }
}

TEST_CASE("all sets store the same keys and values", "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : kv_types) {
            constexpr std::size_t tokens = 21;
            Cache given(shape, type, tokens, random);
            const std::size_t width = shape.kv_heads * shape.head_dim;
            given.k[3] = 1e-7F, given.k[4] = 65519.0F, given.v[1] = 65520.0F;
            given.v[2] = -5e-8F, given.k[5] = 1.0F + 0x1p-11F;
            given.k[2 * width] = std::numeric_limits<float>::infinity();
            given.v[2 * width] = std::numeric_limits<float>::quiet_NaN();
            for (std::size_t i = 0; i < width; ++i) {
                given.k[3 * width + i] = i % 2 == 0 ? 0.0F : -0.0F;
                given.v[4 * width + i] = -1e-35F;
            }
            Cache plain = given;
            plain.store(plain_kernels(), tokens);
            for (const Kernels* kernels : fast_kernels()) {
                Cache cache = given;
                cache.store(*kernels, tokens);
                CAPTURE(kernels->name, shape.head_dim, to_string(type));
                REQUIRE(std::memcmp(cache.kv.k, plain.kv.k,
                                    plain.kv.page_stride * plain.pages.size()) == 0);
            }
        }
    }
}

TEST_CASE("a quantised number is off by no more than half a step", "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : {KvType::int8, KvType::int4}) {
            constexpr std::size_t tokens = 40;
            Cache cache(shape, type, tokens, random);
            cache.store(plain_kernels(), tokens);
            // Numbers lie within 2 of zero: steps of 2 / 127 and 4 / 15, scales rounded to half.
            const double step = type == KvType::int8 ? 2.0 / 127 : 4.0 / 15;
            const double margin = type == KvType::int8 ? 1e-6 : 4e-3;
            for (std::size_t i = 0; i < tokens * shape.kv_heads * shape.head_dim; ++i) {
                const std::size_t head = i / shape.head_dim % shape.kv_heads;
                const std::size_t token = i / shape.head_dim / shape.kv_heads;
                const std::size_t d = i % shape.head_dim;
                REQUIRE(std::abs(cache.key(token, head, d) - cache.k[i]) <= step / 2 + margin);
                REQUIRE(std::abs(cache.value(token, head, d) - cache.v[i]) <= step / 2 + margin);
            }
        }
    }
}

TEST_CASE("attention over quantised pages has the bits of attention over their numbers as floats",
          "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : {KvType::f16, KvType::int8, KvType::int4}) {
            constexpr std::size_t tokens = 77;
            Cache cache(shape, type, tokens, random);
            cache.store(plain_kernels(), tokens);
            const Cache floats = cache.as_floats(tokens);
            const auto q = random.floats(tokens * shape.heads * shape.head_dim, 3.0F);
            std::vector<float> expected(q.size()), out(q.size());
            attend(plain_kernels(), shape, floats, q, {0, tokens, 0, shape.heads}, expected);
            attend(plain_kernels(), shape, cache, q, {0, tokens, 0, shape.heads}, out);
            CAPTURE(shape.head_dim, to_string(type));
            REQUIRE(same_bits(out, expected));
        }
    }
}

}  // namespace troupe::test
