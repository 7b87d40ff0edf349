/* What a trial of programs on one GPU shows: how fast each goes in each arrangement, relative to
 * alone, and which arrangement serves the user's aim best. The windows are the means of the GPU's
 * counters over some seconds; cli/trial.c makes them. Pure arithmetic. */
#ifndef CEDE_PLAN_ADVICE_H
#define CEDE_PLAN_ADVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/speeds.h"

#define ADVICE_JOBS SPEED_JOBS

struct advice_window {
    uint64_t from_ns, to_ns;
    double parts[GPU_PARTS];  /* load of each part, as struct gpu_counters */
    double had[ADVICE_JOBS];  /* share of the time for which each job had the engine, */
    double busy[ADVICE_JOBS]; /* and worked: one keeps it until another one wants it; 0: unknown */
    double idle;              /* and for which nobody had it */
    double p99_us[ADVICE_JOBS]; /* of its requests; 0: there were none */
};

/* What one job does alone. All zero at the start. */
struct advice_alone {
    double parts[GPU_PARTS];
    double busy; /* part of the time; 0: not known */
    uint32_t windows;
    double
        varies; /* largest difference of a window's work from the first one's, as a part of that */
};

/* job: its index in the window; background: without any of the jobs. */
void advice_add_alone(struct advice_alone *a, const struct advice_window *w, uint32_t job,
                      const struct advice_window *background);
/* Whether the job did nothing. */
bool advice_idle(const struct advice_alone *a);

enum arrangement {
    ARRANGE_AS_IS, /* in time, as the jobs' classes say */
    ARRANGE_FIRST, /* in time, one job before all others */
    ARRANGE_TURNS, /* in a pool, in turns of a second */
    ARRANGE_TOGETHER,
    ARRANGE_PARTS, /* in a pool, each on its part of the multiprocessors */
};
const char *arrangement_name(enum arrangement is); /* for people */

struct advice_row {
    enum arrangement is;
    uint32_t first; /* of ARRANGE_FIRST: the job */
    struct speed speed[ADVICE_JOBS], sum;
    double estimate; /* the sum by the counters alone, comparable also where it is not known */
    double least;    /* of those that are known */
    struct advice_window window;
};

/* Fills in speed, sum and least of a row by its window. Counters cannot tell jobs apart whose work
 * is alike, nor those that do little. In time their speeds are those of their GPU time, relative to
 * that alone, if they are busy for half of it at least; else, and in space, they are not known
 * (speed_known()), and the sum may not be. */
void advice_speeds(struct advice_row *row, const struct advice_alone *alone, uint32_t n,
                   const struct advice_window *background);
bool advice_all_known(const struct advice_row *row, uint32_t n);

/* What all do together, in thousandths of one alone, for ceded to remember; 0: it is not known.
 * Below what turns give if one has less than two thirds of its turns. */
uint32_t advice_together(const struct advice_row *row, uint32_t n);

struct advice_aim {
    enum { AIM_SUM, AIM_FAIR, AIM_PROTECT } is;
    uint32_t protect; /* of AIM_PROTECT: the job, which is to keep this speed */
    double keeps;
    double p99_us; /* limit for requests of jobs that have any; 0: none */
};

/* The index of the best row. Rows come in the order of how little they change: a later one has to
 * be better by ADVICE_GAIN. With AIM_SUM no job may have less than two thirds of its turns, as a
 * pool would not leave it so (plan/space_sharing.h), unless that is so in every row. Where
 * the sum of a row is not known, estimates count; for AIM_FAIR rows in which all speeds are known.
 * nrows: what the aim goes by is known of no row. n: of jobs. */
#define ADVICE_GAIN 0.02
uint32_t advice_best(const struct advice_row *rows, uint32_t nrows, uint32_t n,
                     const struct advice_aim *aim);

#endif
