// The kernels of free order, which only the bench uses, compute what the others do, but for
// rounding: what is timed is no nonsense.
#include <algorithm>
#include <cmath>

#include "cpu/free_order/free_order.hpp"
#include "tests/cpu/attention_support.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

namespace troupe::test {
namespace {

struct Pair {
    const Kernels* set;
    FreeOrder free;
};

std::vector<Pair> pairs() {
    std::vector<Pair> out;
    for (const Kernels* set : available_kernels()) {
        const FreeOrder free = free_order_of(*set);
        if (free.kernels != nullptr) out.push_back({set, free});
    }
    return out;
}

void require_close(const std::vector<float>& actual, const std::vector<float>& expected,
                   float share) {
    REQUIRE(actual.size() == expected.size());
    float largest = 0, worst = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        largest = std::max(largest, std::abs(expected[i]));
        worst = std::max(worst, std::abs(actual[i] - expected[i]));
        if (!std::isfinite(actual[i])) FAIL("element " << i << " is " << actual[i]);
    }
    CAPTURE(worst, largest);
    REQUIRE(worst <= share * largest);
}

// All scores of a prompt's last token and of some that are drawn by it, behind a context that is
// long enough to be shared out.
std::vector<float> logits_of(const model::GgufFile& file, const CpuOptions& options) {
    const auto backend = make_backend(file, options);
    EngineDriver driver(*backend);
    driver.open(0);
    std::mt19937 random(3);
    Tokens prompt(400);
    for (model::TokenId& token : prompt) {
        token = static_cast<model::TokenId>(
            random() % static_cast<std::uint32_t>(backend->info().vocabulary_size));
    }
    std::vector<float> logits;
    const auto take = [&] {
        const auto& last = driver.result().logits;
        logits.insert(logits.end(), last.begin(), last.end());
    };
    driver.add(0, prompt, 1, 1);
    driver.run();
    take();
    for (const model::TokenId token : {5, 17, 100}) {
        driver.add(0, {&token, 1}, 1, 1);
        driver.run();
        take();
    }
    return logits;
}

}  // namespace

TEST_CASE("products in free order are the same but for rounding", "[cpu][free_order]") {
    Random random;
    for (const auto type : {WeightType::q4_1, WeightType::q4_0, WeightType::q8_0, WeightType::q4_k,
                            WeightType::q6_k}) {
        const std::size_t columns = 768, rows = 40;
        const RawWeights raw(type, rows, columns, random);
        const Packed w({raw.matrix}, native_panel_format(type));
        const Quantized x(random.floats(20 * columns), columns, plain_kernels());
        for (const Pair& pair : pairs()) {
            CAPTURE(pair.set->name);
            for (const std::size_t count : {1, 2, 3, 4, 5, 8, 9, 16, 20}) {
                const auto product = [&](const Kernels& kernels) {
                    std::vector<float> out(count * rows);
                    kernels.matmul_quantized(
                        w.matrix, x.rows,
                        {0, w.matrix.panels(), 0, count, out.data(), rows, Accumulate::store});
                    return out;
                };
                require_close(product(*pair.free.kernels), product(*pair.set), 1e-5F);
            }
        }
    }
}

TEST_CASE("attention and norms in free order are the same but for rounding", "[cpu][free_order]") {
    Random random;
    const Heads shape{6, 2, 40};
    const std::size_t context = 1200, width = shape.heads * shape.head_dim;
    for (const KvType type : kv_types) {
        Cache cache(shape, type, context, random);
        cache.store(plain_kernels(), context);
        const auto q = random.floats(context * width);
        for (const Pair& pair : pairs()) {
            CAPTURE(pair.set->name, to_string(type));
            for (const std::size_t rows : {1, 7, 300}) {
                const Query query{context - rows, rows, 0, shape.heads};
                std::vector<float> expected(q.size()), actual(q.size());
                attend(*pair.set, shape, cache, q, query, expected);
                attend(*pair.free.kernels, shape, cache, q, query, actual);
                require_close(actual, expected, 1e-5F);
            }
        }
    }
    const auto x = random.floats(777), weight = random.floats(777);
    for (const Pair& pair : pairs()) {
        std::vector<float> expected(x.size()), actual(x.size());
        pair.set->rms_norm(x.data(), weight.data(), x.size(), 1e-5F, expected.data());
        pair.free.kernels->rms_norm(x.data(), weight.data(), x.size(), 1e-5F, actual.data());
        require_close(actual, expected, 1e-5F);
        pair.set->silu_mul(x.data(), weight.data(), x.size(), expected.data());
        pair.free.kernels->silu_mul(x.data(), weight.data(), x.size(), actual.data());
        require_close(actual, expected, 1e-5F);
    }
}

TEST_CASE("a model in free order gives the same scores but for rounding", "[cpu][free_order]") {
    for (const model::GgufFile* file : {stories_gguf(), default_gguf()}) {
        if (file == nullptr) continue;
        CpuOptions options = small_options();
        for (const Pair& pair : pairs()) {
            CAPTURE(pair.set->name);
            options.kernels = pair.set;
            options.attend = {};
            const std::vector<float> expected = logits_of(*file, options);
            options.kernels = pair.free.kernels;
            options.attend = pair.free.attend;
            // Rounding may move an activation to the next of its 255 steps.
            const std::vector<float> actual = logits_of(*file, options);
            REQUIRE(actual != expected);
            require_close(actual, expected, 0.02F);
        }
    }
}

}  // namespace troupe::test
