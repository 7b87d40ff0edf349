/* What a cluster's scheduler promised a pod: a part of a GPU's time and memory, a class. An agent
 * puts it into facts "promise:KEY" about the pod's control group; rules read it (api/rules). Most
 * of it is written by the pod's creator, so it is no right by itself. Pure, no allocation. */
#ifndef CEDE_WHO_PROMISE_H
#define CEDE_WHO_PROMISE_H

#include <stdint.h>

#include "base/job_terms.h"
#include "base/pairs.h"

/* Memory of a GPU: bytes or, if part is above 0, that part of it, up to 1. Both 0: none. */
struct gpu_memory {
    uint64_t bytes;
    double part;
};

/* 0, or an empty text: nothing was promised. */
struct promise {
    char class[8];                /* "latency", "normal" or "batch" */
    uint32_t weight;              /* WEIGHT_MIN to WEIGHT_MAX */
    uint32_t gpu_min, gpu_max;    /* percent of each GPU's time */
    struct gpu_memory memory;     /* that it will need */
    struct gpu_memory memory_max; /* that it may have */
};

/* Whether it is the name of a fact of a promise. */
bool promise_is_fact(const char *name);
/* Appends the facts. -ENOSPC: some had no room. */
int promise_put(const struct promise *p, char *buf, size_t size, size_t *n);
/* Gets what the facts say; a value out of range is none. False: they promise nothing. */
bool promise_get(struct pairs facts, struct promise *out);

/* For people: "gpu-min 50, memory 25%"; "" if they promise nothing. Returns buf. */
const char *promise_text(struct pairs facts, char *buf, size_t size);

/* Bytes of a GPU that has so many; 0: none, or a part of a GPU whose size is not known (0). */
uint64_t gpu_memory_bytes(struct gpu_memory m, uint64_t gpu_bytes);

#endif
