/* The driver interface: the controls that a kind of GPU offers over running programs.
 *
 * A *driver* covers all GPUs of one kind on this machine. It finds the channel groups of a process,
 * sets their timeslices and suspends or resumes them. A driver never decides anything, guarantees
 * nothing beyond the call, and works only on the groups it is given. Rooms above see devices only
 * through this file.
 *
 * All functions return 0 or -errno and fill `err` (which may be NULL) on failure. Common errors:
 *   -ESRCH   the process is gone (or its pid was reused); nothing was changed
 *   -ENOENT  the group is gone, the process is not: scan it again
 *   -EPERM   no right to steer this process, and nothing was changed, so that the caller has
 *            nothing to undo. err says which right is missing. See device_refused().
 *   -ENODEV  the driver's devices are gone, or there are none
 *   -EIO     the device's control answered an error; err carries the control and its status
 *   -ENOTSUP this driver cannot do it (see gpu_info.caps)
 *
 * Not thread-safe: one thread per driver instance. Calls block for as long as the control takes
 * (0.15-0.6 ms on an H200), never for long.
 */
#ifndef CEDE_GPU_OPS_H
#define CEDE_GPU_OPS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/gpu_parts.h"
#include "base/util.h"
#include "who/procfs.h"

enum gpu_caps {
    GPU_CAP_TIMESLICE = 1 << 0,
    GPU_CAP_SUSPEND = 1 << 1,
    GPU_CAP_USAGE = 1 << 2,    /* usage() reports GPU time per process */
    GPU_CAP_ACTIVITY = 1 << 3, /* activity() reports when processes got the compute engine */
    GPU_CAP_SWAP = 1 << 4,     /* swap_step() may work; it depends on each process's context */
    /* Programs delay their own submissions: a suspended program finishes its queued work, a
     * timeslice limits the work that may be queued, and demand() reports at once which programs
     * want the device. */
    GPU_CAP_GATE = 1 << 5,
    GPU_CAP_POOL = 1 << 6,     /* MPS works: no MIG, default compute mode */
    GPU_CAP_PREEMPT = 1 << 7,  /* set_preempt() */
    GPU_CAP_COUNTERS = 1 << 9, /* counters() reports the load of the GPU's parts */
    GPU_CAP_PLACE = 1 << 10,   /* CUDA_VISIBLE_DEVICES with its uuid confines programs to it */
};

#define DEVICE_GPUS_MAX 16 /* GPUs of one driver, or of several together */

struct gpu_info {
    char name[64];
    char uuid[48];
    char bus_id[20]; /* "0000:1b:00.0", or "" */
    /* With several drivers "nvidia0", "gate1"; for an instance of a divided GPU index and profile,
     * "1:3g.71gb"; else "". */
    char label[16];
    char driver[32]; /* release of the driver, "580.159.04", or "unknown"; "": needs no check */
    uint32_t caps;   /* enum gpu_caps */
    uint32_t sms;    /* multiprocessors of an instance; 0: not known */
    uint64_t memory_bytes;
    uint64_t timeslice_min_us;
    uint64_t timeslice_max_us;
    uint64_t timeslice_default_us; /* set by the vendor's library for a new group */
    uint64_t timeslice_back_us;    /* of a compute group after it was swapped in; 0: as before */
};

enum group_kind { GROUP_COMPUTE, GROUP_COPY, GROUP_OTHER };

/* Where a job that is suspended stops. */
enum device_level {
    LEVEL_GATE = 1,  /* before its next submission; queued work ends first */
    LEVEL_PIECE = 2, /* the same, with kernels cut into pieces */
    LEVEL_QUEUE = 3, /* within running work, which the hardware preempts */
};

/* "gate", "piece", "hardware"; NULL: no such level. */
const char *device_level_name(unsigned level);

/* A channel group, which the hardware schedules. The struct is plain data without pointers: it is
 * written to the journal as it is, and is all that a new driver instance in another process needs
 * in order to undo changes. */
