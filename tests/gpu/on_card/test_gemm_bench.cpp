// How long a product of 8,192 x 8,192 halves takes cuBLAS, to compare our own products with;
// hidden, for tools/gpu-check.
#include <cublas_v2.h>

#include <catch2/catch.hpp>

#include "tests/gpu/bench_support.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

TEST_CASE_METHOD(EmulatorFixture, "time of a product by cuBLAS, what others are compared with",
                 "[.bench]") {
    constexpr int kSide = 8192;
    constexpr std::size_t kNumbers = std::size_t{kSide} * kSide;
    constexpr std::uint16_t kHalf = 0x3800;  // 0.5
    Stream stream;
    const auto a = DeviceBuffer<std::uint16_t>::upload(std::vector(kNumbers, kHalf));
    const auto b = DeviceBuffer<std::uint16_t>::upload(std::vector(kNumbers, kHalf));
    const DeviceBuffer<float> out(kNumbers);
    cublasHandle_t handle = nullptr;
    REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
    REQUIRE(cublasSetStream(handle, stream.get()) == CUBLAS_STATUS_SUCCESS);
    const float one = 1, zero = 0;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const double seconds = median_seconds(stream, [&](int) {
        status = cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, kSide, kSide, kSide, &one, a.data(),
                              CUDA_R_16F, kSide, b.data(), CUDA_R_16F, kSide, &zero, out.data(),
                              CUDA_R_32F, kSide, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    });
    CHECK(status == CUBLAS_STATUS_SUCCESS);
    std::vector<float> first(1);
    CUDA_CHECK(cudaMemcpy(first.data(), out.data(), sizeof(float), cudaMemcpyDeviceToHost));
    CHECK(first[0] == kSide * 0.25F);
    report("cublas f16 8192 x 8192", kSide, seconds, 2.0 * kNumbers * sizeof(std::uint16_t),
           2.0 * kSide * static_cast<double>(kNumbers));
    REQUIRE(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
}
