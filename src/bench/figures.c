/* See figures.h. Writes scripts that hold their data, so that one can be run again by hand. */
#include "bench/figures.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>

#include "bench/result.h"
#include "lib/out_file.h"

#define WORD       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
#define SERIES_MAX 24
#define POINTS_MAX 4096
#define WORDS_MAX  4

struct figure {
    const json_t *result, *rows;
    FILE *f;
    char words[WORDS_MAX][48]; /* of the spec, from its second on */
    size_t nwords;
};

/* A curve: a configuration, at one value of every axis but the one that runs along it. */
struct curve {
    const char *config;
    char title[96];
    const json_t *rows[64];
    size_t n;
};

static const char *color(const char *config, size_t i)
{
    static const struct {
        const char *config, *color;
    } known[] = {
        {"alone", "#7f7f7f"}, {"default", "#c44e52"}, {"mps", "#dd8452"}, {"cede", "#4c72b0"}};
    static const char *const others[] = {"#55a868", "#8172b3", "#937860",
                                         "#da8bc3", "#ccb974", "#64b5cd"};
    for (size_t k = 0; k < ARRAY_SIZE(known); k++) {
        if (strcmp(config, known[k].config) == 0)
            return known[k].color;
    }
    return others[i % ARRAY_SIZE(others)];
}

/* "ROLE.METRIC" of a row. */
static const json_t *metric(const json_t *row, const char *name)
{
    char role[48];
    const char *dot = strchr(name, '.');
    snprintf(role, sizeof(role), "%.*s", dot ? (int)(dot - name) : 0, name);
    return dot ? result_metric(row, role, dot + 1) : NULL;
}