#define GROUP_CHANNELS_MAX 128
struct device_group {
    uint64_t key;        /* unique on its GPU while the group exists */
    struct proc_id proc; /* owner */
    uint32_t gpu;        /* index: 0 .. ngpus-1 */
    /* 0: only this process uses the group. Else it is the same group as the compute groups of other
     * processes with this number on this GPU, the clients of one MPS server: a control of one holds
     * for all, and suspending one that has work stops all until it is resumed. */
    uint32_t shared;
    uint32_t kind;             /* enum group_kind */
    uint32_t level;            /* enum device_level */
    uint64_t timeslice_us;     /* when the group was first seen; undoing sets it again */
    uint64_t timeslice_now_us; /* at the last scan; 0: not known */
    uint32_t handles[4];       /* for the driver: client, device, subdevice, group */
    int32_t source;            /* for the driver: descriptor number in the owner */
    uint32_t nchannels;
    uint32_t channels[GROUP_CHANNELS_MAX]; /* zero beyond nchannels */
};

/* The driver's call adds elements; the caller frees the list. So with the lists below. */
struct group_list {
    struct device_group *v;
    size_t n, cap;
};
int group_list_push(struct group_list *l, const struct device_group *g);
void group_list_free(struct group_list *l);

struct gpu_usage {
    int32_t pid;
    uint32_t gpu;
    double busy;           /* share of GPU time since the last call, 0 to 1; < 0: unknown */
    uint64_t memory_bytes; /* 0: unknown */
};
struct usage_list {
    struct gpu_usage *v;
    size_t n, cap;
};
int usage_list_push(struct usage_list *l, const struct gpu_usage *u);
void usage_list_free(struct usage_list *l);

/* bursts: how often the process got the engine (once per request, while another process has work).
 * busy_ns: time for which it had the engine; a process that is alone may keep it without work. */
struct gpu_activity {
    int32_t pid;
    uint32_t gpu;
    uint32_t bursts;
    uint64_t busy_ns;
};

/* Load of a whole GPU's parts: work per second, as a share of what the part could do at the highest
 * clock, so that the same work has the same value at any clock. */
struct gpu_counters {
    uint64_t window_ns; /* since the last call for this GPU */
    double parts[GPU_PARTS];
};
#define ACTIVITY_LAG_NS (50 * NSEC_PER_MSEC) /* events this recent may come with the next call */
struct activity_list {
    struct gpu_activity *v;
    size_t n, cap;
    /* A bit for each GPU with gaps in its record: switches were lost, or the engine has had one
     * owner since before the record began. There, a process that is not listed may have worked. */
    uint32_t incomplete;
};
int activity_list_push(struct activity_list *l, const struct gpu_activity *a);
void activity_list_free(struct activity_list *l);

/* From this moment on the process has the compute engine of the GPU. */
struct gpu_switch {
    uint64_t ns; /* CLOCK_MONOTONIC; not before the GPU's last */
    int32_t pid; /* GPU_NOBODY or GPU_UNKNOWN, or a process */
    uint32_t gpu;
};
#define GPU_NOBODY  0
#define GPU_UNKNOWN (-1) /* any process or none: switches before this one were lost */
struct switch_list {
    struct gpu_switch *v;
    size_t n, cap;
};
int switch_list_push(struct switch_list *l, const struct gpu_switch *s);
void switch_list_free(struct switch_list *l);

struct gpu_demand {
    int32_t pid;
    uint32_t gpu;
    bool wants; /* it has work queued, or waits to queue some */
};
struct demand_list {
    struct gpu_demand *v;
    size_t n, cap;
};
int demand_list_push(struct demand_list *l, const struct gpu_demand *x);
void demand_list_free(struct demand_list *l);

struct pid_list {
    pid_t *v;
    size_t n, cap;
};
int pid_list_push(struct pid_list *l, pid_t pid); /* does not add a pid twice */
void pid_list_free(struct pid_list *l);

/* Where a process's GPU memory and context are. */
enum swap_state {
    SWAP_RUNNING, /* on the GPU */
    SWAP_LOCKED,  /* on the GPU, and the process's GPU calls wait */
    SWAP_OUT,     /* in host memory */
    SWAP_FAILED,  /* lost in a step that failed: the process cannot go on */
};

