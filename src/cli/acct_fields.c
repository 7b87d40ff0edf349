/* See acct_fields.h. */
#include "cli/acct_fields.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/json_text.h"
#include "base/text.h"
#include "cli/cells.h"
#include "plan/sched.h"
#include "who/users.h"

#define CELL_MAX 128
#define ALL      (~0U)
#define JOBS     (1U << ACCT_BY_JOB | 1U << ACCT_BY_ROW)
#define ALSO(by) (JOBS | 1U << ACCT_BY_##by)

enum kind { TEXT, USER, CLASS, STATE, TIME, SPAN, EXACT, NUMBER, NUMBER32 };

/* at: offset in struct acct_row, for kinds that do not name a member themselves. */
struct acct_field {
    const char *name, *json;
    enum kind kind;
    unsigned by; /* bits of enum acct_by: the sums in which the field has a meaning */
    size_t at;
};

#define ROW(f) offsetof(struct acct_row, f)
#define SUM(s) (offsetof(struct acct_row, sums) + ACCT_##s * sizeof(uint64_t))
static const struct acct_field fields[] = {
    {"JobID", "number", NUMBER, JOBS, ROW(number)},
    {"JobName", "name", TEXT, ALSO(NAME), ROW(name)},
    {"Class", "class", CLASS, ALSO(CLASS), 0},
    {"User", "user", USER, ALSO(USER), 0},
    {"UID", "uid", NUMBER32, ALSO(USER), ROW(uid)},
    {"Account", "account", TEXT, JOBS, ROW(account)},
    {"State", "state", STATE, JOBS, 0},
    {"Jobs", "jobs", NUMBER, ALL & ~JOBS, ROW(jobs)},
    {"Start", "start", TIME, ALL, ROW(begin_s)},
    {"End", "end", TIME, ALL, ROW(end_s)},
    {"Elapsed", "known_s", SPAN, ALL, SUM(KNOWN_NS)},
    {"GPUTime", "gpu_s", SPAN, ALL, SUM(GPU_NS)},
    {"Exact", "exact_s", EXACT, ALL, SUM(EXACT_NS)},
    {"Allowed", "allowed_s", SPAN, ALL, SUM(ALLOWED_NS)},
    {"Waited", "waited_s", SPAN, ALL, SUM(WAITED_NS)},
    {"Queued", "queued_s", SPAN, ALL, SUM(QUEUED_NS)},
    {"Suspended", "paused_s", SPAN, ALL, SUM(PAUSED_NS)},
    {"Swapped", "swapped_s", SPAN, ALL, SUM(SWAPPED_NS)},
    {"Turns", "turns", NUMBER, ALL, SUM(TURNS)},
    {"Preempted", "preempted", NUMBER, ALL, SUM(PREEMPTED)},
    {"Swaps", "swaps", NUMBER, ALL, SUM(SWAPS)},
    {"SwappedBytes", "swapped_out_bytes", NUMBER, ALL, SUM(SWAPPED_BYTES)},
    {"Requests", "requests", NUMBER, ALL, SUM(REQUESTS)},
    {"Due", "due", NUMBER, ALL, SUM(DUE)},
    {"Met", "met", NUMBER, ALL, SUM(MET)},
    {"GPUs", "gpus", NUMBER32, JOBS, ROW(gpus)},
    {"Unit", "unit", TEXT, ALSO(UNIT), ROW(workload.unit)},
    {"Container", "container", TEXT, JOBS, ROW(workload.container)},
    {"Pod", "pod", TEXT, ALSO(POD), ROW(workload.pod)},
    {"Namespace", "namespace", TEXT, ALSO(POD), ROW(pod.namespace)},
    {"PodName", "pod_name", TEXT, ALSO(POD), ROW(pod.pod)},
    {"ContainerName", "container_name", TEXT, JOBS, ROW(pod.container)},
    {"SlurmJob", "slurm_job", NUMBER, ALSO(SLURM), ROW(workload.slurm_job)},
};

