// Tiny random models of every architecture (tests/data/architectures, made by
// tests/tools/make_architecture_reference.py) as GGUF files in memory. Tests only.
#pragma once

#include <array>
#include <boost/json.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/half.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

namespace troupe::test {

inline constexpr std::array kArchitectureModels{
    "llama",    "llama-linear", "mistral", "mixtral", "qwen2",   "qwen2-yarn", "qwen3",
    "qwen3moe", "gemma2",       "gemma3",  "phi3",    "smollm3", "olmo2"};

inline boost::json::value read_architecture(const std::string& name) {
    return read_json(test_data("architectures/" + name + ".json"));
}

// The formula of the reference: uniform in [-1, 1) / 4 by name and place, norms around 1.
inline std::vector<float> architecture_numbers(std::string_view name, std::size_t count) {
    std::uint64_t seed = 0xCBF29CE484222325U;
    for (const char c : name)
        seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    std::vector<float> out(count);
    for (std::size_t i = 0; i < count; ++i) {
        std::uint64_t x = seed + (i + 1) * 0x9E3779B97F4A7C15U;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
        x ^= x >> 31;
        const float value = static_cast<float>(x >> 56) / 128 - 1;
        out[i] = has("norm")                            ? 1 + value / 4
                 : has("rope_f")                        ? 2 + value
                 : has("token_embd") || has("gate_inp") ? value
                                                        : value / 4;
    }
    return out;
}

// Matrices as `type`, f32 or f16 (which holds them exactly); what has one dimension as f32.
inline std::vector<std::byte> architecture_gguf(const boost::json::value& reference,
                                                model::TensorType type) {
    GgufWriter out;
    const std::string architecture{reference.at("architecture").as_string()};
    out.string("general.architecture", architecture);
    for (const auto& entry : reference.at("keys").as_object()) {
        const std::string key = architecture + "." + std::string{entry.key()};
        if (entry.value().is_double())
            out.f32(key, static_cast<float>(entry.value().as_double()));
        else
            out.u32(key, entry.value().to_number<std::uint32_t>());
    }
    for (const auto& entry : reference.at("strings").as_object())
        out.string(architecture + "." + std::string{entry.key()}, entry.value().as_string());
    for (const auto& entry : reference.at("tensors").as_object()) {
        std::vector<std::int64_t> dims;
        std::size_t count = 1;
        for (const auto& dim : entry.value().as_array()) {
            dims.push_back(dim.to_number<std::int64_t>());
            count *= static_cast<std::size_t>(dims.back());
        }
        const std::string name{entry.key()};
        const std::vector<float> numbers = architecture_numbers(name, count);
        if (type == model::TensorType::f32 || dims.size() == 1) {
            out.f32_tensor(name, dims, numbers);
            continue;
        }
        std::vector<std::uint16_t> halves;
        for (const float number : numbers)
            halves.push_back(model::float_to_half(number));
        out.tensor(name, static_cast<std::uint32_t>(type), dims, std::as_bytes(std::span(halves)));
    }
    return out.bytes();
}

}  // namespace troupe::test
