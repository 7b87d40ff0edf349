/* Numbers of one role in one window. Pure. */
#ifndef CEDE_BENCH_RUNNER_STATS_H
#define CEDE_BENCH_RUNNER_STATS_H

#include <jansson.h>
#include <stddef.h>

/* Sorts v; adds requests, p50_us ... max_us, mean_us and histogram ([[upper bound in us,
 * count]...], bounds 2 % apart, so it serves as a CDF too) to o. */
void stats_latencies(json_t *o, double *v, size_t n);

#endif
