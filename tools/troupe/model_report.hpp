// What can be said of a model before it runs: sizes, types, special tokens, memory, and what is odd
// about it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"

namespace troupe::tools {

struct TensorSums {
    std::uint64_t tensors = 0;
    std::uint64_t parameters = 0;
    std::uint64_t bytes = 0;

    [[nodiscard]] double bits_per_weight() const {
        return parameters == 0 ? 0.0
                               : 8.0 * static_cast<double>(bytes) / static_cast<double>(parameters);
    }
};

struct ModelMemory {
    std::uint64_t users = 0;
    std::uint64_t context = 0;             // tokens of each
    std::uint64_t weight_bytes = 0;        // as they are computed with, without int8's outliers
    std::uint64_t kv_bytes_per_token = 0;  // of 16 bits each
    std::uint64_t kv_bytes = 0;            // of all users
};

struct ModelReport {
    std::string name;
    std::string architecture;
    TensorSums total;
    std::map<std::string, TensorSums> by_type;
    std::optional<model::Hyperparameters> sizes;
    std::optional<std::string> why_not;                               // it cannot run
    std::vector<std::pair<std::string, std::string>> special_tokens;  // role, "piece (id)"
    bool has_chat_template = false;
    std::optional<ModelMemory> memory;  // where it can run
    std::vector<std::string> warnings;
};

// `context` 0: all that the model was trained for.
[[nodiscard]] ModelReport describe_model(const model::GgufFile& file, const std::string& name,
                                         std::uint64_t users, std::uint64_t context);

}  // namespace troupe::tools
