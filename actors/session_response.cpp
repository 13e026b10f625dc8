#include "actors/session_response.hpp"

#include <algorithm>
#include <utility>

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

SessionResponse::SessionResponse(Response initial, std::optional<std::string> stream_id,
                                 std::string event_id, bool generate, Generation generation)
    : initial_(std::move(initial)),
      stream_id_(std::move(stream_id)),
      event_id_(std::move(event_id)),
      generate_(generate),
      generation_(std::move(generation)) {}

void SessionResponse::on(const Finished& finished, std::int64_t unix_seconds) {
    if (generation_.on(finished)) end(unix_seconds);
}

void SessionResponse::on(const Rejected& rejected, std::int64_t unix_seconds) {
    if (generation_.on(rejected)) end(unix_seconds);
}

void SessionResponse::abandon(std::int64_t unix_seconds) {
    if (generation_.abandon()) end(unix_seconds);
}

void SessionResponse::end(std::int64_t unix_seconds) {
    ended_at_ = unix_seconds;
    // A warmed prefix has drawn nothing, which the scheduler calls `length`.
    const bool warmed = !generate_ && generation_.reason() == FinishReason::length;
    end_status_ = warmed ? ResponseStatus::completed : status_of(generation_.reason());
}

Response SessionResponse::result() const {
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
    return whole;
}

bool SessionResponse::has_news() const {
    return text_told_ < generation_.text().size() || scores_told_ < generation_.scores().size();
}

// An answer that ended well has its message, be it empty; one that was cut short before its first
// word has none.
bool SessionResponse::shows_item() const {
    if (!generate_) return false;
    if (has_news() || text_told_ > 0 || scores_told_ > 0) return true;
    return ended() && (generation_.reason() == FinishReason::stop ||
                       generation_.reason() == FinishReason::length);
}

template <class Body>
ServerEvent SessionResponse::event(Body body) {
    return {.stream_id = stream_id_, .sequence_number = next_sequence_++, .body = std::move(body)};
}

ServerEvent SessionResponse::changed(ResponseChanged::Kind kind) {
    ResponseChanged body{.kind = kind, .response = initial_, .queue_position = {}, .progress = {}};
    if (kind == ResponseChanged::Kind::queued) body.response.status = ResponseStatus::queued;
    return event(std::move(body));
}

std::optional<ServerEvent> SessionResponse::next_event() {
    switch (stage_) {
        case Stage::created:
            stage_ = Stage::waiting;
            return changed(ResponseChanged::Kind::created);
        case Stage::waiting:
            return next_while_waiting();
        case Stage::running:
            return next_while_running();
        case Stage::item_added:
        case Stage::part_added:
        case Stage::text_done:
        case Stage::part_done:
            return next_of_text();
        case Stage::error:
        case Stage::terminal:
            return next_at_end();
        case Stage::told:
            return std::nullopt;
    }
    return std::nullopt;
}

std::optional<ServerEvent> SessionResponse::next_while_waiting() {
    if (progress_ || generation_.started()) {
        queue_position_.reset();
        stage_ = Stage::running;
        ServerEvent out = changed(ResponseChanged::Kind::in_progress);
        std::get<ResponseChanged>(out.body).progress = std::exchange(progress_, std::nullopt);
        return out;
    }
    if (!queue_position_) return std::nullopt;
    ServerEvent out = changed(ResponseChanged::Kind::queued);
    std::get<ResponseChanged>(out.body).queue_position =
        std::exchange(queue_position_, std::nullopt);
    return out;
}

std::optional<ServerEvent> SessionResponse::next_while_running() {
    if (shows_item()) {
        stage_ = Stage::item_added;
        return event(ItemAdded{initial_.item_id});
    }
    if (ended()) {
        stage_ = generation_.error() ? Stage::error : Stage::terminal;
        return next_at_end();
    }
    if (!progress_) return std::nullopt;
    ServerEvent out = changed(ResponseChanged::Kind::in_progress);
    std::get<ResponseChanged>(out.body).progress = std::exchange(progress_, std::nullopt);
    return out;
}

std::optional<ServerEvent> SessionResponse::next_of_text() {
    const std::string& item = initial_.item_id;
    const std::string& text = generation_.text();
    const std::vector<TokenScore>& scores = generation_.scores();
    switch (stage_) {
        case Stage::item_added:
            stage_ = Stage::part_added;
            return event(PartAdded{item});
        case Stage::part_added: {
            if (has_news()) return event(next_delta());
            if (!ended()) return std::nullopt;
            stage_ = Stage::text_done;
            return event(TextDone{item, text, scores});
        }
        case Stage::text_done:
            stage_ = Stage::part_done;
            return event(PartDone{item, text, scores});
        default:
            stage_ = generation_.error() ? Stage::error : Stage::terminal;
            return event(ItemDone{.item_id = item,
                                  .text = text,
                                  .scores = scores,
                                  .completed = end_status_ == ResponseStatus::completed});
    }
}

TextDelta SessionResponse::next_delta() {
    const std::string& text = generation_.text();
    const std::vector<TokenScore>& scores = generation_.scores();
    const std::size_t text_end = delta_end(text, text_told_);
    const std::size_t scores_end = std::min(scores.size(), scores_told_ + kDeltaScoresMax);
    TextDelta delta{.item_id = initial_.item_id,
                    .delta = text.substr(text_told_, text_end - text_told_),
                    .scores = {scores.begin() + static_cast<std::ptrdiff_t>(scores_told_),
                               scores.begin() + static_cast<std::ptrdiff_t>(scores_end)}};
    text_told_ = text_end;
    scores_told_ = scores_end;
    return delta;
}

std::optional<ServerEvent> SessionResponse::next_at_end() {
    if (stage_ == Stage::error) {
        stage_ = Stage::terminal;
        return event(ErrorEvent{*generation_.error(), event_id_});
    }
    stage_ = Stage::told;
    return event(ResponseChanged{.kind = terminal_kind(end_status_),
                                 .response = result(),
                                 .queue_position = {},
                                 .progress = {}});
}

}  // namespace troupe::actors
