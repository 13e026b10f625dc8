// Attention over pages: plain against a softmax in double, every set against plain bit for bit, and
// rows attended alone, in chunks or with other heads against the whole.
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cpu/kernels_support.hpp"

namespace troupe::test {
namespace {

struct Heads {
    std::size_t heads, kv_heads, head_dim;
};

// Keys and values of one sequence in shuffled pages; slots not written are NaN.
struct Cache {
    std::vector<float> k, v;  // [tokens][kv_heads][head_dim] as given
    std::vector<std::uint32_t> pages;
    std::vector<float> memory;
    KvPages kv;

    Cache(const Heads& shape, KvType type, std::size_t tokens, Random& random) {
        const std::size_t width = shape.kv_heads * shape.head_dim;
        k = random.floats(tokens * width, 2.0F);
        v = random.floats(tokens * width, 2.0F);
        pages.resize((tokens + page_tokens - 1) / page_tokens + 2);
        std::iota(pages.begin(), pages.end(), 0U);
        std::shuffle(pages.begin(), pages.end(), random.engine);
        const std::size_t stride = width * page_tokens;
        memory.assign(2 * stride * pages.size() + 16, std::numeric_limits<float>::quiet_NaN());
        void* start = memory.data();
        std::size_t room = memory.size() * sizeof(float);
        auto* base = static_cast<float*>(std::align(64, 64, start, room));
        kv = {type, base, base + stride * pages.size(), stride, shape.kv_heads, shape.head_dim};
    }

    void store(const Kernels& kernels, std::size_t tokens) {
        const std::size_t width = kv.kv_heads * kv.head_dim;
        for (std::size_t t = 0; t < tokens; ++t) {
            kernels.store_kv(kv, pages[t / page_tokens], t % page_tokens, k.data() + t * width,
                             v.data() + t * width);
        }
    }
};

struct Query {
    std::size_t position, rows, head_begin, head_end;
};

// Writes the outputs of the query's rows and heads into `out`, which holds all positions.
void attend(const Kernels& kernels, const Heads& shape, const Cache& cache,
            const std::vector<float>& q, const Query& query, std::vector<float>& out) {
    const std::size_t width = shape.heads * shape.head_dim;
    AlignedBuffer scratch =
        AlignedBuffer::allocate(
            attention_scratch_floats(query.position + query.rows, shape.head_dim) * sizeof(float))
            .value();
    AttentionPart part;
    part.kv = cache.kv;
    part.pages = cache.pages.data();
    part.position = query.position;
    part.rows = query.rows;
    part.q = q.data() + query.position * width;
    part.q_stride = width;
    part.out = out.data() + query.position * width;
    part.out_stride = width;
    part.heads = shape.heads;
    part.head_begin = query.head_begin;
    part.head_end = query.head_end;
    part.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    part.scratch = reinterpret_cast<float*>(scratch.data());
    kernels.attention(part);
}

// The output of one (position, head) in double.
std::vector<double> exact(const Heads& shape, const Cache& cache, const std::vector<float>& q,
                          std::size_t position, std::size_t head) {
    const std::size_t dim = shape.head_dim, kv_head = head / (shape.heads / shape.kv_heads);
    std::vector<double> weights(position + 1), out(dim);
    double sum = 0.0;
    for (std::size_t t = 0; t <= position; ++t) {
        double score = 0.0;
        for (std::size_t d = 0; d < dim; ++d) {
            score += double{q[(position * shape.heads + head) * dim + d]} *
                     cache.k[(t * shape.kv_heads + kv_head) * dim + d];
        }
        weights[t] = std::exp(score / std::sqrt(static_cast<double>(dim)));
        sum += weights[t];
    }
    for (std::size_t t = 0; t <= position; ++t) {
        for (std::size_t d = 0; d < dim; ++d) {
            out[d] += weights[t] / sum * cache.v[(t * shape.kv_heads + kv_head) * dim + d];
        }
    }
    return out;
}

constexpr Heads shapes[] = {{9, 3, 64}, {8, 4, 8},   {4, 1, 128},
                            {5, 5, 20}, {16, 1, 12}, {2, 1, 80}};

}  // namespace

TEST_CASE("plain attention is near the exact softmax", "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : shapes) {
        for (const KvType type : {KvType::f32, KvType::f16}) {
            constexpr std::size_t tokens = 37;
            Cache cache(shape, type, tokens, random);
            cache.store(plain_kernels(), tokens);
            const auto q = random.floats(tokens * shape.heads * shape.head_dim, 2.0F);
            std::vector<float> out(q.size());
            attend(plain_kernels(), shape, cache, q, {0, tokens, 0, shape.heads}, out);
            const double tolerance = type == KvType::f32 ? 3e-6 : 5e-3;
            for (std::size_t i = 0; i < tokens * shape.heads; ++i) {
                const auto expected = exact(shape, cache, q, i / shape.heads, i % shape.heads);
                for (std::size_t d = 0; d < shape.head_dim; ++d) {
                    REQUIRE(out[i * shape.head_dim + d] == Approx(expected[d]).margin(tolerance));
                }
            }
        }
    }
}

TEST_CASE("attention in chunks, alone and by heads has plain's bits in every set",
          "[cpu][kernels][attention]") {
    Random random;
    for (const Heads& shape : shapes) {
        for (const KvType type : {KvType::f32, KvType::f16}) {
            const std::size_t tokens = 100 + random.below(60);
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
    for (const Heads& shape : shapes) {
        for (const KvType type : {KvType::f32, KvType::f16}) {
            constexpr std::size_t tokens = 21;
            Cache expected(shape, type, tokens, random);
            expected.k[3] = 1e-7F, expected.k[4] = 65519.0F, expected.v[1] = 65520.0F;
            expected.v[2] = -5e-8F, expected.k[5] = 1.0F + 0x1p-11F;
            for (const Kernels* kernels : fast_kernels()) {
                Cache cache = expected;
                cache.kv.k = cache.memory.data();
                cache.kv.v = cache.memory.data() + cache.kv.page_stride * cache.pages.size();
                Cache plain = cache;
                plain.kv.k = plain.memory.data();
                plain.kv.v = plain.memory.data() + plain.kv.page_stride * plain.pages.size();
                cache.store(*kernels, tokens);
                plain.store(plain_kernels(), tokens);
                CAPTURE(kernels->name, shape.head_dim);
                REQUIRE(std::memcmp(cache.memory.data(), plain.memory.data(),
                                    plain.memory.size() * sizeof(float)) == 0);
            }
        }
    }
}

}  // namespace troupe::test
