/* Inside cede-load: what passes between the roles and the back ends. The roles (roles.c) know no
 * GPU and no clock of their own; a back end knows no schedule, no statistics and no output.
 * Functions return 0 or -errno and fill err. One thread. */
#ifndef CEDE_BENCH_LOAD_OPS_H
#define CEDE_BENCH_LOAD_OPS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/gpu_parts.h"
#include "base/util.h"
#include "cede/cede.h"

/* Kernels in flight at most: what the software GPU takes, and about what a real channel takes
 * before a launch blocks the host. */
#define LOAD_DEPTH_MAX 1024U
#define LOAD_QUEUE_MAX 256U /* requests in flight with --open */
#define LOAD_GPUS_MAX  16U  /* of a gang: what a software GPU's server has */

enum load_role { LOAD_LATENCY = 1, LOAD_BATCH = 2, LOAD_CALIBRATE = 4, LOAD_MODELS = 8 };

/* Of the software GPU's parts, while its kernels run alone. */
struct load_uses {
    bool given;
    float v[GPU_PARTS];
};

struct load_options {
    enum load_role role;
    const char *device, *socket, *name, *arrivals; /* all but device may be NULL */
    const char *work;                              /* NULL: spin; else the name of one of works.h */
    uint64_t gpu, contexts;
    double kernel_us, sm_fraction;
    double iterations_per_us; /* 0: measure */
    double seconds;           /* 0: no limit */
    uint64_t report_ms;       /* 0: no live lines */
    bool verify;
    bool open; /* latency: requests are sent when due and counted from then, whatever still runs */
    uint64_t memory; /* bytes held in addition to what the work needs; 0: none */
    bool poisson; /* latency: random times between requests, period_us on average; goes with open */
    uint64_t seed;
    uint64_t period_us, kernels, gap_us, copy_bytes; /* latency */
    uint64_t deadline_us;                            /* latency: reported to libcede; 0: none */
    uint64_t hint_us, hint_says_us;                  /* latency: announced so early; as what */
    bool hint_false;                                 /* and of as many requests that never come */
    uint64_t requests;                               /* or kernels of batch; 0: no limit */
    uint64_t depth;                                  /* batch; 0: the back end's default */
    uint64_t launch_us;      /* latency: busy host time before each launch; 0: none */
    uint64_t burst, host_us; /* batch: kernels between two times on the host; 0: without end */
    const char *barrier;     /* batch: which `ranks` processes share; NULL: none */
    uint64_t ranks;
    uint64_t gpus; /* batch: bit map of a gang's GPUs; 0: a program on `gpu` alone */
    struct load_uses uses;
    const char *policy_name; /* models, and below */
    unsigned policy;
    uint64_t k;
    bool admit;
    double load, sigma; /* load: percent of the GPU's time */
    double due_times;   /* deadline, as a multiple of a request's own time */
};

/* Latency: whether requests that are due while others run are sent at once (--open). */
static inline bool load_queues(const struct load_options *o)
{
    return o->open && !o->gap_us && !o->copy_bytes && !o->hint_us && !o->deadline_us;
}

/* What is handed to the GPU at once: kernels one after the other on one stream. */
struct load_piece {
    uint32_t kernels;
    bool copy_in, copy_out; /* option copy_bytes before and after */
    /* The host is busy for so long before each launch, beginning at from_ns. 0: it is not, and
     * from_ns has no meaning. */
    uint64_t launch_ns, from_ns;
};

/* On the device's clock, which is CLOCK_MONOTONIC. end_ns is when the program could know of it. */
struct load_done {
    uint64_t submit_ns, end_ns;
};

struct load_ops;

/* An open back end; each back end's own struct starts with this. */
struct load_gpu {
    const struct load_ops *ops;
    double iterations_per_us; /* speed of the kernel's loop */
    double host_overhead_us;  /* of one launch and synchronisation; < 0: not measured */
    uint64_t depth;           /* default for this kernel time */
    uint64_t wake_ns;         /* spin for the last part of a sleep before a request is due */
};

struct load_ops {
    const char *name;
    int (*open)(const struct load_options *o, struct load_gpu **out, struct error *err);
    /* Waits for what is in flight: do not call after a wait that was given up. */
    void (*close)(struct load_gpu *g);
    int (*submit)(struct load_gpu *g, const struct load_piece *p, struct error *err);
    /* The oldest piece in flight. -ETIMEDOUT (err untouched) if it does not end in time. */
    int (*wait)(struct load_gpu *g, uint64_t timeout_ns, struct load_done *out, struct error *err);
    /* With nothing in flight: 0, or -EBADMSG when some kernel did not do exactly its work. */
    int (*verify)(struct load_gpu *g, struct error *err);
    /* With nothing in flight: one number of the result's bits; -ENODATA where that means nothing.
     * May be NULL. */
    int (*digest)(struct load_gpu *g, uint64_t *out, struct error *err);
};

