// Graphs of several devices: exchanges that are captured go on as those that are not, mistakes with
// them are seen, and a model's layers are launched as such graphs.
#include <nccl.h>
#include <catch2/catch.hpp>

#include "gpu/layer_graphs.hpp"
#include "tests/gpu/several_devices.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

struct CapturedExchanges : SeveralDevices {
    // Each device's part of one step: it fills its place, and gathers the others'.
    std::vector<Graph> record() {
        std::vector<Capture> captures;
        for (const Peer& peer : peers)
            captures.emplace_back(*peer.stream);
        gather();
        std::vector<RecordedGraph> recorded;
        for (Capture& capture : captures)
            recorded.push_back(capture.end());
        std::vector<Graph> graphs;
        for (std::size_t rank = 0; rank < peers.size(); ++rank)
            graphs.emplace_back(recorded[rank], *peers[rank].stream);
        return graphs;
    }
    void launch(const std::vector<Graph>& graphs) const {
        for (std::size_t rank = 0; rank < peers.size(); ++rank)
            graphs[rank].launch(*peers[rank].stream);
    }
    // Calls of one group, of those ranks.
    void gather_on(std::vector<std::size_t> ranks, std::vector<ncclComm_t>& communicators) const {
        CHECK(ncclGroupStart() == ncclSuccess);
        for (const std::size_t rank : ranks) {
            CHECK(ncclAllGather(peers[rank].own.data(), peers[rank].all.data(), kCount, ncclFloat32,
                                communicators[rank], peers[rank].stream->get()) == ncclSuccess);
        }
    }
    [[nodiscard]] static std::vector<ncclComm_t> communicators() {
        std::vector<ncclComm_t> made(3);
        REQUIRE(ncclCommInitAll(made.data(), 3, std::vector<int>{0, 1, 2}.data()) == ncclSuccess);
        return made;
    }
    static void abort(const std::vector<ncclComm_t>& communicators) {
        for (const ncclComm_t communicator : communicators)
            CHECK(ncclCommAbort(communicator) == ncclSuccess);
    }
};

}  // namespace

TEST_CASE_METHOD(CapturedExchanges, "captured exchanges gather the same parts, under every seed",
                 "[gpu][emulator][ranks][graphs]") {
    std::vector<float> expected;
    for (const float part : {1.0F, 2.0F, 3.0F})
        expected.insert(expected.end(), kCount, part);
    const std::vector<Graph> graphs = record();
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        for (Peer& peer : peers)
            peer.all.clear();
        launch(graphs);
        if (seed % 2 == 0) gather();  // one that is not captured, in between
        launch(graphs);
        synchronise();
        for (const Peer& peer : peers)
            CHECK(peer.all.download() == expected);
    }
}

TEST_CASE_METHOD(CapturedExchanges, "a rank whose graph is not launched is a fault, and no hang",
                 "[gpu][emulator][ranks][graphs]") {
    const auto missing = static_cast<std::size_t>(GENERATE(0, 1, 2));
    const std::vector<Graph> graphs = record();
    for (std::size_t rank = 0; rank < 3; ++rank)
        if (rank != missing) graphs[rank].launch(*peers[rank].stream);
    expect_fault("wait for each other for ever");
    CHECK(emulator::hung());
}

TEST_CASE_METHOD(CapturedExchanges, "graphs that were not recorded together do not meet",
                 "[gpu][emulator][ranks][graphs]") {
    const std::vector<Graph> graphs = record();
    const std::vector<Graph> others = record();
    const auto wrong = static_cast<std::size_t>(GENERATE(0, 1, 2));
    for (std::size_t rank = 0; rank < 3; ++rank)
        (rank == wrong ? others : graphs)[rank].launch(*peers[rank].stream);
    expect_fault("with another graph than the others");
}

TEST_CASE_METHOD(CapturedExchanges, "an exchange is captured by all of its ranks or by none",
                 "[gpu][emulator][ranks][graphs]") {
    std::vector<ncclComm_t> ranks = communicators();
    const auto captured = static_cast<std::size_t>(GENERATE(0, 1, 2));
    SECTION("in one group") {
        const Capture capture(*peers[captured].stream);
        gather_on({0, 1, 2}, ranks);
        CHECK(ncclGroupEnd() == ncclInvalidUsage);
    }
    SECTION("by two groups") {
        Capture capture(*peers[captured].stream);
        gather_on({captured}, ranks);
        CHECK(ncclGroupEnd() == ncclSuccess);
        const Graph graph(capture.end(), *peers[captured].stream);
        gather_on({(captured + 1) % 3, (captured + 2) % 3}, ranks);
        CHECK(ncclGroupEnd() == ncclSuccess);
        graph.launch(*peers[captured].stream);
        expect_fault("or one of them with none");
    }
    abort(ranks);
}

TEST_CASE_METHOD(CapturedExchanges, "a rank is in one exchange at a time",
                 "[gpu][emulator][ranks][graphs]") {
    const std::vector<Graph> graphs = record();
    select_card(1);
    const Stream other;
    graphs[1].launch(*peers[1].stream);
    graphs[1].launch(other);
    expect_fault("while it is in another");
}

