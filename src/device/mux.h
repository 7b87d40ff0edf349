/* Several drivers as one: see mux.c. For registry.c and tests; others use ops.h. */
#ifndef CEDE_DEVICE_MUX_H
#define CEDE_DEVICE_MUX_H

#include "device/ops.h"

#define MUX_PARTS_MAX 8

struct mux_part {
    const struct device_ops *ops;
    struct device_driver *driver; /* NULL: not open; tried again when it is needed */
    unsigned gpus;                /* its indices, kept also while it is not open */
    char where[108];              /* "": the default */
    /* Set by mux_new() and later. */
    unsigned first;        /* the part's GPU 0 here */
    struct pid_list users; /* that have groups here: a scan without its answer is not complete */
};

/* Takes over the parts' drivers, also when it fails: -E2BIG for more than DEVICE_GPUS_MAX GPUs. */
int mux_new(const struct mux_part *parts, unsigned n, struct device_driver **out,
            struct error *err);
/* NAME*GPUS[@WHERE],... -E2BIG: longer than size. */
int mux_where(const struct device_driver *d, char *buf, size_t size);

#endif
