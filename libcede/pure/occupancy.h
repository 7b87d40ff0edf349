/* How many blocks of a kernel an SM runs at a time, and what share of a GPU some blocks take. The
 * rules are those of NVIDIA's occupancy calculator, for compute capability 5.0 and later. Pure: the
 * caller asks the driver for the limits. */
#ifndef CEDE_LIBCEDE_PURE_OCCUPANCY_H
#define CEDE_LIBCEDE_PURE_OCCUPANCY_H

#include <stdint.h>

#include "cede/lease.h"

/* Of an SM; 0: not known, and no limit. */
struct sm_limits {
    uint32_t threads, blocks;
    uint32_t registers, block_registers; /* of 32 bits; the latter: of one block */
    uint32_t shared_bytes;
    uint32_t reserved_bytes; /* shared memory that the driver takes for each block */
    uint32_t major;          /* compute capability */
};

/* 0: not even one. shared_bytes: static and dynamic. *limit: why there are no more. */
uint32_t cede_occupancy_blocks(const struct sm_limits *sm, uint32_t threads, uint32_t registers,
                               uint32_t shared_bytes, enum cede_limit *limit);

/* Share in millionths of the warps, the registers or the shared memory of `sms` SMs, whichever is
 * largest: what is scarcest keeps other kernels out, however many warps are free. */
uint32_t cede_occupancy_share(const struct sm_limits *sm, uint32_t sms, uint64_t blocks,
                              uint32_t threads, uint32_t registers, uint32_t shared_bytes);

#endif
