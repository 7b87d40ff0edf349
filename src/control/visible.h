/* The GPUs that ceded may choose for a program, and their names in the program's
 * CUDA_VISIBLE_DEVICES. */
#ifndef CEDE_CONTROL_VISIBLE_H
#define CEDE_CONTROL_VISIBLE_H

#include "device/ops.h"

struct visible {
    unsigned n;
    struct visible_gpu {
        unsigned gpu; /* index */
        char name[48];
    } v[DEVICE_GPUS_MAX];
};

/* list: what the variable is now, whose order and names stay; NULL: it is not set, and all GPUs
 * that can be chosen are there by their UUIDs. An entry is a number, counted over these GPUs, or
 * the beginning of a UUID. -EINVAL: what it lists is not known, is an instance (MIG) or is there
 * twice; -ENOTSUP: no GPU here can be chosen; -E2BIG: there are fewer than are wanted. */
int visible_read(struct device_driver *d, const char *list, unsigned wanted, struct visible *out,
                 struct error *err);
/* As a bit map of indices. */
uint32_t visible_mask(const struct visible *v);
/* What the variable shall be for these of them. */
void visible_write(const struct visible *v, uint32_t gpus, char *buf, size_t size);

#endif
