#include "model/tensor_reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "model/tensor_types.hpp"

namespace troupe::model {
namespace {

// As a file with no more dimensions than it needs would say it: "8x3".
std::string shape_text(std::span<const std::uint64_t> dims) {
    while (dims.size() > 1 && dims.back() == 1)
        dims = dims.first(dims.size() - 1);
    return fmt::format("{}", fmt::join(dims, "x"));
}

}  // namespace

const GgufTensor* TensorReader::take(const std::string& name,
                                     const std::array<std::uint64_t, kGgufDimsMax>& dims) {
    const GgufTensor* tensor = file_.find_tensor(name);
    if (tensor == nullptr) {
        fail(invalid_input(fmt::format("tensor {} is missing", name)));
        return nullptr;
    }
    taken_.insert(tensor->name);
    if (tensor->dims != dims) {
        const auto stated = std::span{tensor->dims}.first(std::max(1U, tensor->dim_count));
        fail(invalid_input(fmt::format("tensor {} has shape {}, expected {}", tensor->name,
                                       fmt::join(stated, "x"), shape_text(dims))));
        return nullptr;
    }
    if (!tensor_type_info(tensor->type).dequantises) {
        fail({ErrorKind::unsupported, fmt::format("tensor {} has type {}, which is not supported",
                                                  name, to_string(tensor->type))});
        return nullptr;
    }
    return tensor;
}

Matrix TensorReader::matrix(const std::string& name, std::uint32_t rows, std::uint32_t columns) {
    return stack(name, 1, rows, columns);
}

Matrix TensorReader::stack(const std::string& name, std::uint32_t count, std::uint32_t rows,
                           std::uint32_t columns) {
    const GgufTensor* tensor = take(name, {columns, rows, count, 1});
    if (tensor == nullptr) return {};
    return {tensor->name, tensor->type, count * rows, columns, tensor->bytes, tensor->order};
}

Matrix TensorReader::norm(const std::string& name, std::uint32_t length) {
    const Matrix out = matrix(name, 1, length);
    if (!error_ && out.type != TensorType::f32) {
        fail({ErrorKind::unsupported,
              fmt::format("tensor {} has type {}, expected F32", name, to_string(out.type))});
    }
    return out;
}

std::vector<float> TensorReader::vector(const std::string& name, std::uint32_t length,
                                        RowOrder order) {
    const Matrix numbers = norm(name, length);
    std::vector<float> out(length), stored(length);
    if (error_) return out;
    dequantise(numbers.type, numbers.bytes, stored);
    for (std::uint32_t i = 0; i < length; ++i)
        out[i] = stored[order(i)];
    return out;
}

}  // namespace troupe::model
