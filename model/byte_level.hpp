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

inline constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

// "<0x0A>", as SentencePiece spells a byte.
[[nodiscard]] std::string byte_piece(unsigned byte);

// Up to the next blank (U+2581) that follows something else: in most vocabularies no piece reaches
// past it.
[[nodiscard]] std::size_t marked_word_length(std::string_view text);

// Appends the bytes of a piece of SentencePiece: U+2581 is a blank, <0xNN> of type byte that byte.
void append_marked_bytes(std::string& out, std::string_view piece, bool is_byte);

}  // namespace troupe::model
