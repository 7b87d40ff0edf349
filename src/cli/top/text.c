/* See text.h. */
#include "cli/top/text.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <string.h>
#include <wchar.h>

#include "base/json_text.h"
#include "base/text.h"
#include "plan/sched.h"

/* rank: columns of the highest rank are dropped first when there is no room. optional: the column
 * is left out if all rows have the same in it (USER) or nothing. */
static const struct {
    const char *title, *sort;
    unsigned width, rank;
    bool right, optional;
} columns[TOP_COLUMNS] = {
    [TOP_JOB] = {"JOB", "job", 5, 0, true, false},
    [TOP_PID] = {"PID", "pid", 7, 9, true, false},
    [TOP_CLASS] = {"CLASS", "class", 7, 0, false, false},
    [TOP_WEIGHT] = {"WEIGHT", "weight", 6, 6, true, false},
    [TOP_STATE] = {"STATE", "state", 9, 1, false, false},
    [TOP_GPU] = {"GPU", "gpu", 3, 3, false, false},
    [TOP_SHARE] = {"SHARE", "share", 5, 0, true, false},
    [TOP_BAR] = {"", NULL, 10, 4, false, false},
    [TOP_WAIT] = {"WAIT", "wait", 4, 2, true, false},
    [TOP_MEM] = {"MEM", "memory", 4, 5, true, false},
    [TOP_SPEED] = {"SPEED", "speed", 5, 8, true, true},
    [TOP_DUE] = {"DUE", "due", 11, 7, false, true},
    [TOP_WHERE_COLUMN] = {"WHERE", "where", 14, 11, false, true},
    [TOP_USER] = {"USER", "user", 8, 10, false, true},
    [TOP_NAME_COLUMN] = {"NAME", "name", 10, 0, false, false},
};
#define RANKS 11

const char *top_title(enum top_column c)
{
    return columns[c].title;
}

const char *top_sort_name(enum top_column c)
{
    return columns[c].sort;
}

bool top_is_right(enum top_column c)
{
    return columns[c].right;
}

/* ---- cells ---- */

static const char *row_text(const struct top_row *r, const char *key, const char *in_no_job)
{
    const char *s = r->number ? json_get_text(r->entry, key) : in_no_job;
    return s ? s : "-";
}

static void percent(char *buf, double v)
{
    snprintf(buf, CELL, v < 0 ? "-" : "%.0f%%", v * 100);
}

/* Draws a bar of n columns, which value 1 fills. */
static void bar(char *buf, double value, unsigned n)
{
    unsigned full = (unsigned)round(fmin(fmax(value, 0), 1) * n);
    memset(buf, '|', full);
    buf[full] = '\0';
}

static void due_text(char *buf, const json_t *entry)
{
    const json_t *due = json_object_get(entry, "due");
    json_int_t in = json_get_int(due, "in_us"), of = json_get_int(entry, "deadline_us");
    char time[CELL];
    cell_time(time, due ? (in < 0 ? -in : in) : of);
    if (due || of)
        snprintf(buf, CELL, "%s %.20s", !due ? "of" : in < 0 ? "late" : "in", time);
    else
        snprintf(buf, CELL, "-");
}

void top_cell(char buf[static CELL], const struct top_model *m, const struct top_row *r,
              enum top_column c)
{
    const struct shown shown = {r->entry, json_object_get(m->reply, "gpus"), false};
    json_int_t weight = json_get_int(r->entry, "weight");
    switch (c) {
    case TOP_JOB:
        snprintf(buf, CELL, r->number ? "#%llu" : "-", (unsigned long long)r->number);
        break;
    case TOP_PID:
        snprintf(buf, CELL, "%d", (int)r->pid);
        break;
    case TOP_CLASS:
        snprintf(buf, CELL, "%s", row_text(r, "class", "-"));
        break;
    case TOP_WEIGHT:
        snprintf(buf, CELL, weight ? "%lld" : "-", (long long)weight);
        break;
    case TOP_STATE:
        snprintf(buf, CELL, "%s", row_text(r, "state", "no job"));
        break;
    case TOP_GPU:
        cell_gpus(buf, NULL, &shown);
        break;
    case TOP_SHARE:
        percent(buf, r->share);
        break;
    case TOP_BAR:
        bar(buf, r->share / fmax(r->ngpus, 1), columns[TOP_BAR].width);
        break;
    case TOP_WAIT:
        percent(buf, r->wait);
        break;
    case TOP_MEM:
        cell_memory(buf, NULL, &shown);
        break;
    case TOP_SPEED:
        cell_speed(buf, NULL, &shown);
        break;
    case TOP_DUE:
        due_text(buf, r->entry);
        break;
    case TOP_WHERE_COLUMN:
        snprintf(buf, CELL, "%s", r->where[0] ? r->where : "-");
        break;
    case TOP_USER:
        snprintf(buf, CELL, "%s", r->user);
        break;
    case TOP_NAME_COLUMN:
    case TOP_COLUMNS:
        snprintf(buf, CELL, "%s", r->name);
        break;
    }
}

