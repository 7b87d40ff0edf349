/* The order of `cede top`: filter, sorting, groups, and the selection that survives them. Pure. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top_model.h"
#include "lib/json_text.h"
#include "lib/util.h"

/* ---- sorting ---- */

static int compare_numbers(double a, double b)
{
    return a < b ? -1 : a > b;
}

static const char *entry_text(const struct top_row *r, const char *key)
{
    const char *s = json_get_text(r->entry, key);
    return s ? s : "";
}

static json_int_t first_gpu(const struct top_row *r)
{
    const json_t *gpus = json_object_get(r->entry, "gpus");
    return json_array_size(gpus) ? json_integer_value(json_array_get(gpus, 0)) : INT32_MAX;
}

/* latency first, those in no job last */
static int class_rank(const struct top_row *r)
{
    enum job_class c;
    return r->number && job_class_parse(entry_text(r, "class"), &c) == 0 ? (int)c : INT32_MAX;
}

/* When what it does is due; what has no deadline last. */
static double due_rank(const struct top_row *r)
{
    const json_t *due = json_object_get(r->entry, "due");
    if (due)
        return (double)json_get_int(due, "in_us");
    json_int_t us = json_get_int(r->entry, "deadline_us");
    return us ? 1e12 + (double)us : 1e18;
}

static double speed_rank(const struct top_row *r)
{
    return json_number_value(json_object_get(json_object_get(r->entry, "mps"), "speed"));
}

/* Ascending: what a person looks for first comes first. */
static int compare_by(const struct top_row *a, const struct top_row *b, enum top_column by)
{
    switch (by) {
    case TOP_PID:
        return compare_numbers(a->pid, b->pid);
    case TOP_CLASS:
        return compare_numbers(class_rank(a), class_rank(b));
    case TOP_WEIGHT:
        return compare_numbers((double)json_get_int(b->entry, "weight"),
                               (double)json_get_int(a->entry, "weight"));
    case TOP_STATE:
        return strcmp(entry_text(a, "state"), entry_text(b, "state"));
    case TOP_GPU:
        return compare_numbers((double)first_gpu(a), (double)first_gpu(b));
    case TOP_SHARE:
    case TOP_BAR:
    case TOP_MINUTE:
        return compare_numbers(b->share, a->share);
    case TOP_WAIT:
        return compare_numbers(b->wait, a->wait);
    case TOP_MEM:
        return compare_numbers((double)json_get_int(b->entry, "memory_bytes"),
                               (double)json_get_int(a->entry, "memory_bytes"));
    case TOP_SPEED:
        return compare_numbers(speed_rank(b), speed_rank(a));
    case TOP_DUE:
        return compare_numbers(due_rank(a), due_rank(b));
    case TOP_WHERE_COLUMN:
        return strcmp(a->where, b->where);
    case TOP_USER:
        return strcmp(a->user, b->user);
    case TOP_NAME_COLUMN:
        return strcmp(a->name, b->name);
    case TOP_JOB:
    case TOP_COLUMNS:
        break;
    }
    return 0;
}

static int line_order(const void *x, const void *y, void *model)
{
    const struct top_model *m = model;
    const struct top_line *p = x, *q = y;
    const struct top_row *a = m->rows[p->row], *b = m->rows[q->row];
    if (m->grouped && a->uid != b->uid)
        return a->uid < b->uid ? -1 : 1;
    if (!a->number != !b->number) /* those in no job below the jobs, whatever the order */
        return a->number ? -1 : 1;
    int c = compare_by(a, b, m->sort);
    if (c == 0) /* rows are in the order of their numbers */
        c = p->row < q->row ? -1 : p->row > q->row;
    return m->inverted ? -c : c;
}

/* ---- filter ---- */

static bool row_holds(const struct top_row *r, const char *text)
{
    char number[32];
    snprintf(number, sizeof(number), "%s%llu %d", r->number ? "#" : "",
             (unsigned long long)r->number, (int)r->pid);
    return strcasestr(r->name, text) || strcasestr(r->user, text) || strcasestr(r->where, text) ||
           strcasestr(entry_text(r, "class"), text) || strcasestr(entry_text(r, "state"), text) ||
           strstr(number, text);
}

/* ---- lines ---- */

