// Reads NumPy's .npy files of little-endian float32 in C order. Tests only.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::test {

struct NpyArray {
    std::vector<std::size_t> shape;
    std::vector<float> values;

    // Row `index` of an array of two dimensions.
    [[nodiscard]] std::span<const float> row(std::size_t index) const {
        return std::span{values}.subspan(index * shape.at(1), shape.at(1));
    }
};

inline NpyArray read_npy(const std::filesystem::path& path) {
    std::ifstream file{path, std::ios::binary};
    const std::string bytes{std::istreambuf_iterator<char>{file}, {}};
    const auto fail = [&](const char* what) -> void {
        throw std::runtime_error(path.string() + ": " + what);
    };
    if (bytes.size() < 10 || bytes.substr(0, 6) != "\x93NUMPY") fail("not an npy file");
    std::uint16_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data() + 8, sizeof header_bytes);
    const std::string header = bytes.substr(10, header_bytes);
    if (header.find("'<f4'") == std::string::npos) fail("not float32");
    if (header.find("'fortran_order': False") == std::string::npos) fail("not in C order");

    NpyArray array;
    std::size_t count = 1;
    const std::size_t open = header.find('(');
    std::istringstream shape{header.substr(open + 1, header.find(')') - open - 1)};
    for (std::string dim; std::getline(shape, dim, ',');) {
        if (dim.find_first_of("0123456789") == std::string::npos) continue;
        array.shape.push_back(std::stoul(dim));
        count *= array.shape.back();
    }
    if (bytes.size() != 10 + header_bytes + count * sizeof(float)) fail("wrong length");
    array.values.resize(count);
    std::memcpy(array.values.data(), bytes.data() + 10 + header_bytes, count * sizeof(float));
    return array;
}

}  // namespace troupe::test