/* ---- order ---- */

/* Orders by the time that is left; then jobs with a deadline and no work; then those without. */
static double due_rank(const json_t *entry)
{
    const json_t *due = json_object_get(entry, "due");
    json_int_t of = json_get_int(entry, "deadline_us");
    return due ? (double)json_get_int(due, "in_us") : of ? 1e12 + (double)of : 1e18;
}

/* The row's key for an ascending sort; NAN: the column is sorted by its text. */
static double sort_rank(const struct top_row *r, enum top_column c)
{
    const json_t *gpus = json_object_get(r->entry, "gpus"), *mps = json_object_get(r->entry, "mps");
    enum job_class class;
    switch (c) {
    case TOP_JOB:
        return (double)r->number;
    case TOP_PID:
        return r->pid;
    case TOP_CLASS:
        return job_class_parse(row_text(r, "class", ""), &class) == 0 ? class : INT32_MAX;
    case TOP_WEIGHT:
        return -(double)json_get_int(r->entry, "weight");
    case TOP_GPU:
        return json_array_size(gpus) ? (double)json_integer_value(json_array_get(gpus, 0))
                                     : INT32_MAX;
    case TOP_SHARE:
        return -r->share;
    case TOP_WAIT:
        return -r->wait;
    case TOP_MEM:
        return -(double)json_get_int(r->entry, "memory_bytes");
    case TOP_SPEED:
        return -json_get_number(mps, "speed");
    case TOP_DUE:
        return due_rank(r->entry);
    default:
        return NAN;
    }
}

int top_compare(const struct top_model *m, const struct top_row *a, const struct top_row *b)
{
    char left[CELL], right[CELL];
    const double x = sort_rank(a, m->sort), y = sort_rank(b, m->sort);
    if (!isnan(x))
        return x < y ? -1 : x > y;
    top_cell(left, m, a, m->sort);
    top_cell(right, m, b, m->sort);
    return strcmp(left, right);
}

/* ---- what fits ---- */

static bool column_used(const struct top_model *m, enum top_column c)
{
    char cell[CELL], first[CELL] = "-";
    if (c == TOP_USER && m->nrows)
        top_cell(first, m, &m->rows[0], c);
    for (size_t i = 0; columns[c].optional && i < m->nrows; i++) {
        top_cell(cell, m, &m->rows[i], c);
        if (strcmp(cell, first) != 0)
            return true;
    }
    return !columns[c].optional;
}

static unsigned layout_sum(const struct top_layout *l)
{
    unsigned sum = 0;
    for (enum top_column c = 0; c < TOP_COLUMNS; c++)
        sum += l->width[c] ? l->width[c] + 1 : 0;
    return sum ? sum - 1 : 0;
}

struct top_layout top_layout(const struct top_model *m, unsigned terminal)
{
    struct top_layout l;
    for (enum top_column c = 0; c < TOP_COLUMNS; c++)
        l.width[c] = column_used(m, c) ? columns[c].width : 0;
    for (unsigned rank = RANKS; rank > 0; rank--) {
        for (enum top_column c = 0; c < TOP_COLUMNS && layout_sum(&l) > terminal; c++)
            l.width[c] = columns[c].rank == rank ? 0 : l.width[c];
    }
    l.width[TOP_NAME_COLUMN] += terminal - (unsigned)min_u64(layout_sum(&l), terminal);
    return l;
}

#define MARKS_MAX 2 /* combining characters per character: more would run over other lines */

