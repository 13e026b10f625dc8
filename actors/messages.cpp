#include "actors/messages.hpp"

namespace troupe::actors {

std::string_view to_string(FinishReason reason) {
    switch (reason) {
        case FinishReason::stop:
            return "stop";
        case FinishReason::length:
            return "length";
        case FinishReason::cancelled:
            return "cancelled";
        case FinishReason::deadline:
            return "deadline";
        case FinishReason::shutdown:
            return "shutdown";
        case FinishReason::error:
            return "error";
    }
    return "error";
}

}  // namespace troupe::actors
