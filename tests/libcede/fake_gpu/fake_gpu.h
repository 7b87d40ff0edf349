/* What tests see and set of the stand-ins for libcuda and libnvidia-ml: two GPUs of 4 SMs with 1024
 * threads each and 1000 bytes of memory; they run nothing. */
#ifndef CEDE_TESTS_LIBCEDE_FAKE_GPU_FAKE_GPU_H
#define CEDE_TESTS_LIBCEDE_FAKE_GPU_FAKE_GPU_H

#include <stdatomic.h>

struct fake_cuda {
    atomic_int streams, streams_made, contexts, occupancy_asked, last_priority, fail_streams;
    atomic_int bad; /* calls that a real driver would refuse or die of */
};

struct fake_nvml {
    atomic_int percent[2], asked;
};

#endif
