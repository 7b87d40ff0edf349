/* When processes get the compute engine: reads the driver's trace of context switches, the one that
 * profilers use. All objects are those of an own client, so no program's are touched; the kernel
 * frees them when our file is closed, however we end. Several readers do not disturb each other.
 *
 * The driver moves records from the engine's buffer to ours about every 33 ms: what happened since
 * is not seen yet (ACTIVITY_LAG_NS). Decides nothing; must not wait. */
#ifndef CEDE_DEVICE_NVIDIA_TRACE_H
#define CEDE_DEVICE_NVIDIA_TRACE_H

#include "device/nvidia/scan.h"

/* One engine: its owner, and what was counted since the last report. */
struct nv_engine_user {
    uint32_t pid, bursts;
    uint64_t busy_ns;
};
struct nv_engine {
    uint32_t resident; /* the owner; 0: none, or not known */
    uint64_t since_ns; /* by the GPU's clock */
    uint64_t told_ns;  /* of its present burst that was counted already */
    bool started;      /* `next_seqno` is valid */
    uint16_t next_seqno;
    bool known;      /* resident is right, also where it is 0 */
    bool incomplete; /* since it was last asked it was not, or records were lost */
    uint32_t losses; /* of records */
    struct nv_engine_user *users;
    size_t nusers, cap;
};
/* 0 or -ENOMEM. */
int nv_engine_take(struct nv_engine *e, const struct rm_switch_record *r);
/* No switch for this time: the owner had the engine throughout. */
int nv_engine_quiet(struct nv_engine *e, uint64_t ns);
/* Appends what was counted, and counts anew. */
int nv_engine_report(struct nv_engine *e, unsigned gpu, struct activity_list *out);
void nv_engine_free(struct nv_engine *e);

/* 8192 records: 2 s at 2000 switches/s. Read about ten times a second. */
#define NV_TRACE_RECORDS  8192U
#define NV_TRACE_IDLE_NS  (5 * NSEC_PER_SEC)
#define NV_TRACE_RETRY_NS (10 * NSEC_PER_SEC)

/* From the GPU's clock to ours. The driver reads the GPU's clock for us, which is exact to half of
 * the time of that call; where it does not, the quickest record shows the difference, and is late
 * by as long as that took to arrive. */
struct nv_clock {
    uint64_t asked_ns, call_ns; /* the clock was read then, in a call of this length; 0: not */
    int64_t read_ns;            /* difference by the clock */
    bool arrived;               /* a record has, and */
    int64_t arrived_ns;         /* difference by the quickest */
};
/* What to add to a time of the GPU. */
int64_t nv_clock_offset_ns(const struct nv_clock *c);
#define NV_CLOCK_EACH_NS (1 * NSEC_PER_SEC) /* the clock is read so often: they drift apart */
/* No record takes longer. A difference by the clock that says so is of another clock. */
#define NV_CLOCK_ARRIVES_NS (200 * NSEC_PER_MSEC)

struct nv_trace_gpu {
    uint32_t client; /* 0: not started; owns the objects below */
    uint64_t retry_at, asked_ns;
    int gpu_fd;
    const volatile struct rm_event_header *header;
    const volatile struct rm_switch_record *records;
    uint32_t get;
    uint64_t read_ns; /* counted up to here */
    uint64_t asked_activity_ns;
    struct nv_engine engine;
    struct nv_clock clock; /* of switches */
    uint64_t switched_ns;  /* the last, by our clock: of */
    int32_t switched_pid;
    uint32_t losses; /* as in engine, then */
};

struct nv_trace {
    const struct rm_io *io;
    int ctl_fd; /* not owned here */
    struct nv_trace_gpu gpu[DEVICE_GPUS_MAX];
    bool keeps_switches;
    struct switch_list switches; /* since nv_trace_switches() was last called */
};

/* Stops traces that were not read for so long (NV_TRACE_IDLE_NS; 0: all): with one, a switch takes
 * some 2 us more. */
void nv_trace_stop(struct nv_trace *t, uint64_t idle_ns);
/* Starts for this GPU if it has not, or tries again after a while. */
int nv_trace_start(struct nv_trace *t, const struct nv_gpus *gpus, unsigned gpu, struct error *err);
/* What happened since the last call. */
int nv_trace_read(struct nv_trace *t, struct activity_list *out);

/* More than so many between two calls are lost. */
#define NV_SWITCHES_MAX 65536U
/* See device_ops.switches; the traces are started already. */
int nv_trace_switches(struct nv_trace *t, struct switch_list *out);

#endif
