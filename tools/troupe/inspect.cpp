// troupe inspect: what a model holds, whether it can run, and what it would take.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/gguf.hpp"
#include "model/known_models.hpp"
#include "model/model_file.hpp"
#include "runtime/base/log.hpp"
#include "tools/troupe/command.hpp"
#include "tools/troupe/model_report.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct InspectFlags {
    std::string model;
    bool as_json = false;
    bool tensors = false;
    std::uint64_t users = 1;
    std::uint64_t context = 0;
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

json::object as_json(const model::GgufFile& file, const ModelReport& report) {
    json::object metadata, types, special;
    for (const auto& value : file.values())
        metadata[value.key] = value_text(file, value);
    for (const auto& [type, sums] : report.by_type)
        types[type] = {{"tensors", sums.tensors},
                       {"parameters", sums.parameters},
                       {"bytes", sums.bytes},
                       {"bits_per_weight", sums.bits_per_weight()}};
    for (const auto& [role, piece] : report.special_tokens)
        special[role] = piece;
    json::object out{{"gguf_version", file.version()},
                     {"file_bytes", file.size_bytes()},
                     {"architecture", report.architecture},
                     {"parameters", report.total.parameters},
                     {"bits_per_weight", report.total.bits_per_weight()},
                     {"tensors", file.tensors().size()},
                     {"types", std::move(types)},
                     {"special_tokens", std::move(special)},
                     {"has_chat_template", report.has_chat_template},
                     {"warnings", json::array(report.warnings.begin(), report.warnings.end())},
                     {"loads", !report.why_not.has_value()}};
    if (report.why_not) out["why_not"] = *report.why_not;
    if (report.memory) {
        out["kv_bytes_per_token_16bit"] = report.memory->kv_bytes_per_token;
        out["memory"] = {{"users", report.memory->users},
                         {"context", report.memory->context},
                         {"weight_bytes", report.memory->weight_bytes},
                         {"kv_bytes", report.memory->kv_bytes}};
    }
    out["metadata"] = std::move(metadata);
    return out;
}

void print_summary(const model::GgufFile& file, const ModelReport& report) {
    constexpr double million = 1e6;
    fmt::print("{}: {}, {:.1f} M parameters, {:.1f} MB, {:.2f} bits per weight\n", report.name,
               report.architecture, static_cast<double>(report.total.parameters) / million,
               static_cast<double>(file.size_bytes()) / million, report.total.bits_per_weight());
    for (const auto& [type, sums] : report.by_type)
        fmt::print("  {:<6} {:>5} {:<7} {:>10.1f} M {:>10.1f} MB {:>7.2f} bits\n", type,
                   sums.tensors, sums.tensors == 1 ? "tensor" : "tensors",
                   static_cast<double>(sums.parameters) / million,
                   static_cast<double>(sums.bytes) / million, sums.bits_per_weight());
    if (report.sizes) {
        const model::Hyperparameters& h = *report.sizes;
        fmt::print("{} layers, width {}, {} query and {} key/value heads of {}, context {}\n",
                   h.block_count, h.embedding_length, h.head_count, h.head_count_kv, h.head_length,
                   h.context_length);
    }
    for (const auto& [role, piece] : report.special_tokens)
        fmt::print("  {:<6} {}\n", role, piece);
    if (report.memory) {
        fmt::print("memory for {} x {} tokens: weights {:.1f} MB, keys and values {:.1f} MB\n",
                   report.memory->users, report.memory->context,
                   static_cast<double>(report.memory->weight_bytes) / million,
                   static_cast<double>(report.memory->kv_bytes) / million);
    }
    if (report.why_not) fmt::print("troupe cannot run it: {}\n", *report.why_not);
    for (const std::string& warning : report.warnings)
        fmt::print("note: {}\n", warning);
}

void print_text(const model::GgufFile& file, const ModelReport& report, bool tensors) {
    print_summary(file, report);
    fmt::print("\n");
    for (const auto& value : file.values())
        fmt::print("{:<42} {}\n", value.key, value_text(file, value));
    if (!tensors) return;
    fmt::print("\n");
    for (const auto& tensor : file.tensors())
        fmt::print("{:<32} {:<6} {}\n", tensor.name, to_string(tensor.type), shape_of(tensor));
}

int inspect(const InspectFlags& flags) {
    const auto path = model::find_model(flags.model);
    if (!path) return report(path.error());
    const auto file = model::open_model(*path);
    if (!file) return report(Error{ErrorKind::io, file.error().message});
    const ModelReport found =
        describe_model(*file, model::model_name(*path), flags.users, flags.context);
    if (flags.as_json)
        std::printf("%s\n", json::serialize(as_json(*file, found)).c_str());
    else
        print_text(*file, found, flags.tensors);
    return exit_ok;
}

}  // namespace

void add_inspect(Command& app, Run& run) {
    auto command = app.add_subcommand("inspect", "Show what a model holds and what it would take");
    const auto flags = std::make_shared<InspectFlags>();
    command.add("MODEL,--model", flags->model, "a GGUF file, a folder or a pulled model")
        .required();
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.add_switch("--tensors", flags->tensors, "list every tensor");
    command.add("--users", flags->users, "memory for so many at once").within(1, 1'000'000);
    command.add("--context", flags->context, "of so many tokens each; 0: all the model allows")
        .within(0, 1 << 27);
    command.when_chosen([flags, &run] { run = [flags] { return inspect(*flags); }; });
}

}  // namespace troupe::tools
