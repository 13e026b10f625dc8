// One WebSocket client, transport aside: reads its messages, runs its Responses session, and hands
// out events as frames when the socket can take them. Lives on an io thread; its responses are its
// hub's. Nothing here blocks, and no frame is made before it is
// asked for: a slow reader gets fewer and larger deltas, never a longer queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "actors/hub.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

// Who is at the other end, as the transport has found out.
struct ClientContext {
    actors::Principal principal;
    bool authenticated = true;     // false: keys are configured and none was shown yet
    bool troupe_protocol = false;  // the subprotocol troupe.v1 was offered
    std::string connection_id;
};

// Why the transport should close the socket after the pending frames are out.
struct Close {
    std::uint16_t code = 1000;
    std::string reason;
    friend bool operator==(const Close&, const Close&) = default;
};

// The token of a first message `troupe:auth`, judged by the transport's keys: a principal, or none.
using Authenticate = std::function<std::optional<actors::Principal>(std::string_view token)>;

class ClientStream {
 public:
    // `output_ready` is called on the io thread when frames may have become available other than by
    // a call into this object; it must not call back into it, only wake the writer. The references
    // must outlive the stream. `authenticate` may be empty where the context is authenticated.
    ClientStream(actors::SessionHub& hub, const ServedModel& served, ClientContext context,
                 std::function<void()> output_ready, Authenticate authenticate = {});
    ~ClientStream();
    ClientStream(const ClientStream&) = delete;
    ClientStream& operator=(const ClientStream&) = delete;

    // One text message. What is wrong with it becomes an error event, not a closed socket; only a
    // flood of malformed messages (4400), a failed troupe:auth (4401) or one that is too big (1009)
    // is answered with a Close. Then pull frames.
    [[nodiscard]] std::optional<Close> on_message(std::string_view text);

    // The client is gone: it reads no more, and what nobody wished kept is cancelled. Idempotent;
    // the destructor calls it.
    void on_disconnect();

    // Appends the next frame's JSON to `frame` and returns true, or returns false where there is
    // none. Control frames overtake data; responses take turns; all text that is pending for a
    // response becomes one delta.
    [[nodiscard]] bool next_frame(std::string& frame);

    // No response is in flight, none is queued and no frame waits.
    [[nodiscard]] bool idle() const;

    // Bytes of text and control frames that wait for the reader, about: for the slow-viewer rule.
    [[nodiscard]] std::size_t pending_bytes() const;

    // The server is going down: new creates are refused, what runs goes on; close when idle().
    void drain();

 private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::gateway
