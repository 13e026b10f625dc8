// GgufFile::parse: one pass over header, metadata and tensor table, in file order. What the file
// claims is compared with what is left of it before anything is read or allocated.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "model/gguf.hpp"
#include "model/utf8.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place");

// The smallest a metadata entry (one-letter key, one byte) and a tensor entry can be in the file.
constexpr std::uint64_t kValueBytesMin = 8 + 1 + 4 + 1;
constexpr std::uint64_t kTensorBytesMin = 8 + 1 + 4 + 4 + 8;

// Bytes of one element; 0 for those without a fixed size.
std::size_t element_bytes(GgufType type) {
    switch (type) {
        case GgufType::u8:
        case GgufType::i8:
        case GgufType::boolean:
            return 1;
        case GgufType::u16:
        case GgufType::i16:
            return 2;
        case GgufType::u32:
        case GgufType::i32:
        case GgufType::f32:
            return 4;
        case GgufType::u64:
        case GgufType::i64:
        case GgufType::f64:
            return 8;
        case GgufType::string:
        case GgufType::array:
            return 0;
    }
    return 0;
}

// What the file is, if its first bytes tell that it is something else than a GGUF of version 2
// or 3.
std::optional<Error> recognise_other(std::string_view file) {
    const auto begins = [&](std::string_view with) { return file.substr(0, with.size()) == with; };
    if (file.empty()) return invalid_input("the file is empty; download it again");
    if (begins("version https://git-lfs")) {
        return invalid_input(
            "this is a Git LFS pointer, not the model; fetch the real file (git lfs pull)");
    }
    const std::size_t text = file.substr(0, 256).find_first_not_of(" \t\r\n");
    if (text != std::string_view::npos && file[text] == '<') {
        return invalid_input(
            "this is an HTML or XML page, not a model: the download gave a web page; use the link "
            "of the file itself");
    }
    if (begins("GGUF")) return std::nullopt;
    if (begins("FUGG")) {
        return Error{
            ErrorKind::unsupported,
            "magic FUGG: a GGUF from before its first release; GGUF versions 2 and 3 load, "
            "so convert the original model again"};
    }
    for (const auto& [magic, name] : {std::pair{"tjgg", "ggjt"}, std::pair{"fmgg", "ggmf"},
                                      std::pair{"lmgg", "ggml"}, std::pair{"algg", "ggla"}}) {
        if (!begins(magic)) continue;
        return Error{ErrorKind::unsupported,
                     fmt::format("magic {}: a model file from before GGUF; GGUF versions 2 and 3 "
                                 "load, so convert the original model again",
                                 name)};
    }
    if (begins("PK\x03\x04")) {
        return invalid_input("this is a zip archive (PyTorch's format, perhaps), not a GGUF");
    }
    if (file.size() > 9 && file[8] == '{' && file[9] == '"') {
        return Error{ErrorKind::unsupported,
                     "this looks like safetensors; give the folder that it is in, with its "
                     "config.json and tokenizer.json"};
    }
    return invalid_input(fmt::format("not a GGUF file: magic is \"{}\", expected \"GGUF\"",
                                     log::escaped(file.substr(0, 4))));
}

// True for a binary file that went through a UTF-8 text decoder, which turns each byte that is not
// text into U+FFFD. Only asked once the file is known to be broken.
bool looks_mangled_as_utf8(std::string_view file) {
    std::string_view head = file.substr(0, 1 << 20);
    bool replaced = false;
    while (!head.empty()) {
        const Utf8Unit unit = next_utf8(head);
        if (unit.form == Utf8Form::ill_formed) return false;
        replaced |= unit.form == Utf8Form::complete && unit.code_point == 0xFFFD;
        head.remove_prefix(unit.length);
    }
    return replaced;
}

}  // namespace

