// Several emulated devices, and exchanges between them: programs that are wrong, each in one way,
// must be seen to be wrong, and put right must be right under every seed.
#include <nccl.h>
#include <catch2/catch.hpp>

#include "tests/gpu/several_devices.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

TEST_CASE_METHOD(SeveralDevices, "all devices gather the same parts, under every seed",
                 "[gpu][emulator][ranks]") {
    std::vector<float> expected;
    for (const float part : {1.0F, 2.0F, 3.0F})
        expected.insert(expected.end(), kCount, part);
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        for (Peer& peer : peers)
            peer.all.clear();
        gather();
        synchronise();
        for (const Peer& peer : peers)
            CHECK(peer.all.download() == expected);
    }
}

TEST_CASE_METHOD(SeveralDevices, "what the first device broadcasts all have, under every seed",
                 "[gpu][emulator][ranks]") {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        std::vector<DeviceBuffer<std::int32_t>> values;
        std::vector<RankBuffer<std::int32_t>> buffers;
        for (const Peer& peer : peers) {
            select_card(peer.card);
            values.push_back(DeviceBuffer<std::int32_t>::upload({7 + peer.card, 9}));
            buffers.push_back({values.back().data(), peer.stream.get()});
        }
        collectives->broadcast(buffers, 2);
        synchronise();
        for (const auto& value : values)
            CHECK(value.download() == std::vector<std::int32_t>{7, 9});
    }
}

TEST_CASE_METHOD(SeveralDevices, "what is read on another stream before it is gathered shows",
                 "[gpu][emulator][ranks]") {
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        for (Peer& peer : peers)
            peer.all.clear();
        gather();
        select_card(0);
        Stream other;
        DeviceBuffer<float> out(kCount);
        launch(copy_kernel, 1, kCount, 0, other.get(),
               {peers[0].all.data() + 2 * kCount, out.data(), 0});
        synchronise();
        other.synchronise();
        wrong += out.download()[0] != 3 ? 1 : 0;
    }
    CHECK(wrong > 0);
}

