// What a step changes in the device's own books before its forward pass: page tables, counts for
// penalties, copied pages; and which token each row really has. Every launcher throws BackendError.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/kv_pages.hpp"

namespace troupe::gpu {

// A slot's counts: one word a token of the vocabulary, this bit for "in the prompt", the others how
// often the answer has it.
inline constexpr std::uint32_t kInPrompt = 0x80000000U;

struct TableEntry {
    std::uint32_t slot, word, page;
};
struct CountEdit {
    std::uint32_t slot;
    std::int32_t token;
    std::int32_t added;  // to the answer's count; 0: the token is in the prompt
};
struct CopiedPage {
    std::uint32_t from, to;
};

// The pointers lead into the step's plan, but for the books themselves.
struct StepTables {
    const TableEntry* grants;             // [grant_count]
    const std::uint32_t* cleared_counts;  // [cleared_count] slots
    const CountEdit* count_edits;         // [edit_count]
    std::uint32_t grant_count, cleared_count, edit_count;

    const std::int32_t* given;       // [rows]: token, or -1 for what the slot drew last
    const RowPlace* places;          // [rows]
    const std::uint8_t* row_counts;  // [rows]: 1 where the token counts for the slot's penalties
    std::uint32_t rows;

    std::uint32_t* page_table;  // [slots][page_table_width]
    std::uint32_t page_table_width;
    std::uint32_t* counts;  // [slots][vocabulary]; null where nothing is drawn: none are kept
    std::uint32_t vocabulary;
    const std::int32_t* drawn;  // [slots]
    std::int32_t* tokens;       // [rows]
};
void apply_tables(const StepTables& p, cudaStream_t stream);

// Whole pages, in every layer, keys and values. Of positions that are not meant nobody reads any
// before they are written.
struct CopyPages {
    const CopiedPage* copies;  // [count]
    std::byte* pool;           // [2 * layers][layer_bytes], in pages of `page_bytes`
    std::size_t layer_bytes;
    std::uint32_t page_bytes;  // a multiple of 16
    std::uint32_t count, layers;
};
void copy_pages(const CopyPages& p, cudaStream_t stream);

}  // namespace troupe::gpu
