// What every session knows about the model that this process serves, and the limits at its edges.
// Built once before the threads start, const from then on, shared by reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/session_events.hpp"
#include "model/chat_template.hpp"
#include "model/decoding_params.hpp"
#include "model/tokenizer.hpp"

namespace troupe::gateway {

// The edges of protocol.md §8 that a message's reader enforces.
struct WireLimits {
    std::size_t message_bytes_max = 1 << 20;        // one WebSocket message
    std::size_t unauthenticated_bytes_max = 16384;  // the same, before authentication
    std::size_t body_bytes_max = 8 << 20;           // one HTTP body
    std::size_t depth_max = 64;                     // nesting, also of ignored fields
    std::uint32_t answers_max = 128;                // n
    std::uint32_t prompts_max = 64;                 // prompts of one completions call
    std::uint32_t calls_max = 128;                  // n times prompts
    std::size_t offload_bytes = 16384;              // longer prompts leave the io thread
    std::int64_t heartbeat_ms = 20000;              // told to troupe.v1 clients
};

struct ServedModel {
    const model::Tokenizer& tokenizer;
    const model::ChatTemplate& chat_template;
    std::string id = {};                    // the file's stem, or --alias
    std::vector<std::string> aliases = {};  // other names that mean this model
    std::uint32_t context_length = 0;       // tokens, prompt and answer together
    std::string system_fingerprint = {};
    std::int64_t created_at = 0;          // Unix seconds
    std::string facts_json = "{}";        // an object of file facts, shown by /v1/models
    model::DecodingParams defaults = {};  // what an absent or null parameter means
    actors::SessionLimits session_limits = {};
    WireLimits limits = {};

    // True for the id, an alias, "default" and the empty name.
    [[nodiscard]] bool answers_to(std::string_view name) const {
        if (name.empty() || name == "default" || name == id) return true;
        for (const std::string& alias : aliases) {
            if (name == alias) return true;
        }
        return false;
    }
};

}  // namespace troupe::gateway