enum swap_step {
    SWAP_STEP_LOCK,   /* RUNNING to LOCKED */
    SWAP_STEP_OUT,    /* LOCKED to OUT */
    SWAP_STEP_IN,     /* OUT to LOCKED */
    SWAP_STEP_UNLOCK, /* LOCKED to RUNNING */
};
static inline enum swap_state swap_step_from(enum swap_step step)
{
    return step == SWAP_STEP_LOCK ? SWAP_RUNNING : step == SWAP_STEP_IN ? SWAP_OUT : SWAP_LOCKED;
}

/* The error of a call that consists of several controls. If some had an effect before one was
 * refused, -EPERM becomes -EIO, because -EPERM says that nothing was changed. */
static inline int device_refused(int r, bool some_done)
{
    return r == -EPERM && some_done ? -EIO : r;
}

struct device_driver; /* an open instance */

/* By this a driver tells an event loop which descriptors to watch for reading. Neither function may
 * call the driver. */
struct device_watcher {
    void (*add)(void *arg, int fd);
    void (*remove)(void *arg, int fd); /* called before the driver closes fd */
    void *arg;
};

struct device_ops {
    const char *name; /* "nvidia", "amd", "soft", "gate" */
    const char *summary;

    /* Opens the driver. `where` is driver-specific (soft: socket path) or NULL for the default.
     * -ENODEV if this machine has no such device. NULL for several drivers as one (mux.h). */
    int (*open)(const char *where, struct device_driver **out, struct error *err);
    void (*close)(struct device_driver *d);

    unsigned (*gpus)(struct device_driver *d);
    int (*info)(struct device_driver *d, unsigned gpu, struct gpu_info *out);

    /* Lists the processes, of all users, that have this driver's devices open. Cheap enough for
     * once per second on a machine with thousands of processes. After an error the list is
     * incomplete, but not wrong. */
    int (*processes)(struct device_driver *d, struct pid_list *out, struct error *err);

    /* Lists the processes, of all users, that share compute groups with others: clients of MPS
     * servers. Errors as with processes() (may be NULL: there are none). */
    int (*clients)(struct device_driver *d, struct pid_list *out, struct error *err);

    /* Lists all channel groups of one process. The driver remembers what it has found, so that a
     * repeated scan is cheap (< 5 ms). An empty list is a success: the process has no context yet.
     * No descriptor of the process is kept. After an error the list is incomplete, but not wrong;
     * -EAGAIN: the scan takes longer than one call may, and goes on at the next call. */
    int (*scan)(struct device_driver *d, struct proc_id proc, struct group_list *out,
                struct error *err);
    /* Drops what is remembered of a process. To be called when the process is gone. */
    void (*forget)(struct device_driver *d, pid_t pid);

    int (*set_timeslice)(struct device_driver *d, const struct device_group *g, uint64_t us,
                         struct error *err);
    /* Sets when a compute group may be switched out: at any instruction, as with every new group,
     * or, with block_ends, only when its running blocks have ended (may be NULL: see
     * GPU_CAP_PREEMPT). Switches are cheaper then, but the program is lost if one of its blocks
     * runs for seconds while another program waits; a call at such a time may take seconds, and
     * does not save the program. */
    int (*set_preempt)(struct device_driver *d, const struct device_group *g, bool block_ends,
                       struct error *err);
    /* Suspends or resumes several groups of ONE GPU at once, of one process or of several: the
     * hardware's control takes up to 64 channels of any processes, and costs as much for a context
     * as for a single group, and half as much for three contexts together as for three calls. All
     * groups are tried; the first error is returned. Suspensions are counted: two need two
     * resumptions. A group that is not suspended may be resumed.
     *
     * After an error of a call for several processes each group may be suspended or not (-EPERM:
     * none was), and the process that failed is not known. The caller then tries each process
     * alone, and resumes it before it suspends it. Ended processes need not be an error. */
    int (*set_running)(struct device_driver *d, const struct device_group *const *g, size_t n,
                       bool on, struct error *err);

    /* GPU time and memory per process (may be NULL: see GPU_CAP_USAGE). */
    int (*usage)(struct device_driver *d, struct usage_list *out, struct error *err);

    /* The memory per process alone, with a `busy` that says nothing; unlike usage() it begins no
     * new window of GPU time, and is cheap enough for ten calls per second (may be NULL). */
    int (*memory_used)(struct device_driver *d, struct usage_list *out, struct error *err);

