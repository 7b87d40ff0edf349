/* The lines that a cede-load program prints while it runs, and what follows from them: rates and
 * percentiles of a window of time. Pure: no processes, no clock, no output. */
#ifndef CEDE_TESTBED_SERIES_H
#define CEDE_TESTBED_SERIES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

/* Times are seconds of CLOCK_MONOTONIC, as in the lines. Start from all zero. */
struct series {
    struct series_line {
        double t, work_us;     /* work done by then */
        size_t requests, late; /* ended by then, and how many of these after their deadline */
    } * lines;
    size_t nlines, lines_cap;
    double *latencies; /* us, of each request in the order of the lines */
    size_t latencies_cap;
    bool works;         /* lines tell its work, not its requests */
    bool has_deadlines; /* its requests have deadlines */
    double last_t;      /* of the newest live line; 0: none yet */

    bool final;               /* the last object has come */
    bool harmed;              /* a result was wrong */
    bool verified;            /* all results were right */
    double iterations_per_us; /* of a calibration; 0: none */
};
void series_free(struct series *s);

/* Takes one line of output. -EPROTO: not what cede-load prints; -ENOMEM. */
int series_line(struct series *s, const char *line, size_t n, struct error *err);

/* Seconds of work a second between a and b; work is taken to be even between two lines.
 * -ENODATA when the lines do not cover both. */
int series_rate(const struct series *s, double a, double b, double *rate);

/* From the first line of a..b to the last: work that ended in between (0 exactly if none did), and
 * the requests that began and ended there. -ENODATA, with all of it 0, if there are not two lines.
 */
struct series_window {
    double seconds, work_us;
    const double *latencies; /* n of them, us */
    size_t n, late;
};
int series_window(const struct series *s, double a, double b, struct series_window *out);

/* Ascending. */
void series_sort(double *v, size_t n);

/* Nearest rank: the smallest of the n sorted values that at least permille/1000 of them do not
 * exceed. n > 0, permille 1..1000. */
double series_rank(const double *sorted, size_t n, unsigned permille);

/* Such percentiles of the requests of a window. -ENODATA when there was none. */
struct percentiles {
    double p50_us, p99_us;
    size_t n;
};
int series_percentiles(const struct series *s, double a, double b, struct percentiles *out);

/* No line came after the last one, up to t: then nothing was done in between. For a program
 * that prints only when it gets something done. */
int series_hold(struct series *s, double t);

#endif
