// GPT-2's spelling of bytes as printable characters, in which byte-level BPE vocabularies are
// written: "Ġ" for a space, "Ċ" for a newline.
// Source: bytes_to_unicode() of https://github.com/openai/gpt-2/blob/master/src/encoder.py
#pragma once

#include <string>
#include <string_view>

namespace troupe::model {

// Appends the character that stands for `byte`, as UTF-8.
void append_byte_spelling(std::string& out, unsigned char byte);

// Appends the bytes that `piece` spells. A piece with any character that spells no byte stands
// for itself, as in the reference decoder.
void append_spelled_bytes(std::string& out, std::string_view piece);

}  // namespace troupe::model
