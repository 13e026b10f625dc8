#include "cpu/model_digest.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "model/hash_bytes.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

// Eight lanes that do not wait for each other: about memory speed.
std::uint64_t digest_chunk(std::span<const std::byte> bytes) {
    constexpr std::size_t kLanes = 8;
    constexpr std::size_t kStepBytes = kLanes * sizeof(std::uint64_t);
    std::array<std::uint64_t, kLanes> lanes{1, 2, 3, 4, 5, 6, 7, 8};
    const std::size_t whole = bytes.size() / kStepBytes * kStepBytes;
    for (std::size_t at = 0; at < whole; at += kStepBytes) {
        std::array<std::uint64_t, kLanes> words;
        std::memcpy(words.data(), bytes.data() + at, kStepBytes);
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            lanes[lane] = (lanes[lane] ^ words[lane]) * 0x9E3779B97F4A7C15ULL;
            lanes[lane] ^= lanes[lane] >> 29;
        }
    }
    const std::span<const std::byte> tail = bytes.subspan(whole);
    std::uint64_t digest =
        model::hash_bytes({reinterpret_cast<const char*>(tail.data()), tail.size()});
    for (const std::uint64_t lane : lanes)
        digest = model::mix64(digest ^ lane);
    return digest;
}

}  // namespace

std::uint64_t model_digest(const model::GgufFile& file, ComputeThreads& threads) {
    std::uint64_t digest = 0;
    std::vector<std::span<const std::byte>> chunks;
    for (const model::GgufTensor& tensor : file.tensors()) {
        digest = model::mix64(digest ^ model::hash_bytes(tensor.name));
        digest = model::mix64(digest ^ static_cast<std::uint64_t>(tensor.type));
        for (const std::uint64_t dim : tensor.dims)
            digest = model::mix64(digest ^ dim);
        for (std::size_t at = 0; at < tensor.bytes.size(); at += kChunkBytes) {
            chunks.push_back(
                tensor.bytes.subspan(at, std::min(kChunkBytes, tensor.bytes.size() - at)));
        }
    }
    std::vector<std::uint64_t> digests(chunks.size());
    threads.run(static_cast<std::uint32_t>(chunks.size()), [&](std::uint32_t chunk, std::uint32_t) {
        digests[chunk] = digest_chunk(chunks[chunk]);
    });
    for (const std::uint64_t chunk : digests)
        digest = model::mix64(digest ^ chunk);
    return digest;
}

}  // namespace troupe::cpu
