// troupe kv: the memory that keys and values take, and whether it is there.
#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <initializer_list>
#include <memory>
#include <optional>

#include "cpu/kernels/kv_layout.hpp"
#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/known_models.hpp"
#include "model/model_file.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {
namespace {

struct KvFlags {
    std::string model;
    std::uint64_t layers = 0;
    std::uint64_t kv_heads = 0;
    std::uint64_t head_dim = 0;
    std::uint64_t tokens = 0;
    std::uint64_t element_bytes = 2;
    std::string form;  // of the cache; empty: element_bytes says it
    std::uint64_t users = 1;
    std::optional<std::uint64_t> memory_bytes;
    std::optional<std::uint64_t> weight_bytes;  // absent: the file's, or none
    bool as_json = false;
};

struct KvSize {
    std::uint64_t head_bytes = 0;  // of a token's key and value in one head
    std::uint64_t bytes_per_token = 0;
    std::uint64_t bytes = 0;
    std::optional<bool> fits;  // where the memory is known
};

// The shape, and the weights where no flag says otherwise, from the model's file.
Result<void> read_shape(KvFlags& flags) {
    if (flags.model.empty()) {
        if (flags.layers == 0 || flags.kv_heads == 0 || flags.head_dim == 0)
            return invalid_input("give --model, or all of --layers, --kv-heads and --head-dim");
        return {};
    }
    if (flags.model == "toy")
        return invalid_input("the toy has no layers: give a GGUF file, or --layers and the like");
    const auto path = model::find_model(flags.model);
    if (!path) return path.error();
    const auto file = model::open_model(*path);
    if (!file) return Error{ErrorKind::io, file.error().message};
    const auto h = model::read_hyperparameters(*file);
    if (!h) return h.error();
    flags.layers = h->block_count;
    flags.kv_heads = h->head_count_kv;
    flags.head_dim = h->head_length;
    if (!flags.weight_bytes) flags.weight_bytes = file->size_bytes();
    return {};
}

Result<std::uint64_t> product(std::initializer_list<std::uint64_t> factors) {
    std::uint64_t result = 1;
    for (const std::uint64_t factor : factors)
        if (__builtin_mul_overflow(result, factor, &result))
            return invalid_input("more than 2^64 bytes: give smaller numbers");
    return result;
}

// A token's key and value in one head, scales included, as this program keeps them.
Result<std::uint64_t> head_bytes(const KvFlags& flags) {
    for (const cpu::KvType type : cpu::kv_types) {
        if (flags.form != to_string(type)) continue;
        if (flags.head_dim > cpu::kv_head_dim_max)
            return invalid_input(
                fmt::format("a head of {} is wider than {}", flags.head_dim, cpu::kv_head_dim_max));
        return (kv_block_bytes(type, flags.head_dim, cpu::KvPart::keys) +
                kv_block_bytes(type, flags.head_dim, cpu::KvPart::values)) /
               cpu::page_tokens;
    }
    return product({2, flags.head_dim, flags.element_bytes});
}

// docs/decoding.md, "The KV cache".
Result<KvSize> kv_size(const KvFlags& flags) {
    const auto head = head_bytes(flags);
    if (!head) return head.error();
    const auto per_token = product({flags.layers, flags.kv_heads, *head});
    if (!per_token) return per_token.error();
    const auto bytes = product({*per_token, flags.tokens, flags.users});
    if (!bytes) return bytes.error();
    KvSize size{*head, *per_token, *bytes, std::nullopt};
    if (flags.memory_bytes) {
        const std::uint64_t weights = flags.weight_bytes.value_or(0);
        size.fits = weights <= *flags.memory_bytes && size.bytes <= *flags.memory_bytes - weights;
    }
    return size;
}

std::string readable(std::uint64_t bytes) {
    const auto size = static_cast<double>(bytes);
    if (bytes < 1'000'000) return fmt::format("{} bytes", bytes);
    if (bytes < 1'000'000'000)
        return fmt::format("{:.1f} MB ({:.1f} MiB)", size / 1e6, size / (1 << 20));
    return fmt::format("{:.1f} GB ({:.1f} GiB)", size / 1e9, size / (1 << 30));
}

void print_text(const KvFlags& flags, const KvSize& size) {
    if (flags.form.empty()) {
        fmt::print("a token: 2 (key, value) x {} layers x {} KV heads x {} x {} bytes = {} bytes\n",
                   flags.layers, flags.kv_heads, flags.head_dim, flags.element_bytes,
                   size.bytes_per_token);
    } else {
        fmt::print("a token: {} layers x {} KV heads x {} bytes ({}, key and value) = {} bytes\n",
                   flags.layers, flags.kv_heads, size.head_bytes, flags.form, size.bytes_per_token);
    }
    fmt::print("{} tokens{}: {} bytes = {}\n", flags.tokens,
               flags.users == 1 ? "" : fmt::format(" x {} users", flags.users), size.bytes,
               readable(size.bytes));
    if (!size.fits) return;
    fmt::print("{} in {}", *size.fits ? "fits" : "does not fit", readable(*flags.memory_bytes));
    if (flags.weight_bytes) fmt::print(" beside {} of weights", readable(*flags.weight_bytes));
    fmt::print("\n");
}

int kv(KvFlags flags) {
    if (auto shape = read_shape(flags); !shape) return report(shape.error());
    const auto size = kv_size(flags);
    if (!size) return report(size.error());
    if (!flags.as_json) {
        print_text(flags, *size);
        return exit_ok;
    }
    boost::json::object out{{"kv_bytes", size->bytes},
                            {"kv_bytes_per_token", size->bytes_per_token}};
    if (size->fits) out["fits"] = *size->fits;
    std::printf("%s\n", boost::json::serialize(out).c_str());
    return exit_ok;
}

}  // namespace

void add_kv(Command& app, Run& run) {
    auto command = app.add_subcommand("kv", "Reckon the memory of a KV cache");
    const auto flags = std::make_shared<KvFlags>();
    const auto file =
        command.add("--model,-m", flags->model, "a GGUF file or a pulled model, for the shape");
    const auto add = [&](const char* name, std::uint64_t& value, const char* what) {
        return command.add(name, value, what).positive();
    };
    add("--layers", flags->layers, "of the model").excludes(file);
    add("--kv-heads", flags->kv_heads, "heads that have keys and values").excludes(file);
    add("--head-dim", flags->head_dim, "width of a head").excludes(file);
    add("--tokens", flags->tokens, "prompt and answer of one user").required();
    const auto bytes = add("--bytes", flags->element_bytes, "of one number").shows_default();
    command.add("--kv", flags->form, "a form of this program's cache instead, scales added")
        .one_of({"f16", "f32", "int8", "int4"})
        .excludes(bytes);
    add("--users", flags->users, "with so many tokens each").shows_default();
    const auto memory = command
                            .add("--memory", flags->memory_bytes,
                                 "bytes there are, such as 80GB: says whether all fits")
                            .bytes();
    command
        .add("--weights", flags->weight_bytes,
             "bytes of the model's weights; the size of the file where there is one")
        .bytes()
        .needs(memory);
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return kv(*flags); }; });
}

}  // namespace troupe::tools
