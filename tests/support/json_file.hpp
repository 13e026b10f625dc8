// Reads a JSON file of reference values. Tests only.
#pragma once

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace troupe::test {

// Throws if the file is not there or not JSON.
inline boost::json::value read_json(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    file.exceptions(std::ios::failbit | std::ios::badbit);
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    return boost::json::parse(text);
}

}  // namespace troupe::test
