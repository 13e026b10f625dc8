// One response as its readers are told it: decides which event of protocol.md §3 comes next and
// remembers where each event ended, so that any reader can have any of them again. An event is made
// when the reader that is furthest asks for it, from what is known by then: a slow reader gets one
// long delta in place of many short ones. Pure; owned by a LiveResponse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/generation.hpp"
#include "actors/session_events.hpp"

namespace troupe::actors {

class ResponseLog {
 public:
    // `initial` has id, item_id, created_at and settings. `event_id` is echoed if it fails.
    ResponseLog(Response initial, std::string event_id, bool generate, Generation generation);

    void on(const Queued& queued) { queue_position_ = queued.position; }
    void on(const PromptProgress& progress) { progress_ = progress; }
    void on(const TokenRun& run, const Delivery& delivery) { generation_.on(run, delivery); }
    // The end, one of three; `unix_seconds` is now. Later ones are ignored. What is left to tell is
    // cut into events at once, so that their number is known.
    void on(const Finished& finished, std::int64_t unix_seconds);
    void on(const Rejected& rejected, std::int64_t unix_seconds);
    void abandon(std::int64_t unix_seconds);

    // After the end: the terminal event is held back until release(), which also says whether the
    // response is kept as its client wished.
    void hold() { held_ = true; }
    void release(bool kept);

    // Tells the event with this sequence number, made now if it is the next and there is something
    // to tell. False: not yet. Sequence numbers above events() are a bug of the caller.
    [[nodiscard]] bool event(std::uint64_t sequence, ServerEvent& out);
    [[nodiscard]] std::uint64_t events() const { return records_.size(); }

    // In place of all events so far but the terminal one: response.in_progress with the text so
    // far, under the number of the last of them. At least one event has been made.
    [[nodiscard]] ServerEvent snapshot() const;

    [[nodiscard]] const std::string& id() const { return initial_.id; }
    [[nodiscard]] bool ended() const { return generation_.ended(); }  // outcome decided
    [[nodiscard]] bool held() const { return held_; }
    [[nodiscard]] bool failed() const { return end_status_ == ResponseStatus::failed; }
    [[nodiscard]] ResponseStatus status() const { return end_status_; }

    // The whole response as it is now; after the end, unless it is held, as the terminal event
    // shows it.
    [[nodiscard]] Response current() const;
    [[nodiscard]] Response result() const;  // after the end, held or not

    // Bytes of text that a reader whose next event is `sequence` has not been told.
    [[nodiscard]] std::size_t pending_bytes(std::uint64_t sequence) const;
    // Memory, about.
    [[nodiscard]] std::size_t bytes() const;

 private:
    enum class Stage : std::uint8_t {
        created,
        waiting,
        running,
        item_added,
        part_added,
        text_done,
        part_done,
        error,
        terminal,
        complete,
    };
    enum class Kind : std::uint8_t {
        created,
        queued,
        in_progress,
        item_added,
        part_added,
        delta,
        text_done,
        part_done,
        item_done,
        error,
        terminal,
    };
    // An event that was made: enough to make it again.
    struct Record {
        Kind kind = Kind::created;
        std::uint32_t news = 0;        // of queued and in_progress: index into news_, from 1
        std::uint32_t text_end = 0;    // of what is told, this event included
        std::uint32_t scores_end = 0;  // the same
    };
    struct News {
        std::optional<std::uint32_t> queue_position;
        std::optional<PromptProgress> progress;
    };

    void end(std::int64_t unix_seconds);
    [[nodiscard]] bool has_news() const;
    [[nodiscard]] bool shows_item() const;

    // Makes the next record. False where there is nothing to tell now.
    [[nodiscard]] bool advance();
    [[nodiscard]] bool advance_while_waiting();
    [[nodiscard]] bool advance_while_running();
    [[nodiscard]] bool advance_text();
    [[nodiscard]] bool advance_at_end();
    bool record(Kind kind, Stage next);
    bool record_news(Kind kind, Stage next);
    void take_delta();

    void tell(std::uint64_t sequence, ServerEvent& out) const;
    void tell_change(const Record& record, ResponseChanged& body) const;
    void tell_delta(const Record& before, const Record& record, TextDelta& body) const;

    const Response initial_;  // as it is before the end
    const std::string event_id_;
    const bool generate_;
    Generation generation_;
    ResponseStatus end_status_ = ResponseStatus::in_progress;
    std::int64_t ended_at_ = 0;
    bool held_ = false;
    bool kept_ = true;
    Stage stage_ = Stage::created;
    std::vector<Record> records_;
    std::vector<News> news_;
    std::size_t text_told_ = 0;
    std::size_t scores_told_ = 0;
    std::optional<std::uint32_t> queue_position_;  // not yet told
    std::optional<PromptProgress> progress_;       // not yet told
};

}  // namespace troupe::actors
