/* Tries arrangements of jobs that share a GPU, and measures each by ceded's trace. ceded undoes
 * what is tried as soon as this process ends, however it ends (core/trial.h). */
#ifndef CEDE_CLI_TRIAL_H
#define CEDE_CLI_TRIAL_H

#include "api/client.h"
#include "plan/advice.h"

#define TRIAL_REQUESTS 4096U /* of each job in a window; older ones do not count */

struct trial {
    struct client client, events;
    unsigned gpu;
    uint32_t n;
    uint64_t jobs[ADVICE_JOBS]; /* their numbers */
    uint32_t ended;             /* bit map by index */
    /* The window, by monotonic_ns(), and what is known of it so far. */
    uint64_t begin_ns, end_ns, parts_at, parts_ns, owner_since, nrequests[ADVICE_JOBS];
    uint32_t owner;           /* index; ADVICE_JOBS: nobody; above: somebody else */
    bool whole;               /* the last report of parts began within the window */
    double busy[ADVICE_JOBS]; /* of a job in the last second or two */
    struct advice_window sums;
    uint64_t requests_us[ADVICE_JOBS][TRIAL_REQUESTS];
};

/* Begins a trial; trial_close() after any outcome. 0 or -errno. */
int trial_open(struct trial *t, unsigned gpu, const uint64_t *jobs, uint32_t n, struct error *err);
void trial_close(struct trial *t);

#define TRIAL_NONE UINT32_MAX
struct trial_way {
    uint32_t held;  /* bit map of the jobs that do not run */
    uint32_t first; /* the job that goes before all others; TRIAL_NONE */
    bool turns;     /* one job after the other runs for a second */
};
/* Measures for so long, after a moment in which what was queued ends. -ESRCH: a job has ended. */
int trial_window(struct trial *t, const struct trial_way *way, uint64_t ms,
                 struct advice_window *out, struct error *err);
/* Has ceded remember what all jobs do together, in thousandths of one alone. */
int trial_remember(struct trial *t, uint32_t together, struct error *err);

#endif
