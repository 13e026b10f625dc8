// Speed of the kernels on one thread, printed and never asserted: troupe_test_cpu "[.bench]".
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cpu/free_order/free_order.hpp"
#include "tests/cpu/attention_support.hpp"

namespace troupe::test {
namespace {

// The shortest time of a call, over about `seconds` of calls: other programs disturb the rest.
template <class Function>
double shortest_seconds(Function function, double seconds = 0.15) {
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    double total = 0.0;
    while (total < seconds || times.size() < 5) {
        const auto start = Clock::now();
        function();
        times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
        total += times.back();
    }
    return *std::min_element(times.begin(), times.end());
}

struct Shape {
    std::size_t rows, columns;
};

}  // namespace

TEST_CASE("bench: products of 512 rows to one, GOP/s", "[.bench]") {
    Random random;
    for (const auto type : {WeightType::q4_1, WeightType::q4_0, WeightType::q8_0}) {
        for (const Shape shape : {Shape{576, 576}, {192, 576}, {1536, 576}, {576, 1536}}) {
            const RawWeights raw(type, shape.rows, shape.columns, random);
            const Packed w({raw.matrix}, native_panel_format(type));
            const Quantized x(random.floats(512 * shape.columns), shape.columns, plain_kernels());
            std::vector<float> out(512 * shape.rows);
            for (const Kernels* kernels : fast_kernels()) {
                std::printf("type %d  %4zu x %4zu  %-8s", static_cast<int>(type), shape.rows,
                            shape.columns, std::string(kernels->name).c_str());
                for (const std::size_t tokens : {512, 32, 8, 4, 3, 2, 1}) {
                    const double seconds = shortest_seconds([&] {
                        kernels->matmul_quantized(w.matrix, x.rows,
                                                  {0, w.matrix.panels(), 0, tokens, out.data(),
                                                   shape.rows, Accumulate::store});
                    });
                    const double operations = 2.0 * static_cast<double>(shape.rows) *
                                              static_cast<double>(shape.columns) *
                                              static_cast<double>(tokens);
                    std::printf("  %3zu: %6.1f", tokens, operations / seconds * 1e-9);
                }
                std::printf("\n");
            }
        }
    }
}

TEST_CASE("bench: one row by 90 MB of weights, GB/s", "[.bench]") {
    Random random;
    for (const auto type : {WeightType::q4_1, WeightType::q4_0, WeightType::q8_0}) {
        for (const Shape shape : {Shape{150000, 576}, {49152, 1536}}) {
            const RawWeights raw(type, shape.rows, shape.columns, random);
            const Packed w({raw.matrix}, native_panel_format(type));
            const Quantized x(random.floats(shape.columns), shape.columns, plain_kernels());
            std::vector<float> out(shape.rows);
            const auto bytes =
                static_cast<double>(packed_bytes(w.matrix.format, shape.rows, shape.columns));
            std::uint64_t total = 0;
            const double reading = shortest_seconds([&] {
                const auto* words = reinterpret_cast<const std::uint64_t*>(w.matrix.data);
                for (std::size_t i = 0; i < static_cast<std::size_t>(bytes) / 8; ++i) {
                    total += words[i];
                }
            });
            std::printf("type %d  %zu x %zu  reading %5.1f (%d)", static_cast<int>(type),
                        shape.rows, shape.columns, bytes / reading * 1e-9,
                        static_cast<int>(total & 1));
            for (const Kernels* kernels : fast_kernels()) {
                const double seconds = shortest_seconds([&] {
                    kernels->matmul_quantized(
                        w.matrix, x.rows,
                        {0, w.matrix.panels(), 0, 1, out.data(), shape.rows, Accumulate::store});
                });
                std::printf("  %s %5.1f", std::string(kernels->name).c_str(),
                            bytes / seconds * 1e-9);
            }
            std::printf("\n");
        }
    }
}

TEST_CASE("bench: attention of the default model's heads, microseconds a row", "[.bench]") {
    Random random;
    const Heads shape{9, 3, 64};
    const std::size_t width = shape.heads * shape.head_dim;
    for (const std::size_t context : {256, 2048}) {
        for (const KvType type : kv_types) {
            Cache cache(shape, type, context, random);
            cache.store(plain_kernels(), context);
            const auto q = random.floats(context * width);
            std::vector<float> out(q.size());
            for (const Kernels* kernels : fast_kernels()) {
                std::printf("context %4zu  %-4s  %-8s", context,
                            std::string(to_string(type)).c_str(),
                            std::string(kernels->name).c_str());
                for (const std::size_t rows : {1, 64}) {
                    const Query query{context - rows, rows, 0, shape.heads};
                    const double seconds =
                        shortest_seconds([&] { attend(*kernels, shape, cache, q, query, out); });
                    std::printf("  %2zu rows: %6.2f", rows,
                                1e6 * seconds / static_cast<double>(rows));
                }
                std::printf("\n");
            }
        }
    }
}

TEST_CASE("bench: free order, how many times as fast", "[.bench]") {
    Random random;
    const Kernels& set = *available_kernels().back();
    const FreeOrder free = free_order_of(set);
    if (free.kernels == nullptr) return;
    const auto ratio = [](auto&& invariant, auto&& freely) {
        double with = 1e9, without = 1e9;
        for (int round = 0; round < 5; ++round) {
            with = std::min(with, shortest_seconds(invariant, 0.05));
            without = std::min(without, shortest_seconds(freely, 0.05));
        }
        return with / without;
    };
    const RawWeights raw(WeightType::q4_1, 576, 576, random);
    const Packed w({raw.matrix}, PanelFormat::q4_1);
    const Quantized x(random.floats(16 * 576), 576, plain_kernels());
    std::vector<float> product(16 * 576);
    for (const std::size_t tokens : {1, 2, 4, 6, 8, 12}) {
        const auto multiply = [&](const Kernels& kernels) {
            kernels.matmul_quantized(
                w.matrix, x.rows,
                {0, w.matrix.panels(), 0, tokens, product.data(), 576, Accumulate::store});
        };
        std::printf("product of %2zu rows: %.3f\n", tokens,
                    ratio([&] { multiply(set); }, [&] { multiply(*free.kernels); }));
    }
    const Heads shape{9, 3, 64};
    for (const std::size_t context : {128, 512, 2048}) {
        Cache cache(shape, KvType::f16, context, random);
        cache.store(plain_kernels(), context);
        const auto q = random.floats(context * 576);
        std::vector<float> out(q.size());
        for (const std::size_t rows : {1, 64}) {
            const Query query{context - rows, rows, 0, shape.heads};
            const auto run = [&](const Kernels& kernels) {
                attend(kernels, shape, cache, q, query, out);
            };
            std::printf("attention of %2zu rows behind %4zu: %.3f\n", rows, context,
                        ratio([&] { run(set); }, [&] { run(*free.kernels); }));
        }
    }
    const auto row = random.floats(1536), other = random.floats(1536);
    std::vector<float> out(1536);
    const auto norm = [&](const Kernels& kernels) {
        kernels.rms_norm(row.data(), other.data(), 576, 1e-5F, out.data());
    };
    const auto norm_quantize = [&](const Kernels& kernels) {
        kernels.rms_norm_quantize(row.data(), other.data(), 1e-5F, x.rows, 0);
    };
    const Quantized wide(1, 1536);
    const auto silu = [&](const Kernels& kernels) {
        kernels.silu_mul_quantize(row.data(), other.data(), wide.rows, 0);
    };
    std::printf("norm %.3f, norm and quantise %.3f, silu and quantise %.3f\n",
                ratio([&] { norm(set); }, [&] { norm(*free.kernels); }),
                ratio([&] { norm_quantize(set); }, [&] { norm_quantize(*free.kernels); }),
                ratio([&] { silu(set); }, [&] { silu(*free.kernels); }));
}

}  // namespace troupe::test
