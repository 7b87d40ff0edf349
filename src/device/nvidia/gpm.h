/* What the parts of a GPU do, from NVML. Optional: not before Hopper, nor with drivers before 525.
 */
#ifndef CEDE_DEVICE_NVIDIA_GPM_H
#define CEDE_DEVICE_NVIDIA_GPM_H

#include "device/ops.h"

struct nv_driver;
struct gpm;

/* Of a whole GPU, once the driver has opened NVML. */
bool nv_has_counters(struct nv_driver *d, unsigned gpu);
/* device_ops.counters. -ENOTSUP: not on this GPU; -EIO: NVML answered an error. */
int nv_counters(struct device_driver *d, unsigned gpu, struct gpu_counters *out, struct error *err);
/* NULL: nothing. Before NVML is closed. */
void gpm_close(struct gpm *g);

#endif
