/* See series.h. */
#include "testbed/series.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

void series_free(struct series *s)
{
    free(s->points);
    free(s->latencies);
    free(s->lines);
    memset(s, 0, sizeof(*s));
}

static int reserve(void **v, size_t *cap, size_t n, size_t size)
{
    if (n <= *cap)
        return 0;
    size_t more = n > 2 * *cap ? n + 256 : 2 * *cap;
    void *p = reallocarray(*v, more, size);
    if (!p)
        return -ENOMEM;
    *v = p;
    *cap = more;
    return 0;
}

static int take_point(struct series *s, double t, const json_t *work)
{
    double us = json_number_value(work);
    if (!json_is_number(work) || us < 0 || (s->npoints && us < s->points[s->npoints - 1].work_us))
        return -EPROTO;
    int r = reserve((void **)&s->points, &s->points_cap, s->npoints + 1, sizeof(*s->points));
    if (r == 0)
        s->points[s->npoints++] = (struct series_point){t, us};
    return r;
}

static int take_latencies(struct series *s, double t, const json_t *list, const json_t *late)
{
    size_t n = json_array_size(list);
    json_int_t nlate = json_integer_value(late);
    if (late && (!json_is_integer(late) || nlate < 0 || (size_t)nlate > n))
        return -EPROTO;
    s->has_deadlines |= late != NULL;
    int r = reserve((void **)&s->latencies, &s->latencies_cap, s->nlatencies + n,
                    sizeof(*s->latencies));
    if (r == 0)
        r = reserve((void **)&s->lines, &s->lines_cap, s->nlines + 1, sizeof(*s->lines));
    if (r < 0)
        return r;
    s->lines[s->nlines++] = t;
    for (size_t i = 0; i < n && r == 0; i++) {
        const json_t *us = json_array_get(list, i);
        if (!json_is_number(us) || json_number_value(us) < 0)
            return -EPROTO;
        s->latencies[s->nlatencies++] =
            (struct series_latency){s->last_t, t, json_number_value(us), i < (size_t)nlate};
    }
    return r;
}

static int series_take(struct series *s, const json_t *o)
{
    const json_t *t = json_object_get(o, "t");
    if (json_is_string(json_object_get(o, "role"))) {
        const json_t *verified = json_object_get(o, "verified");
        s->final = true;
        s->harmed = json_is_false(verified);
        s->verified = json_is_true(verified);
        s->iterations_per_us = json_number_value(json_object_get(o, "iterations_per_us"));
        return 0;
    }
    double at = json_number_value(t);
    if (!json_is_number(t) || at <= s->last_t)
        return -EPROTO;
    const json_t *work = json_object_get(o, "work_us"), *list = json_object_get(o, "latencies_us");
    int r = work                  ? take_point(s, at, work)
            : json_is_array(list) ? take_latencies(s, at, list, json_object_get(o, "late"))
                                  : -EPROTO;
    if (r == 0)
        s->last_t = at;
    return r;
}

int series_line(struct series *s, const char *line, size_t n, struct error *err)
{
    json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    int r = json_is_object(o) ? series_take(s, o) : -EPROTO;
    json_decref(o);
    if (r == -EPROTO)
        return error_set(err, r, "unexpected line '%.*s%s'", (int)min_u64(n, 60), line,
                         n > 60 ? "..." : "");
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int work_at(const struct series *s, double t, double *us)
{
    size_t lo = 0, hi = s->npoints; /* the first point at or after t is in lo..hi */
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->points[mid].t < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == s->npoints || (lo == 0 && s->points[0].t > t))
        return -ENODATA;
    const struct series_point *p = &s->points[lo];
    *us = p->work_us;
    if (p->t > t)
        *us -= (p->work_us - p[-1].work_us) * (p->t - t) / (p->t - p[-1].t);
    return 0;
}

int series_rate(const struct series *s, double a, double b, double *rate)
{
    double wa, wb;
    if (b <= a || work_at(s, a, &wa) < 0 || work_at(s, b, &wb) < 0)
        return -ENODATA;
    *rate = (wb - wa) / 1e6 / (b - a);
    return 0;
}

int series_work_inside(const struct series *s, double a, double b, double *work_us)
{
    const struct series_point *first = NULL, *last = NULL;
    for (size_t i = 0; i < s->npoints; i++) {
        if (s->points[i].t < a || s->points[i].t > b)
            continue;
        if (!first)
            first = &s->points[i];
        last = &s->points[i];
    }
    if (first == last)
        return -ENODATA;
    *work_us = last->work_us - first->work_us;
    return 0;
}

int series_values(const struct series *s, double a, double b, double **v, size_t *n)
{
    double *more = reallocarray(*v, *n + s->nlatencies + 1, sizeof(**v));
    if (!more)
        return -ENOMEM;
    *v = more;
    for (size_t i = 0; i < s->nlatencies; i++) {
        if (s->latencies[i].from >= a && s->latencies[i].to <= b)
            more[(*n)++] = s->latencies[i].us;
    }
    return 0;
}

static int series_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double series_rank(const double *sorted, size_t n, unsigned permille)
{
    return sorted[(n * permille + 999) / 1000 - 1];
}

int series_percentiles(const struct series *s, double a, double b, struct percentiles *out)
{
    _cleanup_free_ double *v = NULL;
    size_t n = 0;
    int r = series_values(s, a, b, &v, &n);
    if (r == 0 && n == 0)
        r = -ENODATA;
    if (r < 0)
        return r;
    qsort(v, n, sizeof(*v), series_compare);
    *out = (struct percentiles){series_rank(v, n, 500), series_rank(v, n, 990), n};
    return 0;
}

double series_covered(const struct series *s, double a, double b)
{
    size_t first = 0, end = s->nlines;
    while (first < end && s->lines[first] < a)
        first++;
    while (end > first && s->lines[end - 1] > b)
        end--;
    return end > first ? s->lines[end - 1] - s->lines[first] : 0;
}

size_t series_late(const struct series *s, double a, double b)
{
    size_t n = 0;
    for (size_t i = 0; i < s->nlatencies; i++)
        n += s->latencies[i].late && s->latencies[i].from >= a && s->latencies[i].to <= b;
    return n;
}

int series_hold(struct series *s, double t)
{
    if (s->npoints == 0 || s->points[s->npoints - 1].t >= t)
        return 0;
    int r = reserve((void **)&s->points, &s->points_cap, s->npoints + 1, sizeof(*s->points));
    if (r == 0) {
        s->points[s->npoints] = (struct series_point){t, s->points[s->npoints - 1].work_us};
        s->npoints++;
    }
    return r;
}
