/* What the parts of a GPU do, from NVML, which has to be open (nvml_open). Everything is optional.
 */
#ifndef CEDE_DEVICE_NVIDIA_GPM_H
#define CEDE_DEVICE_NVIDIA_GPM_H

#include "device/nvidia/scan.h"
#include "device/ops.h"

struct gpm;

/* NULL: the library has no such thing (before 525). */
struct gpm *gpm_open(void);
/* NULL: nothing. */
void gpm_close(struct gpm *g);

bool gpm_supported(struct gpm *g, unsigned gpu, const char *uuid);
/* See device_ops.counters. -ENOTSUP: not on this GPU; -EIO: NVML answered an error. */
int gpm_counters(struct gpm *g, unsigned gpu, const char *uuid, uint64_t now_ns,
                 struct gpu_counters *out);

#endif
