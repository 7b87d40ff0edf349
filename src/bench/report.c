/* The report: Markdown from the JSON files of a directory. Shows what is there, failed cells and
 * missed targets included; measures and decides nothing. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "bench/bench.h"
#include "bench/expr.h"
#include "bench/figures.h"
#include "bench/result.h"
#include "lib/out_file.h"

#define COLUMNS 16

struct column {
    const char *role, *metric;
};

struct report {
    FILE *f;
    const char *dir;
    bool figures, missing;
    json_t *results[BENCH_SCENARIOS];
    size_t n;
    int failed; /* of drawing */
};

static const char *text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void report_number(FILE *f, double v, const char *metric)
{
    if (strstr(metric, "us"))
        fprintf(f, v >= 100 || v <= -100 ? "%.0f" : "%.1f", v);
    else if (strncmp(metric, "share", 5) == 0 || strcmp(metric, "speed") == 0 ||
             strcmp(metric, "late") == 0)
        fprintf(f, "%.3f", v);
    else if (strcmp(metric, "cpu") == 0)
        fprintf(f, "%.2f %%", 100 * v);
    else
        fprintf(f, "%.4g", v);
}

/* "318 (312..325)": the median, and what it was between. */
static void put_summary(FILE *f, const json_t *s, const char *metric)
{
    double median = result_part(s, "median"), lo = result_part(s, "min"),
           hi = result_part(s, "max");
    if (isnan(median))
        return;
    report_number(f, median, metric);
    if (json_integer_value(json_object_get(s, "n")) > 1) {
        fputs(" (", f);
        report_number(f, lo, metric);
        fputs("..", f);
        report_number(f, hi, metric);
        fputc(')', f);
    }
}

/* What a target compares, in the unit of its limit. */
static void put_in_unit(FILE *f, const json_t *s, const char *check)
{
    double factor, median = result_part(s, "median"), lo = result_part(s, "min"),
                   hi = result_part(s, "max");
    const char *unit = expr_unit(check, &factor);
    if (isnan(median))
        return;
    fprintf(f, "%.4g", median / factor);
    if (hi > lo)
        fprintf(f, " (%.4g..%.4g)", lo / factor, hi / factor);
    fprintf(f, "%s%s", *unit ? " " : "", unit);
}

static void put_point(FILE *f, const json_t *point)
{
    const char *axis;
    json_t *v;
    bool first = true;
    json_object_foreach((json_t *)(uintptr_t)point, axis, v)
    {
        fprintf(f, "%s%s %.6g", first ? "" : ", ", axis, json_number_value(v));
        first = false;
    }
}

/* A latency program's share is of interest only where it could not keep up. */
static bool worth(const json_t *rows, const struct column *c)
{
    const json_t *row;
    size_t i;
    bool keeps_up = strcmp(c->metric, "share") == 0, any = false;
    json_array_foreach(rows, i, row)
    {
        double v = result_part(result_metric(row, c->role, c->metric), "median");
        any |= !isnan(v);
        keeps_up &= isnan(v) || (result_metric(row, c->role, "p99_us") && v > 0.98);
    }
    return any && !keeps_up;
}

/* The columns that a role's numbers are worth. */
static size_t role_columns(const json_t *rows, const char *role, const json_t *metrics,
                           struct column *v, size_t n)
{
    static const char *const wanted[] = {"p50_us", "p99_us",   "late",      "share", "rate",
                                         "us",     "pause_us", "resume_us", "speed", "cpu"};
    for (size_t k = 0; k < ARRAY_SIZE(wanted) && n < COLUMNS; k++) {
        struct column c = {role, wanted[k]};
        /* A rate is for where there is nothing better, CPU time for the daemon alone. */
        bool rate = strcmp(c.metric, "rate") == 0, cpu = strcmp(c.metric, "cpu") == 0;
        if (!json_object_get(metrics, c.metric) || (cpu && strcmp(role, "ceded") != 0) ||
            (rate && (json_object_get(metrics, "share") || json_object_get(metrics, "p99_us"))) ||
            !worth(rows, &c))
            continue;
        v[n++] = c;
    }
    return n;
}

