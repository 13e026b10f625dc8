// IEEE binary16 for the emulated build: the toolkit's type and the conversions that gpu/ uses.
#pragma once

#include "model/half.hpp"

struct alignas(2) __half {
    std::uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

inline float __half2float(__half value) {
    return troupe::model::half_to_float(value.bits);
}
inline __half __float2half_rn(float value) {
    return {troupe::model::float_to_half(value)};
}
inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}
inline unsigned short __half_as_ushort(__half value) {
    return value.bits;
}
