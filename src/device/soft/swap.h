/* Swapping on the software GPU, for driver.c: the swap functions of ops.h. */
#ifndef CEDE_DEVICE_SOFT_SWAP_H
#define CEDE_DEVICE_SOFT_SWAP_H

#include "device/ops.h"

int soft_swap_out(struct device_driver *d, struct proc_id proc, unsigned lock_ms,
                  struct error *err);
int soft_swap_in(struct device_driver *d, struct proc_id proc, struct error *err);
int soft_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                    struct error *err);

#endif
