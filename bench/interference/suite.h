/* The interference suite: pairs of kernels that each use one part of a GPU, and what runs them. */
#ifndef CEDE_BENCH_INTERFERENCE_SUITE_H
#define CEDE_BENCH_INTERFERENCE_SUITE_H

#include <stdbool.h>
#include <stdint.h>

#define SUITE_LONGER 6 /* times as long as a kernel is what it runs beside */
#define SM_NUMBERS   1024U

/* What of a GPU a kernel uses, by the names of model.py. */
#define USES(X)                                                                                    \
    X(ISSUE, "issue slots")                                                                        \
    X(FP32, "FP32 pipe")                                                                           \
    X(FP64, "FP64 pipe")                                                                           \
    X(L2, "L2 cache")                                                                              \
    X(DRAM, "DRAM bandwidth")

enum use {
#define X(name, text) USE_##name,
    USES(X)
#undef X
        USE_COUNT
};

/* Capacities, of one SM (sm_) or of the whole GPU. */
struct gpu_shape {
    uint32_t sms;
    uint32_t sm_threads, sm_blocks, sm_registers, sm_shared_bytes;
    uint32_t sm_l1_bytes;
    uint64_t l2_bytes;
};

/* A kernel alone on the GPU. Values that are not known are 0. */
struct kernel_profile {
    uint32_t blocks, threads;         /* of the grid; of a block */
    uint32_t registers, shared_bytes; /* of a thread; of a block */
    uint32_t division;                /* bytes of an SM that are shared memory while it runs */
    uint32_t sms;                     /* that it may use; 0: all */
    double us;                        /* how long it takes with all of them */
    double use[USE_COUNT];       /* shares of issue slots and pipes while an SM is in use, and of
                                  * DRAM's bandwidth; L2: its traffic by DRAM's bandwidth */
    double l1_hit, l2_hit;       /* of what it reads; of what L1 does not have */
    uint64_t l1_bytes, l2_bytes; /* that it goes through again and again: a block; the grid */
};

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

#define LAPS_MAX 4096U

/* One kernel, launched again and again for some time. */
struct laps {
    struct kernel_profile k;     /* of the first laps */
    uint32_t n;                  /* LAPS_MAX at most */
    uint64_t start_ns[LAPS_MAX]; /* by the GPU's clock, which all processes share */
    uint64_t end_ns[LAPS_MAX];
    uint32_t sm_blocks[SM_NUMBERS]; /* of the last launch: how many blocks an SM had, */
    double sm_busy_ms[SM_NUMBERS];  /* and from its first block's start to its last one's end */
};

/* Where the suite runs. A failure ends the program. */
struct stage {
    char name[96];
    struct gpu_shape shape;
    uint32_t part_sms;         /* that each of two kernels can be given of its own; 0: none */
    double dram_gbps, l2_gbps; /* that a copy has: read and written */
    void (*meet)(const struct stage *s, const struct contender pair[2], bool apart,
                 struct met *out);
    /* fixed_steps: of a launch; 0: as many as take 4 ms. NULL: there is none. */
    void (*run_laps)(const struct stage *s, const struct contender *c, uint64_t *fixed_steps,
                     double seconds, struct laps *out);
};

void stage_gpu(struct stage *s);  /* the first NVIDIA GPU */
void stage_chip(struct stage *s); /* a timing model: chip.c */

#endif