extern const struct load_ops load_soft, load_cuda, load_hip, load_opencl;

/* Clock and stop request: the tests put virtual time here. */
struct load_env {
    uint64_t (*now_ns)(void *arg);
    void (*sleep_until)(void *arg, uint64_t ns); /* comes back early once stopped() */
    bool (*stopped)(void *arg);                  /* SIGTERM or SIGINT came */
    void *arg;
    FILE *out; /* JSON lines */
};

struct barrier;

struct load_run {
    const struct load_options *o;
    struct load_gpu *gpu;
    const struct load_env *env;
    struct barrier *barrier; /* NULL: none */
    struct cede *hints;      /* NULL: none are given */
    char summary[160];       /* out: a line for people */
    bool abandoned;          /* out: the GPU did not finish in time after a stop request */
    uint64_t give_up_ns;     /* when that is; 0: nothing has stopped */
};

/* Run to the end and print the final object. -EBADMSG: everything ran, a result was wrong. */
int load_run_latency(struct load_run *run, struct error *err);
int load_run_batch(struct load_run *run, struct error *err);  /* batch.c */
int load_run_models(struct load_run *run, struct error *err); /* models.c; in real time only */
/* The number of a policy of libcede's queue. -EINVAL. */
int load_policy_parse(const char *name, unsigned *out);

/* ---- what the roles share; roles.c ---- */

static inline uint64_t load_now(const struct load_run *run)
{
    return run->env->now_ns(run->env->arg);
}

static inline bool load_stopped(const struct load_run *run)
{
    return run->env->stopped(run->env->arg);
}

/* Longest wait without asking for the time and for the stop request. Also how late a completion may
 * arrive and still count in the live line of its time: the soft GPU's messages are delayed
 * when its server is not scheduled, while their times are exact. */
#define LOAD_SLICE_NS (50 * NSEC_PER_MSEC)

/* When --seconds end; UINT64_MAX without. */
uint64_t load_end_ns(const struct load_run *run, uint64_t start_ns);
/* Until the oldest piece ends, a time comes or LOAD_SLICE_NS have passed. -ETIMEDOUT: it has not
 * ended; -ECANCELED: nor in time after everything was to stop, and is abandoned. */
int load_wait(struct load_run *run, uint64_t until_ns, bool stop, struct load_done *done,
              struct error *err);
/* When the first live line is due; UINT64_MAX: none. And whether one is, which is then the next. */
uint64_t load_first_line(const struct load_run *run, uint64_t start_ns);
bool load_line_due(const struct load_run *run, uint64_t *next_ns, uint64_t t);
/* A line of output, which is taken; NULL: memory ran out while it was made. And the last one, with
 * what all roles have in common; -EBADMSG when a result was wrong. */
int load_print_line(const struct load_run *run, json_t *line, struct error *err);
int load_print_final(struct load_run *run, json_t *line, struct error *err);

/* Measured times. */
struct load_samples {
    int64_t *v; /* ns */
    size_t n, cap, reported;
};
int load_push(struct load_samples *s, int64_t ns, struct error *err);
/* In us, those that no line has reported yet. */
json_t *load_report(struct load_samples *s);
/* Afterwards nothing is to be pushed or reported any more. */
void load_sort(struct load_samples *s);
/* Nearest rank: the smallest of the sorted values that at least permille/1000 of them do not
 * exceed. n > 0, permille 1..1000. */
int64_t load_percentile(const struct load_samples *sorted, unsigned permille);
int load_compare(const void *a, const void *b); /* of int64_t, for qsort() */

static inline double load_us(int64_t ns)
{
    return (double)ns / (double)NSEC_PER_USEC;
}

static inline double load_seconds(uint64_t ns)
{
    return (double)ns / (double)NSEC_PER_SEC;
}

/* Random numbers of a seed, any of which is as good as another. */
uint64_t load_random(uint64_t *state);
static inline double load_uniform(uint64_t *state) /* [0, 1) */
{
    return (double)(load_random(state) >> 11) * 0x1p-53;
}

/* The affine map that n steps of the kernels' generator make: x -> mul * x + add (mod 2^32). */
struct load_map {
    uint32_t mul, add;
};
struct load_map load_chain(uint64_t n);

#endif
