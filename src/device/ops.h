/* The driver interface: what a kind of GPU lets us do to running programs from outside.
 *
 * A *driver* covers all GPUs of one kind on this machine. It finds the channel groups of a process,
 * sets their timeslices and suspends or resumes them. A driver never decides anything, keeps no
 * promise beyond the call, and works only on the groups it is given. Callers above see nothing of a
 * device but this file.
 *
 * All functions return 0 or -errno and fill `err` (which may be NULL) on failure. Common errors:
 *   -ESRCH   the process is gone (or its pid was reused); nothing was changed
 *   -ENOENT  the group is gone, the process is not: scan it again
 *   -EPERM   no right to steer this process, and nothing was changed: a caller forgets what it
 *            meant to do. err says which right is missing. See device_refused().
 *   -ENODEV  the driver's devices are gone, or there are none
 *   -EIO     the device's control answered an error; err carries the control and its status
 *   -ENOTSUP this driver cannot do it (see gpu_info.caps)
 *
 * Not thread-safe: one thread per driver instance. Calls block for as long as the control takes
 * (0.15-0.6 ms on an H200), never for long.
 */
#ifndef CEDE_DEVICE_OPS_H
#define CEDE_DEVICE_OPS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/gpu_parts.h"
#include "lib/procfs.h"
#include "lib/util.h"

enum gpu_caps {
    GPU_CAP_TIMESLICE = 1 << 0,
    GPU_CAP_SUSPEND = 1 << 1,
    GPU_CAP_USAGE = 1 << 2,    /* usage() reports GPU time per process */
    GPU_CAP_ACTIVITY = 1 << 3, /* activity() reports when processes got the compute engine */
    GPU_CAP_SWAP = 1 << 4,     /* swap_out() may work: each process's context decides */
    /* Programs hold their own submissions: a suspended program finishes what is queued, a timeslice
     * is the most that may be queued, and demand() reports at once which programs want the device.
     */
    GPU_CAP_GATE = 1 << 5,
    GPU_CAP_POOL = 1 << 6,    /* an MPS server of ours may serve it: no MIG, default compute mode */
    GPU_CAP_PREEMPT = 1 << 7, /* set_preempt() */
    /* What is suspended runs again when the process that suspended it ends, however it ends. */
    GPU_CAP_FLEETING = 1 << 8,
    GPU_CAP_COUNTERS = 1 << 9, /* counters() reports what the GPU's parts do */
    GPU_CAP_PLACE = 1 << 10,   /* programs use it alone if CUDA_VISIBLE_DEVICES names its uuid */
};

#define DEVICE_GPUS_MAX 16 /* GPUs of one driver, or of several together */

struct gpu_info {
    char name[64];
    char uuid[48];
    char bus_id[20]; /* "0000:1b:00.0", or "" */
    /* Where there are several drivers: "nvidia0", "gate1". Of an instance of a GPU that is divided:
     * index and profile, "1:3g.71gb". Else "". */
    char label[16];
    char driver[32]; /* its release, "580.159.04", or "unknown"; "": there is none to be checked */
    uint32_t caps;   /* enum gpu_caps */
    uint32_t sms;    /* of an instance: its multiprocessors; 0: not known */
    uint64_t memory_bytes;
    uint64_t timeslice_min_us;
    uint64_t timeslice_max_us;
    uint64_t timeslice_default_us; /* what the vendor's library gives a new group */
    uint64_t timeslice_back_us; /* a compute group that was swapped comes back with; 0: its own */
};

enum group_kind { GROUP_COMPUTE, GROUP_COPY, GROUP_OTHER };

/* What waits when a job is suspended. */
enum device_level {
    LEVEL_GATE = 1,  /* new work; what is queued ends first */
    LEVEL_SLICE = 2, /* as 1, with kernels cut into pieces */
    LEVEL_QUEUE = 3, /* running work: the hardware preempts it */
};

/* "gate", "slice", "hardware"; NULL: no such level. */
const char *device_level_name(unsigned level);

/* What the hardware schedules. Plain data without pointers: it is written to the journal as it is,
 * and a fresh driver instance in another process can undo with nothing else in hand. */
#define GROUP_CHANNELS_MAX 128
struct device_group {
    uint64_t key;        /* unique on its GPU while the group exists */
    struct proc_id proc; /* owner */
    uint32_t gpu;        /* index: 0 .. ngpus-1 */
    /* 0: this process's own. Else it is one and the same as the compute groups of other processes
     * that have this number on this GPU: clients of one MPS server. What is set through one is set
     * for all, and what suspends one that has work stops all until it is resumed. */
    uint32_t shared;
    uint32_t kind;             /* enum group_kind */
    uint32_t level;            /* how it is steered: enum device_level */
    uint64_t timeslice_us;     /* what was set when the group was first seen: what restoring sets */
    uint64_t timeslice_now_us; /* what is set now, as a scan read it; 0: not known */
    uint32_t handles[4];       /* the driver's own: client, device, subdevice, group */
    int32_t source;            /* the driver's own: descriptor number in the owner */
    uint32_t nchannels;
    uint32_t channels[GROUP_CHANNELS_MAX]; /* zero beyond nchannels */
};

