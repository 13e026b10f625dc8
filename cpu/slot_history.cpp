#include "cpu/slot_history.hpp"

#include "runtime/base/assert.hpp"

namespace troupe::cpu {

void SlotHistory::feed(std::uint32_t position, model::TokenId token) {
    if (!open_->params.penalised()) return;
    const std::uint32_t known = open_->prompt_length + open_->answer_count;
    if (position < known) return;
    const std::uint32_t index = position - known;
    TROUPE_ASSERT(index <= fed_.size(), "a token of the answer was left out");
    if (index < fed_.size()) {  // the tokens from here on were a draft that was not accepted
        fed_.resize(index);
        recount();
    }
    fed_.push_back(token);
    counts_.add_answer(token);
}

void SlotHistory::recount() {
    counts_.clear();
    for (std::size_t i = 0; i < open_->history.size(); ++i) {
        if (i < open_->prompt_length) {
            counts_.add_prompt(open_->history[i]);
        } else {
            counts_.add_answer(open_->history[i]);
        }
    }
    for (const model::TokenId token : fed_)
        counts_.add_answer(token);
}

}  // namespace troupe::cpu
