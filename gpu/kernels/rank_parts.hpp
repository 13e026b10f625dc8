// What ranks of a divided model do with what they have gathered from each other. Every launcher
// throws BackendError; `..._truth` is the same in plain code, for pointers into host memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace troupe::gpu {

// x[i] += the sum of parts[rank][i], added in the order of ranks.
struct AddParts {
    const float* parts;  // [ranks][count]
    float* x;            // [count]
    std::size_t count;
    std::uint32_t ranks;
};
void add_parts_truth(const AddParts& p);
void add_parts(const AddParts& p, cudaStream_t stream);

// Rows that are cut into columns by rank become whole. A rank's part is [rows][its columns], which
// are `part_width`, or, of the last ranks, what is left; parts begin rows * part_width apart.
struct JoinColumns {
    const float* parts;  // [ranks][rows * part_width]
    float* out;          // [rows][width]
    std::uint32_t rows, part_width, width;
};
void join_columns_truth(const JoinColumns& p);
void join_columns(const JoinColumns& p, cudaStream_t stream);

}  // namespace troupe::gpu
