// What `troupe convert` makes of float32, against the blocks that PyPI's gguf makes
// (tests/tools/make_quantise_reference.py), bit for bit.
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "model/quantise.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

namespace troupe::model {

TEST_CASE("Numbers become the blocks that gguf makes of them", "[model][quantise]") {
    const auto reference = test::read_json(test::test_data("gguf_blocks/quantised.json"));
    const auto bytes = test::from_hex(reference.at("values"));
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    const auto& types = reference.at("types").as_object();
    for (const TensorType type : kQuantisableTypes) {
        if (tensor_type_info(type).block_size > kBlock) continue;
        CAPTURE(to_string(type));
        const auto expected = test::from_hex(types.at(to_string(type)));
        std::vector<std::byte> got(expected.size());
        quantise(type, numbers, got);
        CHECK(got == expected);
    }
}

}  // namespace troupe::model
