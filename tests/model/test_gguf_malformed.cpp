// Files that are not what they should be: each is refused, and the message names the field. The
// cases are those of ../shared/data/4-model-files/known-malformed-cases.md, built field by field.
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "model/gguf.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using namespace troupe::model;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using troupe::test::ByteWriter;
using troupe::test::GgufWriter;

namespace {

constexpr std::uint64_t kHuge = ~std::uint64_t{0};
const std::vector<std::byte> kData(256);

std::string refusal(std::span<const std::byte> bytes) {
    const auto file = GgufFile::parse(bytes);
    return file ? "(accepted)" : file.error().message;
}
std::string refusal(const GgufWriter& writer) {
    return refusal(writer.bytes());
}
std::string refusal(std::string_view text) {
    return refusal(std::as_bytes(std::span{text}));
}

// A file with one tensor entry of these fields.
GgufWriter one_tensor(std::uint32_t type, const std::vector<std::int64_t>& dims,
                      std::optional<std::uint64_t> offset = std::nullopt) {
    GgufWriter writer;
    writer.tensor("t", type, dims, kData, offset);
    return writer;
}

}  // namespace

TEST_CASE("What is not a GGUF at all is named, with what to do", "[model][gguf][malformed]") {
    CHECK(refusal("") == "the file is empty; download it again");
    CHECK_THAT(refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
               StartsWith("this is a Git LFS pointer") && Contains("fetch the real file"));
    CHECK_THAT(refusal("<!DOCTYPE html><html>"), StartsWith("this is an HTML"));
    CHECK_THAT(refusal("\r\n <html>"), StartsWith("this is an HTML"));
    CHECK_THAT(refusal("PK\x03\x04..."), StartsWith("this is a zip archive"));
    CHECK_THAT(refusal(std::string_view{"\x10\0\0\0\0\0\0\0{\"a\":1}", 15}),
               StartsWith("this looks like safetensors"));
    CHECK_THAT(refusal("GG"), StartsWith("not a GGUF file: magic is \"GG\""));
    CHECK_THAT(refusal("\x01\x02\x03\x04 rest"), Contains("\\x01\\x02\\x03\\x04"));
    CHECK_THAT(refusal("tjgg...."), StartsWith("magic ggjt") && Contains("versions 2 and 3 load"));
    CHECK_THAT(refusal("fmgg...."), StartsWith("magic ggmf"));
    CHECK_THAT(refusal("lmgg...."), StartsWith("magic ggml"));
    CHECK_THAT(refusal("FUGG...."), StartsWith("magic FUGG"));
}

TEST_CASE("A GGUF header that lies is refused", "[model][gguf][malformed]") {
    GgufWriter writer;
    writer.u32("n", 1);
    SECTION("magic") {
        writer.magic = "FUGG";
        CHECK_THAT(refusal(writer), StartsWith("magic FUGG"));
    }
    SECTION("version 0") {
        writer.version = 0;
        CHECK(refusal(writer) == "version is 0; GGUF versions 2 and 3 load");
    }
    SECTION("version 1") {
        writer.version = 1;
        CHECK_THAT(refusal(writer), StartsWith("version is 1; GGUF versions 2 and 3 load, so"));
    }
    SECTION("a version of the future") {
        writer.version = 4;
        CHECK(refusal(writer) == "version is 4; GGUF versions 2 and 3 load");
    }
    SECTION("big endian") {
        writer.version = 0x03000000;
        CHECK_THAT(refusal(writer), StartsWith("version is 0x03000000: a big-endian GGUF"));
    }
    SECTION("tensor count") {
        writer.tensor_count_override =
            GENERATE(as<std::uint64_t>{}, kHuge, kHuge >> 1, 0x7FFFFFFFUL, 10'000UL);
        CHECK_THAT(refusal(writer), StartsWith("tensor count ") && Contains("cannot fit"));
    }
    SECTION("metadata count") {
        writer.value_count_override =
            GENERATE(as<std::uint64_t>{}, kHuge, 0x7FFFFFFFUL, 0xFFFFFFFFUL, 500'000'000UL);
        CHECK_THAT(refusal(writer), StartsWith("metadata count ") && Contains("cannot fit"));
    }
    SECTION("only the magic") {
        CHECK_THAT(refusal("GGUF"), StartsWith("version: the file ends"));
    }
}

TEST_CASE("A GGUF cut anywhere is refused", "[model][gguf][malformed]") {
    GgufWriter writer;
    writer.u32("n", 1).strings("tokens", {"a", "b"}).boolean("flag", true);
    writer.tensor("t", 0, {8, 8}, kData);
    const auto bytes = writer.bytes();
    REQUIRE(GgufFile::parse(bytes).has_value());
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        INFO(size);
        REQUIRE(!GgufFile::parse(std::span{bytes}.first(size)));
    }
}

