/* The vendor's management library: names and memory of GPUs, their processes, how much these use.
 * Opened at run time; types are declared here, so that no SDK is needed. Everything is optional:
 * the driver works without it. Changes nothing on any GPU. */
#ifndef CEDE_DEVICE_NVIDIA_NVML_H
#define CEDE_DEVICE_NVIDIA_NVML_H

#include "device/nvidia/scan.h"
#include "device/ops.h"

struct nvml;

/* -ENOENT: no library; -EIO: it does not start (no driver, versions that do not match). */
int nvml_open(struct nvml **out);
void nvml_close(struct nvml *n);

/* Fills in names, memory and capabilities; adds GPUs that were not known. */
int nvml_gpus(struct nvml *n, struct nv_gpus *gpus);

/* One entry for each process and GPU with a context; busy < 0. Pids as this pid namespace has them;
 * those that it cannot see are left out. */
int nvml_running(struct nvml *n, struct nv_gpus *gpus, struct usage_list *out);

/* Fills in `busy` of those entries from the samples of the last seconds. -ENOTSUP if no GPU has
 * any.
 */
int nvml_busy(struct nvml *n, struct nv_gpus *gpus, struct usage_list *list);

/* A GPU's free memory; brings its memory_bytes up to date too. */
int nvml_memory_free(struct nvml *n, struct nv_gpus *gpus, unsigned gpu, uint64_t *bytes);

#endif
