#include "model/tokenizer.hpp"

namespace troupe::model {

void Tokenizer::encode_with_control(std::string_view text, std::vector<TokenId>& out) const {
    std::size_t done = 0;
    while (const std::optional<ControlMatch> match = next_control(text, done)) {
        encode(text.substr(done, match->begin - done), out);
        out.push_back(match->id);
        done = match->end;
    }
    encode(text.substr(done), out);
}

}  // namespace troupe::model