const char *top_fit(char buf[static TOP_LINE], const char *text, unsigned width, bool right)
{
    char shown[TOP_LINE - MB_LEN_MAX];
    size_t used = 0;
    unsigned filled = 0, marks = MARKS_MAX;
    snprintf(shown, sizeof(shown), "%s", text);
    text_show(shown);
    for (const char *c = shown; *c;) {
        wchar_t wc;
        int n = mbtowc(&wc, c, strlen(c)), w = n > 0 ? wcwidth(wc) : -1;
        if (filled + (w < 0 ? 1 : (unsigned)w) > width)
            break;
        if (w < 0) { /* not a printable character in this locale */
            buf[used++] = '?';
        } else if (w > 0 || marks < MARKS_MAX) {
            memcpy(buf + used, c, (size_t)n);
            used += (size_t)n;
        }
        marks = w == 0 ? marks + 1 : w > 0 ? 0 : MARKS_MAX;
        filled += w < 0 ? 1 : (unsigned)w;
        c += n > 0 ? n : 1;
    }
    size_t fill = min_u64(width - filled, TOP_LINE - 1 - used);
    if (right)
        memmove(buf + fill, buf, used);
    memset(buf + (right ? 0 : used), ' ', fill);
    buf[used + fill] = '\0';
    return buf;
}

/* ---- lines ---- */

#define IDLE_SHOWN 0.05 /* lower figures are within the error of the driver's samples */

void top_gpu_line(char buf[static TOP_LINE], const struct top_gpu *g, unsigned terminal)
{
    const unsigned cells = terminal >= 100 ? 40 : terminal >= 60 ? 20 : 8;
    char text[64];
    bar(text, g->share, cells);
    int n = snprintf(buf, TOP_LINE, "GPU %-2u [%-*s] %3.0f%% %2u job%s ", g->index, (int)cells,
                     text, fmin(g->share, 1) * 100, g->jobs, g->jobs == 1 ? " " : "s");
    if (g->idle >= IDLE_SHOWN)
        snprintf(buf + n, TOP_LINE - (size_t)n, "%2.0f%% idle while jobs wait", g->idle * 100);
    else
        snprintf(buf + n, TOP_LINE - (size_t)n, "%s",
                 g->name && g->name[0] ? g->name
                 : g->label            ? g->label
                                       : "");
}

void top_summary(char buf[static TOP_LINE], const struct top_model *m)
{
    const char *policy = json_get_text(m->reply, "policy");
    size_t running = 0, waiting = 0, paused = 0, n;
    for (size_t i = 0; i < m->njobs; i++) {
        const char *state = row_text(&m->rows[i], "state", "");
        running += strcmp(state, "running") == 0;
        waiting += strcmp(state, "waiting") == 0 || strcmp(state, "throttled") == 0;
        paused += strcmp(state, "paused") == 0;
    }
    n = (size_t)snprintf(buf, TOP_LINE, "%zu job%s: %zu running, %zu waiting", m->njobs,
                         m->njobs == 1 ? "" : "s", running, waiting);
    if (paused)
        n += (size_t)snprintf(buf + n, TOP_LINE - n, ", %zu paused", paused);
    if (m->nrows > m->njobs)
        n += (size_t)snprintf(buf + n, TOP_LINE - n, "; %zu in no job", m->nrows - m->njobs);
    if (policy)
        snprintf(buf + n, TOP_LINE - n, "; policy %.32s", policy);
}

/* ---- where ---- */

#define ID_DIGITS 32 /* least number of hexadecimal digits of a container's id */
#define ID_SHOWN  12 /* as `docker ps` shows */

void top_where(char buf[static TOP_WHERE], const char *cgroup)
{
    const char *last = strrchr(cgroup, '/');
    last = last ? last + 1 : cgroup;
    size_t n = strlen(last), digits = 0;
    for (size_t i = 0; i < n && digits < ID_DIGITS; i++) {
        digits = isxdigit((unsigned char)last[i]) ? digits + 1 : 0;
        if (digits == ID_DIGITS) { /* without the runtime's name before it */
            last += i + 1 - ID_DIGITS;
            n = ID_SHOWN;
        }
    }
    if (digits < ID_DIGITS && n > 6 && strcmp(last + n - 6, ".scope") == 0)
        n -= 6;
    snprintf(buf, TOP_WHERE, "%.*s", (int)n, last);
    text_printable(buf);
}

void top_pod(char buf[static TOP_WHERE], const json_t *entry)
{
    const char *pod = json_get_text(entry, "pod"), *container = json_get_text(entry, "container");
    if (!pod)
        return;
    snprintf(buf, TOP_WHERE, "%s%s%s", pod, container ? "/" : "", container ? container : "");
    text_printable(buf);
}
