/* Reads the driver's trace of context switches, which profilers use too, and so finds when
 * processes have the compute engine. All objects belong to our client, so that no program is
 * touched; the kernel frees them when our file is closed, even if we are killed. Several readers do
 * not disturb each other.
 *
 * The driver moves records from the engine's buffer to ours about every 33 ms, so that the latest
 * switches are not seen yet (ACTIVITY_LAG_NS). Must not wait. */
#ifndef CEDE_GPU_NVIDIA_TRACE_H
#define CEDE_GPU_NVIDIA_TRACE_H

#include "gpu/nvidia/scan.h"

/* One engine: its owner, and the activity since the last report. */
struct nv_engine {
    uint32_t resident; /* the owner; 0: none, or not known */
    uint64_t since_ns; /* begin of its burst, by the GPU's clock */
    uint64_t told_ns;  /* the part of that burst that was counted already */
    bool started;      /* `next_seqno` is valid */
    uint16_t next_seqno;
    bool known;               /* `resident` is right, also where it is 0 */
    bool incomplete;          /* since the last report `known` was false, or records were lost */
    uint32_t losses;          /* how often records were lost */
    struct activity_list had; /* an entry for each process */
};
/* Takes one record. 0 or -ENOMEM. */
int nv_engine_take(struct nv_engine *e, const struct rm_switch_record *r);
/* Counts time without a switch, throughout which the owner had the engine. */
int nv_engine_quiet(struct nv_engine *e, uint64_t ns);
/* Appends the activity to out, and begins a new count. */
int nv_engine_report(struct nv_engine *e, unsigned gpu, struct activity_list *out);
void nv_engine_free(struct nv_engine *e);

/* 8192 records last for 2 s at 2000 switches/s; they are read about ten times per second. */
#define NV_TRACE_RECORDS  8192U
#define NV_TRACE_IDLE_NS  (5 * NSEC_PER_SEC)
#define NV_TRACE_RETRY_NS (10 * NSEC_PER_SEC)

/* The difference between the GPU's clock and ours. The driver reads the GPU's clock for us, which
 * is exact to half of the time of that call. Where it does not, the record that arrived quickest
 * shows the difference, which is too large by the time that this record took. */
struct nv_clock {
    uint64_t asked_ns, call_ns; /* time and length of the call that read the clock; 0: none */
    int64_t read_ns;            /* the difference by that call */
    bool arrived;               /* a record has arrived */
    int64_t arrived_ns;         /* the difference by the quickest record */
};
#define NV_CLOCK_EACH_NS (1 * NSEC_PER_SEC) /* between two reads, as the clocks drift apart */
/* No record takes longer to arrive, so that a clock by which one did is not that of the records. */
#define NV_CLOCK_ARRIVES_NS (200 * NSEC_PER_MSEC)

struct nv_trace_gpu {
    uint32_t client; /* 0: not started; owns the objects below */
    uint64_t retry_at, asked_ns;
    int gpu_fd;
    const volatile struct rm_event_header *header;
    const volatile struct rm_switch_record *records;
    uint32_t get;
    uint64_t read_ns; /* activity is counted up to this time */
    uint64_t asked_activity_ns;
    struct nv_engine engine;
    struct nv_clock clock; /* for the times of switches */
    uint64_t switched_ns;  /* of the last switch, by our clock */
    int32_t switched_pid;
    uint32_t losses; /* engine.losses at that switch */
};

struct nv_trace {
    const struct rm_io *io;
    int ctl_fd; /* not owned here */
    struct nv_trace_gpu gpu[DEVICE_GPUS_MAX];
    bool keeps_switches;
    struct switch_list switches; /* since switches() was last called */
};
#define NV_SWITCHES_MAX 65536U /* more switches between two calls are lost */

/* Stops traces that were not read for this time (0: all), because with a trace a switch takes some
 * 2 us more. */
void nv_trace_stop(struct nv_trace *t, uint64_t idle_ns);
#endif
