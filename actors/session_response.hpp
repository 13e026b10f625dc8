// One response on its way to a client: decides which event of protocol.md §3 comes next. Events are
// not queued: each is made when it is asked for, from what is known by then, so that a slow reader
// gets one long delta in place of many short ones. Pure; owned by a Session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/generation.hpp"
#include "actors/session_events.hpp"

namespace troupe::actors {

class SessionResponse {
 public:
    // `initial` has id, item_id, created_at and settings. `event_id` is echoed if it fails.
    SessionResponse(Response initial, std::optional<std::string> stream_id, std::string event_id,
                    bool generate, Generation generation);

    void on(const Queued& queued) { queue_position_ = queued.position; }
    void on(const PromptProgress& progress) { progress_ = progress; }
    void on(const TokenRun& run, const Delivery& delivery) { generation_.on(run, delivery); }
    // The end, one of three; `unix_seconds` is now. Later ones are ignored.
    void on(const Finished& finished, std::int64_t unix_seconds);
    void on(const Rejected& rejected, std::int64_t unix_seconds);
    void abandon(std::int64_t unix_seconds);

    // The next event, or nothing until more is known. The last one is terminal.
    [[nodiscard]] std::optional<ServerEvent> next_event();

    [[nodiscard]] const std::string& id() const { return initial_.id; }
    [[nodiscard]] bool ended() const { return generation_.ended(); }   // outcome decided
    [[nodiscard]] bool told() const { return stage_ == Stage::told; }  // terminal event handed out
    [[nodiscard]] bool failed() const { return end_status_ == ResponseStatus::failed; }

    // After the end: the whole response, as the terminal event shows it.
    [[nodiscard]] Response result() const;

    // Bytes of text that wait to be asked for.
    [[nodiscard]] std::size_t pending_bytes() const {
        return generation_.text().size() - text_told_;
    }

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
        told,
    };

    void end(std::int64_t unix_seconds);
    [[nodiscard]] bool has_news() const;
    [[nodiscard]] bool shows_item() const;

    [[nodiscard]] std::optional<ServerEvent> next_while_waiting();
    [[nodiscard]] std::optional<ServerEvent> next_while_running();
    [[nodiscard]] std::optional<ServerEvent> next_of_text();
    [[nodiscard]] TextDelta next_delta();
    [[nodiscard]] std::optional<ServerEvent> next_at_end();
    [[nodiscard]] ServerEvent changed(ResponseChanged::Kind kind);
    template <class Body>
    [[nodiscard]] ServerEvent event(Body body);

    const Response initial_;  // as it is before the end
    const std::optional<std::string> stream_id_;
    const std::string event_id_;
    const bool generate_;
    Generation generation_;
    ResponseStatus end_status_ = ResponseStatus::in_progress;
    std::int64_t ended_at_ = 0;
    Stage stage_ = Stage::created;
    std::uint64_t next_sequence_ = 0;
    std::size_t text_told_ = 0;
    std::size_t scores_told_ = 0;
    std::optional<std::uint32_t> queue_position_;  // not yet told
    std::optional<PromptProgress> progress_;       // not yet told
};

}  // namespace troupe::actors
