// The table of models that can be pulled, and what a command line's model means.
#include <stdlib.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "model/known_models.hpp"
#include "tests/support/model_folder.hpp"
#include "tests/support/paths.hpp"

namespace troupe::model {
namespace {

// The cache of known models is elsewhere while this lives.
class CacheElsewhere {
 public:
    explicit CacheElsewhere(const std::filesystem::path& folder) {
        if (const char* value = std::getenv("XDG_CACHE_HOME")) before_ = value;
        ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
    }
    ~CacheElsewhere() {
        if (before_.empty())
            ::unsetenv("XDG_CACHE_HOME");
        else
            ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    }
    CacheElsewhere(const CacheElsewhere&) = delete;
    CacheElsewhere& operator=(const CacheElsewhere&) = delete;

 private:
    std::string before_;
};

}  // namespace

TEST_CASE("Every row of the known models is whole, and no two share a name or a file",
          "[model][known_models]") {
    std::set<std::string_view> names, files;
    for (const KnownModel& known : known_models()) {
        INFO(known.name);
        CHECK(names.insert(known.name).second);
        CHECK(files.insert(known.file).second);
        CHECK(known.name.find('/') == std::string_view::npos);
        CHECK(known.file.find('/') == std::string_view::npos);
        CHECK(known.file.ends_with(".gguf"));
        CHECK(known.member.ends_with(known.file));
        CHECK(known.bytes > 0);
        CHECK_FALSE(known.licence.empty());
        CHECK(known.package.find("==") != std::string_view::npos);
        CHECK(known.sha256.size() == 64);
        CHECK(std::ranges::all_of(
            known.sha256, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }));
        CHECK(find_known_model(known.name) == &known);
    }
    CHECK(find_known_model("smollm2-135m-instruct") == find_known_model("SmolLM2-135M-Instruct"));
    CHECK(find_known_model("SmolLM2") == nullptr);
    CHECK(find_known_model("") == nullptr);
}

TEST_CASE("The default model is the one that the table describes", "[model][known_models]") {
    const auto path = test::default_model();
    const KnownModel* known = find_known_model("SmolLM2-135M-Instruct");
    REQUIRE(known != nullptr);
    if (path.empty() || path.filename() != known->file) return;
    CHECK(std::filesystem::file_size(path) == known->bytes);
}

TEST_CASE("A model's argument is a path, or the name of one that was pulled",
          "[model][known_models]") {
    const test::TemporaryFolder folder;
    const CacheElsewhere cache(folder.path());
    const KnownModel& known = known_models().front();
    const std::string name(known.name);
    CHECK(find_model("some/model.gguf").value() == "some/model.gguf");
    CHECK(find_model("none.gguf").value() == "none.gguf");

    const auto missing = find_model(name);
    REQUIRE_FALSE(missing.has_value());
    CHECK(missing.error().kind == ErrorKind::not_found);
    CHECK(missing.error().message.ends_with("troupe pull " + name));

    CHECK(known.path() == folder.path() / "troupe/models" / known.file);
    std::filesystem::create_directories(known.path().parent_path());
    folder.write("troupe/models/" + std::string(known.file), std::string_view("cut off"));
    CHECK_FALSE(find_model(name).has_value());
    std::filesystem::resize_file(known.path(), known.bytes);  // a hole: takes no room
    CHECK(find_model(name).value() == known.path());
}

}  // namespace troupe::model