class GgufParser {
 public:
    explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes) {
        file_.size_bytes_ = bytes.size();
    }

    Result<GgufFile> run() {
        if (auto header = read_header(); !header) return header.error();
        for (std::uint64_t i = 0; i < value_count_; ++i) {
            if (auto value = read_value(i); !value) return value.error();
        }
        if (auto alignment = read_alignment(); !alignment) return alignment.error();
        for (std::uint64_t i = 0; i < tensor_count_; ++i) {
            if (auto tensor = read_tensor(i); !tensor) return tensor.error();
        }
        if (auto data = place_tensors(); !data) return data.error();
        return std::move(file_);
    }

 private:
    [[nodiscard]] std::uint64_t left() const { return bytes_.size() - offset_; }

    template <class T>
    Result<T> read(std::string_view field) {
        if (left() < sizeof(T)) {
            return invalid_input(
                fmt::format("{}: the file ends at byte {}, in the middle of it; "
                            "it is truncated, download it again",
                            field, bytes_.size()));
        }
        T value;
        std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
        offset_ += sizeof(T);
        return value;
    }

    // Takes `count` bytes that are known to be there.
    std::span<const std::byte> take(std::uint64_t count) {
        const auto bytes = bytes_.subspan(offset_, count);
        offset_ += count;
        return bytes;
    }

    Result<std::string_view> read_string(std::string_view field) {
        const auto length = read<std::uint64_t>(field);
        if (!length) return length.error();
        if (*length > left()) {
            return invalid_input(fmt::format("{}: length {} is more than the {} bytes left", field,
                                             *length, left()));
        }
        return as_text(take(*length));
    }

    Result<void> read_header();
    Result<void> read_value(std::uint64_t index);
    Result<void> read_payload(GgufValue& value, std::string_view field);
    Result<void> read_alignment();
    Result<void> read_tensor(std::uint64_t index);
    Result<void> read_shape(GgufTensor& tensor, std::string_view field);
    Result<void> place_tensors();

    const std::span<const std::byte> bytes_;
    GgufFile file_;
    std::uint64_t offset_ = 0;
    std::uint64_t value_count_ = 0;
    std::uint64_t tensor_count_ = 0;
    std::vector<std::uint64_t> tensor_offsets_;      // into the data section
    std::vector<std::uint64_t> tensor_byte_counts_;  // one for each of file_.tensors_
};

Result<void> GgufParser::read_header() {
    take(std::min<std::uint64_t>(4, left()));  // the magic, which recognise_other has looked at
    const auto version = read<std::uint32_t>("version");
    if (!version) return version.error();
    if ((*version & 0xFFFFU) == 0 && *version != 0) {
        return Error{ErrorKind::unsupported,
                     fmt::format("version is {:#010x}: a big-endian GGUF; convert it to little "
                                 "endian",
                                 *version)};
    }
    if (*version != 2 && *version != 3) {
        return Error{ErrorKind::unsupported,
                     fmt::format("version is {}; GGUF versions 2 and 3 load{}", *version,
                                 *version == 1 ? ", so convert the original model again" : "")};
    }
    file_.version_ = *version;

    const auto tensor_count = read<std::uint64_t>("tensor count");
    if (!tensor_count) return tensor_count.error();
    const auto value_count = read<std::uint64_t>("metadata count");
    if (!value_count) return value_count.error();
    if (*value_count > left() / kValueBytesMin) {
        return invalid_input(
            fmt::format("metadata count {} cannot fit in the {} bytes left", *value_count, left()));
    }
    if (*tensor_count > left() / kTensorBytesMin) {
        return invalid_input(
            fmt::format("tensor count {} cannot fit in the {} bytes left", *tensor_count, left()));
    }
    value_count_ = *value_count;
    tensor_count_ = *tensor_count;
    return {};
}

