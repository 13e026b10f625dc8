#include "model/safetensors.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "model/json_pieces.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

using Element = simdjson::dom::element;

static_assert(std::endian::native == std::endian::little, "safetensors are read in place");

constexpr std::size_t kLengthBytes = 8;  // of the header, in front of it
constexpr std::size_t kEntryBytesMax = 16U << 10;

std::optional<TensorType> type_named(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, TensorType>, 8> kNames{{
        {"F32", TensorType::f32},
        {"F16", TensorType::f16},
        {"BF16", TensorType::bf16},
        {"F64", TensorType::f64},
        {"I8", TensorType::i8},
        {"I16", TensorType::i16},
        {"I32", TensorType::i32},
        {"I64", TensorType::i64},
    }};
    for (const auto& [known, type] : kNames) {
        if (known == name) return type;
    }
    return std::nullopt;
}

// The elements of a shape that is no larger than 2^63.
Result<std::uint64_t> read_shape(const Element& entry, const std::string& field, SafeTensor& out) {
    simdjson::dom::array shape;
    if (entry["shape"].get(shape) != simdjson::SUCCESS)
        return invalid_input(fmt::format("{}: it has no shape", field));
    std::int64_t product = 1;
    for (const Element one : shape) {
        std::int64_t dim = -1;
        if (one.get(dim) != simdjson::SUCCESS || dim < 0)
            return invalid_input(fmt::format("{}: shape[{}] is no count", field, out.shape.size()));
        // A dimension of 0 is left out of the product: it must not hide that the others overflow.
        if (__builtin_mul_overflow(product, std::max<std::int64_t>(dim, 1), &product)) {
            return invalid_input(
                fmt::format("{}: shape[{}] is {}, which makes the element count overflow", field,
                            out.shape.size(), dim));
        }
        out.shape.push_back(static_cast<std::uint64_t>(dim));
    }
    const bool empty = std::find(out.shape.begin(), out.shape.end(), 0U) != out.shape.end();
    return empty ? 0 : static_cast<std::uint64_t>(product);
}

Result<SafeTensor> read_tensor(std::string_view name, const Element& entry,
                               std::span<const std::byte> data) {
    SafeTensor out{.name = std::string(name), .shape = {}, .bytes = {}};
    const std::string field = fmt::format("tensor \"{}\"", log::escaped(name));
    std::string_view type_name;
    if (entry["dtype"].get(type_name) != simdjson::SUCCESS)
        return invalid_input(fmt::format("{}: it has no dtype", field));
    const auto type = type_named(type_name);
    if (!type) {
        return Error{ErrorKind::unsupported, fmt::format("{}: dtype {} is not supported", field,
                                                         log::escaped(type_name, 20))};
    }
    out.type = *type;
    const auto count = read_shape(entry, field, out);
    if (!count) return count.error();

    std::uint64_t begin = 0, end = 0;
    simdjson::dom::array offsets;
    if (entry["data_offsets"].get(offsets) != simdjson::SUCCESS || offsets.size() != 2 ||
        offsets.at(0).get(begin) != simdjson::SUCCESS ||
        offsets.at(1).get(end) != simdjson::SUCCESS)
        return invalid_input(fmt::format("{}: data_offsets are not two counts", field));
    if (begin > end || end > data.size()) {
        return invalid_input(fmt::format(
            "{}: data_offsets {} to {} do not lie in the {} bytes of data; the file is truncated "
            "or damaged, download it again",
            field, begin, end, data.size()));
    }
    const auto bytes = tensor_bytes(out.type, *count, 1);
    if (!bytes || *bytes != end - begin) {
        return invalid_input(
            fmt::format("{}: {} elements of {} are not the {} bytes of its "
                        "data_offsets",
                        field, *count, type_name, end - begin));
    }
    out.bytes = data.subspan(begin, end - begin);
    return out;
}

