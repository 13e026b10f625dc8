// Thousands of drawn expressions and small templates against Jinja2 itself; the data is made by
// tests/tools/make_jinja_reference.py.
#include <catch2/catch.hpp>

#include "model/jinja.hpp"
#include "model/jinja_json.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
namespace jinja = model::jinja;

namespace {

// The text; null where compiling or rendering fails.
boost::json::value render(std::string_view source, std::string_view context) {
    const Result<jinja::Template> compiled = jinja::Template::compile(source);
    if (!compiled) return nullptr;
    jinja::Heap heap(std::size_t{16} << 20);
    const Result<jinja::Value> values = jinja::from_json(heap, context, jinja::Origin::from_user);
    REQUIRE(values.has_value());
    const Result<jinja::Text> text = compiled->render(heap, *jinja::as_dict(*values));
    return text ? boost::json::value(text->bytes()) : boost::json::value(nullptr);
}

}  // namespace

TEST_CASE("drawn expressions and templates give what Jinja2 gives", "[model][jinja]") {
    const auto file = test::read_json(test::test_data("jinja/cases.json"));
    CHECK(file.at("jinja2") == "3.1.6");
    const std::string context = boost::json::serialize(file.at("context"));
    const auto& cases = file.at("cases").as_array();
    CHECK(cases.size() > 4000);
    for (const auto& one : cases) {
        const auto source = boost::json::value_to<std::string>(one.at(0));
        const boost::json::value given = render(source, context);
        if (given == one.at(1)) continue;
        CAPTURE(source, given, one.at(1));
        CHECK(given == one.at(1));
    }
}