/* Room for one more in an array of n elements of `size` bytes; v: where its address is. 0 or
 * -ENOMEM. */
int list_grow(void *v, size_t n, size_t *cap, size_t size);

/* Grown by scan(); the caller owns `v` (group_list_free). */
struct group_list {
    struct device_group *v;
    size_t n, cap;
};
int group_list_push(struct group_list *l, const struct device_group *g);
void group_list_free(struct group_list *l);

struct gpu_usage {
    int32_t pid;
    uint32_t gpu;
    double busy; /* share of GPU time since the last call that asked, 0..1; < 0: unknown */
    uint64_t memory_bytes; /* 0: unknown */
};
struct usage_list {
    struct gpu_usage *v;
    size_t n, cap;
};
int usage_list_push(struct usage_list *l, const struct gpu_usage *u);
void usage_list_free(struct usage_list *l);

/* bursts: times the process got the engine (a request, as long as another process has work too).
 * busy_ns: time it had the engine; a process alone on it may keep it while it has no work. */
struct gpu_activity {
    int32_t pid;
    uint32_t gpu;
    uint32_t bursts;
    uint64_t busy_ns;
};

/* Of the whole GPU, not of a process. Work for each second, as a share of what the part could do at
 * the highest clock: of two windows the one with a lower clock and the same work shows the same. */
struct gpu_counters {
    uint64_t window_ns; /* since the last call for this GPU */
    double parts[GPU_PARTS];
};
#define ACTIVITY_LAG_NS (50 * NSEC_PER_MSEC) /* later events may be reported by the next call */
struct activity_list {
    struct gpu_activity *v;
    size_t n, cap;
    /* Bit for each GPU with gaps in the record: switches were lost, or the owner of the engine is
     * the same since before the first look. There, a process that is not listed may have worked. */
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
#define GPU_UNKNOWN (-1) /* somebody, maybe: switches before this one were lost */
struct switch_list {
    struct gpu_switch *v;
    size_t n, cap;
};
int switch_list_push(struct switch_list *l, const struct gpu_switch *s);
void switch_list_free(struct switch_list *l);

struct gpu_demand {
    int32_t pid;
    uint32_t gpu;
    bool wants; /* has work queued or waits to queue some */
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
int pid_list_push(struct pid_list *l, pid_t pid); /* unless it is there already */
void pid_list_free(struct pid_list *l);

/* Where a process's GPU memory and context are. */
enum swap_state {
    SWAP_RUNNING, /* on the GPU */
    SWAP_LOCKED,  /* on the GPU; its calls wait: half-way out or half-way in */
    SWAP_OUT,     /* in host memory */
    SWAP_FAILED,  /* broken by a failure half-way: only its end is left */
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

/* The error of a call that consists of several: a right that was lost after some of it was done is
 * no -EPERM any more, because that says that nothing has to be undone. */
static inline int device_refused(int r, bool some_done)
{
    return r == -EPERM && some_done ? -EIO : r;
}

struct device_driver; /* an open instance */

/* An event loop, as a driver sees it: which descriptors to watch for reading. Neither function may
 * call the driver. */
struct device_watcher {
    void (*add)(void *arg, int fd);
    void (*remove)(void *arg, int fd); /* comes before the driver closes fd */
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

    /* Processes that hold this driver's devices open, of all users. Cheap enough for once a
     * second on a machine with thousands of processes. After an error, what is listed is true and
     * not all. */
    int (*processes)(struct device_driver *d, struct pid_list *out, struct error *err);

    /* Processes that share compute groups with others: clients of MPS servers, of all users. As
     * processes() (may be NULL: there are none). */
    int (*clients)(struct device_driver *d, struct pid_list *out, struct error *err);

    /* All channel groups of one process, now. Repeatable; the driver remembers what it has seen of
     * a known process, so that a repeated scan is cheap (< 5 ms). An empty list is a success: no
     * context yet. Holds no descriptor of the process after it returns. After an error, what is
     * listed is true and not all; -EAGAIN: it takes longer than one call may, and goes on at
     * the next call. */
    int (*scan)(struct device_driver *d, struct proc_id proc, struct group_list *out,
                struct error *err);
    /* Drops what is remembered of a process; call it when the process is gone. */
    void (*forget)(struct device_driver *d, pid_t pid);

