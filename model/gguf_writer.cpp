#include "model/gguf_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "model/quantise.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

// A tensor to be written: one of the file, or a layer's experts of a kind, in order.
struct Planned {
    std::string name;
    ChosenType chosen;
    std::uint32_t dim_count = 0;
    std::array<std::uint64_t, kGgufDimsMax> dims{1, 1, 1, 1};
    std::vector<const GgufTensor*> parts;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
};

// "blk.1.ffn_up.3.weight" is expert 3 of "blk.1.ffn_up_exps.weight"; any other tensor is itself.
struct Place {
    std::string name;
    std::optional<std::uint32_t> expert;
};

Place place_of(std::string_view name) {
    for (const std::string_view part : {"ffn_gate.", "ffn_up.", "ffn_down."}) {
        const std::size_t at = name.find(part);
        if (!name.starts_with("blk.") || at == name.npos || !name.ends_with(".weight")) continue;
        const std::size_t begin = at + part.size();
        const std::size_t end = name.size() - std::string_view(".weight").size();
        if (begin >= end || end - begin > 4) continue;
        const std::string_view number = name.substr(begin, end - begin);
        if (number.find_first_not_of("0123456789") != number.npos) continue;
        return {fmt::format("{}_exps.weight", name.substr(0, begin - 1)),
                static_cast<std::uint32_t>(std::stoul(std::string(number)))};
    }
    return {std::string(name), std::nullopt};
}

// Experts of one kind in one layer: where their stack is planned, and they by number.
struct Stack {
    std::size_t at = 0;
    std::map<std::uint32_t, const GgufTensor*> experts;
};

Result<> fill_stack(const Stack& stack, Planned& out) {
    const GgufTensor& first = *stack.experts.begin()->second;
    out.parts.clear();
    for (const auto& [expert, tensor] : stack.experts) {
        if (expert != out.parts.size() || tensor->dims != first.dims ||
            tensor->type != first.type || tensor->dim_count != 2) {
            return invalid_input(fmt::format(
                "tensor {}: it is not like the other experts, or one before it is missing",
                log::escaped(tensor->name)));
        }
        out.parts.push_back(tensor);
    }
    out.dim_count = 3;
    out.dims[2] = out.parts.size();
    return {};
}

Result<std::vector<Planned>> plan(const GgufFile& file, const GgufWriteOptions& options) {
    std::optional<TypeChooser> chooser;
    if (options.recipe != nullptr) chooser.emplace(*options.recipe, file);
    std::vector<Planned> out;
    std::map<std::string, Stack> stacks;
    for (const GgufTensor& tensor : file.tensors()) {
        const Place place = place_of(tensor.name);
        if (place.expert) {
            Stack& stack = stacks[place.name];
            stack.experts[*place.expert] = &tensor;
            if (stack.experts.size() > 1) continue;
            stack.at = out.size();
        }
        const ChosenType chosen =
            chooser ? chooser->choose(tensor) : ChosenType{tensor.type, tensor.type};
        out.push_back({place.name, chosen, tensor.dim_count, tensor.dims, {&tensor}, 0, 0});
    }
    for (const auto& [name, stack] : stacks)
        if (auto filled = fill_stack(stack, out[stack.at]); !filled) return filled.error();
    std::uint64_t offset = 0;
    for (Planned& tensor : out) {
        const std::uint64_t rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
        tensor.bytes = tensor_bytes(tensor.chosen.type, tensor.dims[0], rows).value();
        tensor.offset = offset;
        offset += (tensor.bytes + file.alignment() - 1) / file.alignment() * file.alignment();
    }
    return out;
}

std::vector<WrittenTensors> summary(std::span<const Planned> tensors) {
    std::vector<WrittenTensors> out;
    for (const Planned& tensor : tensors) {
        auto alike = std::find_if(out.begin(), out.end(), [&](const WrittenTensors& one) {
            return one.chosen == tensor.chosen;
        });
        if (alike == out.end()) alike = out.insert(out.end(), {tensor.chosen});
        ++alike->count;
        alike->bytes += tensor.bytes;
    }
    std::stable_sort(out.begin(), out.end(), [](const WrittenTensors& a, const WrittenTensors& b) {
        return a.bytes > b.bytes;
    });
    return out;
}

class Writer {
 public:
    Writer(const GgufFile& file, std::ostream& out) : file_(file), out_(out) {}

    [[nodiscard]] Result<> write(std::span<const Planned> tensors);

