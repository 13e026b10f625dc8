// What the routes for whoever runs the server say.
#include <boost/json/parse.hpp>
#include <catch2/catch.hpp>

#include "gateway/operations.hpp"

namespace troupe::gateway {

TEST_CASE("While the model loads, /ready tells how much of it is there", "[gateway][operations]") {
    model::LoadProgress loading;
    const auto told = [&] { return boost::json::parse(loading_json(loading)).as_object(); };
    CHECK(told().at("status").as_string() == "loading");
    CHECK(told().at("reason").as_string() == "the model is loading");
    CHECK(told().at("loaded").to_number<double>() == 0);

    loading.expect(1000);
    loading.expect(3000);  // a draft model's
    loading.add(1699);
    CHECK(told().at("loaded").to_number<double>() == 0.42);
    loading.add(2300);
    CHECK(told().at("loaded").to_number<double>() == 0.99);  // 1 only when all is there
    loading.add(1);
    CHECK(told().at("loaded").to_number<double>() == 1);
    loading.add(1000);
    CHECK(told().at("loaded").to_number<double>() == 1);
}

}  // namespace troupe::gateway
