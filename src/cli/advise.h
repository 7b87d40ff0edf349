/* `cede advise`, in parts: what is measured, and how programs are started for it. */
#ifndef CEDE_CLI_ADVISE_H
#define CEDE_CLI_ADVISE_H

#include "cli/trial.h"

#define ADVISE_ROWS (ADVICE_JOBS + 4)
#define ADVISE_INSTEAD                                                                             \
    "run them as batch jobs, once with --pool and once without, and compare what they print"

struct advise {
    uint64_t window_ms;
    struct advice_aim aim;
    uint32_t n;
    struct advised_job {
        uint64_t number;
        char name[64]; /* of the job, or made of its command */
        uint64_t memory_bytes;
        const char *class; /* of those that run already */
        bool latency, pooled;
        uint64_t alone_ns[2][2]; /* begin and end of the windows; 0: there was none */
    } jobs[ADVICE_JOBS];
    struct advice_alone alone[ADVICE_JOBS];
    struct trial trial;
    struct advice_window background;
    struct advice_row rows[ADVISE_ROWS];
    uint32_t nrows;
    uint32_t parts_sm;            /* percent of the multiprocessors of each job in ARRANGE_PARTS */
    bool starts;                  /* the programs are started for this */
    char others[200], pause[100]; /* other jobs that work on the GPU: for people, and as targets */
};

/* For people: programs that are started for it run in turns where jobs run as they did. */
static inline const char *advise_name(const struct advise *a, enum arrangement is)
{
    return is == ARRANGE_AS_IS && a->starts ? "in turns" : arrangement_name(is);
}

/* Shows on a terminal what is done now. */
void advise_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Looks for other jobs that work on the trial's GPU, in a reply to OP_PS, and says which. */
void advise_others(struct advise *a, const json_t *all);
/* Measures what each job does alone, unless the counters show nothing of what they do, which is
 * looked at before any is held. A latency job is held for less than a second in all, so what
 * others do without it is measured for a short time only. again: once more, to see what varies. */
int advise_alone(struct advise *a, bool again, struct error *err);
/* Measures an arrangement, as another row. */
int advise_row(struct advise *a, enum arrangement is, uint32_t first, struct error *err);
/* The same with the job that the aim protects before all others, if there is one and the caller may
 * try that; says so if not. */
int advise_first(struct advise *a, struct error *err);
/* Fills in the speeds of all rows. -ENODATA: a job did too little. */
int advise_speeds(struct advise *a, struct error *err);
/* Has ceded remember what all do in a row, if that is known. */
int advise_remember(struct advise *a, const struct advice_row *row, struct error *err);

/* The same, with two or more programs that are started for it, first in turns and, where the GPU
 * allows pools, in a pool. commands: separated by "--". */
int advise_started(struct advise *a, char **commands, int n, struct error *err);

#endif
