// troupe inspect: what a model file holds.
#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <map>
#include <memory>

#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "runtime/base/log.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct InspectFlags {
    std::string path;
    bool as_json = false;
    bool tensors = false;
};

std::string shape_of(const model::GgufTensor& tensor) {
    std::string shape;
    for (std::uint32_t i = 0; i < tensor.dim_count; ++i)
        shape += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.dims[i]);
    return shape;
}

// A metadata value for people: scalars whole, long strings and arrays shortened.
std::string value_text(const model::GgufFile& file, const model::GgufValue& value) {
    if (value.is_array) return fmt::format("[{} x {}]", value.count, to_string(value.type));
    if (value.type == model::GgufType::string)
        return log::escaped(*file.get_string(value.key), 120);
    if (value.type == model::GgufType::boolean)
        return *file.find_bool(value.key).value() ? "true" : "false";
    if (value.type == model::GgufType::f32) return fmt::format("{}", *file.get_f32(value.key));
    if (const auto number = file.find_i64(value.key); number && *number)
        return fmt::format("{}", **number);
    return fmt::format("({})", to_string(value.type));
}

struct Totals {
    std::uint64_t parameters = 0;
    std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> by_type;  // tensors, bytes
};

Totals totals_of(const model::GgufFile& file) {
    Totals totals;
    for (const auto& tensor : file.tensors()) {
        totals.parameters += tensor.element_count();
        auto& [count, bytes] = totals.by_type[std::string(to_string(tensor.type))];
        ++count;
        bytes += tensor.bytes.size();
    }
    return totals;
}

void print_json(const model::GgufFile& file, const Totals& totals) {
    json::object metadata, types;
    for (const auto& value : file.values())
        metadata[value.key] = value_text(file, value);
    for (const auto& [type, sums] : totals.by_type)
        types[type] = {{"tensors", sums.first}, {"bytes", sums.second}};
    const auto architecture = file.find_string("general.architecture");
    json::object out{
        {"gguf_version", file.version()},
        {"file_bytes", file.size_bytes()},
        {"architecture", architecture && *architecture ? std::string(**architecture) : ""},
        {"parameters", totals.parameters},
        {"tensors", file.tensors().size()},
        {"types", std::move(types)},
        {"metadata", std::move(metadata)}};
    if (const auto h = model::read_hyperparameters(file)) {
        out["loads"] = true;
        out["kv_bytes_per_token_16bit"] = 2ULL * h->block_count * h->kv_length() * 2;
    } else {
        out["loads"] = false;
        out["why_not"] = h.error().message;
    }
    std::printf("%s\n", json::serialize(out).c_str());
}

void print_text(const model::GgufFile& file, const Totals& totals, bool tensors) {
    fmt::print("GGUF version {}, {:.1f} MB, {} tensors, {:.1f} M parameters\n", file.version(),
               static_cast<double>(file.size_bytes()) / 1e6, file.tensors().size(),
               static_cast<double>(totals.parameters) / 1e6);
    for (const auto& [type, sums] : totals.by_type)
        fmt::print("  {:<6} {:>5} tensors {:>10.1f} MB\n", type, sums.first,
                   static_cast<double>(sums.second) / 1e6);
    if (const auto h = model::read_hyperparameters(file))
        fmt::print("{} layers, width {}, {} query and {} key/value heads of {}, context {}\n",
                   h->block_count, h->embedding_length, h->head_count, h->head_count_kv,
                   h->head_length, h->context_length);
    else
        fmt::print("troupe cannot run it: {}\n", h.error().message);
    fmt::print("\n");
    for (const auto& value : file.values())
        fmt::print("{:<42} {}\n", value.key, value_text(file, value));
    if (!tensors) return;
    fmt::print("\n");
    for (const auto& tensor : file.tensors())
        fmt::print("{:<32} {:<6} {}\n", tensor.name, to_string(tensor.type), shape_of(tensor));
}

int inspect(const InspectFlags& flags) {
    const auto file = model::GgufFile::open(flags.path);
    if (!file) return report(Error{ErrorKind::io, file.error().message});
    const Totals totals = totals_of(*file);
    if (flags.as_json)
        print_json(*file, totals);
    else
        print_text(*file, totals, flags.tensors);
    return exit_ok;
}

}  // namespace

void add_inspect(Command& app, Run& run) {
    auto command = app.add_subcommand("inspect", "Show what a model file holds");
    const auto flags = std::make_shared<InspectFlags>();
    command.add("MODEL,--model", flags->path, "a GGUF file").required();
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.add_switch("--tensors", flags->tensors, "list every tensor");
    command.when_chosen([flags, &run] { run = [flags] { return inspect(*flags); }; });
}

}  // namespace troupe::tools
