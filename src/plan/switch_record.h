/* Evaluates the record of switches of one device: for how long and how often each class had it, and
 * for how long a context certainly had no work. Pure arithmetic.
 *
 * A *run* is the time for which a context has the compute engine. A context without work keeps the
 * engine until another one wants it, so a run may be longer than its work. But a context that waits
 * gets the engine at the latest when the slice of the present one is over, and before any other
 * context has it twice, because run lists are served in order. So a context certainly had no work
 * while another one had a run that was longer than its slice, or two runs. */
#ifndef CEDE_PLAN_SWITCH_RECORD_H
#define CEDE_PLAN_SWITCH_RECORD_H

#include <stdbool.h>
#include <stdint.h>

struct sched_params;

/* The part of a switch that each run contains in addition to its work: a request of 0.1 ms has the
 * engine for 0.164 ms (H100 and H200, driver 580.159.04). */
#define RUNS_OWN_PART 0.36

#define TALLY_PARTS 64
/* The load of a program varies, and it has the engine for as long as no other wants it. So the rate
 * is that of parts of a tally, without those that are far from the others. */
#define TALLY_PART_S 0.025

/* Number and lengths of runs. */
struct lengths {
    double n, sum_us, squares;
};

/* Time and runs, since it was cleared, of latency jobs and of those below them. */
struct tally {
    double seconds;  /* time that the record covers, without pauses */
    double pauses_s; /* time in pauses of the latency jobs */
    double lower_s;  /* time in runs of lower jobs */
    uint32_t lower;
    uint32_t returns; /* how often latency jobs got the engine from a lower job */
    uint32_t cut;     /* of these, how often they waited before the lower job's run had begun */
    uint32_t soon;    /* the same, and how often they perhaps did */
    struct lengths given, taken; /* those runs of lower jobs, and the latency jobs' after them */
    double part_s, work_s;       /* time of the present part, and latency jobs' work in it */
    float parts[TALLY_PARTS];    /* share of their work; part number i is at i % TALLY_PARTS */
    uint32_t nparts;
};

/* The use of the engine by a context, or by all contexts of a process. */
struct context_use {
    uint64_t since_ns, until_ns; /* time in which it runs together with others */
    uint64_t begun_ns, left_ns;  /* its last run since then, as its slice and RUNS_OWN_PART at most;
                                    left_ns 0: none, or it still has the engine */
    uint64_t latency_ns;         /* runs.latency_ns at the end of that run */
    bool was_cut;                /* that run ended with its slice: 0.3 to 0.9 of a switch after it
                                    (H100, driver 580.159.04) */
    double run_s, idle_s;        /* time in runs, and certainly without work after them */
    uint32_t runs;               /* number of these runs */
    double row_s;                /* time in the last runs, not counted yet, if all ended with the */
    uint32_t row_runs;           /* slice; number of these */
    uint64_t unclear_ns;         /* time with runs since one was counted */
    uint32_t ended, cut;         /* number of all runs, and of those that ended with the slice */
};

#define RUNS_LAST 16

/* The record of a device. Invariant: runs that began before from_ns are in no tally. */
struct runs {
    uint32_t group;      /* the group that has the engine; SLOT_NONE: none, or an unknown one */
    bool known;          /* false: switches were lost since then */
    uint64_t since_ns;   /* time of the last switch */
    uint64_t latency_ns; /* time in runs of latency jobs so far */
    double given_us;     /* length of the last run if it was a lower job's, else 0 */
    uint64_t alone_ns;   /* the latest time at which certainly no context waited */
    struct {
        uint32_t group;
        uint64_t ns;
    } last[RUNS_LAST]; /* beginnings of runs, number i at i % RUNS_LAST */
    uint32_t n;
    uint64_t from_ns; /* TIME_NEVER: no lower job may run, so that nothing is tallied */
    struct tally tally;
};

/* The properties of a context that count for the tally. */
struct run {
    bool latency;
    uint32_t slice_us;
};

/* Ends the present run. of: its context's properties, NULL: none of ours; use: its use, or NULL. */
void runs_end(const struct sched_params *p, struct runs *r, const struct run *of,
              struct context_use *use, uint64_t at_ns);
/* Begins a run of this context. */
void runs_begin(struct runs *r, uint32_t group, struct context_use *use, uint64_t at_ns);
/* Says whether the context runs together with others from now on, which shows its use. */
void runs_company(struct context_use *use, bool on, uint64_t now_ns);
/* Clears the tally. This and runs_count() begin to tally after some milliseconds, when control
 * calls and earlier slices are over. */
void runs_count_anew(struct runs *r, uint64_t now_ns);
/* Goes on with the tally, or pauses it. */
void runs_count(struct runs *r, bool on, uint64_t now_ns);
/* The share of the time that latency jobs worked, without the switching time in their runs: the
 * mean of the middle half of the parts. */
double tally_rate(const struct tally *t);
/* Whether latency jobs mostly waited already when the lower job's run began, so that these runs are
 * the shortest possible. Runs that are short because a request arrives vary more than the runs of
 * latency jobs do. */
bool tally_is_saturated(const struct tally *t);

#endif
