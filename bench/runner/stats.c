/* See stats.h. */
#include "bench/runner/stats.h"

#include <math.h>
#include <stdlib.h>

#include "doctor/series.h"

#define BOUND 1.02 /* between two bounds of the histogram */

static json_t *stats_histogram(const double *sorted, size_t n)
{
    json_t *h = json_array();
    for (size_t i = 0; i < n;) {
        double bucket = floor(log(fmax(sorted[i], 0.001)) / log(BOUND));
        double bound = exp((bucket + 1) * log(BOUND));
        size_t first = i++;
        while (i < n && sorted[i] < bound)
            i++;
        json_array_append_new(
            h, json_pack("[f,I]", round(bound * 100) / 100, (json_int_t)(i - first)));
    }
    return h;
}

void stats_latencies(json_t *o, double *v, size_t n)
{
    static const struct {
        const char *key;
        unsigned permille;
    } points[] = {
        {"p50_us", 500}, {"p90_us", 900}, {"p99_us", 990}, {"p999_us", 999}, {"max_us", 1000},
    };
    double sum = 0;
    json_object_set_new(o, "requests", json_integer((json_int_t)n));
    series_sort(v, n);
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    for (size_t i = 0; i < ARRAY_SIZE(points); i++)
        json_object_set_new(o, points[i].key,
                            n ? json_real(series_rank(v, n, points[i].permille)) : json_null());
    json_object_set_new(o, "mean_us", n ? json_real(sum / (double)n) : json_null());
    json_object_set_new(o, "histogram", stats_histogram(v, n));
}