static size_t columns(const json_t *rows, struct column *v)
{
    const json_t *row;
    const char *role;
    json_t *metrics;
    size_t i, n = 0;
    json_array_foreach(rows, i, row)
    {
        json_object_foreach(json_object_get(row, "roles"), role, metrics)
        {
            bool known = false;
            for (size_t k = 0; k < n; k++)
                known |= strcmp(v[k].role, role) == 0;
            if (!known)
                n = role_columns(rows, role, metrics, v, n);
        }
    }
    return n;
}

static void put_rows(FILE *f, const json_t *result)
{
    struct column v[COLUMNS];
    const json_t *rows = json_object_get(result, "rows"), *row;
    size_t i, n = columns(rows, v);
    bool points = json_object_size(json_object_get(json_array_get(rows, 0), "point")) > 0;
    fprintf(f, "| %sconfiguration |", points ? "at | " : "");
    for (size_t k = 0; k < n; k++) {
        size_t length = strlen(v[k].metric);
        bool us = length > 3 && strcmp(v[k].metric + length - 3, "_us") == 0;
        fprintf(f, " %s %.*s%s |", v[k].role, (int)(us ? length - 3 : length), v[k].metric,
                us ? ", us" : "");
    }
    fprintf(f, "\n|%s---|", points ? "---|" : "");
    for (size_t k = 0; k < n; k++)
        fputs("---|", f);
    fputc('\n', f);
    json_array_foreach(rows, i, row)
    {
        const char *status = text(row, "status");
        fputs("| ", f);
        if (points) {
            put_point(f, json_object_get(row, "point"));
            fputs(" | ", f);
        }
        fprintf(f, "%s |", text(row, "config"));
        for (size_t k = 0; k < n; k++) {
            fputc(' ', f);
            if (k == 0 && strcmp(status, "ok") != 0)
                fprintf(f, "**%s** %s ", status, text(row, "error"));
            put_summary(f, result_metric(row, v[k].role, v[k].metric), v[k].metric);
            fputs(" |", f);
        }
        fputc('\n', f);
    }
}

static void put_targets(FILE *f, const json_t *result)
{
    const json_t *t, *p;
    size_t i, k;
    if (json_array_size(json_object_get(result, "targets")) == 0)
        return;
    fputs("\n| target | at | measured | limit | |\n|---|---|---|---|---|\n", f);
    json_array_foreach(json_object_get(result, "targets"), i, t)
    {
        json_array_foreach(json_object_get(t, "points"), k, p)
        {
            const json_t *pass = json_object_get(p, "pass");
            fprintf(f, "| %s: `%s` | ", text(t, "name"), text(t, "check"));
            put_point(f, json_object_get(p, "point"));
            fputs(" | ", f);
            put_in_unit(f, json_object_get(p, "value"), text(t, "check"));
            fputs(" | ", f);
            put_in_unit(f, json_object_get(p, "limit"), text(t, "check"));
            fprintf(f, " | %s |\n",
                    json_is_null(pass)   ? "not measured"
                    : json_is_true(pass) ? "pass"
                                         : "**missed**");
        }
    }
}

static int put_figures(struct report *r, const json_t *result, struct error *err)
{
    char list[700], dir[600], name[96], *save = NULL;
    unsigned n = 0;
    snprintf(list, sizeof(list), "%s", text(result, "figures"));
    for (char *spec = strtok_r(list, "\n", &save); spec; spec = strtok_r(NULL, "\n", &save)) {
        snprintf(dir, sizeof(dir), "%s/figures", r->dir);
        snprintf(name, sizeof(name), "%s-%u", text(result, "scenario"), ++n);
        if (mkdir(dir, 0777) < 0 && errno != EEXIST)
            return error_set(err, -errno, "cannot make %s: %s", dir, strerror(errno));
        struct error e = {""};
        int code = r->missing ? -ENOENT : figure_draw(result, spec, dir, name, &e);
        r->missing |= code == -ENOENT;
        if (code == 0) {
            fprintf(r->f, "\n![%s](figures/%s.svg)\n", spec, name);
        } else if (code != -ENOENT && code != -ENODATA) {
            fprintf(r->f, "\nNo figure: %s.\n", e.text);
            r->failed = error_set(err, code, "%s", e.text);
        }
    }
    return 0;
}

