// Limits, errors and the corners of the engine that the reference cases do not reach.
#include <catch2/catch.hpp>
#include <random>

#include "model/jinja.hpp"
#include "model/jinja_json.hpp"

using namespace troupe;
namespace jinja = model::jinja;

namespace {

std::string render(const std::string& source, const jinja::RenderOptions& options = {},
                   std::string_view context = "{}") {
    const Result<jinja::Template> compiled = jinja::Template::compile(source);
    if (!compiled) return "error: " + compiled.error().message;
    jinja::Heap heap(std::size_t{32} << 20);
    const Result<jinja::Value> values = jinja::from_json(heap, context, jinja::Origin::from_user);
    REQUIRE(values.has_value());
    const Result<jinja::Text> text = compiled->render(heap, *jinja::as_dict(*values), options);
    return text ? std::string(text->bytes()) : "error: " + text.error().message;
}

bool fails(const std::string& source, const jinja::RenderOptions& options = {}) {
    const std::string text = render(source, options);
    CAPTURE(source, text.substr(0, 200));
    return text.starts_with("error: ");
}

std::string repeat(const std::string& text, int count) {
    std::string made;
    for (int i = 0; i < count; ++i)
        made += text;
    return made;
}

}  // namespace

TEST_CASE("errors name the line", "[model][jinja]") {
    CHECK(render("a\n{{ 1 + }}") == "error: template line 2: an expression was expected");
    CHECK(render("a\n\n{{ x.y }}") == "error: template line 3: 'y' of an undefined value");
    CHECK(render("\n{% if %}") == "error: template line 2: an expression was expected");
    CHECK(render("{% for x in y %}") == "error: template line 1: 'endfor' is missing");
    CHECK(render("{{ x|nothing }}") == "error: template line 1: the filter 'nothing' is not known");
}