Result<void> GgufParser::read_value(std::uint64_t index) {
    const auto key = read_string(fmt::format("key of metadata entry {}", index));
    if (!key) return key.error();
    if (key->empty() || key->size() > kGgufKeyBytesMax) {
        return invalid_input(fmt::format("key of metadata entry {}: length {}, expected 1 to {}",
                                         index, key->size(), kGgufKeyBytesMax));
    }
    const std::string field = fmt::format("metadata \"{}\"", log::escaped(*key));
    GgufValue value{.key = *key, .bytes = {}};

    const auto read_type = [&](std::string_view what) -> Result<GgufType> {
        const auto number = read<std::uint32_t>(field);
        if (!number) return number.error();
        if (*number > static_cast<std::uint32_t>(GgufType::f64)) {
            return invalid_input(fmt::format("{}: {} {} does not exist (0 to 12 do)", field, what,
                                             static_cast<std::int32_t>(*number)));
        }
        return static_cast<GgufType>(*number);
    };
    auto type = read_type("type");
    if (!type) return type.error();
    if (*type == GgufType::array) {
        value.is_array = true;
        type = read_type("array element type");
        if (!type) return type.error();
        if (*type == GgufType::array) {
            return Error{ErrorKind::unsupported, fmt::format("{}: an array of arrays", field)};
        }
        const auto count = read<std::uint64_t>(field);
        if (!count) return count.error();
        value.count = *count;
    }
    value.type = *type;
    if (auto payload = read_payload(value, field); !payload) return payload.error();
    if (!file_.value_by_key_.emplace(value.key, file_.values_.size()).second) {
        return invalid_input(fmt::format("{}: the key occurs twice", field));
    }
    file_.values_.push_back(value);
    return {};
}

Result<void> GgufParser::read_payload(GgufValue& value, std::string_view field) {
    const bool is_string = value.type == GgufType::string;
    const std::uint64_t each_min = is_string ? 8 : element_bytes(value.type);
    if (value.count > left() / each_min) {
        return invalid_input(fmt::format("{}: {} elements of {} cannot fit in the {} bytes left",
                                         field, value.count, to_string(value.type), left()));
    }
    if (!is_string) {
        value.bytes = take(value.count * each_min);
        if (value.type != GgufType::boolean) return {};
        for (const std::byte b : value.bytes) {
            if (b <= std::byte{1}) continue;
            return invalid_input(fmt::format("{}: a bool of value {}, expected 0 or 1", field,
                                             std::to_integer<int>(b)));
        }
        return {};
    }
    const std::uint64_t begin = offset_;
    std::string_view text;
    for (std::uint64_t i = 0; i < value.count; ++i) {
        const auto element = read_string(field);
        if (!element) return element.error();
        text = *element;
    }
    value.bytes = value.is_array ? bytes_.subspan(begin, offset_ - begin)
                                 : std::as_bytes(std::span{text.data(), text.size()});
    return {};
}

Result<void> GgufParser::read_alignment() {
    const GgufValue* value = file_.find("general.alignment");
    if (value == nullptr) return {};
    if (value->is_array || value->type != GgufType::u32) {
        return invalid_input(
            fmt::format("metadata \"general.alignment\" has type {}{}, expected u32",
                        value->is_array ? "array of " : "", to_string(value->type)));
    }
    std::uint32_t alignment = 0;
    std::memcpy(&alignment, value->bytes.data(), sizeof alignment);
    if (!std::has_single_bit(alignment) || alignment > kGgufAlignmentMax) {
        return invalid_input(
            fmt::format("metadata \"general.alignment\" is {}, expected a power of two up to {}",
                        alignment, kGgufAlignmentMax));
    }
    file_.alignment_ = alignment;
    return {};
}

Result<void> GgufParser::read_tensor(std::uint64_t index) {
    GgufTensor tensor;
    const auto name = read_string(fmt::format("name of tensor {}", index));
    if (!name) return name.error();
    if (name->empty() || name->size() > kGgufTensorNameBytesMax) {
        return invalid_input(fmt::format("name of tensor {}: length {}, expected 1 to {}", index,
                                         name->size(), kGgufTensorNameBytesMax));
    }
    tensor.name = *name;
    const std::string field = fmt::format("tensor \"{}\"", log::escaped(*name));
    if (auto shape = read_shape(tensor, field); !shape) return shape.error();

    const auto number = read<std::uint32_t>(field);
    if (!number) return number.error();
    const TensorTypeInfo* type = find_tensor_type(*number);
    if (type == nullptr) {
        return Error{ErrorKind::unsupported, fmt::format("{}: type {} is not known", field,
                                                         static_cast<std::int32_t>(*number))};
    }
    tensor.type = type->type;
    const auto rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    if (tensor.dims[0] % type->block_size != 0) {
        return invalid_input(fmt::format("{}: rows of {} elements are not whole blocks of {} ({})",
                                         field, tensor.dims[0], type->block_size, type->name));
    }
    const auto byte_count = tensor_bytes(tensor.type, tensor.dims[0], rows);
    if (!byte_count) {
        return invalid_input(fmt::format("{}: its size in bytes does not fit 64 bits", field));
    }
    const auto offset = read<std::uint64_t>(field);
    if (!offset) return offset.error();
    if (*offset % file_.alignment_ != 0) {
        return invalid_input(fmt::format("{}: offset {} is not a multiple of the alignment {}",
                                         field, *offset, file_.alignment_));
    }
    if (!file_.tensor_by_name_.emplace(tensor.name, file_.tensors_.size()).second) {
        return invalid_input(fmt::format("{}: the name occurs twice", field));
    }
    file_.tensors_.push_back(tensor);
    tensor_offsets_.push_back(*offset);
    tensor_byte_counts_.push_back(*byte_count);
    return {};
}

