/* Estimates how much two kernels that run on one GPU at the same time slow each other down, and by
 * which resource.
 *
 * Both run for ever, each as a profiler sees it alone. They contend for the resources of each SM
 * (room for blocks, issue slots, pipes, L1) where they share SMs, and for those that all SMs share
 * (L2, DRAM). A single figure, such as arithmetic intensity or occupancy, misses most of these.
 *
 * Source: "Measuring GPU utilization one level deeper", sections 3 and 4 (requirements N11). Pure
 * arithmetic.
 */
#ifndef CEDE_PLAN_INTERFERENCE_H
#define CEDE_PLAN_INTERFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#define RESOURCES(X)                                                                               \
    X(NONE, "nothing")                                                                             \
    X(BLOCKS, "room for blocks")                                                                   \
    X(ISSUE, "issue slots")                                                                        \
    X(INTEGER, "integer pipe")                                                                     \
    X(FP32, "FP32 pipe")                                                                           \
    X(FP64, "FP64 pipe")                                                                           \
    X(FP16, "FP16 pipe")                                                                           \
    X(TENSOR, "tensor pipe")                                                                       \
    X(L1, "L1 cache")                                                                              \
    X(L2, "L2 cache")                                                                              \
    X(DRAM, "DRAM bandwidth")

enum resource {
#define X(name, text) RESOURCE_##name,
    RESOURCES(X)
#undef X
        RESOURCE_COUNT
};

/* Capacities, of one SM (sm_) or of the whole GPU. */
struct gpu_shape {
    uint32_t sms;
    uint32_t sm_threads, sm_blocks, sm_registers, sm_shared_bytes;
    uint32_t sm_l1_bytes;
    uint64_t l2_bytes; /* that one kernel can fill */
    double l2_by_dram; /* bandwidth of L2, in that of DRAM; 0: as GPU_L2_BY_DRAM */
};

#define GPU_L2_BY_DRAM 2.4 /* an H200's: 8289 GB/s by 3515 */

/* A kernel alone on the GPU. Values that are not known are 0. */
struct kernel_profile {
    uint32_t blocks, threads;         /* of the grid; of a block */
    uint32_t registers, shared_bytes; /* of a thread; of a block */
    uint32_t division;                /* bytes of an SM that are shared memory while it runs */
    uint32_t sms;                     /* that it may use; 0: all */
    double us;                        /* how long it takes with all of them */
    double share;                     /* of its program's time, where that has several kernels */
    double use[RESOURCE_COUNT];  /* shares of issue slots and pipes while an SM is in use, and of
                                  * DRAM's bandwidth; L2: its traffic by DRAM's bandwidth */
    double l1_hit, l2_hit;       /* of what it reads; of what L1 does not have */
    uint64_t l1_bytes, l2_bytes; /* that it goes through again and again: a block; the grid */
};

struct interference {
    double slowdown[2];     /* duration beside the other, relative to alone on all SMs */
    enum resource limit[2]; /* what costs each most */
    bool starves[2];        /* it gets next to nothing before the other's kernel has ended */
    double speedup;         /* of one of each, started together, over one after the other; 0: not
                             * known */
};

const char *resource_name(enum resource r);

/* Kernels that may use only some SMs use different ones, if there are enough for both. */
void interference_estimate(const struct gpu_shape *g, const struct kernel_profile pair[2],
                           struct interference *out);

/* The same for programs, of n kernels each, whose shares add up to 1 and which meet at random.
 * speedup is 0. */
struct program_kernels {
    const struct kernel_profile *v;
    uint32_t n;
    double busy; /* part of its time alone in which one of them runs; 0: all of it */
};
void interference_of_programs(const struct gpu_shape *g, const struct program_kernels pair[2],
                              uint32_t sms_of_first, struct interference *out);

/* The slowdown of programs with gaps: busy is the part of their time alone in which they have work,
 * both their slowdown while both have work; 2 and 2: they take turns. */
void interference_with_gaps(const double busy[2], const double both[2], double slowdown[2]);

/* Duration with only this number of SMs, relative to all of them. sms: 1 to g->sms. */
double interference_of_fewer_sms(const struct gpu_shape *g, const struct kernel_profile *k,
                                 uint32_t sms);

#endif
