/* The nvidia driver's state, for its files and their tests. */
#ifndef CEDE_GPU_NVIDIA_NVIDIA_H
#define CEDE_GPU_NVIDIA_NVIDIA_H

#include "gpu/nvidia/rm.h"
#include "gpu/nvidia/scan.h"
#include "gpu/nvidia/trace.h"
#include "gpu/ops.h"

struct nvml;

#define NV_TIMESLICE_MIN_US     1U
#define NV_TIMESLICE_MAX_US     1000000U /* the longest that was tried */
#define NV_TIMESLICE_DEFAULT_US 2048U    /* set by libcuda */
#define NV_TIMESLICE_BACK_US    1024U    /* after a checkpoint, when libcuda sets none */

#define OPENS_CTL 1U /* has the control device open */
#define OPENS_GPU 2U /* has a GPU open, which keeps it initialised */

struct nv_user { /* a process, when users of the driver are searched in /proc */
    pid_t pid;
    uint8_t open;  /* OPENS_... */
    uint8_t found; /* OPENS_... that the unfinished listing has found */
    bool seen;     /* fd_count is that of the last listing */
    int64_t next;  /* position at which an unfinished listing goes on; 0: there is none */
    uint64_t fd_count;
};

struct nv_driver {
    struct device_driver base;
    const struct rm_io *io;
    int ctl_fd;       /* -1: nothing is open that would keep the module from being unloaded */
    uint64_t used_ns; /* time of the last use */
    char release[32]; /* gpu_info.driver */
    struct nv_gpus gpus;
    struct nv_scanner scanner;
    struct nv_trace trace;
    struct nvml *nvml;
    bool uses_nvml, nvml_tried, nvml_told;
    bool divided;       /* gpus has the GPUs in MIG mode */
    bool numbered;      /* devices keep their indices from now on */
    uint64_t asked_ns;  /* when NVML was last asked for a scan; 0: never */
    bool refuses_mixed; /* RM has refused to suspend several clients by one control */
    struct nv_user *users;
    size_t nusers;
    unsigned rounds; /* number of rounds through all processes */
    pid_t next_pid;  /* first process of the next processes() */
};

/* Opens the driver, with these GPUs to begin with. `nvml`: it may use the library. */
int nv_driver_open(const struct rm_io *io, const struct nv_gpus *gpus, bool nvml,
                   struct device_driver **out, struct error *err);

/* ---- controls.c: device_ops.set_timeslice, set_preempt and set_running ---- */

/* Whether it is a server or control daemon of MPS, which have no work of their own. */
bool nv_is_mps_server(pid_t pid);
int nv_set_timeslice(struct device_driver *d, const struct device_group *g, uint64_t us,
                     struct error *err);
int nv_set_preempt(struct device_driver *d, const struct device_group *g, bool block_ends,
                   struct error *err);
int nv_set_running(struct device_driver *d, const struct device_group *const *g, size_t n, bool on,
                   struct error *err);

/* ---- nvml.c: the vendor's management library, which has names and memory of GPUs, and their
 * processes with their GPU time. The driver works without it. ---- */

/* Opens the library. -ENOENT: there is none; -EIO: it does not start (no driver, or another
 * version). */
int nvml_open(struct nvml **out);
void nvml_close(struct nvml *n);

/* Fills in names, memory and capabilities; adds GPUs that were not known. */
void nvml_gpus(struct nvml *n, struct nv_gpus *gpus);

/* Fills in which GPUs are in MIG mode. in_place: replaces these in gpus->v by their instances. */
void nvml_divide(struct nvml *n, struct nv_gpus *gpus, bool in_place);

/* Lists one entry for each process and GPU with a context or, with `mps`, for each client of an MPS
 * server; busy < 0. Processes that this pid namespace does not have are left out. gpu is
 * DEVICE_GPUS_MAX for an instance that is not one of our devices. -ENOTSUP: the library has no such
 * list. */
int nvml_processes(struct nvml *n, struct nv_gpus *gpus, bool mps, struct usage_list *out);

/* Fills in `busy` of those entries from the samples of the last seconds. -ENOTSUP: no GPU has any.
 */
int nvml_busy(struct nvml *n, struct nv_gpus *gpus, struct usage_list *list);

/* Gets a GPU's free memory, and updates its memory_bytes. */
int nvml_memory_free(struct nvml *n, struct nv_gpus *gpus, unsigned gpu, uint64_t *bytes);

/* ---- gpm.c ---- */

/* Whether counters() works for a whole GPU; false before NVML is open. */
bool nv_has_counters(struct nv_driver *d, unsigned gpu);
/* device_ops.counters. -ENOTSUP: not on this GPU; -EIO: NVML answered an error. */
int nv_counters(struct device_driver *d, unsigned gpu, struct gpu_counters *out, struct error *err);

/* ---- trace.c: device_ops.activity and switches ---- */

int nv_activity(struct device_driver *d, struct activity_list *out, struct error *err);
int nv_switches(struct device_driver *d, struct switch_list *out, struct error *err);

/* ---- checkpoint.c: device_ops.swap_*. Only for a separate process, because they load libcuda and
 * block for as long as a job's memory takes to move. ---- */

int nv_swap_shares(struct device_driver *d, struct proc_id proc, bool several, struct error *err);
int nv_swap_step(struct device_driver *d, struct proc_id proc, enum swap_step step,
                 unsigned lock_ms, struct error *err);
int nv_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                  struct error *err);

#endif