    int (*set_timeslice)(struct device_driver *d, const struct device_group *g, uint64_t us,
                         struct error *err);
    /* When a compute group may be switched out: at any instruction, as every group begins, or, with
     * block_ends, only when its running blocks have ended (may be NULL: see GPU_CAP_PREEMPT). The
     * switch is cheaper then, and its program is lost if a block runs for seconds while another
     * waits; a call at such a time may take seconds, and does not save the program. */
    int (*set_preempt)(struct device_driver *d, const struct device_group *g, bool block_ends,
                       struct error *err);
    /* Suspends or resumes several groups of ONE GPU at once, of one process or of several: the
     * hardware's control takes up to 64 channels of any processes, costs as much for a whole
     * context as for a single group, and for three contexts half as much as three. All groups are
     * tried; the first error is returned. Suspensions are counted: two need two resumptions. One
     * that is not suspended may be resumed.
     *
     * After an error of a call for several processes any group may have been taken and any not
     * (-EPERM: none was), and which process has failed is not known: the caller tries each process
     * alone, resumed before it is suspended. That some have ended need not be an error. */
    int (*set_running)(struct device_driver *d, const struct device_group *const *g, size_t n,
                       bool on, struct error *err);

    /* GPU time and memory per process (may be NULL: see GPU_CAP_USAGE). */
    int (*usage)(struct device_driver *d, struct usage_list *out, struct error *err);

    /* What processes got of the compute engine since the last call, for about ten calls a second
     * (may be NULL: see GPU_CAP_ACTIVITY). Processes that are not listed never had it. The first
     * call starts the record, which costs nothing before and stops when calls cease. */
    int (*activity)(struct device_driver *d, struct activity_list *out, struct error *err);

    /* Switches of the compute engines since the last call, each GPU's in order, for about twenty
     * calls a second (may be NULL: there is no record). The first call starts the record, which
     * costs nothing before; out NULL ends it, and so does not calling for five seconds. */
    int (*switches)(struct device_driver *d, struct switch_list *out, struct error *err);

    /* Processes that began or ceased to want a device since the last call: one entry per process
     * and device, with the last state (may be NULL: see GPU_CAP_GATE). Without GPU_CAP_GATE: those
     * that have opened one, perhaps several times. */
    int (*demand)(struct device_driver *d, struct demand_list *out, struct error *err);

    /* What the parts of one GPU did since the last call for it (may be NULL: see GPU_CAP_COUNTERS).
     * Takes 2 ms on an H200; out NULL: what was done until now does not count, which takes 0.06 ms.
     * Without effect on programs. -EAGAIN: the first call, or too little time has passed. */
    int (*counters)(struct device_driver *d, unsigned gpu, struct gpu_counters *out,
                    struct error *err);

    /* For a caller with an event loop (all three may be NULL: the driver reports nothing by
     * itself). Without a watcher, processes() and demand() look at the driver's descriptors
     * themselves.
     *
     * watch: hands over the descriptors there are, and from then on each new one. `w` is copied.
     *   NULL: takes all of them back; call it before the watcher goes.
     * ready: `fd` is readable; takes a bounded part of what is there and does not wait. Then
     * demand() has something new, or processes(). A number that is not the driver's any more is
     * ignored. due_ns: call demand() then, by monotonic_ns(), whether or not a descriptor was
     * readable; UINT64_MAX: no need. */
    void (*watch)(struct device_driver *d, const struct device_watcher *w);
    void (*ready)(struct device_driver *d, int fd);
    uint64_t (*due_ns)(struct device_driver *d);

    /* Free memory of one GPU (may be NULL). */
    int (*memory_free)(struct device_driver *d, unsigned gpu, uint64_t *bytes, struct error *err);

    /* Swapping (may be NULL: see GPU_CAP_SWAP): a process's GPU memory and context to host memory
     * and back; its GPU calls wait meanwhile. The exception to "never for long": these take
     * seconds to minutes and may load the vendor's library, so call them in a process of their own
     * (recovery/swapper.h, which has the order for several processes). The process's groups must
     * not be suspended; they are others afterwards.
     *
     * swap_shares: before anything else. -ENOTSUP: it has memory of other processes open, or may
     *   have, with which it could not be brought back. several: its job has other GPU processes.
     * swap_step: does nothing in a state that the step does not begin with. LOCK: -ETIMEDOUT its
     *   GPU work did not end within lock_ms. OUT: -ENOTSUP the driver cannot do it, or not with
     *   what this process uses: it is still locked. IN: -ENOMEM no room on the GPU: look for it
     *   with memory_free() before, because the vendor's driver may not be able to try a second
     *   time. */
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

/* What the driver calls itself: "nvidia", or "nvidia,gate" for several as one. */
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
