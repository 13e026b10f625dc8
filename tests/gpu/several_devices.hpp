// Several emulated devices that exchange parts with each other, for tests of programs that do.
#pragma once

#include "gpu/cards.hpp"
#include "gpu/collectives.hpp"
#include "gpu/device.cuh"
#include "gpu/device_memory.hpp"
#include "model/backend.hpp"
#include "tests/gpu/gpu_fixture.hpp"

namespace troupe::test {

using gpu::Collectives, gpu::DeviceBuffer, gpu::RankBuffer, gpu::Stream;

inline constexpr unsigned kCount = 32;  // of a rank's part
inline constexpr std::uint64_t kSeeds = 40;

struct Copy {
    const float* from;
    float* to;
    float added;
};

inline __global__ void copy_kernel(const Copy p) {
    p.to[threadIdx.x] = p.from[threadIdx.x] + p.added;
}

// A device, with what it has to give and room for what all give.
struct Peer {
    explicit Peer(int its_card, int peers) : card(its_card) {
        gpu::select_card(card);
        own = DeviceBuffer<float>::upload(std::vector<float>(kCount, static_cast<float>(card)));
        all = DeviceBuffer<float>(std::size_t{kCount} * static_cast<std::size_t>(peers));
        stream = std::make_unique<Stream>();
    }
    // Its part, which is its number, to its place among all.
    void fill() {
        gpu::select_card(card);
        gpu::launch(copy_kernel, 1, kCount, 0, stream->get(),
                    {own.data(), all.data() + static_cast<std::size_t>(card) * kCount, 1});
    }

    int card;
    DeviceBuffer<float> own, all;
    std::unique_ptr<Stream> stream;
};

struct SeveralDevices : EmulatorFixture {
    explicit SeveralDevices(int devices = 3) {
        emulator::reset_machine(devices);
        std::vector<int> cards;
        for (int card = 0; card < devices; ++card) {
            peers.emplace_back(card, devices);
            cards.push_back(card);
        }
        collectives = std::move(gpu::make_collectives(cards).value());
    }
    [[nodiscard]] std::vector<RankBuffer<float>> buffers() const {
        std::vector<RankBuffer<float>> all;
        for (const Peer& peer : peers)
            all.push_back({peer.all.data(), peer.stream.get()});
        return all;
    }
    void gather() {
        for (Peer& peer : peers)
            peer.fill();
        collectives->all_gather(buffers(), kCount);
    }
    void synchronise() const {
        for (const Peer& peer : peers)
            peer.stream->synchronise();
    }
    void expect_fault(const std::string& what) const {
        CHECK_THROWS_AS(synchronise(), model::BackendError);
        CHECK_THAT(emulator::fault(), Catch::Contains(what));
    }

    std::vector<Peer> peers;
    std::unique_ptr<Collectives> collectives;
};

}  // namespace troupe::test
