#include "cpu/slot_history.hpp"

#include "runtime/base/assert.hpp"

namespace troupe::cpu {

void SlotHistory::open(const model::SlotOpen& open) {
    open_ = &open;
    fed_.clear();
    counts_.clear();
    for (std::size_t i = 0; i < open_->history.size(); ++i) {
        if (i < open_->prompt_length) {
            counts_.add_prompt(open_->history[i]);
        } else {
            counts_.add_answer(open_->history[i]);
        }
    }
}

void SlotHistory::feed(std::uint32_t position, model::TokenId token) {
    if (!open_->params.penalised()) return;
    const std::uint32_t known = open_->prompt_length + open_->answer_count;
    if (position < known) return;
    const std::uint32_t index = position - known;
    TROUPE_ASSERT(index <= fed_.size(), "a token of the answer was left out");
    while (index < fed_.size()) {  // the tokens from here on were a draft that was not accepted
        counts_.remove_answer(fed_.back());
        fed_.pop_back();
    }
    fed_.push_back(token);
    counts_.add_answer(token);
}

}  // namespace troupe::cpu
