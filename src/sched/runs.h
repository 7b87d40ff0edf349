/* What the record of switches shows of a device: how long each class had it, how often, and for how
 * long a context certainly wanted nothing. Pure arithmetic over one device.
 *
 * A *run* is the time from a context's getting the compute engine to its giving it up. A context
 * that has no work keeps the engine until another wants it, so a run may be longer than its work.
 * It is not where another context waits: that one gets the engine when the slice of the first is
 * over, at the latest, and no other one has it twice before (runlists are served in turn). So a
 * context certainly wanted nothing while another had a run that was longer than its slice, or two.
 */
#ifndef CEDE_SCHED_RUNS_H
#define CEDE_SCHED_RUNS_H

#include <stdbool.h>
#include <stdint.h>

struct sched_params;

/* Time and runs since some moment, of latency jobs and of those below them. */
struct tally {
    double seconds;  /* that the record covers, without pauses, */
    double pauses_s; /* and in pauses of the latency jobs */
    double busy_s;   /* of latency jobs: in runs */
    uint32_t bursts; /* and how many there were */
    double lower_s;  /* of jobs below */
    uint32_t lower;
    uint32_t returns; /* of latency jobs, from a lower one; */
    uint32_t cut;     /* of these so soon that they waited before the other's run had begun */
};

/* A context's, or what several of one process have together. */
struct context_use {
    uint64_t since_ns,
        until_ns; /* between them it could run beside others; the record comes later */
    uint64_t begun_ns, left_ns; /* its last run since then; left 0: it has the engine */
    double seen_s, idle_s;      /* from run to run: in all, and certainly idle */
    double run_s;               /* in runs, each counted as its slice at most */
    uint32_t runs;
};

#define RUNS_LAST 16

/* A device's. Invariant: what began before from_ns is in no tally. */
struct runs {
    uint32_t group;    /* has the engine; SLOT_NONE: nobody, or a stranger */
    bool known;        /* false: switches were lost since */
    uint64_t since_ns; /* the last switch */
    bool lower, cut;   /* the last run was of a lower job; and it was as short as can be */
    uint64_t alone_ns; /* the latest moment at which certainly nobody waited */
    struct {
        uint32_t group;
        uint64_t ns;
    } last[RUNS_LAST]; /* beginnings of runs, number i at i % RUNS_LAST */
    uint32_t n;
    uint64_t close_ns; /* contexts are to be closed when the record is there; TIME_NEVER: none */
    uint64_t from_ns;  /* TIME_NEVER: no lower job may run, so that nothing can be told */
    struct tally tally;
};

/* What a context that ran is, for the tally. */
struct run {
    bool latency;
    uint32_t slice_us;
};

/* The engine passes to another at `at_ns`; of is what the one before was (NULL: nobody of ours),
 * and use is its, or NULL. */
void runs_end(const struct sched_params *p, struct runs *r, const struct run *of,
              struct context_use *use, uint64_t at_ns);
/* A context begins a run. */
void runs_begin(struct runs *r, uint32_t group, struct context_use *use, uint64_t at_ns);
/* Whether it runs beside others from now on, so that something is to be seen of it. */
void runs_company(struct context_use *use, bool on, uint64_t now_ns);
/* The record has come to where it ceased to; `of` has the engine then. */
void runs_close(const struct sched_params *p, const struct runs *r, const struct run *of,
                struct context_use *use);
/* Counts anew. Both: from some milliseconds from now on, when a control call is over and the slices
 * that had begun are. */
void runs_count_anew(struct runs *r, uint64_t now_ns);
/* Goes on, or stops meanwhile. */
void runs_count(struct runs *r, bool on, uint64_t now_ns);
/* The GPU time that latency jobs worked, without what switching to them adds to each run. */
double tally_work_s(const struct sched_params *p, const struct tally *t);

#endif
