#include "model/hf_int4.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "model/half.hpp"

namespace troupe::model {
namespace {

constexpr std::uint64_t kPerWord = 8;
// Where AWQ puts element i of eight.
constexpr std::array<std::uint32_t, kPerWord> kAwqPlaces{0, 4, 1, 5, 2, 6, 3, 7};

template <class T>
T load(const SafeTensor& tensor, std::uint64_t index) {
    T value;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof value, sizeof value);
    return value;
}

std::string shape_text(const SafeTensor& tensor) {
    std::string text;
    for (const std::uint64_t dim : tensor.shape)
        text += fmt::format("{}{}", text.empty() ? "" : "x", dim);
    return text;
}

// One matrix whose parts fit together.
class Reader {
 public:
    [[nodiscard]] static Result<Reader> make(const Int4Matrix& matrix,
                                             const HfQuantisation& quantisation);

    [[nodiscard]] std::uint64_t rows() const { return rows_; }
    [[nodiscard]] std::uint64_t columns() const { return columns_; }
    [[nodiscard]] std::uint32_t group(std::uint64_t column) const { return groups_[column]; }
    [[nodiscard]] std::uint16_t scale(std::uint32_t group, std::uint64_t row) const {
        return load<std::uint16_t>(*matrix_.scales, group * rows_ + row);
    }
    [[nodiscard]] int zero(std::uint32_t group, std::uint64_t row) const {
        const int stored = along_rows(*matrix_.zeros, group, row);
        // The first format of GPTQ wraps around: a zero point of 0 is stored as 15.
        return less_one_ ? (stored + 1) & 15 : stored;
    }
    [[nodiscard]] int quant(std::uint64_t row, std::uint64_t column) const {
        if (is_awq_) return along_rows(*matrix_.weights, column, row);
        const auto word = load<std::uint32_t>(*matrix_.weights, column / kPerWord * rows_ + row);
        return static_cast<int>(word >> (4 * (column % kPerWord))) & 15;
    }

 private:
    // Element `row` of line `line` of a tensor whose words hold eight rows.
    [[nodiscard]] int along_rows(const SafeTensor& tensor, std::uint64_t line,
                                 std::uint64_t row) const {
        const auto word = load<std::uint32_t>(tensor, line * (rows_ / kPerWord) + row / kPerWord);
        const auto i = static_cast<std::uint32_t>(row % kPerWord);
        return static_cast<int>(word >> (4 * (is_awq_ ? kAwqPlaces[i] : i))) & 15;
    }
    [[nodiscard]] Result<> read_groups();

