#include "gpu/cards.hpp"

#include <fmt/format.h>

#include "gpu/warpgroup_check.hpp"

namespace troupe::gpu {
namespace {

constexpr int kComputeCapabilityMin = 8;

Result<cudaDeviceProp> usable_card(int id) {
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, id));
    if (card.major >= kComputeCapabilityMin) return card;
    return Error{ErrorKind::unsupported,
                 fmt::format("{} has compute capability {}.{}; {}.0 is the least that the CUDA "
                             "backend runs on",
                             card.name, card.major, card.minor, kComputeCapabilityMin)};
}

}  // namespace

Result<Cards> find_cards(std::uint32_t first, std::uint32_t count) {
    int present = 0;
    const cudaError_t error = cudaGetDeviceCount(&present);
    if (error != cudaSuccess || present == 0) {
        return Error{
            ErrorKind::unsupported,
            fmt::format("no CUDA device can be used ({}): install NVIDIA's driver for CUDA 13, "
                        "or use --backend cpu",
                        error == cudaSuccess ? "none found" : cudaGetErrorString(error))};
    }
    if (std::uint64_t{first} + count > static_cast<std::uint64_t>(present)) {
        return Error{ErrorKind::unsupported,
                     fmt::format("cards {} to {} are asked for, and this machine has {}, counted "
                                 "from 0: lower --gpus or --gpu",
                                 first, std::uint64_t{first} + count - 1, present)};
    }
    Cards cards;
    for (std::uint32_t i = 0; i < count; ++i) {
        const int id = static_cast<int>(first + i);
        const Result<cudaDeviceProp> card = usable_card(id);
        if (!card) return card.error();
        if (i == 0) cards.kind = *card;
        // Bits of tensor units are those of a generation; one with less memory would bound all.
        if (card->major != cards.kind.major || card->minor != cards.kind.minor) {
            return Error{ErrorKind::unsupported,
                         fmt::format("card {} ({}) is of another generation than card {} ({}): "
                                     "choose like ones with --gpu and --gpus",
                                     id, card->name, first, cards.kind.name)};
        }
        cards.ids.push_back(id);
    }
    select_card(cards.ids.front());
    cards.warpgroups = warpgroups_agree(cards.kind);
    return cards;
}

}  // namespace troupe::gpu