static double at(const json_t *row, const char *axis)
{
    const json_t *v = json_object_get(json_object_get(row, "point"), axis);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* What may go into a script of gnuplot, where quotes run commands: results may be anybody's. */
static bool is_plain(const char *text)
{
    return text && *text && text[strspn(text, WORD)] == '\0';
}

static const char *config_of(const json_t *row)
{
    const char *c = json_string_value(json_object_get(row, "config"));
    return is_plain(c) ? c : "?";
}

static void quotable(const json_t *text, char *buf, size_t size)
{
    const char *s = json_string_value(text);
    snprintf(buf, size, "%s", s ? s : "?");
    for (char *c = buf; *c; c++)
        *c = strchr("\"`\\", *c) || iscntrl((unsigned char)*c) ? ' ' : *c;
}

static const char *unit(const char *name)
{
    size_t n = strlen(name);
    return n > 3 && strcmp(name + n - 3, "_us") == 0 ? ", us" : "";
}

/* gnuplot would take an underscore for a subscript. */
static void plain(char *text)
{
    for (char *c = text; *c; c++)
        *c = *c == '_' ? ' ' : *c;
}

/* "latency p99, us" of "latency.p99_us". */
static void label(const char *name, char *buf, size_t size)
{
    size_t n = strlen(name), cut = unit(name)[0] ? 3 : 0;
    snprintf(buf, size, "%.*s%s", (int)(n - cut), name, unit(name));
    for (char *c = buf; *c; c++)
        *c = *c == '.' || *c == '_' ? ' ' : *c;
}

static void head(struct figure *g, const char *suffix)
{
    char title[200], chip[100], date[32];
    quotable(json_object_get(g->result, "test_name"), title, sizeof(title));
    quotable(json_object_get(g->result, "hardware"), chip, sizeof(chip));
    quotable(json_object_get(g->result, "date"), date, sizeof(date));
    fprintf(g->f,
            "set title \"%s%s\\n{/*0.8 %s, %s}\"\n"
            "set grid lc rgb '#dddddd'\nset border 3\nset tics nomirror\n"
            "set key outside right top vertical noenhanced\nset style fill solid 0.85 noborder\n",
            title, suffix, chip, date);
}

/* Rows into curves. along: the axis that runs along a curve, NULL: the last one. */
static size_t curves(const struct figure *g, const char *along, const char *need, struct curve *v)
{
    const json_t *row;
    size_t i, n = 0;
    json_array_foreach(g->rows, i, row)
    {
        char title[96];
        const char *axis;
        json_t *value;
        if (json_is_null(metric(row, need)) || !metric(row, need))
            continue;
        size_t used = (size_t)snprintf(title, sizeof(title), "%s", config_of(row));
        json_object_foreach(json_object_get(row, "point"), axis, value)
        {
            if (strcmp(axis, along) != 0 && used < sizeof(title) && is_plain(axis))
                used += (size_t)snprintf(title + used, sizeof(title) - used, ", %s %.6g", axis,
                                         json_number_value(value));
        }
        plain(title);
        size_t k = 0;
        while (k < n && strcmp(v[k].title, title) != 0)
            k++;
        if (k == SERIES_MAX)
            continue;
        if (k == n) {
            v[n] = (struct curve){.config = config_of(row)};
            snprintf(v[n++].title, sizeof(v[0].title), "%s", title);
        }
        if (v[k].n < ARRAY_SIZE(v[k].rows))
            v[k].rows[v[k].n++] = row;
    }
    return n;
}

static bool wide(double lo, double hi)
{
    return lo > 0 && hi / lo > 8;
}

static int lines(struct figure *g)
{
    struct curve *v = calloc(SERIES_MAX, sizeof(*v));
    const char *axis = g->words[0], *y = g->words[1];
    char text[96];
    double xlo = INFINITY, xhi = 0, ylo = INFINITY, yhi = 0;
    size_t n = v ? curves(g, axis, y, v) : 0;
    for (size_t i = 0; i < n; i++) {
        fprintf(g->f, "$d%zu << EOD\n", i);
        for (size_t k = 0; k < v[i].n; k++) {
            const json_t *m = metric(v[i].rows[k], y);
            double x = at(v[i].rows[k], axis), median = result_part(m, "median");
            fprintf(g->f, "%.10g %.10g %.10g %.10g\n", x, median, result_part(m, "min"),
                    result_part(m, "max"));
            xlo = fmin(xlo, x);
            xhi = fmax(xhi, x);
            ylo = fmin(ylo, median);
            yhi = fmax(yhi, median);
        }
        fputs("EOD\n", g->f);
    }
    head(g, "");
    label(y, text, sizeof(text));
    fprintf(g->f, "set ylabel \"%s\"\n", text);
    label(axis, text, sizeof(text));
    double margin = wide(xlo, xhi) ? 0 : 0.05 * (xhi - xlo);
    fprintf(g->f, "set xlabel \"%s\"\n%sset xrange [%.6g:%.6g]\n", text,
            wide(xlo, xhi) ? "set logscale x\n" : "", margin > 0 ? xlo - margin : xlo / 1.3,
            margin > 0 ? xhi + margin : xhi * 1.3);
    if (wide(ylo, yhi))
        fprintf(g->f, "set logscale y\nset yrange [%.6g:%.6g]\n", ylo / 1.5, yhi * 1.5);
    else
        fputs("set yrange [0:]\n", g->f);
    fputs("set xtics (", g->f);
    for (size_t k = 0; n && k < v[0].n; k++)
        fprintf(g->f, "%s%.6g", k ? ", " : "", at(v[0].rows[k], axis));
    fputs(")\nplot ", g->f);
    for (size_t i = 0; i < n; i++)
        fprintf(g->f, "%s$d%zu with yerrorlines title \"%s\" lc rgb '%s' lw 2 pt %zu ps 0.8%s",
                i ? ", \\\n  " : "", i, v[i].title, color(v[i].config, i), 5 + i % 9,
                strcmp(v[i].config, "alone") == 0 ? " dt 2" : "");
    fputc('\n', g->f);
    free(v);
    return xhi > xlo ? 0 : -ENODATA; /* one point is no line */
}

static int scatter(struct figure *g)
{
    struct curve *v = calloc(SERIES_MAX, sizeof(*v));
    const char *x = g->words[0], *y = g->words[1], *last = "", *axis;
    char text[96];
    json_t *value;
    double lo = INFINITY, hi = 0;
    /* Along the scenario's last axis. */
    json_object_foreach(json_object_get(json_array_get(g->rows, 0), "point"), axis, value)
    {
        last = axis;
    }
    size_t n = v ? curves(g, last, x, v) : 0, drawn = 0;
    for (size_t i = 0; i < n; i++) {
        fprintf(g->f, "$d%zu << EOD\n", i);
        for (size_t k = 0; k < v[i].n; k++) {
            double py = result_part(metric(v[i].rows[k], y), "median");
            if (isnan(py))
                continue;
            fprintf(g->f, "%.10g %.10g %.6g\n", result_part(metric(v[i].rows[k], x), "median"), py,
                    at(v[i].rows[k], last));
            lo = fmin(lo, py);
            hi = fmax(hi, py);
            drawn++;
        }
        fputs("EOD\n", g->f);
    }
    head(g, "");
    label(y, text, sizeof(text));
    fprintf(g->f, "set ylabel \"%s\"\n", text);
    label(x, text, sizeof(text));
    fprintf(g->f, "set xlabel \"%s\"\nset format y '%%g'\n%splot ", text,
            wide(lo, hi) ? "set logscale y\n" : "set yrange [0:]\n");
    bool first = true;
    for (size_t i = 0; i < n; i++) {
        /* The same mark for the same point of the other axis, whatever the configuration. */
        const char *point = strchr(v[i].title, ',');
        size_t mark = 0;
        while (point && mark < i &&
               (!strchr(v[mark].title, ',') || strcmp(strchr(v[mark].title, ','), point) != 0))
            mark++;
        if (strcmp(v[i].config, "alone") == 0)
            continue;
        fprintf(g->f,
                "%s$d%zu with linespoints title \"%s\" lc rgb '%s' lw 1.5 pt %zu ps 1.2 dt %zu",
                first ? "" : ", \\\n  ", i, v[i].title, color(v[i].config, i), 5 + 2 * (mark % 5),
                1 + mark % 5);
        first = false;
    }
    fputc('\n', g->f);
    free(v);
    return drawn ? 0 : -ENODATA;
}

static int bars(struct figure *g)
{
    const json_t *row;
    size_t i, n = 0;
    double lo = INFINITY, hi = 0;
    fputs("$d << EOD\n", g->f);
    json_array_foreach(g->rows, i, row)
    {
        const char *axis;
        json_t *value;
        if (strcmp(config_of(row), "alone") == 0 && !strstr(g->words[0], "_us"))
            continue; /* its share is 1 by definition */
        bool any = false;
        for (size_t k = 0; k < g->nwords; k++)
            any |= json_is_object(metric(row, g->words[k]));
        if (!any)
            continue;
        fprintf(g->f, "\"%s", config_of(row));
        json_object_foreach(json_object_get(row, "point"), axis, value)
        {
            if (is_plain(axis))
                fprintf(g->f, "\\n%s %.6g", axis, json_number_value(value));
        }
        fputc('"', g->f);
        for (size_t k = 0; k < g->nwords; k++) {
            double m = result_part(metric(row, g->words[k]), "median");
            fprintf(g->f, " %.6g", isnan(m) ? 0 : m);
            lo = fmin(lo, m);
            hi = fmax(hi, m);
        }
        fputc('\n', g->f);
        n++;
    }
    fputs("EOD\n", g->f);
    head(g, "");
    char text[96];
    label(g->words[0], text, sizeof(text));
    fprintf(
        g->f,
        "set style data histograms\nset style histogram clustered gap 1\n"
        "set boxwidth 0.9\nset bmargin 4\nset xtics scale 0 noenhanced\n%sset ylabel \"%s\"\nplot ",
        wide(lo, hi) && strstr(g->words[0], "_us") ? "set logscale y\n" : "set yrange [0:]\n",
        g->nwords == 1 ? text : strrchr(g->words[0], '.') + 1);
    static const char *const fill[] = {"#4c72b0", "#dd8452", "#55a868", "#c44e52"};
    for (size_t k = 0; k < g->nwords; k++) {
        label(g->words[k], text, sizeof(text));
        fprintf(g->f, "%s$d using %zu:xtic(1) title \"%s\" lc rgb '%s'", k ? ", \\\n  " : "", k + 2,
                text, fill[k % ARRAY_SIZE(fill)]);
    }
    fputc('\n', g->f);
    return n ? 0 : -ENODATA;
}

/* ---- distribution ---- */

struct bin {
    double bound, count;
};

static int compare_bins(const void *a, const void *b)
{
    double x = ((const struct bin *)a)->bound, y = ((const struct bin *)b)->bound;
    return (x > y) - (x < y);
}

/* All repeats of one configuration together; at the point, or, for what does not depend on it and
 * was measured once, wherever it is. */
static size_t collect(const struct figure *g, const char *config, const json_t *point,
                      struct bin *bins)
{
    const json_t *cell, *pair;
    size_t i, k, n = 0;
    for (int any = 0; any < 2 && n == 0; any++) {
        json_array_foreach(json_object_get(g->result, "cells"), i, cell)
        {
            if (strcmp(config_of(cell), config) != 0 ||
                (!any && !json_equal(json_object_get(cell, "point"), point)))
                continue;
            const json_t *h = json_object_get(
                json_object_get(json_object_get(cell, "roles"), g->words[0]), "histogram");
            json_array_foreach(h, k, pair)
            {
                if (n < POINTS_MAX)
                    bins[n++] = (struct bin){json_number_value(json_array_get(pair, 0)),
                                             json_number_value(json_array_get(pair, 1))};
            }
        }
    }
    qsort(bins, n, sizeof(*bins), compare_bins);
    return n;
}

static int cdf(struct figure *g)
{
    struct bin *bins = calloc(POINTS_MAX, sizeof(*bins));
    const json_t *row, *point = NULL;
    const char *names[SERIES_MAX] = {NULL}, *axis;
    char suffix[128] = "";
    size_t i, n = 0, drawn = 0;
    double lo = INFINITY, hi = 0;
    /* One of the points in the middle stands for all. */
    json_array_foreach(g->rows, i, row)
    {
        size_t k = 0;
        while (k < n && strcmp(names[k], config_of(row)) != 0)
            k++;
        if (k == n && n < SERIES_MAX)
            names[n++] = config_of(row);
    }
    point = json_object_get(json_array_get(g->rows, json_array_size(g->rows) / 2), "point");
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)point, axis, value)
    {
        size_t used = strlen(suffix);
        if (is_plain(axis))
            snprintf(suffix + used, sizeof(suffix) - used, ", %s %.6g", axis,
                     json_number_value(value));
    }
    for (size_t c = 0; bins && c < n; c++) {
        size_t k = collect(g, names[c], point, bins);
        double sum = 0, all = 0;
        for (i = 0; i < k; i++)
            all += bins[i].count;
        fprintf(g->f, "$d%zu << EOD\n", c);
        if (k)
            fprintf(g->f, "%.6g 0\n", bins[0].bound / 1.02);
        for (i = 0; i < k; i++) {
            sum += bins[i].count;
            fprintf(g->f, "%.6g %.6g\n", bins[i].bound, sum / all);
            lo = fmin(lo, bins[i].bound);
            hi = fmax(hi, bins[i].bound);
        }
        fputs("EOD\n", g->f);
        if (k == 0)
            names[c] = NULL;
    }
    free(bins);
    plain(suffix);
    head(g, suffix);
    fprintf(g->f, "set xlabel \"%s, us\"\nset ylabel \"part of requests\"\n%splot ", g->words[0],
            lo > 0 && hi / lo > 3 ? "set logscale x\n" : "");
    for (size_t c = 0; c < n; c++) {
        if (names[c])
            fprintf(g->f, "%s$d%zu with steps title \"%s\" lc rgb '%s' lw 2",
                    drawn++ ? ", \\\n  " : "", c, names[c], color(names[c], c));
    }
    fputc('\n', g->f);
    return drawn ? 0 : -ENODATA;
}

