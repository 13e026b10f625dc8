#include "actors/response_log.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

// A frame's bound: a reader that was away for long gets several.
constexpr std::size_t kDeltaBytesMax = 32 << 10;
constexpr std::size_t kDeltaScoresMax = 256;

ResponseStatus status_of(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return ResponseStatus::completed;
        case FinishReason::length:
            return ResponseStatus::incomplete;
        case FinishReason::deadline:
            return ResponseStatus::incomplete;
        case FinishReason::cancelled:
            return ResponseStatus::cancelled;
        case FinishReason::shutdown:
            return ResponseStatus::failed;
        case FinishReason::error:
            return ResponseStatus::failed;
    }
    return ResponseStatus::failed;
}

ResponseChanged::Kind terminal_kind(ResponseStatus status) {
    switch (status) {
        case ResponseStatus::completed:
            return ResponseChanged::Kind::completed;
        case ResponseStatus::failed:
            return ResponseChanged::Kind::failed;
        default:
            return ResponseChanged::Kind::incomplete;
    }
}

// Where a delta that begins at `begin` ends: at a whole code point, since text holds no others.
std::size_t delta_end(const std::string& text, std::size_t begin) {
    std::size_t end = std::min(text.size(), begin + kDeltaBytesMax);
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
        --end;
    return end;
}

}  // namespace

ResponseLog::ResponseLog(Response initial, std::string event_id, bool generate,
                         Generation generation)
    : initial_(std::move(initial)),
      event_id_(std::move(event_id)),
      generate_(generate),
      generation_(std::move(generation)) {}

void ResponseLog::on(const Finished& finished, std::int64_t unix_seconds) {
    if (generation_.on(finished)) end(unix_seconds);
}

void ResponseLog::on(const Rejected& rejected, std::int64_t unix_seconds) {
    if (generation_.on(rejected)) end(unix_seconds);
}

void ResponseLog::abandon(std::int64_t unix_seconds) {
    if (generation_.abandon()) end(unix_seconds);
}

void ResponseLog::end(std::int64_t unix_seconds) {
    ended_at_ = unix_seconds;
    // A warmed prefix has drawn nothing, which the scheduler calls `length`.
    const bool warmed = !generate_ && generation_.reason() == FinishReason::length;
    end_status_ = warmed ? ResponseStatus::completed : status_of(generation_.reason());
    while (advance()) {
    }
}

void ResponseLog::release(bool kept) {
    held_ = false;
    kept_ = kept;
}

// ---- the whole ----------------------------------------------------------------------------------

Response ResponseLog::result() const {
    Response whole = initial_;
    whole.completed_at = ended_at_;
    whole.status = end_status_;
    whole.has_output = shows_item();
    if (whole.has_output) {
        whole.text = generation_.text();
        whole.scores = generation_.scores();
    }
    whole.finish_reason = generation_.reason();
    whole.cause = generation_.cause();
    whole.error = generation_.error();
    whole.usage = generation_.usage();
    whole.timings = generation_.timings();
    if (!kept_) {
        auto settings = std::make_shared<ResponseSettings>(*initial_.settings);
        settings->store = false;
        whole.settings = std::move(settings);
    }
    return whole;
}

Response ResponseLog::current() const {
    if (ended() && !held_) return result();
    Response whole = initial_;
    whole.has_output = shows_item();
    if (whole.has_output) {
        whole.text = generation_.text();
        whole.scores = generation_.scores();
    }
    return whole;
}

std::size_t ResponseLog::pending_bytes(std::uint64_t sequence) const {
    const std::size_t told = sequence == 0 ? 0 : records_[sequence - 1].text_end;
    return generation_.text().size() - told;
}

std::size_t ResponseLog::bytes() const {
    std::size_t bytes = sizeof *this + generation_.text().capacity() +
                        records_.capacity() * sizeof(Record) + news_.capacity() * sizeof(News);
    for (const TokenScore& score : generation_.scores())
        bytes += sizeof score + score.top.size() * sizeof score.top[0];
    return bytes;
}

// ---- making events ------------------------------------------------------------------------------

bool ResponseLog::has_news() const {
    return text_told_ < generation_.text().size() || scores_told_ < generation_.scores().size();
}

// An answer that ended well has its message, be it empty; one that was cut short before its first
// word has none.
bool ResponseLog::shows_item() const {
    if (!generate_) return false;
    if (has_news() || text_told_ > 0 || scores_told_ > 0) return true;
    return ended() && (generation_.reason() == FinishReason::stop ||
                       generation_.reason() == FinishReason::length);
}

bool ResponseLog::record(Kind kind, Stage next) {
    records_.push_back({.kind = kind,
                        .news = 0,
                        .text_end = static_cast<std::uint32_t>(text_told_),
                        .scores_end = static_cast<std::uint32_t>(scores_told_)});
    stage_ = next;
    return true;
}

bool ResponseLog::record_news(Kind kind, Stage next) {
    record(kind, next);
    if (!queue_position_ && !progress_) return true;
    news_.push_back(
        {std::exchange(queue_position_, std::nullopt), std::exchange(progress_, std::nullopt)});
    records_.back().news = static_cast<std::uint32_t>(news_.size());
    return true;
}

