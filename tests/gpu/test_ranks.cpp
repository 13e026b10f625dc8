// A model that several cards share: the same answers as one card's but for the order of sums; what
// cannot be shared is refused. What test_backend_invariance.cpp and others ask of one card, they
// ask of two as well.
#include "gpu/kernels/rank_parts.hpp"
#include "gpu/shares.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const Tokens kPrompt{1, 403, 407, 261, 378};

struct Decoded {
    std::vector<float> scores;  // after the prompt
    Tokens ids;
};

Decoded decode(model::Backend& backend, std::size_t count) {
    EngineDriver driver(backend);
    Decoded decoded;
    driver.open(0);
    decoded.scores = driver.prefill(0, kPrompt);
    decoded.ids = driver.continue_greedily(0, count);
    driver.close(0);
    driver.run();
    return decoded;
}

std::string refusal(const model::GgufFile& file, const gpu::CudaOptions& options) {
    const auto refused = gpu::make_cuda_backend(file, options);
    REQUIRE(refused.has_error());
    CHECK(refused.error().kind == ErrorKind::unsupported);
    CHECK_THAT(refused.error().message, !Catch::Contains("\n"));
    return refused.error().message;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "several cards answer as one does", "[gpu][backend][ranks]") {
    const model::GgufFile* file = GENERATE(stories_gguf(), stories_halves_gguf());
    const auto form = GENERATE(gpu::KvForm::f16, gpu::KvForm::int8);
    if (file == nullptr || !have_cards(4)) return;
    gpu::CudaOptions options = small_cuda_options();
    options.kv_form = form;
    const auto one = make_cuda(*file, options);
    const Decoded expected = decode(*one, 8);
    for (const std::uint32_t cards : {2U, 4U}) {
        CAPTURE(cards);
        options.cards = cards;
        const auto several = make_cuda(*file, options);
        const Decoded decoded = decode(*several, 8);
        CHECK(error_of(decoded.scores, expected.scores) < 2e-3);
        CHECK(decoded.ids == expected.ids);
        CHECK(several->info().kv_bytes_per_token == one->info().kv_bytes_per_token);
        CHECK(several->info().pages_total == one->info().pages_total);
        CHECK(several->info().fingerprint != one->info().fingerprint);
        CHECK_THAT(several->info().arithmetic, Catch::Contains(std::to_string(cards) + " x "));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "any card may be the first", "[gpu][backend][ranks]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(3)) return;
    gpu::CudaOptions options = small_cuda_options(GENERATE(1, 2));
    const Decoded expected = decode(*make_cuda(*file, options), 3);
    options.first_card = 1;
    const auto backend = make_cuda(*file, options);
    const Decoded decoded = decode(*backend, 3);
    CHECK(decoded.scores == expected.scores);
    CHECK(decoded.ids == expected.ids);
}

TEST_CASE_METHOD(EmulatorFixture, "the pool grows with the cards", "[gpu][backend][ranks]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(2)) return;
    gpu::CudaOptions options = small_cuda_options();
    options.kv_memory_bytes = 0;
    options.slots_max = 8192;
    options.context_length_max = 0;
    const std::uint32_t pages = make_cuda(*file, options)->info().pages_total;
    options.cards = 2;
    CHECK(make_cuda(*file, options)->info().pages_total > pages * 3 / 2);
}

TEST_CASE_METHOD(EmulatorFixture, "what cards cannot share is refused in a line that says why",
                 "[gpu][backend][ranks]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(4)) return;
    gpu::CudaOptions options = small_cuda_options(3);
    CHECK_THAT(refusal(*file, options), Catch::Contains("--gpus may be 1, 2, 4"));
    options.cards = 1000;
    CHECK_THAT(refusal(*file, options), Catch::Contains("lower --gpus"));
    options.cards = 1;
    options.first_card = 1000;
    CHECK_THAT(refusal(*file, options), Catch::Contains("cards 1000 to 1000 are asked for"));
}

TEST_CASE("shares of a matrix are whole blocks of it, and all of it together", "[gpu][ranks]") {
    using enum model::TensorType;
    const auto type = GENERATE(f32, f16, bf16, q8_0, q4_1, q4_k, q6_k);
    const auto ranks = GENERATE(1U, 2U, 4U);
    CAPTURE(model::to_string(type), ranks);
    Random random(ranks);
    const RandomMatrix matrix(type, 24, 1024, random);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        for (const gpu::Split split : {gpu::Split::rows, gpu::Split::columns}) {
            const gpu::MatrixShare share = gpu::share_of(matrix.matrix, split, {rank, ranks});
            const bool by_rows = split == gpu::Split::rows;
            REQUIRE(share.matrix.rows == (by_rows ? 24 / ranks : 24));
            REQUIRE(share.matrix.columns == (by_rows ? 1024 : 1024 / ranks));
            const std::size_t first = by_rows ? rank * share.matrix.rows * 1024
                                              : std::size_t{rank} * share.matrix.columns;
            std::vector<float> values(share.matrix.columns);
            for (std::size_t row = 0; row < share.matrix.rows; ++row) {
                model::dequantise(type, share.matrix.row(row), values);
                CHECK(same_bits(values.data(), matrix.values.data() + first + row * 1024,
                                values.size()));
            }
        }
    }
}

TEST_CASE("the last ranks' shares may be smaller, and biases are cut like their rows",
          "[gpu][ranks]") {
    CHECK(gpu::share_of(10, {0, 4}).count == 3);
    CHECK(gpu::share_of(10, {3, 4}).begin == 9);
    CHECK(gpu::share_of(10, {3, 4}).count == 1);
    CHECK(gpu::share_of(2, {3, 4}).count == 0);
    model::Hyperparameters hp;
    hp.head_count = 4;
    hp.head_count_kv = 2;
    hp.head_length = 2;
    std::vector<float> biases(16);
    std::iota(biases.begin(), biases.end(), 0.0F);
    CHECK(gpu::share_of_biases(biases, hp, {1, 2}) ==
          std::vector<float>{4, 5, 6, 7, 10, 11, 14, 15});
    CHECK(gpu::share_of_biases({}, hp, {1, 2}).empty());
}

TEST_CASE_METHOD(EmulatorFixture, "parts of sums and of rows are put together", "[gpu][kernels]") {
    const auto ranks = GENERATE(2U, 3U, 8U);
    const std::uint32_t rows = 3, width = 301, part_width = (width + ranks - 1) / ranks;
    Random random(ranks);
    const std::vector<float> parts =
        random_floats(std::size_t{ranks} * rows * std::max(width, part_width), random);
    const auto device_parts = gpu::DeviceBuffer<float>::upload(parts);
    gpu::Stream stream;

    std::vector<float> sums = random_floats(rows * width, random);
    const auto device_sums = gpu::DeviceBuffer<float>::upload(sums);
    gpu::add_parts({device_parts.data(), device_sums.data(), sums.size(), ranks}, stream.get());
    stream.synchronise();
    gpu::add_parts_truth({parts.data(), sums.data(), sums.size(), ranks});
    CHECK(device_sums.download() == sums);

    std::vector<float> whole(rows * width);
    const gpu::DeviceBuffer<float> device_whole(whole.size());
    gpu::join_columns({device_parts.data(), device_whole.data(), rows, part_width, width},
                      stream.get());
    stream.synchronise();
    gpu::join_columns_truth({parts.data(), whole.data(), rows, part_width, width});
    CHECK(device_whole.download() == whole);
}