TEST_CASE("deep nesting is an error, not a crash", "[model][jinja]") {
    const int deep = 100'000;
    CHECK(fails("{{ " + repeat("(", deep)));
    CHECK(fails("{{ " + repeat("[", deep) + repeat("]", deep) + " }}"));
    CHECK(fails("{{ " + repeat("{1:", deep)));
    CHECK(fails("{{ " + repeat("-", deep) + "1 }}"));
    CHECK(fails("{{ " + repeat("not ", deep) + "1 }}"));
    CHECK(fails("{{ 1" + repeat("+1", deep) + " }}"));
    CHECK(fails("{{ 1" + repeat("**1", deep) + " }}"));
    CHECK(fails("{{ x" + repeat(".a", deep) + " }}"));
    CHECK(fails("{{ x" + repeat("()", deep) + " }}"));
    CHECK(fails("{{ 1" + repeat("|abs", deep) + " }}"));
    CHECK(fails("{{ 1" + repeat(" is defined", deep) + " }}"));
    CHECK(fails("{{ 1" + repeat(" if 1 else 1", deep) + " }}"));
    CHECK(fails("{{ 1" + repeat(" and 1", deep) + " }}"));
    CHECK(fails(repeat("{% if 1 %}", deep)));
    CHECK(fails(repeat("{% for x in y %}", deep)));
    CHECK(fails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"));
    CHECK(
        fails("{% set ns = namespace(x=[]) %}{% for i in range(999) %}"
              "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"));
    CHECK(
        fails("{% set ns = namespace(x=[]) %}{% for i in range(999) %}"
              "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x|tojson }}"));
    CHECK(fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"));
}

TEST_CASE("long chains that need no depth are allowed", "[model][jinja]") {
    CHECK(render("{{ 'a'" + repeat(" ~ 'a'", 5'000) + " }}") == repeat("a", 5'001));
    CHECK(render("{% if 0 %}" + repeat("{% elif 0 %}", 5'000) + "{% else %}x{% endif %}") == "x");
}

TEST_CASE("a rendering is bounded in steps, output and memory", "[model][jinja]") {
    const std::string nine = "{% for a in range(99999) %}";
    CHECK(fails(nine + nine + "{% endfor %}{% endfor %}"));
    CHECK(fails("{{ 'a' * 1000000000 }}"));
    CHECK(fails("{{ [1] * 1000000000 }}"));
    CHECK(fails("{{ range(10**12)|list }}"));
    CHECK(
        fails("{% set ns = namespace(x='a') %}{% for i in range(99) %}"
              "{% set ns.x = ns.x + ns.x %}{% endfor %}"));
    CHECK(fails("{{ 2 ** 100 }}"));
    CHECK(fails("{{ 9223372036854775807 + 1 }}"));
    CHECK(fails("{{ -9223372036854775807 - 2 }}"));
    CHECK(fails("{{ 1 // 0 }}"));
    CHECK(fails("{{ 'x'|center(100000000)|length > 70000 or nothing.at.all }}"));
    jinja::RenderOptions options;
    options.limits.output_bytes = 10;
    CHECK(fails("{{ 'a' * 11 }}", options));
    options.limits.steps = 100;
    CHECK(fails("{% for i in range(200) %}{% endfor %}", options));
}

TEST_CASE("nothing outside of the context can be reached", "[model][jinja]") {
    for (const char* source :
         {"{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}",
          "{{ ''.__class__.__mro__ }}", "{{ ().__class__.__bases__[0] }}", "{{ [].append(1) }}",
          "{{ {}.update({'a': 1}) }}", "{{ cycler.__init__.__globals__.os }}"}) {
        CHECK(fails(source));
    }
}

TEST_CASE("the date is the one that the caller gives", "[model][jinja]") {
    jinja::RenderOptions options;
    options.now.tm_year = 125;
    options.now.tm_mon = 6;
    options.now.tm_mday = 10;
    CHECK(render("{{ strftime_now('%d %b %Y') }}", options) == "10 Jul 2025");
}

TEST_CASE("JSON keeps its order, its numbers and its strings", "[model][jinja]") {
    CHECK(
        render("{{ x|tojson }}", {}, R"({"x": {"b": [1, 1.5, true, null], "a": "\u00e9\n\""}})") ==
        "{\"b\": [1, 1.5, true, null], \"a\": \"\u00e9\\n\\\"\"}");
    CHECK(render("{{ x }}", {}, R"({"x": {"b": [1, 1.5, true, null], "a": "it's"}})") ==
          "{'b': [1, 1.5, True, None], 'a': \"it's\"}");
}

TEST_CASE("random templates neither crash nor hang", "[model][jinja]") {
    const std::vector<std::string> pieces = {
        "{{",        "}}",    "{%",        "%}",      "{#",       "#}",
        "-",         "+",     " ",         "\n",      "if ",      "else",
        "endif",     "for ",  " in ",      "endfor",  "set ",     "endset",
        "x",         "y",     "=",         "==",      "(",        ")",
        "[",         "]",     "{",         "}",       ":",        ",",
        ".",         "|",     "~",         "'",       "\"",       "a",
        "1",         "0.5",   "\\",        "macro ",  "endmacro", "raw",
        "endraw",    "loop.", "index",     "items()", "trim",     "tojson",
        "is ",       "not ",  "defined",   "none",    "range(3)", "namespace(a=1)",
        "*",         "**",    "%",         "/",       "//",       "<",
        "\xC3\xA9",  "\xFF",  "recursive", "call ",   "endcall",  "filter ",
        "endfilter", "with ", "endwith",   "break",   "continue", "upper"};
    std::mt19937 random(7);
    jinja::RenderOptions options;
    options.limits.steps = 10'000;
    std::size_t rendered = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string source = round % 2 == 0 ? "{{ " : "{% ";
        for (std::size_t i = 1 + random() % 20; i > 0; --i)
            source += pieces[random() % pieces.size()];
        source += round % 2 == 0 ? " }}" : " %}";
        if (!render(source, options, R"({"x": ["a", {"b": 1}], "y": "text"})")
                 .starts_with("error")) {
            ++rendered;
        }
    }
    CHECK(rendered > 100);
}
