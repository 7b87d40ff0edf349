/* Swapping on NVIDIA GPUs, for nvidia.c: the swap functions of ops.h. Only for a process of
 * their own: they load libcuda, and stay in it for as long as a job's memory takes to move. */
#ifndef CEDE_DEVICE_NVIDIA_CHECKPOINT_H
#define CEDE_DEVICE_NVIDIA_CHECKPOINT_H

#include "device/ops.h"

int nv_swap_out(struct device_driver *d, struct proc_id proc, unsigned lock_ms, struct error *err);
int nv_swap_in(struct device_driver *d, struct proc_id proc, struct error *err);
int nv_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                  struct error *err);

#endif