static const struct {
    const char *word, *format;
} kinds[ACCT_BY_COUNT] = {
    [ACCT_BY_JOB] = {"job", "JobID,JobName,Class,User,State,Start,Elapsed,GPUTime,Exact,Waited"},
    [ACCT_BY_ROW] = {"none", "JobID,JobName,Class,User,Start,End,GPUTime,Exact,Waited"},
    [ACCT_BY_USER] = {"user", "User,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
    [ACCT_BY_NAME] = {"name", "JobName,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
    [ACCT_BY_CLASS] = {"class", "Class,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
    [ACCT_BY_UNIT] = {"unit", "Unit,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
    [ACCT_BY_POD] = {"pod",
                     "Namespace,PodName,Pod,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
    [ACCT_BY_SLURM] = {"slurmjob",
                       "SlurmJob,Jobs,Elapsed,GPUTime,Exact,Waited,Suspended,Preempted"},
};

enum acct_by acct_by_named(const char *word)
{
    unsigned by = 0;
    while (by < ACCT_BY_COUNT && strcmp(kinds[by].word, word) != 0)
        by++;
    return (enum acct_by)by;
}

/* ---- values ---- */

static uint64_t row_number(const struct acct_field *f, const struct acct_row *r)
{
    uint64_t v;
    uint32_t few;
    if (f->kind == NUMBER32) {
        memcpy(&few, (const char *)r + f->at, sizeof(few));
        return few;
    }
    memcpy(&v, (const char *)r + f->at, sizeof(v));
    return v;
}

/* A time as sacct prints it: 1-02:03:04, 02:03:04, and below an hour 03:04.567. */
static void span_text(char *buf, uint64_t ns)
{
    const uint64_t ms = ns / NSEC_PER_MSEC, s = ms / 1000;
    const unsigned d = (unsigned)(s / 86400), h = (unsigned)(s / 3600 % 24),
                   m = (unsigned)(s / 60 % 60);
    if (d)
        snprintf(buf, CELL_MAX, "%u-%02u:%02u:%02u", d, h, m, (unsigned)(s % 60));
    else if (h)
        snprintf(buf, CELL_MAX, "%02u:%02u:%02u", h, m, (unsigned)(s % 60));
    else
        snprintf(buf, CELL_MAX, "%02u:%02u.%03u", m, (unsigned)(s % 60), (unsigned)(ms % 1000));
}

/* Whether GPUTime is from the driver's record of switches. */
static void exact_text(char *buf, const struct acct_row *r)
{
    const uint64_t all = r->sums[ACCT_GPU_NS], exact = r->sums[ACCT_EXACT_NS];
    if (!all)
        snprintf(buf, CELL_MAX, "-");
    else if (exact >= all)
        snprintf(buf, CELL_MAX, "exact");
    else if (!exact)
        snprintf(buf, CELL_MAX, "sampled");
    else
        snprintf(buf, CELL_MAX, "%u%%exact",
                 (unsigned)clamp_u64((uint64_t)((double)exact / (double)all * 100), 1, 99));
}

static json_t *json_of(const struct acct_field *f, const struct acct_row *r)
{
    char buf[USER_TEXT];
    switch (f->kind) {
    case TEXT:
        return json_text((const char *)r + f->at);
    case USER:
        return json_text(user_text(buf, r->uid));
    case CLASS:
        return json_string(r->class < CLASS_COUNT ? job_class_name((enum job_class)r->class) : "?");
    case STATE:
        return json_string(r->ended ? "ended" : "open");
    case SPAN:
    case EXACT:
        return json_real((double)row_number(f, r) / 1e9);
    default:
        return json_integer((json_int_t)row_number(f, r));
    }
}

/* The text of a field, which for times and spans differs from its JSON. */
static void cell_of(const struct acct_field *f, const struct acct_row *r, char *buf)
{
    _cleanup_json_ json_t *v = json_of(f, r);
    const time_t t = (time_t)json_integer_value(v);
    struct tm tm;
    if (f->kind == SPAN && !r->sums[ACCT_KNOWN_NS])
        snprintf(buf, CELL_MAX, "-"); /* not counted yet */
    else if (f->kind == SPAN)
        span_text(buf, row_number(f, r));
    else if (f->kind == EXACT)
        exact_text(buf, r);
    else if (json_is_string(v))
        snprintf(buf, CELL_MAX, "%s", json_string_value(v));
    else if (f->kind != TIME)
        snprintf(buf, CELL_MAX, "%lld", (long long)t);
    else if (!localtime_r(&t, &tm) || !strftime(buf, CELL_MAX, "%Y-%m-%dT%H:%M:%S", &tm))
        snprintf(buf, CELL_MAX, "?");
    text_show(buf);
}

json_t *acct_json(const struct acct_row *row, enum acct_by by)
{
    json_t *o = json_object();
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (fields[i].by >> by & 1)
            json_object_set_new(o, fields[i].json, json_of(&fields[i], row));
    }
    return o;
}

/* ---- columns ---- */

static const struct acct_field *field_named(const char *name, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (strlen(fields[i].name) == n && strncasecmp(fields[i].name, name, n) == 0)
            return &fields[i];
    }
    return NULL;
}

static int unknown_field(const char *text, size_t n, enum acct_by by, struct error *err)
{
    char known[384] = "", quote[TEXT_QUOTE], word[CELL_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (fields[i].by >> by & 1)
            list_add(known, sizeof(known), fields[i].name);
    }
    snprintf(word, sizeof(word), "%.*s", (int)min_u64(n, sizeof(word) - 1), text);
    return error_set(err, -EINVAL, "there is no field '%s'%s; there are %s",
                     text_quote(quote, word), by == ACCT_BY_JOB ? "" : " of such sums", known);
}

int acct_format_read(const char *text, enum acct_by by, struct acct_format *out, struct error *err)
{
    out->n = 0;
    text = text ? text : kinds[by].format;
    for (;; text++) {
        const size_t n = strcspn(text, ",%"), all = strcspn(text, ",");
        const struct acct_field *f = field_named(text, n);
        char width[8] = "";
        uint64_t v = 0;
        if (!f || !(f->by >> by & 1))
            return unknown_field(text, n, by, err);
        if (out->n == ACCT_COLUMNS_MAX)
            return error_set(err, -EINVAL, "more than %d fields", ACCT_COLUMNS_MAX);
        if (n < all)
            snprintf(width, sizeof(width), "%.*s", (int)min_u64(all - n - 1, 7), text + n + 1);
        const bool left = width[0] == '-';
        if (n < all && parse_u64(width + left, 1, CELL_MAX - 1, &v) < 0)
            return error_set(err, -EINVAL, "%s: a width is 1 to %d, or as many with - before it",
                             f->name, CELL_MAX - 1);
        out->v[out->n++] = (struct acct_column){f, left ? -(int)v : (int)v};
        text += all;
        if (!*text)
            return 0;
    }
}

static bool goes_left(const struct acct_column *c)
{
    return c->width < 0 || (c->width == 0 && (c->field->kind == TEXT || c->field->kind == USER ||
                                              c->field->kind == CLASS || c->field->kind == STATE));
}

/* Prints a cell. One that is too wide is cut and ends in +, as with sacct. */
static void print_cell(const struct acct_column *c, size_t width, const char *text, bool last)
{
    const size_t have = cell_columns(text);
    const bool left = goes_left(c);
    if (have > width)
        printf("%.*s+", cell_cut(text, width - 1), text);
    else
        cell_print(text, left && last ? have : width, !left);
    fputs(last ? "\n" : "  ", stdout);
}

static void print_parsable(const char *text, bool last)
{
    for (; *text; text++)
        putchar(*text == '|' ? '?' : *text);
    putchar(last ? '\n' : '|');
}

void acct_print(const struct acct_format *f, const struct acct_row *v, size_t n, bool parsable)
{
    size_t width[ACCT_COLUMNS_MAX];
    char cell[CELL_MAX];
    for (size_t c = 0; c < f->n; c++) {
        const struct acct_column *k = &f->v[c];
        width[c] = k->width ? (size_t)abs(k->width) : strlen(k->field->name);
        for (size_t i = 0; i < n && !k->width && !parsable; i++) {
            cell_of(k->field, &v[i], cell);
            width[c] = max_u64(width[c], cell_columns(cell));
        }
    }
    for (size_t i = 0; i <= n; i++) {
        for (size_t c = 0; c < f->n; c++) {
            const bool last = c + 1 == f->n;
            if (i == 0)
                snprintf(cell, sizeof(cell), "%s", f->v[c].field->name);
            else
                cell_of(f->v[c].field, &v[i - 1], cell);
            if (parsable)
                print_parsable(cell, last);
            else
                print_cell(&f->v[c], width[c], cell, last);
        }
    }
}
