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

/* Of a switch, what each run has in addition to the work in it: a request of 0.1 ms has the engine
 * for 0.164 ms (H100 and H200, driver 580.159.04). */
#define RUNS_OWN_PART 0.36

#define TALLY_PARTS 64
/* A program works more or less by turns, and has the engine for as long as no other wants it. So
 * what it does is told by parts of a tally, of which the odd ones do not count. */
#define TALLY_PART_S 0.025

/* Lengths of so many runs. */
struct lengths {
    double n, sum_us, squares;
};

/* Time and runs since some moment, of latency jobs and of those below them. */
struct tally {
    double seconds;  /* that the record covers, without pauses, */
    double pauses_s; /* and in pauses of the latency jobs */
    double lower_s;  /* in runs of jobs below */
    uint32_t lower;
    uint32_t returns;   /* of latency jobs, from a lower one; */
    uint32_t cut, soon; /* of these so soon that they waited before the other's run had begun, or
                           perhaps did; */
    struct lengths given, taken; /* these runs of lower jobs, and theirs after it */
    double part_s, work_s;       /* since a part ended: time, and of it latency jobs worked */
    float parts[TALLY_PARTS];    /* what they worked of each, number i at i % TALLY_PARTS */
    uint32_t nparts;
};

/* A context's, or what several of one process have together. */
struct context_use {
    uint64_t since_ns,
        until_ns; /* between them it could run beside others; the record comes later */
    uint64_t begun_ns, left_ns; /* its last run since then, as its slice and RUNS_OWN_PART at most;
                                   left 0: none, or it still has the engine */
    uint64_t latency_ns;        /* what the device had when that one ended */
    bool was_cut;               /* it ended with its slice: 0.3 to 0.9 of a switch after it (H100,
                                   driver 580.159.04) */
    double run_s, idle_s;       /* in runs, and after them certainly without work; */
    uint32_t runs;              /* so many; */
    uint32_t ended, cut;        /* of these and of those after which nothing is certain */
};

#define RUNS_LAST 16

/* A device's. Invariant: what began before from_ns is in no tally. */
struct runs {
    uint32_t group;      /* has the engine; SLOT_NONE: nobody, or a stranger */
    bool known;          /* false: switches were lost since */
    uint64_t since_ns;   /* the last switch */
    uint64_t latency_ns; /* in runs of latency jobs, so far */
    double given_us;     /* length of the last run, if it was of a lower job, or 0 */
    uint64_t alone_ns;   /* the latest moment at which certainly nobody waited */
    struct {
        uint32_t group;
        uint64_t ns;
    } last[RUNS_LAST]; /* beginnings of runs, number i at i % RUNS_LAST */
    uint32_t n;
    uint64_t from_ns; /* TIME_NEVER: no lower job may run, so that nothing can be told */
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
/* Counts anew. Both: from some milliseconds from now on, when a control call is over and the slices
 * that had begun are. */
void runs_count_anew(struct runs *r, uint64_t now_ns);
/* Goes on, or stops meanwhile. */
void runs_count(struct runs *r, bool on, uint64_t now_ns);
/* The share of the time that latency jobs mostly worked, without what switching to them adds to
 * each run: the mean of the middle half of the parts. */
double tally_rate(const struct tally *t);
/* Whether latency jobs mostly waited for the lower job already when its run began: these runs are
 * as short as can be. Those that end as a request arrives may be so by chance, but then they vary
 * more than the runs of latency jobs do. */
bool tally_is_saturated(const struct tally *t);

#endif
