// Takes tensors of a model file by name, checks their shapes and keeps the first error, so that the
// caller reads as a list of shapes. A value of one thread; the file must outlive it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "model/gguf.hpp"
#include "model/weights.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

class TensorReader {
 public:
    explicit TensorReader(const GgufFile& file) : file_(file) {}

    // [rows][columns] of any type that dequantises; empty after an error.
    [[nodiscard]] Matrix matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns);

    // [count][rows][columns] as count * rows rows.
    [[nodiscard]] Matrix stack(const std::string& name, std::uint32_t count, std::uint32_t rows,
                               std::uint32_t columns);

    // [1][length], F32.
    [[nodiscard]] Matrix norm(const std::string& name, std::uint32_t length);

    // `length` numbers of F32, element i being the file's order(i).
    [[nodiscard]] std::vector<float> vector(const std::string& name, std::uint32_t length,
                                            RowOrder order = {});

    void fail(Error error) {
        if (!error_) error_ = std::move(error);
    }
    [[nodiscard]] bool has(std::string_view name) const {
        return file_.find_tensor(name) != nullptr;
    }
    [[nodiscard]] bool was_taken(std::string_view name) const { return taken_.contains(name); }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }
    [[nodiscard]] std::size_t taken() const { return taken_.size(); }

 private:
    const GgufTensor* take(const std::string& name,
                           const std::array<std::uint64_t, kGgufDimsMax>& dims);

    const GgufFile& file_;
    std::optional<Error> error_;
    std::unordered_set<std::string_view> taken_;  // views into the file
};

}  // namespace troupe::model