TEST_CASE_METHOD(SeveralDevices, "a rank that misses an exchange is a fault, and no hang",
                 "[gpu][emulator][ranks]") {
    const std::vector<int> cards{0, 1, 2};
    std::vector<ncclComm_t> communicators(3);
    REQUIRE(ncclCommInitAll(communicators.data(), 3, cards.data()) == ncclSuccess);
    const auto missing = static_cast<std::size_t>(GENERATE(0, 1, 2));
    const bool by_looking = GENERATE(false, true);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (std::size_t rank = 0; rank < 3; ++rank) {
        if (rank == missing) continue;
        CHECK(ncclAllGather(peers[rank].own.data(), peers[rank].all.data(), kCount, ncclFloat32,
                            communicators[rank], peers[rank].stream->get()) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    if (by_looking) {
        const std::size_t waits = missing == 0 ? 1 : 0;
        select_card(static_cast<int>(waits));
        const Event done;
        done.record(*peers[waits].stream);
        CHECK_THROWS_AS(
            [&] {
                while (!done.reached()) {
                }
            }(),
            model::BackendError);
    } else {
        expect_fault("wait for each other for ever");
    }
    CHECK(emulator::hung());
    for (const ncclComm_t communicator : communicators)
        CHECK(ncclCommAbort(communicator) == ncclSuccess);
}

TEST_CASE_METHOD(SeveralDevices, "after an abort the ranks that came go on",
                 "[gpu][emulator][ranks]") {
    for (Peer& peer : peers)
        peer.fill();
    emulator::lose_device_after(2);
    collectives->all_gather(buffers(), kCount);
    CHECK_THROWS_AS(peers[1].stream->synchronise(), model::BackendError);
    collectives->abort();
    peers[0].stream->synchronise();
    peers[2].stream->synchronise();
    CHECK_FALSE(emulator::hung());
    CHECK_THROWS_AS(collectives->all_gather(buffers(), kCount), model::BackendError);
}

TEST_CASE_METHOD(SeveralDevices, "ranks that do not agree about an exchange are a fault",
                 "[gpu][emulator][ranks]") {
    const std::vector<int> cards{0, 1};
    std::vector<ncclComm_t> communicators(2);
    REQUIRE(ncclCommInitAll(communicators.data(), 2, cards.data()) == ncclSuccess);
    const bool other_kind = GENERATE(false, true);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        const Peer& peer = peers[rank];
        if (rank == 1 && other_kind) {
            CHECK(ncclBroadcast(peer.own.data(), peer.all.data(), kCount, ncclFloat32, 0,
                                communicators[rank], peer.stream->get()) == ncclSuccess);
        } else {
            CHECK(ncclAllGather(peer.own.data(), peer.all.data(), kCount - rank, ncclFloat32,
                                communicators[rank], peer.stream->get()) == ncclSuccess);
        }
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    expect_fault("to an exchange of");
    for (const ncclComm_t communicator : communicators)
        CHECK(ncclCommAbort(communicator) == ncclSuccess);
}

TEST_CASE_METHOD(SeveralDevices, "an exchange wants a group, its own device's memory and stream",
                 "[gpu][emulator][ranks]") {
    const std::vector<int> cards{0, 1};
    std::vector<ncclComm_t> communicators(2);
    REQUIRE(ncclCommInitAll(communicators.data(), 2, cards.data()) == ncclSuccess);
    const auto gather = [&](const Peer& memory, const Peer& stream, std::size_t count) {
        return ncclAllGather(memory.own.data(), memory.all.data(), count, ncclFloat32,
                             communicators[0], stream.stream->get());
    };
    const auto grouped = [&](const Peer& memory, const Peer& stream, std::size_t count) {
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(gather(memory, stream, count) == ncclSuccess);
        return ncclGroupEnd();
    };
    CHECK(gather(peers[0], peers[0], kCount) == ncclInvalidUsage);
    CHECK(grouped(peers[1], peers[0], kCount) == ncclInvalidArgument);
    CHECK(grouped(peers[0], peers[1], kCount) == ncclInvalidArgument);
    CHECK(grouped(peers[0], peers[0], 2 * kCount) == ncclInvalidArgument);
    for (const ncclComm_t communicator : communicators)
        CHECK(ncclCommDestroy(communicator) == ncclSuccess);
}

TEST_CASE_METHOD(SeveralDevices, "a kernel may not touch another device's memory",
                 "[gpu][emulator][ranks]") {
    const bool reads = GENERATE(false, true);
    select_card(1);
    launch(copy_kernel, 1, kCount, 0, peers[1].stream->get(),
           {peers[reads ? 0 : 1].own.data(), peers[reads ? 1 : 0].all.data(), 0});
    expect_fault("not its to touch");
    peers[0].stream->synchronise();  // the other device is as well as before
    CHECK(peers[0].own.download() == std::vector<float>(kCount, 0));
}

TEST_CASE_METHOD(SeveralDevices, "streams and events are their device's alone",
                 "[gpu][emulator][ranks]") {
    select_card(0);
    const Copy copy{peers[1].own.data(), peers[1].all.data(), 0};
    CHECK_THROWS_AS(launch(copy_kernel, 1, kCount, 0, peers[1].stream->get(), copy),
                    model::BackendError);
    const Event event;
    CHECK_THROWS_AS(event.record(*peers[1].stream), model::BackendError);
    event.record(*peers[0].stream);
    peers[1].stream->wait(event);  // which may be any device's
    peers[1].stream->synchronise();
    CHECK(cudaMemcpyAsync(peers[1].all.data(), peers[0].own.data(), 4, cudaMemcpyDeviceToDevice,
                          peers[1].stream->get()) == cudaErrorInvalidValue);
    CHECK_THROWS_AS(select_card(3), model::BackendError);
}
