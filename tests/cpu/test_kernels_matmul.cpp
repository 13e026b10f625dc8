// Matrix products: the plain set against sums in double, every other set against plain bit for bit,
// and any part of a product against the whole.
#include <cmath>
#include <memory>

#include "tests/cpu/kernels_support.hpp"

namespace troupe::test {
namespace {

constexpr WeightType quantized_types[] = {WeightType::q4_0, WeightType::q4_1, WeightType::q8_0,
                                          WeightType::q4_k, WeightType::q5_k, WeightType::q6_k};
constexpr WeightType float_types[] = {WeightType::f32, WeightType::f16, WeightType::bf16};

struct Shape {
    std::size_t rows, columns, tokens;
};

// Activations as a model has them, and now and then the hard cases.
std::vector<float> activations(std::size_t tokens, std::size_t columns, Random& random) {
    std::vector<float> x = random.floats(tokens * columns, 3.0F);
    for (std::size_t i = 0; i < x.size(); i += 1 + random.below(200)) {
        constexpr float hard[] = {22000.0F, -22000.0F, 0.0F, 1e-40F, -1e-30F, 1e-12F, 127.0F};
        x[i] = hard[random.below(std::size(hard))];
    }
    for (std::size_t b = 0; b + 32 <= x.size(); b += 32 * (1 + random.below(20))) {
        const float all = random.below(2) == 0 ? 0.0F : -1.5F;  // quants all 0 or all -127
        std::fill_n(x.begin() + static_cast<std::ptrdiff_t>(b), 32, all);
    }
    return x;
}

std::vector<float> product(const Kernels& kernels, const Packed& w, const Quantized& x,
                           std::size_t tokens, Accumulate mode = Accumulate::store) {
    const std::size_t rows = w.matrix.rows;
    std::vector<float> out(tokens * rows + 16, 0.25F);  // 16 more that must stay as they are
    kernels.matmul_quantized(w.matrix, x.rows,
                             {0, w.matrix.panels(), 0, tokens, out.data(), rows, mode});
    return out;
}

std::vector<float> product(const Kernels& kernels, const Packed& w, const std::vector<float>& x,
                           std::size_t tokens, Accumulate mode = Accumulate::store) {
    const std::size_t rows = w.matrix.rows;
    std::vector<float> out(tokens * rows + 16, 0.25F);
    kernels.matmul_float(w.matrix, {x.data(), w.matrix.columns},
                         {0, w.matrix.panels(), 0, tokens, out.data(), rows, mode});
    return out;
}

}  // namespace

TEST_CASE("plain products of quantised weights are near the exact ones", "[cpu][kernels]") {
    Random random;
    for (const WeightType type : quantized_types) {
        const Shape shape{37, 160, 5};
        const RawWeights raw(type, shape.rows, shape.columns, random);
        const Packed w({raw.matrix}, native_panel_format(type));
        const std::vector<float> values = activations(shape.tokens, shape.columns, random);
        const Quantized x(values, shape.columns, plain_kernels());
        const std::vector<float> out = product(plain_kernels(), w, x, shape.tokens);
        for (std::size_t t = 0; t < shape.tokens; ++t) {
            for (std::size_t r = 0; r < shape.rows; ++r) {
                const std::vector<float> row = raw.row(r);
                double exact = 0.0, size = 0.0;
                for (std::size_t k = 0; k < shape.columns; ++k) {
                    const double term = double{row[k]} * x.value(t, k);
                    exact += term;
                    size += std::abs(term);
                }
                CAPTURE(static_cast<int>(type), t, r);
                REQUIRE(out[t * shape.rows + r] == Approx(exact).margin(size * 2e-6 + 1e-30));
            }
        }
    }
}

TEST_CASE("plain products of float panels are near the exact ones", "[cpu][kernels]") {
    Random random;
    std::vector<std::pair<WeightType, PanelFormat>> forms{{WeightType::f16, PanelFormat::f16},
                                                          {WeightType::bf16, PanelFormat::bf16}};
    for (const WeightType type : float_types)
        forms.emplace_back(type, PanelFormat::f32);
    for (const WeightType type : quantized_types)
        forms.emplace_back(type, PanelFormat::f32);
    for (const auto& [type, format] : forms) {
        const Shape shape{21, 96, 3};
        const RawWeights raw(type, shape.rows, shape.columns, random);
        const Packed w({raw.matrix}, format);
        const std::vector<float> x = random.floats(shape.tokens * shape.columns);
        const std::vector<float> out = product(plain_kernels(), w, x, shape.tokens);
        for (std::size_t t = 0; t < shape.tokens; ++t) {
            for (std::size_t r = 0; r < shape.rows; ++r) {
                const std::vector<float> row = raw.row(r);
                double exact = 0.0;
                for (std::size_t k = 0; k < shape.columns; ++k) {
                    exact += double{row[k]} * x[t * shape.columns + k];
                }
                REQUIRE(out[t * shape.rows + r] == Approx(exact).margin(1e-5));
            }
        }
    }
}

TEST_CASE("all sets multiply quantised weights to the same bits", "[cpu][kernels]") {
    Random random;
    std::vector<Shape> shapes{{16, 32, 1}, {192, 576, 3}, {40, 1536, 17}, {33, 2112, 40}};
    for (std::size_t tokens = 1; tokens <= 40; ++tokens) {
        shapes.push_back({1 + random.below(50), 32 * (1 + random.below(5)), tokens});
    }
    shapes.push_back({24, 64, 200});
    for (const WeightType type : quantized_types) {
        for (const Shape& shape : shapes) {
            const RawWeights raw(type, shape.rows, shape.columns, random);
            const Packed w({raw.matrix}, native_panel_format(type));
            const auto values = activations(shape.tokens, shape.columns, random);
            const Quantized x(values, shape.columns, plain_kernels());
            const auto mode = random.below(2) == 0 ? Accumulate::store : Accumulate::add;
            const auto expected = product(plain_kernels(), w, x, shape.tokens, mode);
            for (const Kernels* kernels : fast_kernels()) {
                CAPTURE(kernels->name, static_cast<int>(type), shape.rows, shape.columns,
                        shape.tokens);
                REQUIRE(same_bits(product(*kernels, w, x, shape.tokens, mode), expected));
            }
        }
    }
}

TEST_CASE("more outliers than a list holds change nothing", "[cpu][kernels]") {
    Random random;
    const Shape shape{40, 1024, 150};
    auto values = random.floats(shape.tokens * shape.columns);
    for (std::size_t b = 0; b < values.size(); b += 32)
        values[b + (random.below(3) == 0 ? random.below(32) : 9)] = 50.0F * random.uniform();
    for (const WeightType type : quantized_types) {
        const RawWeights raw(type, shape.rows, shape.columns, random);
        const Packed w({raw.matrix}, native_panel_format(type));
        const Quantized x(values, shape.columns, plain_kernels());
        const auto expected = product(plain_kernels(), w, x, shape.tokens);
        for (const Kernels* kernels : fast_kernels()) {
            CAPTURE(kernels->name, static_cast<int>(type));
            REQUIRE(same_bits(product(*kernels, w, x, shape.tokens), expected));
        }
    }
}

TEST_CASE("all sets multiply float panels to the same bits", "[cpu][kernels]") {
    Random random;
    for (std::size_t tokens = 1; tokens <= 20; ++tokens) {
        const Shape shape{1 + random.below(70), 1 + random.below(100), tokens};
        const WeightType type = float_types[tokens % 3];
        const RawWeights raw(type, shape.rows, shape.columns, random);
        const Packed w({raw.matrix}, native_panel_format(type));
        const auto x = random.floats(tokens * shape.columns, 2.0F);
        const auto mode = random.below(2) == 0 ? Accumulate::store : Accumulate::add;
        const auto expected = product(plain_kernels(), w, x, tokens, mode);
        for (const Kernels* kernels : fast_kernels()) {
            CAPTURE(kernels->name, shape.rows, shape.columns, tokens);
            REQUIRE(same_bits(product(*kernels, w, x, tokens, mode), expected));
        }
    }
}

TEST_CASE("a product cut into parts has the bits of the whole", "[cpu][kernels]") {
    Random random;
    const Shape shape{75, 576, 70};
    for (const Kernels* kernels : available_kernels()) {
        const RawWeights raw(WeightType::q4_1, shape.rows, shape.columns, random);
        const Packed w({raw.matrix}, PanelFormat::q4_1), wide({raw.matrix}, PanelFormat::f32);
        const auto values = activations(shape.tokens, shape.columns, random);
        const Quantized x(values, shape.columns, *kernels);
        const auto whole = product(*kernels, w, x, shape.tokens);
        const auto whole_wide = product(*kernels, wide, values, shape.tokens);
        std::vector<float> out(whole.size(), 0.25F), out_wide = out;
        for (std::size_t row = 0; row < shape.tokens;) {
            const std::size_t row_end = std::min(shape.tokens, row + 1 + random.below(35));
            for (std::size_t panel = 0; panel < w.matrix.panels();) {
                const std::size_t end = std::min(w.matrix.panels(), panel + 1 + random.below(3));
                MatmulPart part{panel, end, row, row_end, out.data(), shape.rows};
                kernels->matmul_quantized(w.matrix, x.rows, part);
                part.out = out_wide.data();
                kernels->matmul_float(wide.matrix, {values.data(), shape.columns}, part);
                panel = end;
            }
            row = row_end;
        }
        CAPTURE(kernels->name);
        REQUIRE(same_bits(out, whole));
        REQUIRE(same_bits(out_wide, whole_wide));
    }
}

TEST_CASE("lists of outliers are kept for one product and for no other", "[cpu][kernels]") {
    Random random;
    const Shape shape{75, 576, 300};  // more groups of rows than lists are kept
    const auto lists = std::make_unique<OutlierLists>();
    std::uint64_t number = 0;
    for (const Kernels* kernels : available_kernels()) {
        for (const WeightType type : {WeightType::q4_1, WeightType::q8_0, WeightType::q6_k}) {
            const std::size_t columns = type == WeightType::q6_k ? 512 : shape.columns;
            const RawWeights raw(type, shape.rows, columns, random);
            const Packed w({raw.matrix}, native_panel_format(type));
            const Quantized x(activations(shape.tokens, columns, random), columns, *kernels);
            const auto whole = product(*kernels, w, x, shape.tokens);
            std::vector<float> out(whole.size(), 0.25F);
            ++number;
            const std::size_t step = 10 + random.below(50);
            for (std::size_t panel = 0; panel < w.matrix.panels(); ++panel) {
                for (std::size_t row = 0; row < shape.tokens; row += step) {
                    // Some of the rows that begin alike first.
                    const std::size_t end = std::min(shape.tokens, row + step);
                    for (const std::size_t part_end : {row + (end - row + 1) / 2, end}) {
                        MatmulPart part{panel, panel + 1, row, part_end, out.data(), shape.rows};
                        part.outliers = lists.get();
                        part.product = number;
                        kernels->matmul_quantized(w.matrix, x.rows, part);
                    }
                }
            }
            CAPTURE(kernels->name, static_cast<int>(type));
            REQUIRE(same_bits(out, whole));
        }
    }
}

TEST_CASE("a row multiplied alone has the bits it has in a batch", "[cpu][kernels]") {
    Random random;
    const Shape shape{48, 320, 33};
    for (const Kernels* kernels : available_kernels()) {
        for (const WeightType type : quantized_types) {
            const RawWeights raw(type, shape.rows, shape.columns, random);
            const Packed w({raw.matrix}, native_panel_format(type));
            const auto values = activations(shape.tokens, shape.columns, random);
            const auto batch =
                product(*kernels, w, Quantized(values, shape.columns, *kernels), shape.tokens);
            for (std::size_t t = 0; t < shape.tokens; ++t) {
                const auto at = values.begin() + static_cast<std::ptrdiff_t>(t * shape.columns);
                const std::vector<float> own(at, at + static_cast<std::ptrdiff_t>(shape.columns));
                const auto alone = product(*kernels, w, Quantized(own, shape.columns, *kernels), 1);
                for (std::size_t r = 0; r < shape.rows; ++r) {
                    REQUIRE(same_bits(alone[r], batch[t * shape.rows + r]));
                }
            }
        }
    }
}

TEST_CASE("a row that is not finite spoils no other row", "[cpu][kernels]") {
    Random random;
    const Shape shape{32, 64, 20};
    const RawWeights raw(WeightType::q4_1, shape.rows, shape.columns, random);
    const Packed w({raw.matrix}, PanelFormat::q4_1);
    auto values = random.floats(shape.tokens * shape.columns);
    for (const Kernels* kernels : available_kernels()) {
        const auto clean =
            product(*kernels, w, Quantized(values, shape.columns, *kernels), shape.tokens);
        auto spoilt = values;
        spoilt[7 * shape.columns + 40] = std::numeric_limits<float>::quiet_NaN();
        spoilt[9 * shape.columns + 3] = std::numeric_limits<float>::infinity();
        const auto out =
            product(*kernels, w, Quantized(spoilt, shape.columns, *kernels), shape.tokens);
        for (std::size_t t = 0; t < shape.tokens; ++t) {
            for (std::size_t r = 0; r < shape.rows; ++r) {
                const std::size_t i = t * shape.rows + r;
                CAPTURE(kernels->name, t, r);
                if (t == 7 || t == 9)
                    REQUIRE(!std::isfinite(out[i]));
                else
                    REQUIRE(same_bits(out[i], clean[i]));
            }
        }
    }
}

}  // namespace troupe::test