TEST_CASE_METHOD(CapturedExchanges, "a first launch that makes room on the device waits for others",
                 "[gpu][emulator][ranks][graphs]") {
    const bool uploaded = GENERATE(false, true);
    std::vector<Capture> captures;
    for (const Peer& peer : peers)
        captures.emplace_back(*peer.stream);
    gather();
    std::vector<cudaGraphExec_t> graphs(3);
    std::vector<RecordedGraph> recorded;
    for (Capture& capture : captures)
        recorded.push_back(capture.end());
    cudaError_t error = cudaSuccess;
    for (std::size_t rank = 0; rank < 3; ++rank) {
        CUDA_CHECK(cudaGraphInstantiate(&graphs[rank], recorded[rank].get(), 0));
        if (uploaded) CUDA_CHECK(cudaGraphUpload(graphs[rank], peers[rank].stream->get()));
    }
    for (std::size_t rank = 0; rank < 3 && error == cudaSuccess; ++rank)
        error = cudaGraphLaunch(graphs[rank], peers[rank].stream->get());
    CHECK((error == cudaSuccess) == uploaded);
    CHECK(emulator::hung() == !uploaded);
    for (const cudaGraphExec_t graph : graphs)
        (void)cudaGraphExecDestroy(graph);
}

TEST_CASE_METHOD(CapturedExchanges, "no graph is made while another rank is still recorded",
                 "[gpu][emulator][ranks][graphs]") {
    std::vector<Capture> captures;
    for (const Peer& peer : peers)
        captures.emplace_back(*peer.stream);
    gather();
    const RecordedGraph recorded = captures[0].end();
    CHECK_THROWS_AS(Graph(recorded, *peers[0].stream), model::BackendError);
    CHECK_THROWS_AS((void)captures[1].end(), model::BackendError);
}

TEST_CASE_METHOD(CapturedExchanges, "graphs end before the communicators that they exchange by",
                 "[gpu][emulator][ranks][graphs]") {
    const bool in_time = GENERATE(false, true);
    std::vector<Graph> graphs = record();
    launch(graphs);
    if (in_time) graphs.clear();
    collectives->abort();
    CHECK(emulator::hung() == !in_time);
    if (in_time) {
        synchronise();
    } else {
        expect_fault("before the graphs that hold its exchanges");
    }
}

TEST_CASE_METHOD(CapturedExchanges, "after an abort the ranks go on whose graphs are under way",
                 "[gpu][emulator][ranks][graphs]") {
    std::vector<Graph> graphs = record();
    emulator::lose_device_after(2);
    launch(graphs);
    CHECK_THROWS_AS(peers[1].stream->synchronise(), model::BackendError);
    graphs.clear();
    collectives->abort();
    peers[0].stream->synchronise();
    peers[2].stream->synchronise();
    CHECK_FALSE(emulator::hung());
}

namespace {

Tokens decode(model::Backend& backend, std::size_t count) {
    EngineDriver driver(backend);
    driver.open(0);
    driver.prefill(0, {1, 403, 407, 261, 378});
    const Tokens ids = driver.continue_greedily(0, count);
    driver.close(0);
    driver.run();
    return ids;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "every card's layers are launched as graphs",
                 "[gpu][backend][ranks][graphs]") {
    constexpr std::uint64_t kLayers = 5;
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2, 4);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const auto ranks = static_cast<std::uint64_t>(cards);
    const std::uint64_t graphs =
        cards == 1 ? 1 : ranks * ((kLayers + kGraphLayersMax - 1) / kGraphLayersMax);
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, {1, 403, 407, 261, 378});
    CHECK(emulator::graph_launches() == (cards == 1 ? 1 : 0));
    for (std::uint64_t step = 0; step < 4; ++step) {
        const std::uint64_t before = emulator::graph_launches();
        driver.continue_greedily(0, 2);
        // A size's first step has the cards connected, and is not recorded.
        CHECK(emulator::graph_launches() == before + (cards > 1 && step == 0 ? 0 : graphs));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "a capture that fails ends the step, and a reset puts it right",
                 "[gpu][backend][ranks][graphs]") {
    const model::GgufFile* file = stories_halves_gguf();
    // Of both ranks, and of both parts of the layers.
    const auto [cards, failing] =
        GENERATE(table<int, unsigned>({{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 3}, {2, 4}}));
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const Tokens expected = decode(*make_cuda(*file, small_cuda_options(cards)), 4);
    CAPTURE(cards, failing);
    emulator::fail_capture_after(failing);
    CHECK_THROWS_AS(
        [&] {
            decode(*backend, 4);
            decode(*backend, 4);
        }(),
        model::BackendError);
    CHECK_FALSE(emulator::hung());
    backend->reset();
    CHECK(decode(*backend, 4) == expected);
    CHECK(decode(*backend, 4) == expected);
    CHECK_FALSE(emulator::hung());
}