 private:
    template <class T>
    void number(T value) {
        raw(std::as_bytes(std::span(&value, 1)));
    }
    void text(std::string_view value) {
        number<std::uint64_t>(value.size());
        raw(std::as_bytes(std::span(value)));
    }
    void raw(std::span<const std::byte> bytes) {
        out_.write(reinterpret_cast<const char*>(bytes.data()),
                   static_cast<std::streamsize>(bytes.size()));
        written_ += bytes.size();
    }
    void pad() {
        while (written_ % file_.alignment() != 0)
            number(std::uint8_t{0});
    }
    void write_value(const GgufValue& value);
    [[nodiscard]] Result<> write_matrix(const GgufTensor& tensor, TensorType type);

    const GgufFile& file_;
    std::ostream& out_;
    std::uint64_t written_ = 0;
};

void Writer::write_value(const GgufValue& value) {
    text(value.key);
    if (value.is_array) number(static_cast<std::uint32_t>(GgufType::array));
    number(static_cast<std::uint32_t>(value.type));
    if (value.is_array)
        number(value.count);
    else if (value.type == GgufType::string)
        number<std::uint64_t>(value.bytes.size());
    raw(value.bytes);
}

Result<> Writer::write_matrix(const GgufTensor& tensor, TensorType type) {
    const bool same = type == tensor.type;
    if (same && tensor.order.is_identity()) {
        raw(tensor.bytes);
        return {};
    }
    const std::uint64_t rows = tensor.dims[1] * tensor.dims[2] * tensor.dims[3];
    if (rows == 0 || tensor.dims[0] == 0) return {};
    const std::uint64_t row_bytes = tensor.bytes.size() / rows;
    std::vector<float> numbers(tensor.dims[0]);
    std::vector<std::byte> made(*tensor_bytes(type, tensor.dims[0], 1));
    for (std::uint64_t row = 0; row < rows; ++row) {
        const std::uint64_t from = tensor.order(static_cast<std::uint32_t>(row));
        const auto bytes = tensor.bytes.subspan(from * row_bytes, row_bytes);
        if (same) {
            raw(bytes);
            continue;
        }
        dequantise(tensor.type, bytes, numbers);
        const bool finite = std::all_of(numbers.begin(), numbers.end(),
                                        [](float number) { return std::isfinite(number); });
        if (!finite && tensor_type_info(type).block_size > 1)
            return invalid_input(fmt::format("tensor {}: row {} holds a number that is not finite",
                                             log::escaped(tensor.name), row));
        quantise(type, numbers, made);
        raw(made);
    }
    return {};
}

Result<> Writer::write(std::span<const Planned> tensors) {
    raw(std::as_bytes(std::span(std::string_view("GGUF"))));
    number(std::uint32_t{3});
    number<std::uint64_t>(tensors.size());
    number<std::uint64_t>(file_.values().size());
    for (const GgufValue& value : file_.values())
        write_value(value);
    for (const Planned& tensor : tensors) {
        text(tensor.name);
        number(tensor.dim_count);
        for (std::uint32_t i = 0; i < tensor.dim_count; ++i)
            number(tensor.dims[i]);
        number(static_cast<std::uint32_t>(tensor.chosen.type));
        number(tensor.offset);
    }
    for (const Planned& tensor : tensors) {
        pad();
        for (const GgufTensor* part : tensor.parts)
            if (auto done = write_matrix(*part, tensor.chosen.type); !done) return done;
    }
    pad();
    return {};
}

}  // namespace

Result<std::vector<WrittenTensors>> write_gguf(const GgufFile& file,
                                               const std::filesystem::path& path,
                                               const GgufWriteOptions& options) {
    std::error_code error;
    if (std::filesystem::exists(path, error))
        return invalid_input(fmt::format("{} is there already", path.string()));
    const auto tensors = plan(file, options);
    if (!tensors) return tensors.error();
    auto partial = path;
    partial += ".part";
    std::ofstream out(partial, std::ios::binary | std::ios::trunc);
    auto written = Writer(file, out).write(*tensors);
    out.close();
    if (written && !out) {
        written = Error{ErrorKind::io,
                        fmt::format("cannot write {}: is the disk full?", partial.string())};
    }
    if (written) std::filesystem::rename(partial, path, error);
    if (written && error) {
        written = Error{ErrorKind::io,
                        fmt::format("cannot rename {}: {}", partial.string(), error.message())};
    }
    if (written) return summary(*tensors);
    std::filesystem::remove(partial, error);
    return written.error();
}

}  // namespace troupe::model
