/* The lines that a cede-load program prints while it runs, and what follows from them: rates and
 * percentiles of a window of time. Pure: no processes, no clock, no output. */
#ifndef CEDE_TESTBED_SERIES_H
#define CEDE_TESTBED_SERIES_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

/* Times are seconds of CLOCK_MONOTONIC, as in the lines. Start from all zero. */
struct series {
    struct series_point {
        double t, work_us; /* work done by then */
    } * points;
    size_t npoints, points_cap;
    struct series_latency {
        double from, to; /* printed in the line of `to`; the line before was of `from` */
        double us;
        bool late; /* after its deadline; a line has only their number, so its first ones are marked
                    */
    } * latencies;
    size_t nlatencies, latencies_cap;
    double *lines; /* times of all lines about requests */
    size_t nlines, lines_cap;
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

/* Work in the lines of a..b alone, without the pieces before the first and after the last of them:
 * 0 exactly if nothing ended there. -ENODATA with fewer than two lines. */
int series_work_inside(const struct series *s, double a, double b, double *work_us);

/* Nearest rank: the smallest of the n sorted values that at least permille/1000 of them do not
 * exceed. n > 0, permille 1..1000. */
double series_rank(const double *sorted, size_t n, unsigned permille);

/* Such percentiles of the requests that began and ended in lines between a and b.
 * -ENODATA when there was none. */
struct percentiles {
    double p50_us, p99_us;
    size_t n;
};
int series_percentiles(const struct series *s, double a, double b, struct percentiles *out);

/* Appends the latencies, us, of the same requests to *v (*n of them, malloc'd). -ENOMEM. */
int series_values(const struct series *s, double a, double b, double **v, size_t *n);

/* How long those lines are together, s: from the first line of a..b to the last. */
double series_covered(const struct series *s, double a, double b);

/* How many of them were late. */
size_t series_late(const struct series *s, double a, double b);

/* No line came after the last one, up to t: then nothing was done in between. For a program
 * that prints only when it gets something done. */
int series_hold(struct series *s, double t);

#endif
