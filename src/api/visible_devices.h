/* The GPUs that ceded may choose for a program, and their names in the program's
 * CUDA_VISIBLE_DEVICES. */
#ifndef CEDE_API_VISIBLE_DEVICES_H
#define CEDE_API_VISIBLE_DEVICES_H

#include "gpu/ops.h"

struct visible {
    unsigned n;
    struct visible_gpu {
        unsigned gpu; /* index */
        char name[48];
    } v[DEVICE_GPUS_MAX];
};

/* list: the variable's value, whose order and names are kept; NULL: it is not set, and *out has all
 * GPUs that can be chosen, by UUID. An entry is an index among these GPUs, or the beginning of a
 * UUID. -EINVAL: an entry is unknown, is an instance (MIG) or is listed twice; -ENOTSUP: no GPU
 * here can be chosen; -E2BIG: there are fewer than wanted. */
int visible_read(struct device_driver *d, const char *list, unsigned wanted, struct visible *out,
                 struct error *err);
/* As a bit map of indices. */
uint32_t visible_mask(const struct visible *v);
/* Writes the variable's value for a subset of the GPUs. */
void visible_write(const struct visible *v, uint32_t gpus, char *buf, size_t size);

#endif