    Int4Matrix matrix_;
    bool is_awq_ = false;
    bool less_one_ = false;
    std::uint64_t rows_ = 0;
    std::uint64_t columns_ = 0;
    std::uint64_t group_count_ = 0;
    std::vector<std::uint32_t> groups_;  // of each column
};

Result<Reader> Reader::make(const Int4Matrix& matrix, const HfQuantisation& quantisation) {
    Reader made;
    made.matrix_ = matrix;
    made.is_awq_ = quantisation.method == HfQuantisation::Method::awq;
    made.less_one_ = quantisation.zeros_are_less_one;
    if (matrix.weights == nullptr || matrix.zeros == nullptr || matrix.scales == nullptr)
        return invalid_input("one of qweight, qzeros and scales is missing");
    if (matrix.scales->type != TensorType::f16) {
        return Error{ErrorKind::unsupported,
                     fmt::format("scales are {}, expected F16", to_string(matrix.scales->type))};
    }
    for (const SafeTensor* part : {matrix.weights, matrix.zeros, matrix.scales}) {
        const bool is_right = part == matrix.scales || part->type == TensorType::i32;
        if (!is_right || part->shape.size() != 2)
            return invalid_input("qweight, qzeros and scales are not matrices of I32, I32 and F16");
    }
    made.group_count_ = matrix.scales->shape[0];
    made.rows_ = matrix.scales->shape[1];
    made.columns_ = matrix.weights->shape[0] * (made.is_awq_ ? 1 : kPerWord);
    const std::uint64_t words = made.rows_ / kPerWord;
    if (made.rows_ % kPerWord != 0 || made.group_count_ == 0 ||
        matrix.weights->shape[1] != (made.is_awq_ ? words : made.rows_) ||
        matrix.zeros->shape != std::vector{made.group_count_, words}) {
        return invalid_input(fmt::format("qweight {}, qzeros {} and scales {} do not fit together",
                                         shape_text(*matrix.weights), shape_text(*matrix.zeros),
                                         shape_text(*matrix.scales)));
    }
    if (auto read = made.read_groups(); !read) return read.error();
    return made;
}

Result<> Reader::read_groups() {
    if (matrix_.groups == nullptr || is_awq_) {
        if (columns_ % group_count_ != 0)
            return invalid_input(
                fmt::format("{} groups do not divide {} columns", group_count_, columns_));
        const std::uint64_t group_columns = columns_ / group_count_;
        for (std::uint64_t column = 0; column < columns_; ++column)
            groups_.push_back(static_cast<std::uint32_t>(column / group_columns));
        return {};
    }
    if (matrix_.groups->type != TensorType::i32 || matrix_.groups->shape != std::vector{columns_})
        return invalid_input(fmt::format("g_idx is not {} numbers of I32", columns_));
    for (std::uint64_t column = 0; column < columns_; ++column) {
        const auto group = load<std::int32_t>(*matrix_.groups, column);
        if (group < 0 || static_cast<std::uint64_t>(group) >= group_count_)
            return invalid_input(fmt::format("g_idx[{}] is {}, but there are {} groups", column,
                                             group, group_count_));
        groups_.push_back(static_cast<std::uint32_t>(group));
    }
    return {};
}

// Whether each block of columns has one scale a row.
bool blocks_have_one_group(const Reader& in) {
    if (in.columns() % kBlock != 0) return false;
    for (std::uint64_t column = 0; column < in.columns(); ++column) {
        if (in.group(column) != in.group(column / kBlock * kBlock)) return false;
    }
    return true;
}

bool zeros_are_eight(const Reader& in) {
    for (std::uint64_t column = 0; column < in.columns(); column += kBlock) {
        for (std::uint64_t row = 0; row < in.rows(); ++row)
            if (in.zero(in.group(column), row) != 8) return false;
    }
    return true;
}

// A block of Q4_0 (half scale, 16 bytes) or Q8_0 (half scale, 32 bytes); see tensor_types.cpp.
void write_block(const Reader& in, TensorType type, std::uint64_t row, std::uint64_t column,
                 std::byte* out) {
    const std::uint32_t group = in.group(column);
    const std::uint16_t scale = in.scale(group, row);
    std::memcpy(out, &scale, sizeof scale);
    out += sizeof scale;
    const int zero = in.zero(group, row);
    for (std::uint64_t j = 0; j < kBlock; ++j) {
        const int quant = in.quant(row, column + j);
        if (type == TensorType::q8_0)
            out[j] = static_cast<std::byte>(quant - zero);
        else if (j < kBlock / 2)
            out[j] = static_cast<std::byte>(quant);
        else
            out[j - kBlock / 2] |= static_cast<std::byte>(quant << 4);
    }
}

void write_floats(const Reader& in, std::byte* out) {
    for (std::uint64_t row = 0; row < in.rows(); ++row) {
        for (std::uint64_t column = 0; column < in.columns(); ++column) {
            const std::uint32_t group = in.group(column);
            const float value = half_to_float(in.scale(group, row)) *
                                static_cast<float>(in.quant(row, column) - in.zero(group, row));
            std::memcpy(out, &value, sizeof value);
            out += sizeof value;
        }
    }
}

}  // namespace

const SafeTensor* Int4Matrix::*int4_part(std::string_view name) {
    const std::string_view suffix = name.substr(std::min(name.rfind('.'), name.size()));
    if (suffix == ".qweight") return &Int4Matrix::weights;
    if (suffix == ".qzeros") return &Int4Matrix::zeros;
    if (suffix == ".scales") return &Int4Matrix::scales;
    if (suffix == ".g_idx") return &Int4Matrix::groups;
    return nullptr;
}

Result<UnpackedMatrix> unpack_int4(const Int4Matrix& matrix, const HfQuantisation& quantisation) {
    const auto in = Reader::make(matrix, quantisation);
    if (!in) return in.error();
    UnpackedMatrix out{.rows = in->rows(), .columns = in->columns(), .bytes = {}};
    out.type = !blocks_have_one_group(*in) ? TensorType::f32
               : zeros_are_eight(*in)      ? TensorType::q4_0
                                           : TensorType::q8_0;
    const auto bytes = tensor_bytes(out.type, out.columns, out.rows);
    if (!bytes) return invalid_input("the matrix is too large");
    out.bytes.resize(*bytes);
    if (out.type == TensorType::f32) {
        write_floats(*in, out.bytes.data());
        return out;
    }
    std::byte* at = out.bytes.data();
    for (std::uint64_t row = 0; row < out.rows; ++row) {
        for (std::uint64_t column = 0; column < out.columns; column += kBlock) {
            write_block(*in, out.type, row, column, at);
            at += tensor_type_info(out.type).block_bytes;
        }
    }
    return out;
}

}  // namespace troupe::model
