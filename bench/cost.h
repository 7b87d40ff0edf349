/* What the programs share that measure one thing each: options, medians, a report in two places,
 * and the GPU's name. */
#ifndef CEDE_BENCH_COST_H
#define CEDE_BENCH_COST_H

#include <stdio.h>

#include "base/options.h"

/* What an option's number goes to and may be: one of whole and real. */
struct cost_number {
    uint64_t *whole;
    double *real;
    double lo, hi;
};
#define COST_WHOLE(at, least, most)                                                                \
    .read = cost_number, .to = &(struct cost_number)                                               \
    {                                                                                              \
        .whole = at, .lo = least, .hi = most                                                       \
    }
#define COST_REAL(at, least, most)                                                                 \
    .read = cost_number, .to = &(struct cost_number)                                               \
    {                                                                                              \
        .real = at, .lo = least, .hi = most                                                        \
    }
int cost_number(void *to, const char *name, const char *text, struct error *err);
/* As options_read(), and no operands. */
int cost_options(int argc, char **argv, const struct command_line *c, const struct option_row *rows,
                 size_t n);

/* Sorts them, as does the median. 0 of none. */
void cost_sort(double *v, size_t n);
double cost_median(double *v, size_t n);
/* Of sorted ones; q: 0 to 1. */
double cost_quantile(const double *sorted, size_t n, double q);

#define COST_ROUNDS 101
/* A round makes so many calls; the median of rounds, in ns a call. */
double cost_of_call(void (*round)(void *arg), void *arg, unsigned calls);

static inline double cost_ms_since(uint64_t from_ns)
{
    return (double)(monotonic_ns() - from_ns) / 1e6;
}

/* Sleeps, on average, a little longer. */
void cost_nap(double us);

/* What `report` prints: to standard output and, if path is not NULL, to that file. 0 or -errno,
 * which is said in the name of `program`. */
int cost_report(const char *program, const char *path, void (*report)(FILE *f));

#endif