    /* Reports which processes had the compute engine since the last call, for about ten calls per
     * second (may be NULL: see GPU_CAP_ACTIVITY). Processes that are not listed did not have it.
     * The first call starts the record, which stops some seconds after the last call. */
    int (*activity)(struct device_driver *d, struct activity_list *out, struct error *err);

    /* Reports the switches of the compute engines since the last call, each GPU's in order, for
     * about twenty calls per second (may be NULL: there is no record). The first call starts the
     * record; out NULL ends it, and so do five seconds without a call. */
    int (*switches)(struct device_driver *d, struct switch_list *out, struct error *err);

    /* Reports the processes that began or ceased to want a device since the last call: one entry
     * per process and device, with the last state (may be NULL: see GPU_CAP_GATE). Without
     * GPU_CAP_GATE it reports processes that have opened a device, perhaps several times. */
    int (*demand)(struct device_driver *d, struct demand_list *out, struct error *err);

    /* Reports the load of one GPU's parts since the last call for it (may be NULL: see
     * GPU_CAP_COUNTERS), in 2 ms on an H200. out NULL only begins a new window, in 0.06 ms. Has no
     * effect on programs. -EAGAIN: the first call, or too little time has passed. */
    int (*counters)(struct device_driver *d, unsigned gpu, struct gpu_counters *out,
                    struct error *err);

    /* For a caller with an event loop (all three may be NULL: the driver has no descriptors to
     * watch). Without a watcher, processes() and demand() read the driver's descriptors.
     *
     * watch: passes the present descriptors, and from then on each new one, to `w`, which is
     *   copied. NULL: removes all of them; to be called before the watcher is freed.
     * ready: called when `fd` is readable; reads a bounded part without waiting. Afterwards
     *   demand() or processes() may report something new. An fd that is not the driver's any more
     *   is ignored.
     * due_ns: time, by monotonic_ns(), at which demand() should be called even if no descriptor was
     *   readable; UINT64_MAX: none. */
    void (*watch)(struct device_driver *d, const struct device_watcher *w);
    void (*ready)(struct device_driver *d, int fd);
    uint64_t (*due_ns)(struct device_driver *d);

    /* Free memory of one GPU (may be NULL). */
    int (*memory_free)(struct device_driver *d, unsigned gpu, uint64_t *bytes, struct error *err);

    /* Swapping (may be NULL: see GPU_CAP_SWAP) moves a process's GPU memory and context to host
     * memory and back; its GPU calls wait meanwhile. Unlike other calls these take seconds to
     * minutes and may load the vendor's library, so they need a separate process
     * (journal/swapper.h, which has the order for several processes). The process's groups must not
     * be suspended; they have other handles afterwards.
     *
     * swap_shares: to be asked first. -ENOTSUP: the process has, or may have, memory of other
     *   processes open, with which it could not be brought back. several: its job has other GPU
     *   processes.
     * swap_step: does nothing in a state that the step does not begin with. LOCK: -ETIMEDOUT, its
     *   GPU work did not end within lock_ms. OUT: -ENOTSUP, the driver cannot move this process,
     *   which is still locked. IN: -ENOMEM, no room on the GPU; the caller should ask memory_free()
     *   before, because the vendor's driver may not be able to try a second time. */
    int (*swap_shares)(struct device_driver *d, struct proc_id proc, bool several,
                       struct error *err);
    int (*swap_step)(struct device_driver *d, struct proc_id proc, enum swap_step step,
                     unsigned lock_ms, struct error *err);
    int (*swap_state)(struct device_driver *d, struct proc_id proc, enum swap_state *state,
                      struct error *err);
};

extern const struct device_ops device_nvidia, device_amd, device_gate, device_soft;

/* Every driver starts with this. */
struct device_driver {
    const struct device_ops *ops;
};

/* The driver's name: "nvidia", or "nvidia,gate" for several drivers as one. */
static inline const char *device_name(const struct device_driver *d)
{
    return d->ops->name;
}

static inline void device_close(struct device_driver *d)
{
    if (d)
        d->ops->close(d);
}

#endif
