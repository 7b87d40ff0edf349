/* The record of the stand-in for libcuda.so.1, for the tests of leads. */
#ifndef CEDE_TESTS_LIBCEDE_FAKE_CUDA_FAKE_CUDA_H
#define CEDE_TESTS_LIBCEDE_FAKE_CUDA_FAKE_CUDA_H

#include <stdint.h>

struct fake_launch {
    char kernel[16];
    void *context, *stream;
    volatile uint32_t *words; /* of a lead: as its other parameters */
    uint32_t number;
    uint64_t limit_ns, keep_ns, at_ns;
};

struct fake_cuda {
    void *current;   /* of every thread, as far as these tests go */
    int busy;        /* nothing that is launched ends */
    int fail_launch; /* the n-th from now; 0: none */
    int streams, modules, pinned, pushed;
    unsigned n; /* launches */
    struct fake_launch launch[256];
};

struct fake_cuda *fake_cuda(void);

#endif