bool ResponseLog::advance() {
    switch (stage_) {
        case Stage::created:
            return record(Kind::created, Stage::waiting);
        case Stage::waiting:
            return advance_while_waiting();
        case Stage::running:
            return advance_while_running();
        case Stage::item_added:
        case Stage::part_added:
        case Stage::text_done:
        case Stage::part_done:
            return advance_text();
        case Stage::error:
        case Stage::terminal:
            return advance_at_end();
        case Stage::complete:
            return false;
    }
    return false;
}

bool ResponseLog::advance_while_waiting() {
    if (progress_ || generation_.started()) {
        queue_position_.reset();
        return record_news(Kind::in_progress, Stage::running);
    }
    return queue_position_ && record_news(Kind::queued, Stage::waiting);
}

bool ResponseLog::advance_while_running() {
    queue_position_.reset();
    if (shows_item()) return record(Kind::item_added, Stage::item_added);
    if (ended()) {
        stage_ = generation_.error() ? Stage::error : Stage::terminal;
        return advance_at_end();
    }
    return progress_ && record_news(Kind::in_progress, Stage::running);
}

bool ResponseLog::advance_text() {
    switch (stage_) {
        case Stage::item_added:
            return record(Kind::part_added, Stage::part_added);
        case Stage::part_added:
            if (has_news()) {
                take_delta();
                return record(Kind::delta, Stage::part_added);
            }
            return ended() && record(Kind::text_done, Stage::text_done);
        case Stage::text_done:
            return record(Kind::part_done, Stage::part_done);
        default:
            return record(Kind::item_done, generation_.error() ? Stage::error : Stage::terminal);
    }
}

void ResponseLog::take_delta() {
    text_told_ = delta_end(generation_.text(), text_told_);
    scores_told_ = std::min(generation_.scores().size(), scores_told_ + kDeltaScoresMax);
}

bool ResponseLog::advance_at_end() {
    if (stage_ == Stage::error) return record(Kind::error, Stage::terminal);
    return record(Kind::terminal, Stage::complete);
}

// ---- telling them -------------------------------------------------------------------------------

bool ResponseLog::event(std::uint64_t sequence, ServerEvent& out) {
    TROUPE_ASSERT(sequence <= records_.size(), "readers ask for one event after the other");
    if (sequence == records_.size() && !advance()) return false;
    if (held_ && records_[sequence].kind == Kind::terminal) return false;
    tell(sequence, out);
    return true;
}

ServerEvent ResponseLog::snapshot() const {
    const std::uint64_t last = records_.size() - (stage_ == Stage::complete ? 2 : 1);
    ResponseChanged body{.kind = ResponseChanged::Kind::in_progress,
                         .response = initial_,
                         .queue_position = {},
                         .progress = {}};
    const Record& told = records_[last];
    body.response.has_output = told.kind >= Kind::item_added && shows_item();
    if (body.response.has_output) {
        const auto& scores = generation_.scores();
        body.response.text = generation_.text().substr(0, told.text_end);
        body.response.scores = {scores.begin(), scores.begin() + told.scores_end};
    }
    return {.stream_id = {}, .sequence_number = last, .body = std::move(body)};
}

void ResponseLog::tell_change(const Record& record, ResponseChanged& body) const {
    if (record.kind == Kind::terminal) {
        body.kind = terminal_kind(end_status_);
        body.response = result();
        return;
    }
    body.response = initial_;
    if (record.kind == Kind::queued) {
        body.kind = ResponseChanged::Kind::queued;
        body.response.status = ResponseStatus::queued;
    } else if (record.kind == Kind::in_progress) {
        body.kind = ResponseChanged::Kind::in_progress;
    }
    if (record.news != 0) {
        body.queue_position = news_[record.news - 1].queue_position;
        body.progress = news_[record.news - 1].progress;
    }
}

void ResponseLog::tell_delta(const Record& before, const Record& record, TextDelta& body) const {
    const auto scores = generation_.scores().begin();
    body.item_id = initial_.item_id;
    body.delta.assign(generation_.text(), before.text_end, record.text_end - before.text_end);
    body.scores.assign(scores + before.scores_end, scores + record.scores_end);
}

void ResponseLog::tell(std::uint64_t sequence, ServerEvent& out) const {
    const Record& record = records_[sequence];
    const std::string& item = initial_.item_id;
    const std::string& text = generation_.text();
    const std::vector<TokenScore>& scores = generation_.scores();
    out.stream_id.reset();
    out.sequence_number = sequence;
    switch (record.kind) {
        case Kind::created:
        case Kind::queued:
        case Kind::in_progress:
        case Kind::terminal:
            tell_change(record, out.body.emplace<ResponseChanged>());
            break;
        case Kind::item_added:
            out.body = ItemAdded{item};
            break;
        case Kind::part_added:
            out.body = PartAdded{item};
            break;
        case Kind::delta:
            tell_delta(records_[sequence - 1], record, out.body.emplace<TextDelta>());
            break;
        case Kind::text_done:
            out.body = TextDone{item, text, scores};
            break;
        case Kind::part_done:
            out.body = PartDone{item, text, scores};
            break;
        case Kind::item_done:
            out.body = ItemDone{.item_id = item,
                                .text = text,
                                .scores = scores,
                                .completed = end_status_ == ResponseStatus::completed};
            break;
        case Kind::error:
            out.body = ErrorEvent{*generation_.error(), event_id_};
            break;
    }
}

}  // namespace troupe::actors
