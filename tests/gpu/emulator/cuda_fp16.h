// IEEE binary16 for the emulated build: the toolkit's type and the conversions that gpu/ uses.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "model/half.hpp"

struct alignas(2) __half {
    std::uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

// Of internal linkage: kernels are compiled for processors that do this by instruction.
#if defined(__F16C__)
static inline float __half2float(__half value) {
    return _cvtsh_ss(value.bits);
}
static inline __half __float2half_rn(float value) {
    return {_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)};
}
#else
static inline float __half2float(__half value) {
    return troupe::model::half_to_float(value.bits);
}
static inline __half __float2half_rn(float value) {
    return {troupe::model::float_to_half(value)};
}
#endif
inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}
inline unsigned short __half_as_ushort(__half value) {
    return value.bits;
}

// Two at a time. Sums and products of halves are exact enough in float32 to be rounded once more
// without harm; a fused operation goes through double, where a second rounding can tip one case in
// 2^40 or so.
static inline __half2 __floats2half2_rn(float x, float y) {
    return {__float2half_rn(x), __float2half_rn(y)};
}
static inline __half2 __half2half2(__half value) {
    return {value, value};
}
static inline __half2 __hsub2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) - __half2float(b.x),
                             __half2float(a.y) - __half2float(b.y));
}
static inline __half2 __hmul2(__half2 a, __half2 b) {
    return __floats2half2_rn(__half2float(a.x) * __half2float(b.x),
                             __half2float(a.y) * __half2float(b.y));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    const auto fused = [](__half x, __half y, __half z) {
        return static_cast<float>(double{__half2float(x)} * __half2float(y) + __half2float(z));
    };
    return __floats2half2_rn(fused(a.x, b.x, c.x), fused(a.y, b.y, c.y));
}
