#include "runtime/base/log.hpp"

#include <spdlog/sinks/stdout_color_sinks.h>

namespace troupe::log {

void set_up(Level level) {
    auto logger = spdlog::get("troupe");
    if (!logger) {
        logger = spdlog::stderr_color_mt("troupe");
        spdlog::set_default_logger(logger);
    }
    spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
    switch (level) {
        case Level::debug:
            spdlog::set_level(spdlog::level::debug);
            break;
        case Level::info:
            spdlog::set_level(spdlog::level::info);
            break;
        case Level::warn:
            spdlog::set_level(spdlog::level::warn);
            break;
        case Level::error:
            spdlog::set_level(spdlog::level::err);
            break;
        case Level::off:
            spdlog::set_level(spdlog::level::off);
            break;
    }
}

std::string escaped(std::string_view text, std::size_t bytes_max) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (out.size() >= bytes_max) return out + "...";
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20 || byte > 0x7e || byte == '"' || byte == '\\') {
            out += "\\x";
            out += digits[byte >> 4];
            out += digits[byte & 15];
        } else {
            out += text[i];
        }
    }
    return out;
}

}  // namespace troupe::log