/* ---- drawing ---- */

static int run_gnuplot(const char *script, struct error *err)
{
    extern char **environ;
    char program[] = "gnuplot";
    char *const argv[] = {program, (char *)(uintptr_t)script, NULL};
    pid_t pid;
    int status = 0, r = posix_spawnp(&pid, program, NULL, NULL, argv, environ);
    if (r == ENOENT)
        return error_set(err, -ENOENT, "gnuplot is not installed");
    if (r != 0)
        return error_set(err, -r, "cannot start gnuplot: %s", strerror(r));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return error_set(err, -ENOENT, "gnuplot is not installed");
    return status ? error_set(err, -EIO, "gnuplot %s failed", script) : 0;
}

static const struct kind {
    const char *name;
    int (*draw)(struct figure *g);
    size_t least, most, metrics_from; /* words, and the first of them that is a ROLE.METRIC */
} kinds[] = {
    {"lines", lines, 2, 2, 1},
    {"scatter", scatter, 2, 2, 0},
    {"bars", bars, 1, WORDS_MAX, 0},
    {"cdf", cdf, 1, 1, 1},
};

static bool figure_metric(const char *word)
{
    const char *dot = strchr(word, '.');
    return dot && dot > word && dot[1];
}

/* NULL: not a figure. */
static const struct kind *parse_spec(const char *spec, struct figure *g)
{
    char kind[16] = "", more[2];
    int n = sscanf(spec, "%15s %47s %47s %47s %47s %1s", kind, g->words[0], g->words[1],
                   g->words[2], g->words[3], more);
    g->nwords = n > 1 ? (size_t)n - 1 : 0;
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        const struct kind *found = &kinds[k];
        if (strcmp(kind, found->name) != 0 || g->nwords < found->least || g->nwords > found->most)
            continue;
        for (size_t i = 0; i < g->nwords; i++) {
            if (!is_plain(g->words[i]) || (i >= found->metrics_from && !figure_metric(g->words[i])))
                return NULL;
        }
        return found;
    }
    return NULL;
}