static int put_result(struct report *r, const json_t *result, struct error *err)
{
    const char *skipped = text(result, "skipped");
    fprintf(r->f, "\n## %s\n\n%s\n`cede bench run %s%s`, %.0f s.\n\n", text(result, "test_name"),
            text(result, "shows"), text(result, "scenario"),
            json_is_true(json_object_get(result, "quick")) ? " --quick" : "",
            json_number_value(json_object_get(result, "took_s")));
    if (skipped[0]) {
        fprintf(r->f, "Skipped: %s.\n", skipped);
        return 0;
    }
    put_rows(r->f, result);
    put_targets(r->f, result);
    return r->figures ? put_figures(r, result, err) : 0;
}

static void put_overview(const struct report *r)
{
    const json_t *first = r->results[0];
    fprintf(
        r->f,
        "# cede bench\n\n%s, driver %s, Linux %s, cede %s, %s. Values are medians over repeats,\n"
        "with the smallest and the largest; times of requests count from when they were due;\n"
        "shares are parts of what the same program gets alone in the same repeat.\n\n"
        "| scenario | targets met | cells failed |\n|---|---|---|\n",
        text(first, "hardware"), text(first, "driver_version"), text(first, "kernel"),
        text(first, "cede_version"), text(first, "date"));
    for (size_t i = 0; i < r->n; i++) {
        const json_t *o = r->results[i], *t;
        size_t k, met = 0, known = 0;
        json_array_foreach(json_object_get(o, "targets"), k, t)
        {
            met += json_is_true(json_object_get(t, "pass"));
            known += !json_is_null(json_object_get(t, "pass"));
        }
        if (text(o, "skipped")[0])
            fprintf(r->f, "| %s | skipped: %s | |\n", text(o, "test_name"), text(o, "skipped"));
        else
            fprintf(r->f, "| %s | %zu of %zu | %lld |\n", text(o, "test_name"), met, known,
                    (long long)json_integer_value(json_object_get(o, "failed_cells")));
    }
}

static int by_id(const void *a, const void *b)
{
    json_t *const *x = a, *const *y = b;
    int r = strcmp(text(*x, "test_id"), text(*y, "test_id"));
    return r ? r : strcmp(text(*x, "scenario"), text(*y, "scenario"));
}

static int read_results(struct report *r, struct error *err)
{
    DIR *d = opendir(r->dir);
    if (!d)
        return error_set(err, -errno, "cannot read %s: %s", r->dir, strerror(errno));
    for (const struct dirent *e; (e = readdir(d)) && r->n < BENCH_SCENARIOS;) {
        char path[600];
        size_t n = strlen(e->d_name);
        if (n < 6 || strcmp(e->d_name + n - 5, ".json") != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", r->dir, e->d_name);
        json_t *o = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
        if (json_is_string(json_object_get(o, "scenario")))
            r->results[r->n++] = o;
        else
            json_decref(o);
    }
    closedir(d);
    if (r->n == 0)
        return error_set(err, -ENOENT, "no results of `cede bench run --out` in %s", r->dir);
    qsort(r->results, r->n, sizeof(void *), by_id);
    return 0;
}

int bench_report(const char *dir, bool figures, bool *missing, struct error *err)
{
    char path[600];
    _cleanup_free_ char *text = NULL;
    size_t size = 0;
    struct report r = {.dir = dir, .figures = figures};
    int code = read_results(&r, err);
    if (code == 0) {
        snprintf(path, sizeof(path), "%s/report.md", dir);
        r.f = open_memstream(&text, &size);
        if (!r.f)
            code = error_set(err, -ENOMEM, "out of memory");
    }
    if (r.f)
        put_overview(&r);
    for (size_t i = 0; i < r.n; i++) {
        if (r.f && code == 0)
            code = put_result(&r, r.results[i], err);
        json_decref(r.results[i]);
    }
    if (r.f && fclose(r.f) != 0 && code == 0)
        code = error_set(err, -ENOMEM, "out of memory");
    if (code == 0)
        code = out_file_put(path, 0, text, size, err);
    *missing = r.missing;
    return code ? code : r.failed;
}
