/* The nvidia driver's own state, for its files and its tests. */
#ifndef CEDE_DEVICE_NVIDIA_NVIDIA_H
#define CEDE_DEVICE_NVIDIA_NVIDIA_H

#include "device/nvidia/nvml.h"
#include "device/nvidia/rm.h"
#include "device/nvidia/scan.h"
#include "device/nvidia/trace.h"
#include "device/ops.h"

#define NV_TIMESLICE_MIN_US     1U
#define NV_TIMESLICE_MAX_US     1000000U /* the longest that was tried */
#define NV_TIMESLICE_DEFAULT_US 2048U    /* what libcuda sets */

struct nv_holder { /* a process, where users of the driver are found through /proc */
    pid_t pid;
    bool holds;
    bool seen;    /* fd_count is that of the last listing */
    bool found;   /* in the listing under way */
    int64_t next; /* where that goes on; 0: none is */
    uint64_t fd_count;
};

struct nv_driver {
    struct device_driver base;
    const struct rm_io *io;
    int ctl_fd;
    struct nv_gpus gpus;
    struct nv_scanner scanner;
    struct nv_trace trace;
    struct nvml *nvml;
    bool nvml_tried, nvml_told;
    struct nv_holder *holders;
    size_t nholders;
    unsigned rounds; /* through all processes */
    pid_t next_pid;  /* where the next processes() goes on */
};

/* Opens the driver on this system, with these GPUs to begin with. `nvml`: may use the library. */
int nv_driver_open(const struct rm_io *io, const struct nv_gpus *gpus, bool nvml,
                   struct device_driver **out, struct error *err);

#endif
