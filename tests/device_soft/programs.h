/* Latency and batch programs in virtual time, on the software GPU's engine: the workloads of the
 * measurements that the engine is compared with. Test code: aborts on failure of the engine. */
#ifndef TESTS_DEVICE_SOFT_PROGRAMS_H
#define TESTS_DEVICE_SOFT_PROGRAMS_H

#include "softgpu/engine.h"

/* Closed loop: request i is submitted at i * period_ns or when request i-1 is complete, whichever
 * is later. Its latency counts from there. */
struct latency_program {
    uint64_t period_ns;
    uint64_t kernel_ns;
    uint64_t lead_min_ns, lead_max_ns; /* a tiny kernel on the same stream so long ahead; 0: none */
};

struct batch_program { /* back-to-back kernels, two in the queue */
    uint64_t kernel_ns;
    float sm_fraction;
    uint32_t timeslice_us; /* 0: default */
    bool suspended;
};

struct scenario {
    struct latency_program latency; /* period_ns == 0: none */
    struct batch_program batch[2];  /* kernel_ns == 0: none */
    uint64_t duration_ns;
};

struct outcome {
    double p50_us, p99_us; /* latency */
    double share[2];       /* of the time, what each batch program's kernels ran */
};

void scenario_run(const struct softgpu_params *p, const struct scenario *s, struct outcome *out);

#endif
