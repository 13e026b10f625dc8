// Backends for tests: the two models, opened once a process, and what tests compute from scores.
#pragma once

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cpu/cpu_backend.hpp"
#include "model/gguf.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/stories260k.hpp"

namespace troupe::test {

// Null, with a line on stdout, where the model is not at hand.
inline const model::GgufFile* default_gguf() {
    static const std::optional<model::GgufFile> file = []() -> std::optional<model::GgufFile> {
        const std::filesystem::path path = default_model();
        if (path.empty()) return std::nullopt;
        return model::GgufFile::open(path).value();
    }();
    return file ? &*file : nullptr;
}

inline const model::GgufFile* stories_gguf() {
    static const std::vector<std::byte> bytes = stories260k_gguf();
    static const std::optional<model::GgufFile> file = []() -> std::optional<model::GgufFile> {
        if (bytes.empty()) return std::nullopt;
        return model::GgufFile::parse(bytes).value();
    }();
    return file ? &*file : nullptr;
}

// Small enough that many backends can be made one after another.
inline cpu::CpuOptions small_options() {
    cpu::CpuOptions options;
    options.threads = 2;
    options.kv_memory_bytes = std::uint64_t{256} << 20;
    options.slots_max = 64;
    options.context_length_max = 2048;
    return options;
}

inline std::unique_ptr<model::Backend> make_backend(const model::GgufFile& file,
                                                    const cpu::CpuOptions& options) {
    Result<std::unique_ptr<model::Backend>> backend = cpu::make_cpu_backend(file, options);
    if (!backend) FAIL(backend.error().message);
    return std::move(*backend);
}

template <class T>
std::vector<T> to_vector(const boost::json::value& array) {
    std::vector<T> values;
    for (const boost::json::value& value : array.as_array()) {
        values.push_back(value.to_number<T>());
    }
    return values;
}

// ln of the sum of exponentials, in double.
inline double logsumexp(std::span<const float> logits) {
    double largest = -INFINITY;
    for (const float z : logits)
        largest = std::max(largest, double{z});
    double sum = 0;
    for (const float z : logits)
        sum += std::exp(double{z} - largest);
    return largest + std::log(sum);
}

inline std::size_t argmax(std::span<const float> logits) {
    return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) -
                                    logits.begin());
}

}  // namespace troupe::test
