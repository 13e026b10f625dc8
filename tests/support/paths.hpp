// Where tests find their data. Shared data lives beside the checkout and may be absent; a test that
// needs it says so and is skipped. The default model is found through TROUPE_TEST_MODEL.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

namespace troupe::test {

// Where this was built; for a program that was taken elsewhere, where the environment says.
inline std::filesystem::path source_dir() {
    const char* elsewhere = std::getenv("TROUPE_SOURCE_DIR");
    return elsewhere != nullptr ? elsewhere : TROUPE_SOURCE_DIR;
}
inline std::filesystem::path test_data(const std::string& name) {
    return source_dir() / "tests/data" / name;
}
inline std::filesystem::path shared_data(const std::string& name) {
    return source_dir() / "../shared/data" / name;
}

// The default model's path, or empty with a line on stdout where it is not at hand.
inline std::filesystem::path default_model() {
    const char* path = std::getenv("TROUPE_TEST_MODEL");
    if (path != nullptr && std::filesystem::exists(path)) return path;
    std::cout << "skipped: the default model is not here (tools/test fetches it and sets "
                 "TROUPE_TEST_MODEL)\n";
    return {};
}

// True where the shared data file exists; else prints that the test is skipped.
inline bool have_shared(const std::string& name) {
    if (std::filesystem::exists(shared_data(name))) return true;
    std::cout << "skipped: no ../shared/data/" << name << "\n";
    return false;
}

}  // namespace troupe::test