TEST_CASE("GGUF metadata that lies is refused", "[model][gguf][malformed]") {
    GgufWriter writer;
    const auto entry = [](std::uint64_t key_length, std::string_view key) {
        return ByteWriter{}.u64(key_length).raw(key);
    };
    SECTION("key length") {
        const auto length =
            GENERATE(as<std::uint64_t>{}, kHuge, 0xFFFFFFFFFFFFUL, std::uint64_t{1} << 63);
        writer.raw_value(entry(length, "general.x").u32(4).u32(1));
        CHECK_THAT(refusal(writer), StartsWith("key of metadata entry 0: length"));
    }
    SECTION("empty key") {
        writer.raw_value(entry(0, "").u32(4).u32(1).u32(0));
        CHECK(refusal(writer) == "key of metadata entry 0: length 0, expected 1 to 65535");
    }
    SECTION("long key") {
        writer.u32(std::string(65'536, 'k'), 1);
        CHECK(refusal(writer) == "key of metadata entry 0: length 65536, expected 1 to 65535");
    }
    SECTION("type") {
        writer.raw_value(entry(1, "k").u32(13).u64(1));
        CHECK(refusal(writer) == "metadata \"k\": type 13 does not exist (0 to 12 do)");
    }
    SECTION("negative type") {
        writer.raw_value(entry(1, "k").u32(0xFFFFFFFF).u64(1));
        CHECK(refusal(writer) == "metadata \"k\": type -1 does not exist (0 to 12 do)");
    }
    SECTION("array element type") {
        writer.raw_value(entry(1, "k").u32(9).u32(13).u64(0));
        CHECK(refusal(writer) ==
              "metadata \"k\": array element type 13 does not exist (0 to 12 do)");
    }
    SECTION("array of arrays") {
        writer.raw_value(entry(1, "k").u32(9).u32(9).u64(0));
        CHECK(refusal(writer) == "metadata \"k\": an array of arrays");
    }
    SECTION("the same key twice") {
        writer.u32("k", 1).string("k", "x");
        CHECK(refusal(writer) == "metadata \"k\": the key occurs twice");
    }
    SECTION("string length") {
        const auto length =
            GENERATE(as<std::uint64_t>{}, kHuge, kHuge >> 1, 0x40000000UL, 0x8000000000000000UL);
        writer.raw_value(entry(1, "k").u32(8).u64(length).raw("text"));
        CHECK_THAT(refusal(writer), StartsWith("metadata \"k\": length") && Contains("bytes left"));
    }
    SECTION("array count") {
        const std::uint32_t element = GENERATE(0U, 5U, 8U, 12U);
        const auto count =
            GENERATE(as<std::uint64_t>{}, kHuge, kHuge / 8 + 2, std::uint64_t{1} << 61, 1'000UL);
        writer.raw_value(entry(1, "k").u32(9).u32(element).u64(count).raw("text"));
        CHECK_THAT(refusal(writer), StartsWith("metadata \"k\": ") && Contains("cannot fit"));
    }
    SECTION("length of a string in an array") {
        writer.raw_value(entry(1, "k").u32(9).u32(8).u64(2).string("ok").u64(kHuge));
        CHECK_THAT(refusal(writer), StartsWith("metadata \"k\": length 18446744073709551615"));
    }
    SECTION("a bool that is neither") {
        writer.scalar("k", GgufType::boolean, std::uint8_t{2});
        CHECK(refusal(writer) == "metadata \"k\": a bool of value 2, expected 0 or 1");
    }
    SECTION("a key that is not printable is escaped") {
        writer.raw_value(entry(2, "\x1B\n").u32(99).u64(0));
        CHECK_THAT(refusal(writer), StartsWith("metadata \"\\x1b\\x0a\": type 99"));
    }
}

TEST_CASE("A GGUF alignment that is not one is refused", "[model][gguf][malformed]") {
    GgufWriter writer;
    SECTION("value") {
        const auto alignment = GENERATE(0U, 13U, 0x80000000U, 1U << 30, 0xFFFFFFFFU);
        writer.u32("general.alignment", alignment);
        CHECK_THAT(refusal(writer), StartsWith("metadata \"general.alignment\" is ") &&
                                        Contains("expected a power of two up to 1048576"));
    }
    SECTION("type") {
        writer.scalar("general.alignment", GgufType::i32, std::int32_t{32});
        CHECK(refusal(writer) == "metadata \"general.alignment\" has type i32, expected u32");
    }
    SECTION("array") {
        writer.array<std::uint32_t>("general.alignment", GgufType::u32, {32});
        CHECK(refusal(writer) ==
              "metadata \"general.alignment\" has type array of u32, expected u32");
    }
}

TEST_CASE("A GGUF tensor entry that lies is refused", "[model][gguf][malformed]") {
    constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();
    constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
    SECTION("name length") {
        GgufWriter writer;
        const auto length = GENERATE(as<std::uint64_t>{}, kHuge, 1'000UL);
        writer.raw_tensor(ByteWriter{}.u64(length).raw("t").u32(1).u64(1).u32(0).u64(0).u64(0));
        CHECK_THAT(refusal(writer), StartsWith("name of tensor 0: length"));
    }
    SECTION("a name of 64 bytes") {
        GgufWriter writer;
        writer.tensor(std::string(64, 'n'), 0, {1}, kData);
        CHECK(refusal(writer) == "name of tensor 0: length 64, expected 1 to 63");
    }
    SECTION("an empty name") {
        GgufWriter writer;
        writer.tensor("", 0, {1}, kData);
        CHECK(refusal(writer) == "name of tensor 0: length 0, expected 1 to 63");
    }
    SECTION("the same name twice") {
        GgufWriter writer;
        writer.tensor("t", 0, {1}, kData).tensor("t", 0, {1}, kData);
        CHECK(refusal(writer) == "tensor \"t\": the name occurs twice");
    }
    SECTION("n_dims") {
        GgufWriter writer;
        const auto dims = GENERATE(5U, 1'000'000U, 0xFFFFFFFFU);
        writer.raw_tensor(ByteWriter{}.string("t").u32(dims).u64(1).u64(1).u64(1).u64(1).u64(1));
        CHECK_THAT(refusal(writer),
                   StartsWith("tensor \"t\": n_dims is ") && Contains("at most 4"));
    }
    SECTION("negative dims") {
        CHECK(refusal(one_tensor(0, {-1, -1, -1, -1})) == "tensor \"t\": dims[0] is -1, negative");
    }
    SECTION("element count overflows") {
        const auto dims = GENERATE(std::vector<std::int64_t>{4 * kInt32Max, 4 * kInt32Max},
                                   std::vector<std::int64_t>{kInt64Max, 2, 1, 1},
                                   std::vector<std::int64_t>{1L << 32, (1L << 42) + 1},
                                   std::vector<std::int64_t>{0, kInt64Max, kInt64Max, 1},
                                   std::vector<std::int64_t>{kInt64Max, 0, kInt64Max, 1});
        CHECK_THAT(refusal(one_tensor(0, dims)), Contains("makes the element count overflow"));
    }
    SECTION("byte count overflows") {
        const std::int64_t dim = (1L << 31) - 1;
        CHECK(refusal(one_tensor(27, {dim, dim})) ==
              "tensor \"t\": its size in bytes does not fit 64 bits");
    }
    SECTION("type") {
        const auto type = GENERATE(4U, 5U, 31U, 38U, 43U, 0xFFFFFFFFU);
        CHECK_THAT(refusal(one_tensor(type, {32})),
                   StartsWith("tensor \"t\": type ") && Contains("is not known"));
    }
    SECTION("rows that are not whole blocks") {
        CHECK(refusal(one_tensor(3, {48})) ==
              "tensor \"t\": rows of 48 elements are not whole blocks of 32 (Q4_1)");
    }
    SECTION("unaligned offset") {
        CHECK_THAT(refusal(one_tensor(0, {4}, kHuge)),
                   Contains("is not a multiple of the alignment 32"));
        CHECK_THAT(refusal(one_tensor(0, {4}, 16)), Contains("offset 16 is not a multiple"));
    }
    SECTION("offset outside the file") {
        const auto offset = GENERATE(as<std::uint64_t>{}, kHuge - 31, 1UL << 63, 256UL);
        CHECK_THAT(refusal(one_tensor(0, {4}, offset)), Contains("lie beyond the end of the file"));
    }
    SECTION("not enough data") {
        auto writer = one_tensor(0, {64});
        REQUIRE(refusal(writer) == "(accepted)");
        writer.missing_tail_bytes = 1;
        CHECK(refusal(writer) ==
              "tensor \"t\": 256 bytes at offset 0 lie beyond the end of the file (255 bytes of "
              "tensor data); it is truncated or damaged, download it again");
    }
    SECTION("sizes whose sum wraps") {
        GgufWriter writer;
        writer.tensor("a", 24, {0x7FFFFFFFFFFFFFC0}, {}, 0);
        writer.tensor("b", 24, {0x7FFFFFFFFFFFFFC0}, kData, 0x7FFFFFFFFFFFFFC0);
        CHECK_THAT(refusal(writer), StartsWith("tensor \"a\": 9223372036854775744 bytes"));
    }
    SECTION("laid out for alignment 1 with none declared") {
        GgufWriter writer;
        writer.alignment = 1;
        writer.tensor("a", 24, {3}, std::span{kData}.first(3)).tensor("b", 24, {3}, kData);
        CHECK(refusal(writer) == "tensor \"b\": offset 3 is not a multiple of the alignment 32");
    }
}

TEST_CASE("A GGUF with any byte changed is read or refused, never more",
          "[model][gguf][malformed]") {
    GgufWriter writer;
    writer.u32("general.alignment", 32).strings("tokens", {"a", "bc"}).f32("eps", 1);
    writer.tensor("t", 3, {32, 2}, std::span{kData}.first(40)).tensor("u", 0, {8, 8}, kData);
    auto bytes = writer.bytes();
    const std::size_t table_bytes = bytes.size() - kData.size() - 64;
    for (std::size_t at = 0; at < table_bytes; ++at) {
        const std::byte kept = bytes[at];
        for (const int value : {0, 1, 4, 8, 9, 0x7F, 0x80, 0xFF}) {
            bytes[at] = static_cast<std::byte>(value);
            const auto file = GgufFile::parse(bytes);
            if (!file) continue;
            for (const GgufTensor& tensor : file->tensors()) {
                REQUIRE(tensor.bytes.size() <= bytes.size());
                if (!tensor.bytes.empty()) REQUIRE(&tensor.bytes.back() <= &bytes.back());
            }
        }
        bytes[at] = kept;
    }
}

TEST_CASE("Real damaged and foreign model files are refused by name", "[model][gguf][malformed]") {
    const auto [name, expected] = GENERATE(table<std::string, std::string>({
        {"gguf-mangled-as-utf8-bert-bge.gguf", "download it again as binary"},
        {"gguf-prerelease-FUGG-magic.gguf", "magic FUGG"},
        {"gguf-v1-llama-vocab.gguf", "version is 1;"},
        {"gguf-v1-llama-vocab-with-token-types.gguf", "version is 1;"},
        {"gguf-v3-test_writer.gguf", "metadata \"dict1\": type 13 does not exist"},
        {"not-gguf-ggjt-v1-vocab.bin", "magic ggjt"},
        {"not-gguf-ggmf-v1-vocab.bin", "magic ggmf"},
        {"not-gguf-git-lfs-pointer.gguf", "Git LFS pointer"},
        {"not-gguf-no-magic-vocab.bin", "not a GGUF file: magic is"},
        {"stories260K-transposed-weights.bin", "not a GGUF file: magic is"},
    }));
    const std::string path = "4-model-files/" + name;
    if (!test::have_shared(path)) return;
    const auto file = GgufFile::open(test::shared_data(path));
    REQUIRE(!file);
    CHECK_THAT(file.error().message, Contains(expected) && Contains(name));
}

TEST_CASE("Paths that hold no file are refused by name", "[model][gguf][malformed]") {
    const auto folder = std::filesystem::temp_directory_path();
    const auto none = GgufFile::open(folder / "no such model.gguf");
    REQUIRE(!none);
    CHECK(none.error().kind == ErrorKind::not_found);
    CHECK_THAT(none.error().message, Contains("no such model.gguf") && Contains("No such file"));

    const auto directory = GgufFile::open(folder);
    REQUIRE(!directory);
    CHECK_THAT(directory.error().message, Contains("is a directory"));

    const auto device = GgufFile::open("/dev/null");
    REQUIRE(!device);
    CHECK_THAT(device.error().message, Contains("is not a regular file"));

    const auto path = folder / "troupe-test-empty.gguf";
    std::ofstream{path};
    const auto empty = GgufFile::open(path);
    std::filesystem::remove(path);
    REQUIRE(!empty);
    CHECK_THAT(empty.error().message, Contains("the file is empty"));
}
