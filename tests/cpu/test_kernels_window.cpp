// Attention with a window and sinks: near an explicit mask in double, plain's bits in every set and
// in any cut, the bits of full attention where everything is in the window, and pages behind the
// window never read.
#include "tests/cpu/attention_support.hpp"

namespace troupe::test {
namespace {

constexpr Window windows[] = {{1, 0}, {5, 0}, {16, 4}, {33, 1}, {40, 16}, {24, 37}, {64, 3}};
constexpr std::size_t tokens = 99;

struct Case {
    Heads shape;
    Cache cache;
    std::vector<float> q, q_sinks;

    Case(const Heads& heads, KvType type, Random& random)
        : shape(heads),
          cache(heads, type, tokens, random),
          q(random.floats(tokens * heads.heads * heads.head_dim, 3.0F)),
          q_sinks(random.floats(q.size(), 3.0F)) {
        cache.store(plain_kernels(), tokens);
    }
    [[nodiscard]] std::vector<float> whole(const Kernels& kernels, Window window) const {
        std::vector<float> out(q.size());
        attend(kernels, shape, cache, q, {0, tokens, 0, shape.heads}, out, window, q_sinks);
        return out;
    }
};

}  // namespace

TEST_CASE("a window with sinks is near an explicit mask", "[cpu][kernels][attention][window]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        const Case c(shape, KvType::f32, random);
        for (const Window& window : windows) {
            const auto out = c.whole(plain_kernels(), window);
            CAPTURE(shape.head_dim, window.tokens, window.sinks);
            for (std::size_t i = 0; i < tokens * shape.heads; ++i) {
                const auto expected =
                    exact(shape, c.cache, c.q, i / shape.heads, i % shape.heads, window, c.q_sinks);
                for (std::size_t d = 0; d < shape.head_dim; ++d) {
                    REQUIRE(out[i * shape.head_dim + d] == Approx(expected[d]).margin(5e-6));
                }
            }
        }
    }
}

TEST_CASE("a window's rows in chunks, alone and by heads have plain's bits in every set",
          "[cpu][kernels][attention][window]") {
    Random random;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : kv_types) {
            const Case c(shape, type, random);
            const Window window = windows[random.below(std::size(windows))];
            const auto expected = c.whole(plain_kernels(), window);
            for (const Kernels* kernels : available_kernels()) {
                std::vector<float> chunks(c.q.size());
                for (std::size_t at = 0; at < tokens;) {
                    const std::size_t rows = std::min(tokens - at, 1 + random.below(23));
                    const std::size_t split = random.below(shape.heads + 1);
                    for (const auto& [begin, end] :
                         {std::pair(std::size_t{0}, split), std::pair(split, shape.heads)}) {
                        attend(*kernels, shape, c.cache, c.q, {at, rows, begin, end}, chunks,
                               window, c.q_sinks);
                    }
                    at += rows;
                }
                CAPTURE(kernels->name, shape.head_dim, to_string(type), window.tokens,
                        window.sinks);
                REQUIRE(same_bits(c.whole(*kernels, window), expected));
                REQUIRE(same_bits(chunks, expected));
            }
        }
    }
}

TEST_CASE("where all is in the window, bits are those without one",
          "[cpu][kernels][attention][window]") {
    Random random;
    constexpr Window whole[] = {
        {tokens, 0}, {tokens - 4, 4}, {tokens - 31, 31}, {tokens, 20}, {1, tokens}};
    std::size_t turn = 0;
    for (const Heads& shape : attention_shapes) {
        for (const KvType type : kv_types) {
            Case c(shape, type, random);
            c.q_sinks = c.q;
            const Window window = whole[turn++ % std::size(whole)];
            CAPTURE(shape.head_dim, to_string(type), window.tokens, window.sinks);
            REQUIRE(same_bits(c.whole(plain_kernels(), window), c.whole(plain_kernels(), {})));
        }
    }
}

TEST_CASE("pages behind the window are never read", "[cpu][kernels][attention][window]") {
    Random random;
    const Heads shape{9, 3, 64};
    for (const Kernels* kernels : available_kernels()) {
        Case c(shape, KvType::f16, random);
        const Window window{20, 3};
        const auto expected = c.whole(*kernels, window);
        // Rows from 84 on see positions 65 and up, and page 0.
        for (std::size_t page = 1; page < 4; ++page)
            c.cache.pages[page] = 0xFFFFFFFFU;
        std::vector<float> out = expected;
        std::fill(out.begin() + 84 * 9 * 64, out.end(), 0.0F);
        attend(*kernels, shape, c.cache, c.q, {84, tokens - 84, 0, 9}, out, window, c.q_sinks);
        CAPTURE(kernels->name);
        REQUIRE(same_bits(out, expected));
    }
}

}  // namespace troupe::test
