// GGUF files in parts.
#include <catch2/catch.hpp>

#include "model/gguf_split.hpp"
#include "model/model_file.hpp"
#include "tests/support/model_folder.hpp"

namespace troupe::model {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

const std::vector<float> kNumbers{1, 2, 3, 4};

// Part `index` of three, with one tensor.
test::GgufWriter part(std::uint32_t index, const std::string& tensor) {
    test::GgufWriter out;
    out.scalar("split.no", GgufType::u16, static_cast<std::uint16_t>(index));
    out.scalar("split.count", GgufType::u16, std::uint16_t{3});
    out.scalar("split.tensors.count", GgufType::i32, std::int32_t{3});
    if (index == 0) out.string("general.architecture", "llama");
    out.f32_tensor(tensor, {4}, kNumbers);
    return out;
}

std::string part_name(int number) {
    return "m-0000" + std::to_string(number) + "-of-00003.gguf";
}

struct Parts {
    test::TemporaryFolder folder;

    Parts() {
        for (std::uint32_t i = 0; i < 3; ++i)
            put(static_cast<int>(i) + 1, part(i, "t" + std::to_string(i)));
    }
    void put(int number, const test::GgufWriter& bytes) const {
        folder.write(part_name(number), bytes.bytes());
    }
    [[nodiscard]] std::string refusal(int opened = 1) const {
        const auto file = open_split_gguf(folder.path() / part_name(opened));
        return file ? "(accepted)" : file.error().message;
    }
};

}  // namespace

TEST_CASE("A split GGUF opens from any of its parts", "[model][gguf][split]") {
    const Parts parts;
    for (const int number : {1, 2, 3}) {
        const auto file = open_model(parts.folder.path() / part_name(number));
        REQUIRE(file.has_value());
        REQUIRE(file->tensors().size() == 3);
        for (const GgufTensor& tensor : file->tensors()) {
            CHECK(file->find_tensor(tensor.name) == &tensor);
            CHECK(tensor.bytes.size() == 16);
            CHECK(std::memcmp(tensor.bytes.data(), kNumbers.data(), 16) == 0);
        }
        CHECK(file->get_string("general.architecture").value() == "llama");
        CHECK(file->find("split.count") == nullptr);
    }
    CHECK(model_name(parts.folder.path() / part_name(2)) == "m");
    CHECK(model_name("a/b-1.5B.gguf") == "b-1.5B");
    CHECK(model_name(parts.folder.path().string() + "/") ==
          parts.folder.path().filename().string());
}

TEST_CASE("A part that is missing or is not one of these is named", "[model][gguf][split]") {
    const Parts parts;
    std::filesystem::remove(parts.folder.path() / part_name(2));
    CHECK_THAT(parts.refusal(),
               Contains("part 2 of 3 is missing: cannot open ") && Contains(part_name(2)));
    parts.put(2, part(2, "t1"));
    CHECK_THAT(parts.refusal(),
               Contains(part_name(2)) && EndsWith("this is part 3 of 3 (metadata \"split.no\", "
                                                  "\"split.count\"), expected part 2 of 3"));
    parts.put(2, part(1, "t0"));
    CHECK_THAT(parts.refusal(3), Contains(part_name(2)) && EndsWith("the name occurs twice"));
    parts.put(2, part(1, "t1").f32_tensor("t4", {4}, kNumbers));
    CHECK_THAT(parts.refusal(3), Contains("the parts have 4 tensors, expected 3"));

    const auto renamed = parts.folder.write("other.gguf", part(1, "t1").bytes());
    const auto file = open_split_gguf(renamed);
    REQUIRE_FALSE(file.has_value());
    CHECK_THAT(file.error().message, Contains("should end with \"-00002-of-00003.gguf\""));
}

}  // namespace troupe::model
