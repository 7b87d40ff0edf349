/* Several GPUs (engines) whose kernels wait for each other, as those of NCCL do. A kernel of a
 * collective occupies its GPU, spinning, and gets nearer to its end only while all its peers run on
 * theirs: ranks that are never on at the same time never end. Pure, like the engine.
 *
 * The engines stay their owner's. Between two calls of fabric_advance() they may be given work and
 * controls at the fabric's time, and must not be advanced otherwise. */
#ifndef CEDE_DEVICE_SOFT_FABRIC_H
#define CEDE_DEVICE_SOFT_FABRIC_H

#include "device/soft/engine.h"

#define FABRIC_ENGINES 16U

struct fabric {
    struct softgpu *engines[FABRIC_ENGINES];
    uint32_t n;
};

/* When something changes next by itself: SOFTGPU_NEVER if nothing will. */
uint64_t fabric_next_event_ns(struct fabric *f);
/* Works through everything up to and including to_ns, on all engines in step. */
void fabric_advance(struct fabric *f, uint64_t to_ns);

#endif