// nullopt for the metadata, of which nothing is read.
Result<std::optional<SafeTensor>> parse_member(simdjson::dom::parser& parser,
                                               std::string_view member,
                                               std::span<const std::byte> data) {
    if (member.substr(member.find('"') + 1).starts_with("__metadata__\"")) return std::nullopt;
    if (member.size() > kEntryBytesMax) {
        return invalid_input(fmt::format("the header: {} bytes of it are about one tensor: {}",
                                         member.size(), log::escaped(member, 40)));
    }
    const std::string text = fmt::format("{{{}}}", member);
    simdjson::dom::object object;
    if (const auto error = parser.parse(text).get(object))
        return invalid_input(fmt::format("the header: {}", simdjson::error_message(error)));
    const auto field = *object.begin();
    auto tensor = read_tensor(field.key, field.value, data);
    if (!tensor) return tensor.error();
    return std::move(*tensor);
}

Result<> check_names(std::span<const SafeTensor> tensors) {
    std::unordered_set<std::string_view> names;
    for (const SafeTensor& tensor : tensors) {
        if (!names.insert(tensor.name).second) {
            return invalid_input(
                fmt::format("tensor \"{}\": the name occurs twice", log::escaped(tensor.name)));
        }
    }
    return {};
}

// Refuses overlaps and holes; `tensors` are in the order of their bytes.
Result<> check_cover(std::span<const SafeTensor> tensors, std::span<const std::byte> data) {
    const std::byte* at = data.data();
    for (const SafeTensor& tensor : tensors) {
        if (tensor.bytes.empty()) continue;
        if (tensor.bytes.data() != at) {
            return invalid_input(fmt::format(
                "tensor \"{}\": its bytes {} those of the one before", log::escaped(tensor.name),
                tensor.bytes.data() < at ? "overlap" : "leave a hole behind"));
        }
        at += tensor.bytes.size();
    }
    if (const std::ptrdiff_t left = data.data() + data.size() - at; left != 0)
        return invalid_input(fmt::format("{} bytes at the end belong to no tensor", left));
    return {};
}

// The header's text and what follows it.
struct Parts {
    std::string_view header;
    std::span<const std::byte> data;
};

Result<Parts> split(std::span<const std::byte> file) {
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    if (text.starts_with("version https://git-lfs")) {
        return invalid_input(
            "this is a Git LFS pointer, not the model; fetch the real file (git lfs pull)");
    }
    if (file.size() < kLengthBytes)
        return invalid_input("the file is shorter than a safetensors file can be");
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof length);
    if (length > kSafetensorsHeaderBytesMax || length > file.size() - kLengthBytes) {
        return invalid_input(fmt::format(
            "a header of {} bytes cannot be in a file of {}: it is no safetensors file, or "
            "truncated",
            length, file.size()));
    }
    const std::string_view header = text.substr(kLengthBytes, length);
    if (!header.starts_with('{')) return invalid_input("the header does not begin with {");
    return Parts{header, file.subspan(kLengthBytes + length)};
}

}  // namespace

Result<std::vector<SafeTensor>> parse_safetensors(std::span<const std::byte> file) {
    const auto parts = split(file);
    if (!parts) return parts.error();
    simdjson::dom::parser parser;
    std::vector<SafeTensor> tensors;
    JsonPieces members(parts->header);
    auto found = members.next();
    for (; found == JsonPieces::Next::piece; found = members.next()) {
        auto tensor = parse_member(parser, members.piece(), parts->data);
        if (!tensor) return tensor.error();
        if (*tensor) tensors.push_back(std::move(**tensor));
    }
    if (found == JsonPieces::Next::unfinished)
        return invalid_input("the header: it ends within a tensor");
    if (found == JsonPieces::Next::malformed)
        return invalid_input("the header: it is no JSON object");
    if (auto distinct = check_names(tensors); !distinct) return distinct.error();
    std::sort(tensors.begin(), tensors.end(), [](const SafeTensor& a, const SafeTensor& b) {
        return a.bytes.data() != b.bytes.data() ? a.bytes.data() < b.bytes.data()
                                                : a.bytes.size() < b.bytes.size();
    });
    if (auto covered = check_cover(tensors, parts->data); !covered) return covered.error();
    return tensors;
}

}  // namespace troupe::model
