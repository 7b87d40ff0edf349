/* The lines that a cede-load program prints while it runs, and the rates and percentiles of a
 * window of time that follow from them. Pure: no processes, no clock, no output. */
#ifndef CEDE_DOCTOR_SERIES_H
#define CEDE_DOCTOR_SERIES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"

/* Times are seconds of CLOCK_MONOTONIC, as in the lines. Start from all zero. */
struct series {
    struct series_line {
        double t, work_us;     /* work done by t */
        size_t requests, late; /* requests ended by t; those of them past their deadline */
    } * lines;
    size_t nlines, lines_cap;
    double *latencies; /* us, of each request in the order of the lines */
    size_t latencies_cap;
    bool works;         /* lines report work, not requests */
    bool has_deadlines; /* the requests have deadlines */
    double last_t;      /* time of the newest line; 0: none yet */

    bool final;               /* the last object has come */
    bool harmed;              /* a result was wrong */
    bool verified;            /* all results were right */
    double iterations_per_us; /* result of a calibration; 0: none */
};
void series_free(struct series *s);

/* Takes one line of output. -EPROTO: not what cede-load prints; -ENOMEM. */
int series_line(struct series *s, const char *line, size_t n, struct error *err);

/* Seconds of work per second between a and b; between two lines work is taken to be even.
 * -ENODATA when the lines do not cover both times. */
int series_rate(const struct series *s, double a, double b, double *rate);

/* Work that ended (0 exactly if none did) and requests that began and ended between the first and
 * the last line of a..b. -ENODATA, with all fields 0, if there are not two lines. */
struct series_window {
    double seconds, work_us;
    const double *latencies; /* n of them, us */
    size_t n, late;
};
int series_window(const struct series *s, double a, double b, struct series_window *out);

/* Ascending. */
void series_sort(double *v, size_t n);

/* Percentile by nearest rank: the smallest value that at least permille/1000 of the n sorted values
 * do not exceed. n > 0, permille 1..1000. */
double series_rank(const double *sorted, size_t n, unsigned permille);

/* Percentiles of the requests of a window. -ENODATA when there was none. */
struct percentiles {
    double p50_us, p99_us;
    size_t n;
};
int series_percentiles(const struct series *s, double a, double b, struct percentiles *out);

/* Adds a line at t without progress, if the last one is older: a program that prints only when it
 * gets something done has done nothing since. */
int series_extend(struct series *s, double t);

#endif
