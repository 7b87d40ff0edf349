/* See series.h. */
#include "doctor/series.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"

void series_free(struct series *s)
{
    free(s->lines);
    free(s->latencies);
    memset(s, 0, sizeof(*s));
}

static struct series_line last_line(const struct series *s)
{
    return s->nlines ? s->lines[s->nlines - 1] : (struct series_line){0};
}

static int add_line(struct series *s, struct series_line l)
{
    int r = list_grow(&s->lines, s->nlines, &s->lines_cap, sizeof(*s->lines));
    if (r == 0)
        s->lines[s->nlines++] = l;
    return r;
}

static int take_work(struct series *s, struct series_line *l, const json_t *work)
{
    double us = json_number_value(work);
    if (!json_is_number(work) || us < l->work_us)
        return -EPROTO;
    l->work_us = us;
    s->works = true;
    return 0;
}

/* A line has the number of late requests, but not which ones were late. */
static int take_requests(struct series *s, struct series_line *l, const json_t *list,
                         const json_t *late)
{
    size_t n = json_array_size(list);
    json_int_t nlate = json_integer_value(late);
    if (!json_is_array(list) ||
        (late && (!json_is_integer(late) || nlate < 0 || (size_t)nlate > n)))
        return -EPROTO;
    int r = list_grow(&s->latencies, l->requests + n, &s->latencies_cap, sizeof(*s->latencies));
    for (size_t i = 0; i < n && r == 0; i++) {
        const json_t *us = json_array_get(list, i);
        if (!json_is_number(us) || json_number_value(us) < 0)
            return -EPROTO;
        s->latencies[l->requests + i] = json_number_value(us);
    }
    s->has_deadlines |= late != NULL;
    l->requests += n;
    l->late += (size_t)nlate;
    return r;
}

static int series_take(struct series *s, const json_t *o)
{
    const json_t *t = json_object_get(o, "t"), *work = json_object_get(o, "work_us");
    if (json_is_string(json_object_get(o, "role"))) {
        const json_t *verified = json_object_get(o, "verified");
        s->final = true;
        s->harmed = json_is_false(verified);
        s->verified = json_is_true(verified);
        s->iterations_per_us = json_number_value(json_object_get(o, "iterations_per_us"));
        return 0;
    }
    struct series_line l = last_line(s);
    l.t = json_number_value(t);
    if (!json_is_number(t) || l.t <= s->last_t)
        return -EPROTO;
    int r =
        work ? take_work(s, &l, work)
             : take_requests(s, &l, json_object_get(o, "latencies_us"), json_object_get(o, "late"));
    if (r == 0)
        r = add_line(s, l);
    if (r == 0)
        s->last_t = l.t;
    return r;
}

int series_line(struct series *s, const char *line, size_t n, struct error *err)
{
    _cleanup_json_ json_t *o = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const int r = json_is_object(o) ? series_take(s, o) : -EPROTO;
    if (r == -EPROTO)
        return error_set(err, r, "unexpected line '%.*s%s'", (int)min_u64(n, 60), line,
                         n > 60 ? "..." : "");
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

/* The index of the first line at or after t; nlines: there is none. */
static size_t line_at(const struct series *s, double t)
{
    size_t lo = 0, hi = s->nlines;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->lines[mid].t < t)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int work_at(const struct series *s, double t, double *us)
{
    size_t i = line_at(s, t);
    if (i == s->nlines || (i == 0 && s->lines[0].t > t))
        return -ENODATA;
    const struct series_line *l = &s->lines[i];
    *us = l->work_us;
    if (l->t > t)
        *us -= (l->work_us - l[-1].work_us) * (l->t - t) / (l->t - l[-1].t);
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

int series_window(const struct series *s, double a, double b, struct series_window *out)
{
    size_t first = line_at(s, a), end = line_at(s, b);
    end += end < s->nlines && s->lines[end].t <= b;
    *out = (struct series_window){0};
    if (end < first + 2)
        return -ENODATA;
    const struct series_line *from = &s->lines[first], *to = &s->lines[end - 1];
    *out = (struct series_window){
        .seconds = to->t - from->t,
        .work_us = to->work_us - from->work_us,
        .latencies = s->latencies ? s->latencies + from->requests : NULL,
        .n = to->requests - from->requests,
        .late = to->late - from->late,
    };
    return 0;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void series_sort(double *v, size_t n)
{
    if (n)
        qsort(v, n, sizeof(*v), compare_doubles);
}

double series_rank(const double *sorted, size_t n, unsigned permille)
{
    return sorted[(n * permille + 999) / 1000 - 1];
}

int series_percentiles(const struct series *s, double a, double b, struct percentiles *out)
{
    struct series_window w;
    if (series_window(s, a, b, &w) < 0 || !w.latencies || w.n == 0)
        return -ENODATA;
    _cleanup_free_ double *v = calloc(w.n, sizeof(*v));
    if (!v)
        return -ENOMEM;
    memcpy(v, w.latencies, w.n * sizeof(*v));
    series_sort(v, w.n);
    *out = (struct percentiles){series_rank(v, w.n, 500), series_rank(v, w.n, 990), w.n};
    return 0;
}

int series_extend(struct series *s, double t)
{
    struct series_line l = last_line(s);
    if (s->nlines == 0 || l.t >= t)
        return 0;
    l.t = t;
    return add_line(s, l);
}
