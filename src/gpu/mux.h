/* Several drivers as one: see mux.c. Only registry.c and tests include this file. */
#ifndef CEDE_GPU_MUX_H
#define CEDE_GPU_MUX_H

#include "gpu/ops.h"

#define MUX_PARTS_MAX 8

struct mux_part {
    const struct device_ops *ops;
    struct device_driver *driver; /* NULL: not open; opened when it is needed */
    unsigned gpus;                /* number of its GPUs, kept also while it is not open */
    char where[108];              /* "": the default */
    /* Set by mux_new() and later. */
    unsigned first;        /* index of the part's GPU 0 among all GPUs */
    struct pid_list users; /* processes with groups here, whose scans need this part's answer */
};

/* Owns the parts' drivers from now on, also when it fails: -E2BIG for more than DEVICE_GPUS_MAX
 * GPUs. */
int mux_new(const struct mux_part *parts, unsigned n, struct device_driver **out,
            struct error *err);
/* Writes NAME*GPUS[@WHERE],... for device_open(). -E2BIG: longer than size. */
int mux_where(const struct device_driver *d, char *buf, size_t size);

#endif
