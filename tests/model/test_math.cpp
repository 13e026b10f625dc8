// The errors that model/math.hpp states, measured against the C library in higher precision.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "model/math.hpp"

namespace math = troupe::model::math;

namespace {

// |got - want| in units of the last place of T at `want`.
template <class T>
double ulp_error(T got, long double want) {
    const T near = static_cast<T>(want);
    const T magnitude = std::max(std::abs(near), std::numeric_limits<T>::min());
    const T ulp = std::nextafter(magnitude, std::numeric_limits<T>::infinity()) - magnitude;
    return static_cast<double>(std::abs(static_cast<long double>(got) - want) / ulp);
}

constexpr float kInf32 = std::numeric_limits<float>::infinity();
constexpr double kInf64 = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("exp is as exact as it says", "[model][math]") {
    std::mt19937_64 random{1};
    double worst32 = 0;
    double worst64 = 0;
    for (int i = 0; i < 200'000; ++i) {
        const float x = std::uniform_real_distribution<float>{-87.3F, 88.7F}(random);
        worst32 = std::max(worst32, ulp_error(math::exp(x), std::exp((long double)x)));
        const double y = std::uniform_real_distribution<double>{-708, 709.7}(random);
        worst64 = std::max(worst64, ulp_error(math::exp(y), std::exp((long double)y)));
    }
    CHECK(worst32 < 1.1);
    CHECK(worst64 < 1.5);

    CHECK(math::exp(0.0F) == 1.0F);
    CHECK(math::exp(0.0) == 1.0);
    CHECK(math::exp(-kInf32) == 0.0F);
    CHECK(math::exp(-kInf64) == 0.0);
    CHECK(math::exp(kInf32) == kInf32);
    CHECK(math::exp(kInf64) == kInf64);
    CHECK(math::exp(88.72F) == Approx(3.3932e38).epsilon(1e-3));
    CHECK(math::exp(88.73F) == kInf32);
    CHECK(math::exp(709.78) < kInf64);
    CHECK(math::exp(709.79) == kInf64);
    CHECK(math::exp(-103.0F) == std::exp(-103.0F));
    CHECK(math::exp(-740.0) == Approx(std::exp(-740.0)).epsilon(1e-2));
    CHECK(std::isnan(math::exp(std::numeric_limits<float>::quiet_NaN())));
    CHECK(std::isnan(math::exp(std::numeric_limits<double>::quiet_NaN())));
}

TEST_CASE("log is as exact as it says", "[model][math]") {
    std::mt19937_64 random{2};
    double worst = 0;
    double worst_near_one = 0;
    for (int i = 0; i < 200'000; ++i) {
        const double x = std::exp(std::uniform_real_distribution<double>{-740, 709}(random));
        worst = std::max(worst, ulp_error(math::log(x), std::log((long double)x)));
        const double near = std::uniform_real_distribution<double>{0.5, 2}(random);
        worst_near_one =
            std::max(worst_near_one, ulp_error(math::log(near), std::log((long double)near)));
    }
    CHECK(worst < 3);
    CHECK(worst_near_one < 3);

    CHECK(math::log(1.0) == 0.0);
    CHECK(math::log(0.0) == -kInf64);
    CHECK(math::log(-0.0) == -kInf64);
    CHECK(math::log(kInf64) == kInf64);
    CHECK(std::isnan(math::log(-1.0)));
    CHECK(std::isnan(math::log(std::numeric_limits<double>::quiet_NaN())));
    const double denormal = std::numeric_limits<double>::denorm_min();
    CHECK(math::log(denormal) == Approx(std::log(denormal)).epsilon(1e-15));
    CHECK(math::log(2.718281828F) == Approx(1.0F).epsilon(1e-7));
}

TEST_CASE("sin and cos are as exact as they say", "[model][math]") {
    std::mt19937_64 random{3};
    double worst = 0;
    for (int i = 0; i < 200'000; ++i) {
        const double range = i % 2 == 0 ? 10 : 0x1p20;
        const double x = std::uniform_real_distribution<double>{-range, range}(random);
        const auto error = [](double got, long double want) {
            return static_cast<double>(std::abs(got - want));
        };
        worst = std::max(worst, error(math::sin(x), std::sin((long double)x)));
        worst = std::max(worst, error(math::cos(x), std::cos((long double)x)));
    }
    CHECK(worst < 3e-16);
    CHECK(math::sin(0.0) == 0.0);
    CHECK(math::cos(0.0) == 1.0);
    CHECK(math::sin(1.0F) == std::sin(1.0F));
    CHECK(math::cos(1.0F) == std::cos(1.0F));
}
