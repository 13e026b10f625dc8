// NCCL for the emulated machine: the calls that gpu/ uses, under NCCL's own names. A rank brings
// its part of an exchange when its stream gets there, and gets the others' once all have come; an
// exchange that ranks do not agree about is a fault. Exchanges may be captured: each launch of such
// a graph is a part in them anew. A rank's exchanges come one after another here. Values and
// meanings: NCCL User Guide 2.28.
#pragma once

#include <cstddef>

#include <cuda_runtime.h>

struct ncclComm;
using ncclComm_t = ncclComm*;

enum ncclResult_t {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclInProgress = 7,
};
enum ncclDataType_t { ncclInt32 = 2, ncclFloat32 = 7 };

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
// What the rank still had before it on its stream is left out. Graphs with its exchanges must be
// gone here, too; they may be under way.
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);

// Several ranks of one thread: their calls of one exchange must stand in one group, all of them on
// streams that are captured, or none.
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