static void select_line(struct top_model *m, size_t line)
{
    m->at = line;
    const struct top_row *r = top_model_selected(m);
    m->selected = r ? r->number : 0;
    m->selected_pid = r ? r->pid : 0;
}

static size_t add_headings(struct top_line *to, const struct top_line *from, size_t n,
                           const struct top_model *m)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        uid_t uid = m->rows[from[i].row]->uid;
        if (i == 0 || uid != m->rows[from[i - 1].row]->uid)
            to[k++] = (struct top_line){.row = -1, .uid = uid};
        to[k++] = from[i];
    }
    return k;
}

static bool is_selected(const struct top_model *m, const struct top_row *r)
{
    return r->number == m->selected && (r->number || r->pid == m->selected_pid);
}

/* For all rows, and again with headings. Seldom asked of malloc(), which tidies up for large ones.
 */
static int lines_room(struct top_model *m)
{
    if (m->nrows <= m->room && m->lines)
        return 0;
    size_t room = m->nrows + 64;
    struct top_line *lines = reallocarray(m->lines, 3 * room, sizeof(*lines));
    if (!lines)
        return -ENOMEM;
    m->lines = lines;
    m->room = room;
    return 0;
}

int top_model_arrange(struct top_model *m)
{
    size_t n = 0;
    m->nlines = 0;
    if (lines_room(m) < 0)
        return -ENOMEM;
    struct top_line *rows = m->grouped ? m->lines + 2 * m->room : m->lines;
    for (size_t i = 0; i < m->nrows; i++) {
        if (!m->filter[0] || row_holds(m->rows[i], m->filter))
            rows[n++] = (struct top_line){.row = (int)i, .uid = m->rows[i]->uid};
    }
    qsort_r(rows, n, sizeof(*rows), line_order, m);
    m->nlines = m->grouped ? add_headings(m->lines, rows, n, m) : n;
    size_t found = m->nlines;
    for (size_t i = 0; i < m->nlines && found == m->nlines; i++) {
        if (m->lines[i].row >= 0 && is_selected(m, m->rows[m->lines[i].row]))
            found = i;
    }
    bool chosen = m->chosen && found < m->nlines;
    top_model_select(m, chosen ? found : m->at);
    m->chosen = chosen;
    return 0;
}

struct top_row *top_model_selected(const struct top_model *m)
{
    if (m->at >= m->nlines || m->lines[m->at].row < 0)
        return NULL;
    return m->rows[m->lines[m->at].row];
}

static void keep_in_view(struct top_model *m)
{
    size_t height = max_u64(m->height, 1);
    size_t least = m->at >= height ? m->at - height + 1 : 0;
    size_t most = m->nlines > height ? m->nlines - height : 0;
    /* With the heading of the first group */
    size_t top = m->at == 1 && m->grouped && height > 1 ? 0 : m->at;
    m->first = clamp_u64(m->first, least, max_u64(top, least));
    m->first = min_u64(m->first, most);
}

void top_model_select(struct top_model *m, size_t line)
{
    line = m->nlines ? min_u64(line, m->nlines - 1) : 0;
    if (line < m->nlines && m->lines[line].row < 0)
        line++; /* below a heading is a row */
    select_line(m, line);
    m->chosen = true;
    keep_in_view(m);
}

void top_model_move(struct top_model *m, long by)
{
    long to = (long)m->at + by, last = (long)m->nlines - 1;
    to = to > last ? last : to;
    to = to < 0 ? 0 : to;
    if (by < 0 && to > 0 && m->nlines && m->lines[to].row < 0)
        to--;
    top_model_select(m, (size_t)to);
    m->chosen = by > -(long)m->nlines; /* the first line is whatever is there */
}

void top_model_height(struct top_model *m, size_t height)
{
    m->height = height;
    keep_in_view(m);
}

bool top_model_search(struct top_model *m, const char *text, bool next)
{
    for (size_t i = 0; i < m->nlines && text[0]; i++) {
        size_t k = (m->at + i + next) % m->nlines;
        if (m->lines[k].row < 0 || !row_holds(m->rows[m->lines[k].row], text))
            continue;
        top_model_select(m, k);
        return true;
    }
    return false;
}

void top_model_sort(struct top_model *m, enum top_column by)
{
    m->inverted = by == m->sort ? !m->inverted : false;
    m->sort = by;
    top_model_arrange(m);
}