static int write_script(const char *path, const char *text, const char *dir, const char *name,
                        struct error *err)
{
    const char *plot =
        text ? strstr(text, "\nset title") : NULL; /* data and plot once, drawn twice */
    _cleanup_free_ char *script = NULL;
    if (!plot)
        return error_set(err, -EIO, "nothing to draw for %s", path);
    if (asprintf(&script,
                 "set terminal svg size 860,420 font 'sans,12' background '#ffffff'\n"
                 "set output '%s/%s.svg'\n%s"
                 "set terminal pngcairo size 1290,630 font 'sans,16' background '#ffffff'\n"
                 "set output '%s/%s.png'\nreplot\n",
                 dir, name, text, dir, name) < 0) {
        script = NULL;
        return error_set(err, -ENOMEM, "out of memory");
    }
    return out_file_put(path, 0, script, strlen(script), err);
}

bool figure_known(const char *spec)
{
    struct figure g = {.result = NULL};
    return parse_spec(spec, &g);
}

int figure_script(const json_t *result, const char *spec, char **text, struct error *err)
{
    struct figure g = {.result = result, .rows = json_object_get(result, "rows")};
    size_t size = 0;
    const struct kind *kind = parse_spec(spec, &g);
    *text = NULL;
    if (!kind)
        return error_set(err, -EINVAL, "not a figure: '%s'", spec);
    g.f = open_memstream(text, &size);
    if (!g.f)
        return error_set(err, -ENOMEM, "out of memory");
    int r = kind->draw(&g);
    if (fclose(g.f) != 0 && r == 0)
        r = -ENOMEM;
    if (r < 0) {
        free(*text);
        *text = NULL;
        return error_set(err, r, "nothing to draw for '%s'", spec);
    }
    return 0;
}

int figure_draw(const json_t *result, const char *spec, const char *dir, const char *name,
                struct error *err)
{
    char path[600];
    _cleanup_free_ char *text = NULL;
    if (!is_plain(name))
        return error_set(err, -EINVAL, "not a name for a figure: '%s'", name);
    int r = figure_script(result, spec, &text, err);
    snprintf(path, sizeof(path), "%s/%s.gp", dir, name);
    if (r == 0)
        r = write_script(path, text, dir, name, err);
    return r == 0 ? run_gnuplot(path, err) : r;
}
