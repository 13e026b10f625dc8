// stories260k_to_gguf OUT: writes ../shared/data/1-model/stories260K as a GGUF file, for tests that
// start the whole program.
#include <fstream>
#include <iostream>

#include "tests/support/stories260k.hpp"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: stories260k_to_gguf OUT\n";
        return 2;
    }
    const std::vector<std::byte> gguf = troupe::test::stories260k_gguf();
    if (gguf.empty()) return 1;
    std::ofstream file(argv[1], std::ios::binary);
    file.write(reinterpret_cast<const char*>(gguf.data()),
               static_cast<std::streamsize>(gguf.size()));
    file.close();
    if (!file) {
        std::cerr << "cannot write " << argv[1] << "\n";
        return 1;
    }
    return 0;
}
