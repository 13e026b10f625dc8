#include "model/gguf_split.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "model/gguf_builder.hpp"

namespace troupe::model {
namespace {

constexpr std::uint32_t kPartsMax = 99'999;  // what five digits can number

std::string suffix_of(std::uint32_t index, std::uint32_t count) {
    return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

struct PartKeys {
    std::uint32_t index = 0;  // "split.no"
    std::uint32_t count = 1;  // "split.count"
};

Result<PartKeys> read_part_keys(const GgufFile& file) {
    const auto index = file.find_u32("split.no");
    if (!index) return index.error();
    const auto count = file.find_u32("split.count");
    if (!count) return count.error();
    return PartKeys{index->value_or(0), count->value_or(1)};
}

Error about(const std::filesystem::path& path, const Error& error) {
    return Error{error.kind, fmt::format("{}: {}", path.string(), error.message)};
}

// Part `index` of `count`, which says so itself.
Result<GgufFile> open_part(const std::filesystem::path& path, PartKeys wanted) {
    auto part = GgufFile::open(path);
    if (!part) {
        if (part.error().kind != ErrorKind::not_found) return part.error();
        return Error{ErrorKind::not_found,
                     fmt::format("part {} of {} is missing: {}", wanted.index + 1, wanted.count,
                                 part.error().message)};
    }
    const auto keys = read_part_keys(*part);
    if (!keys) return about(path, keys.error());
    if (keys->index != wanted.index || keys->count != wanted.count) {
        return about(path, invalid_input(fmt::format(
                               "this is part {} of {} (metadata \"split.no\", \"split.count\"), "
                               "expected part {} of {}",
                               keys->index + 1, keys->count, wanted.index + 1, wanted.count)));
    }
    return part;
}

Result<GgufFile> join(const std::filesystem::path& path, PartKeys keys) {
    const std::string name = path.filename().string();
    const std::string suffix = suffix_of(keys.index, keys.count);
    if (!name.ends_with(suffix) || keys.count > kPartsMax) {
        return about(path, invalid_input(fmt::format(
                               "this is part {} of {}, whose name should end with \"{}\": without "
                               "it the others cannot be found",
                               keys.index + 1, keys.count, suffix)));
    }
    const std::string stem = name.substr(0, name.size() - suffix.size());
    GgufBuilder out;
    for (std::uint32_t i = 0; i < keys.count; ++i) {
        const auto part_path = path.parent_path() / (stem + suffix_of(i, keys.count));
        auto part = open_part(part_path, {i, keys.count});
        if (!part) return part.error();
        if (i == 0) {
            out = GgufBuilder(std::move(*part));
        } else if (auto added = out.append_tensors(std::move(*part)); !added) {
            return about(part_path, added.error());
        }
    }
    const auto total = out.file().find_u64("split.tensors.count");
    if (!total) return about(path, total.error());
    if (*total && **total != out.file().tensors().size()) {
        return about(path, invalid_input(fmt::format(
                               "the parts have {} tensors, expected {} (metadata "
                               "\"split.tensors.count\"): one of them is of another model",
                               out.file().tensors().size(), **total)));
    }
    for (const char* key : {"split.no", "split.count", "split.tensors.count"})
        out.remove(key);
    return out.finish();
}

}  // namespace

Result<GgufFile> open_split_gguf(const std::filesystem::path& path) {
    auto file = GgufFile::open(path);
    if (!file) return file.error();
    const auto keys = read_part_keys(*file);
    if (!keys) return about(path, keys.error());
    if (keys->count <= 1) return file;
    return join(path, *keys);
}

}  // namespace troupe::model