// Leaves a tensor whose dims multiply to less than 2^63 in any order, 0 included.
Result<void> GgufParser::read_shape(GgufTensor& tensor, std::string_view field) {
    const auto dim_count = read<std::uint32_t>(field);
    if (!dim_count) return dim_count.error();
    if (*dim_count > kGgufDimsMax) {
        return invalid_input(
            fmt::format("{}: n_dims is {}, at most {}", field, *dim_count, kGgufDimsMax));
    }
    tensor.dim_count = *dim_count;
    std::int64_t product = 1;
    for (std::uint32_t i = 0; i < *dim_count; ++i) {
        const auto dim = read<std::int64_t>(field);
        if (!dim) return dim.error();
        if (*dim < 0) {
            return invalid_input(fmt::format("{}: dims[{}] is {}, negative", field, i, *dim));
        }
        // A dimension of 0 is left out of the product: it must not hide that the others overflow.
        if (__builtin_mul_overflow(product, std::max<std::int64_t>(*dim, 1), &product)) {
            return invalid_input(fmt::format(
                "{}: dims[{}] is {}, which makes the element count overflow", field, i, *dim));
        }
        tensor.dims[i] = static_cast<std::uint64_t>(*dim);
    }
    return {};
}

Result<void> GgufParser::place_tensors() {
    if (file_.tensors_.empty()) return {};
    const std::uint64_t padding =
        (file_.alignment_ - offset_ % file_.alignment_) % file_.alignment_;
    const std::uint64_t data_bytes = left() < padding ? 0 : left() - padding;
    for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
        GgufTensor& tensor = file_.tensors_[i];
        const std::uint64_t offset = tensor_offsets_[i];
        if (offset > data_bytes || tensor_byte_counts_[i] > data_bytes - offset) {
            return invalid_input(fmt::format(
                "tensor \"{}\": {} bytes at offset {} lie beyond the end of the file ({} bytes of "
                "tensor data); it is truncated or damaged, download it again",
                log::escaped(tensor.name), tensor_byte_counts_[i], offset, data_bytes));
        }
        if (tensor_byte_counts_[i] == 0) continue;
        tensor.bytes = bytes_.subspan(offset_ + padding + offset, tensor_byte_counts_[i]);
    }
    return {};
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> file) {
    const std::string_view text = as_text(file);
    if (auto other = recognise_other(text)) return std::move(*other);
    auto parsed = GgufParser{file}.run();
    if (parsed || !looks_mangled_as_utf8(text)) return parsed;
    Error error = parsed.error();
    error.message +=
        " (the file holds U+FFFD and only valid UTF-8: it went through a text decoder, which "
        "destroys it; download it again as binary)";
    return error;
}

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
    auto mapping = MappedFile::open(path);
    if (!mapping) return mapping.error();
    auto parsed = parse(mapping->bytes());
    if (!parsed) {
        return Error{parsed.error().kind,
                     fmt::format("{}: {}", path.string(), parsed.error().message)};
    }
    parsed->mappings_.push_back(std::move(*mapping));
    return parsed;
}

}  // namespace troupe::model
