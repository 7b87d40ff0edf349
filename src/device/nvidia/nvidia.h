/* The nvidia driver's own state, for its files and its tests. */
#ifndef CEDE_DEVICE_NVIDIA_NVIDIA_H
#define CEDE_DEVICE_NVIDIA_NVIDIA_H

#include "device/nvidia/rm.h"
#include "device/nvidia/scan.h"
#include "device/nvidia/trace.h"
#include "device/ops.h"

struct gpm;
struct nvml;

#define NV_TIMESLICE_MIN_US     1U
#define NV_TIMESLICE_MAX_US     1000000U /* the longest that was tried */
#define NV_TIMESLICE_DEFAULT_US 2048U    /* what libcuda sets */
#define NV_TIMESLICE_BACK_US    1024U    /* after a checkpoint, when it sets none */

#define HOLDS_CTL 1U /* the control device */
#define HOLDS_GPU 2U /* a GPU, which is initialised then */

struct nv_holder { /* a process, where users of the driver are found through /proc */
    pid_t pid;
    uint8_t holds; /* HOLDS_... */
    uint8_t found; /* in the listing under way */
    bool seen;     /* fd_count is that of the last listing */
    int64_t next;  /* where that goes on; 0: none is */
    uint64_t fd_count;
};

struct nv_driver {
    struct device_driver base;
    const struct rm_io *io;
    int ctl_fd;       /* -1: let go, with all that keeps the driver from being unloaded */
    uint64_t used_ns; /* when it was used last */
    char release[32]; /* gpu_info.driver */
    struct nv_gpus gpus;
    struct nv_scanner scanner;
    struct nv_trace trace;
    struct nvml *nvml;
    bool uses_nvml, nvml_tried, nvml_told;
    bool divided; /* it is known which GPUs are in MIG mode */
    struct gpm *gpm;
    bool gpm_tried;
    bool numbered;      /* gpus() was answered: devices keep their indices */
    uint64_t asked_ns;  /* when NVML was last asked for what a scan needs of it; 0: never */
    bool refuses_mixed; /* RM has refused to suspend programs of several clients by one control */
    struct nv_holder *holders;
    size_t nholders;
    unsigned rounds; /* through all processes */
    pid_t next_pid;  /* where the next processes() goes on */
};

/* Opens the driver on this system, with these GPUs to begin with. `nvml`: may use the library. */
int nv_driver_open(const struct rm_io *io, const struct nv_gpus *gpus, bool nvml,
                   struct device_driver **out, struct error *err);

/* ---- controls.c: device_ops.set_timeslice, set_preempt and set_running ---- */

/* Server or control daemon of MPS, which run nothing of their own. */
bool nv_is_mps_server(pid_t pid);
int nv_set_timeslice(struct device_driver *d, const struct device_group *g, uint64_t us,
                     struct error *err);
int nv_set_preempt(struct device_driver *d, const struct device_group *g, bool block_ends,
                   struct error *err);
int nv_set_running(struct device_driver *d, const struct device_group *const *g, size_t n, bool on,
                   struct error *err);

/* ---- nvml.c: the vendor's management library, which knows names and memory of GPUs, their
 * processes, and how much these use. Everything is optional: the driver works without it. ---- */

/* -ENOENT: no library; -EIO: it does not start (no driver, versions that do not match). */
int nvml_open(struct nvml **out);
void nvml_close(struct nvml *n);

/* Fills in names, memory and capabilities; adds GPUs that were not known. */
int nvml_gpus(struct nvml *n, struct nv_gpus *gpus);

/* Fills in which GPUs are in MIG mode. in_place: puts their instances in their places. */
void nvml_divide(struct nvml *n, struct nv_gpus *gpus, bool in_place);

/* One entry for each process and GPU with a context; busy < 0. Pids as this pid namespace has them;
 * those that it cannot see are left out. gpu is DEVICE_GPUS_MAX for an instance that is not one of
 * our devices. */
int nvml_running(struct nvml *n, struct nv_gpus *gpus, struct usage_list *out);

/* Processes that compute through an MPS server, on any GPU. -ENOTSUP: the library does not list
 * them (before 470). */
int nvml_mps_clients(struct nvml *n, struct nv_gpus *gpus, struct pid_list *out);

/* Fills in `busy` of those entries from the samples of the last seconds. -ENOTSUP if no GPU has
 * any.
 */
int nvml_busy(struct nvml *n, struct nv_gpus *gpus, struct usage_list *list);

/* A GPU's free memory; brings its memory_bytes up to date too. */
int nvml_memory_free(struct nvml *n, struct nv_gpus *gpus, unsigned gpu, uint64_t *bytes);

/* ---- activity.c: device_ops.activity and switches ---- */

int nv_activity(struct device_driver *d, struct activity_list *out, struct error *err);
int nv_switches(struct device_driver *d, struct switch_list *out, struct error *err);

/* ---- checkpoint.c: device_ops.swap_*. Only for a process of their own: they load libcuda, and
 * stay in it for as long as a job's memory takes to move. ---- */

int nv_swap_shares(struct device_driver *d, struct proc_id proc, bool several, struct error *err);
int nv_swap_step(struct device_driver *d, struct proc_id proc, enum swap_step step,
                 unsigned lock_ms, struct error *err);
int nv_swap_state(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                  struct error *err);

#endif
