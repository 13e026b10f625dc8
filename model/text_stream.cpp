#include "model/text_stream.hpp"

#include <algorithm>

#include "model/utf8.hpp"

namespace troupe::model {

StopMatcher::StopMatcher(std::string stop) : stop_(std::move(stop)), fallback_(stop_.size(), 0) {
    std::size_t prefix = 0;
    for (std::size_t i = 1; i < stop_.size(); ++i) {
        fallback_[i] = prefix;
        while (prefix > 0 && stop_[i] != stop_[prefix])
            prefix = fallback_[prefix];
        if (stop_[i] == stop_[prefix]) ++prefix;
    }
}

bool StopMatcher::advance(char byte) {
    while (matched_ > 0 && stop_[matched_] != byte)
        matched_ = fallback_[matched_];
    if (stop_[matched_] == byte) ++matched_;
    if (matched_ < stop_.size()) return false;
    matched_ = 0;  // the answer is over
    return true;
}

Result<TextStream> TextStream::make(const Tokenizer& tokenizer, Options options) {
    for (const std::string& stop : options.stops) {
        if (stop.empty()) return invalid_input("a stop string may not be empty");
    }
    return TextStream(tokenizer, std::move(options));
}

TextStream::TextStream(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer), include_stop_(options.include_stop) {
    for (std::string& stop : options.stops)
        matchers_.emplace_back(std::move(stop));
}

void TextStream::feed(std::span<const TokenId> ids, std::string& out) {
    for (const TokenId id : ids) {
        if (stop_) return;
        ++tokens_count_;
        take_bytes(tokenizer_->bytes_of(id), out);
    }
}

void TextStream::take_bytes(std::string_view bytes, std::string& out) {
    if (bytes.empty()) return;
    std::string joined;
    if (!partial_.empty()) {
        joined = partial_;
        joined += bytes;
        bytes = joined;
        partial_.clear();
    }
    while (!bytes.empty() && !stop_) {
        const Utf8Unit unit = next_utf8(bytes);
        if (unit.form == Utf8Form::incomplete) {
            partial_ = bytes;
            return;
        }
        const bool whole = unit.form == Utf8Form::complete;
        take_text(whole ? bytes.substr(0, unit.length) : replacement_character, out);
        bytes.remove_prefix(unit.length);
    }
}

void TextStream::take_text(std::string_view text, std::string& out) {
    if (matchers_.empty()) {
        out += text;
        return;
    }
    for (const char byte : text) {
        held_.push_back(byte);
        std::size_t may_become_stop = 0;
        std::size_t stop_length = 0;
        for (std::size_t i = 0; i < matchers_.size(); ++i) {
            if (matchers_[i].advance(byte) && matchers_[i].length() > stop_length) {
                stop_length = matchers_[i].length();
                stop_ = StopHit{i, tokens_count_};
            }
            may_become_stop = std::max(may_become_stop, matchers_[i].matched());
        }
        if (stop_) {
            if (!include_stop_) held_.resize(held_.size() - stop_length);
            out += held_;
            held_.clear();
            return;
        }
        const std::size_t free = held_.size() - may_become_stop;
        out.append(held_, 0, free);
        held_.erase(0, free);
    }
}

void TextStream::finish(std::string& out, PartialTail tail) {
    if (stop_) return;
    if (!partial_.empty() && tail == PartialTail::replace) {
        partial_.clear();
        take_text(replacement_character, out);
        if (stop_) return;
    }
    out += held_;
    held_.clear();
    partial_.clear();
}

}  // namespace troupe::model
