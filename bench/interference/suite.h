/* The interference suite: pairs of kernels that each use one part of a GPU, and what runs them. */
#ifndef CEDE_BENCH_INTERFERENCE_SUITE_H
#define CEDE_BENCH_INTERFERENCE_SUITE_H

#include <stdbool.h>

#include "plan/interference.h"

#define SUITE_LONGER 6 /* times as long as a kernel is what it runs beside */

struct contender {
    const char *kernel; /* of `kinds` in gpu.c, of `codes` in chip.c */
    uint32_t blocks, threads;
    uint64_t bytes;      /* copy: of all blocks' arrays, both together */
    bool driver_divides; /* SMs into shared memory and L1 as the driver would, not all alike */
};

/* One pair, as measured. */
struct met {
    struct kernel_profile k[2]; /* alone */
    double slowdown[2];         /* beside a run of the other that is SUITE_LONGER times as long */
    double covered[2];          /* part of that run in which the other ran, too */
    double speedup;             /* both at once, over one after the other */
};

/* Where the suite runs. A failure ends the program. */
struct stage {
    char name[96];
    struct gpu_shape shape;
    uint32_t part_sms;         /* that each of two kernels can be given of its own; 0: none */
    double dram_gbps, l2_gbps; /* that a copy has: read and written */
    /* NULL: nothing runs. */
    void (*meet)(const struct stage *s, const struct contender pair[2], bool apart,
                 struct met *out);
};

void stage_gpu(struct stage *s);  /* the first NVIDIA GPU */
void stage_chip(struct stage *s); /* a timing model: chip.c */

#endif
