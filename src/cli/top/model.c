/* See model.h. */
#include "cli/top/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "cli/top/text.h"

/* A share is kept as it was if the sums cover less time than this since the last one. */
#define SPAN_MIN_S  0.05
#define IDLE_SPAN_S 5.0 /* several counts of ceded, which counts idle time once per second */

void top_model_init(struct top_model *m)
{
    *m = (struct top_model){.sort = TOP_SHARE};
}

static void rows_free(struct top_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(rows[i].entry);
    free(rows);
}

void top_model_free(struct top_model *m)
{
    rows_free(m->rows, m->nrows);
    free(m->lines);
    json_decref(m->reply);
    top_model_init(m);
}

/* ---- shares ---- */

static double top_number(const json_t *o, const char *key)
{
    double v = json_get_number(o, key);
    return isfinite(v) && v > 0 ? v : 0;
}

/* Computes the share on one GPU since the previous reply, when the job was known for before_s. */
static void sums_take(struct top_sums *on, const json_t *c, double before_s, double known_s,
                      bool first)
{
    double gpu_s = top_number(c, "gpu_s"), counted_s = fmin(top_number(c, "counted_s"), known_s);
    if (first || counted_s <= 0)
        on->share = -1;
    if (counted_s <= 0) /* GPU time is not counted on this GPU */
        return;
    if (on->counted_s <= 0)
        on->counted_s = fmin(before_s, counted_s);
    double span = counted_s - on->counted_s;
    if (!first && span < SPAN_MIN_S)
        return;
    if (!first)
        on->share = fmin(fmax(gpu_s - on->gpu_s, 0) / span, 1);
    on->gpu_s = gpu_s;
    on->counted_s = counted_s;
}

static struct top_gpu *gpu_find(struct top_gpu *gpus, unsigned n, json_int_t index)
{
    for (unsigned i = 0; i < n; i++) {
        if ((json_int_t)gpus[i].index == index)
            return &gpus[i];
    }
    return NULL;
}

/* Computes the differences to the previous reply. Sums that have decreased are another daemon's. */
static void row_progress(struct top_model *m, struct top_row *r)
{
    const json_t *counts = json_object_get(r->entry, "counts");
    double known_s = top_number(counts, "known_s"), waited_s = 0, share = 0;
    bool first = !r->looked || known_s < r->known_s, known = false, unknown = first;
    if (first)
        memset(r->on, 0, sizeof(r->on));
    for_each_json (c, json_object_get(counts, "gpus")) {
        struct top_gpu *gpu = gpu_find(m->gpus, m->ngpus, json_get_int(c, "gpu"));
        waited_s += top_number(c, "waited_s");
        if (!gpu)
            continue;
        struct top_sums *on = &r->on[gpu->index];
        sums_take(on, c, r->known_s, known_s, first);
        known |= on->share >= 0;
        unknown |= on->share < 0;
        share += fmax(on->share, 0);
        gpu->share += fmax(on->share, 0);
    }
    r->share = unknown && !known ? -1 : share;
    double span = known_s - r->known_s;
    if (!first && span < SPAN_MIN_S)
        return;
    r->wait = first ? -1 : fmin(fmax(waited_s - r->waited_s, 0) / (span * fmax(r->ngpus, 1)), 1);
    r->known_s = known_s;
    r->waited_s = waited_s;
}

/* Computes the idle part over IDLE_SPAN_S. */
static void gpu_idle(struct top_gpu *g, uint64_t now_ns)
{
    const double idle_s = json_get_number(g->entry, "idle_while_waiting_s");
    const double span_s = (double)(now_ns - g->idle_at_ns) * 1e-9;
    if (g->idle_at_ns && span_s < IDLE_SPAN_S && idle_s >= g->idle_s)
        return;
    g->idle = g->idle_at_ns && idle_s >= g->idle_s ? fmin((idle_s - g->idle_s) / span_s, 1) : -1;
    g->idle_s = idle_s;
    g->idle_at_ns = now_ns;
}

/* ---- replies ---- */

static void gpus_read(struct top_model *m, const json_t *gpus, uint64_t now_ns)
{
    struct top_gpu before[DEVICE_GPUS_MAX];
    const unsigned n = m->ngpus;
    memcpy(before, m->gpus, sizeof(before));
    m->ngpus = 0;
    for_each_json (g, gpus) {
        json_int_t index = json_get_int(g, "index");
        if (index < 0 || index >= DEVICE_GPUS_MAX || gpu_find(m->gpus, m->ngpus, index))
            continue;
        const struct top_gpu *old = gpu_find(before, n, index);
        struct top_gpu *to = &m->gpus[m->ngpus++];
        *to = old ? *old : (struct top_gpu){.index = (unsigned)index};
        to->jobs = 0;
        to->share = 0;
        to->entry = g;
        to->label = json_get_text(g, "label");
        to->name = json_get_text(g, "name");
        gpu_idle(to, now_ns);
    }
}

/* Orders jobs by number, then processes in no job by pid. */
static int row_key_order(const void *a, const void *b)
{
    const struct top_row *x = a, *y = b;
    if (!x->number != !y->number)
        return x->number ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->number ? 0 : x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* counted: the reply is a daemon's, which counts GPU time. */
static void row_fill(struct top_model *m, struct top_row *r, json_t *entry, bool counted)
{
    const char *name = json_get_text(entry, "name");
    r->entry = json_incref(entry);
    r->uid = (uid_t)json_get_int(entry, "uid");
    snprintf(r->name, sizeof(r->name), "%s", name ? name : "?");
    text_show(r->name);
    r->ngpus = 0;
    for_each_json (gpu, json_object_get(entry, "gpus")) {
        struct top_gpu *g = gpu_find(m->gpus, m->ngpus, json_integer_value(gpu));
        if (g && r->number)
            g->jobs++;
        r->ngpus++;
    }
    if (r->number && counted)
        row_progress(m, r);
    else
        r->share = r->wait = -1;
    r->looked = true;
}

/* Makes the row of an entry, with its sums of the previous reply unless the job's process is
 * another one now. False: the entry is not valid. */
static bool row_of(const struct top_model *m, const json_t *entry, bool job, struct top_row *to)
{
    json_int_t number = job ? json_get_int(entry, "number") : 0, pid = json_get_int(entry, "pid");
    if (pid <= 0 || pid > INT32_MAX || (job && number <= 0))
        return false;
    *to = (struct top_row){.number = (uint64_t)number, .pid = (pid_t)pid, .share = -1, .wait = -1};
    const struct top_row *before =
        m->nrows ? bsearch(to, m->rows, m->nrows, sizeof(*to), row_key_order) : NULL;
    if (before && before->pid == pid)
        *to = *before;
    return true;
}

int top_model_update(struct top_model *m, json_t *reply, uint64_t now_ns)
{
    static const char *const lists[] = {"jobs", "unmanaged", "others"};
    size_t most = 0, n = 0;
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
        most += json_array_size(json_object_get(reply, lists[l]));
    struct top_row *rows = calloc(most + 1, sizeof(*rows));
    struct top_row **lines = calloc(most + 1, sizeof(void *));
    if (!rows || !lines) {
        free(rows);
        free(lines);
        return -ENOMEM;
    }
    gpus_read(m, json_object_get(reply, "gpus"), now_ns);
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
        for_each_json (entry, json_object_get(reply, lists[l])) {
            if (row_of(m, entry, l == 0, &rows[n]))
                row_fill(m, &rows[n++], entry, json_get_true(reply, "daemon"));
        }
    }
    json_incref(reply); /* before the release of m->reply, which may be the same */
    rows_free(m->rows, m->nrows);
    free(m->lines);
    json_decref(m->reply);
    m->reply = reply;
    m->rows = rows;
    m->nrows = n;
    qsort(rows, n, sizeof(*rows), row_key_order);
    m->njobs = 0;
    while (m->njobs < m->nrows && rows[m->njobs].number)
        m->njobs++;
    m->lines = lines;
    m->nlines = 0;
    return 0;
}

/* ---- order and selection ---- */

static int line_order(const void *x, const void *y, void *model)
{
    const struct top_model *m = model;
    const struct top_row *a = *(struct top_row *const *)x, *b = *(struct top_row *const *)y;
    if (!a->number != !b->number) /* processes in no job are below the jobs in every order */
        return a->number ? -1 : 1;
    int c = top_compare(m, a, b);
    if (c == 0) /* rows are in the order of their numbers */
        c = a < b ? -1 : a > b;
    return m->inverted ? -c : c;
}

static bool row_contains(const struct top_row *r, const char *text)
{
    const char *class = json_get_text(r->entry, "class"), *state = json_get_text(r->entry, "state");
    char all[TOP_NAME + USER_TEXT + TOP_WHERE + 128];
    snprintf(all, sizeof(all), "%s\n%s\n%s\n%.32s\n%.32s\n%s%llu %d", r->name, r->user, r->where,
             class ? class : "", state ? state : "", r->number ? "#" : "",
             (unsigned long long)r->number, (int)r->pid);
    return strcasestr(all, text);
}

void top_model_arrange(struct top_model *m)
{
    m->nlines = 0;
    for (size_t i = 0; i < m->nrows; i++) {
        if (!m->filter[0] || row_contains(&m->rows[i], m->filter))
            m->lines[m->nlines++] = &m->rows[i];
    }
    if (m->nlines)
        qsort_r(m->lines, m->nlines, sizeof(void *), line_order, m);
    size_t found = 0;
    while (found < m->nlines && (m->lines[found]->number != m->selected ||
                                 (!m->selected && m->lines[found]->pid != m->selected_pid)))
        found++;
    bool kept = m->selected_pid && found < m->nlines;
    top_model_select(m, kept ? found : m->at);
    m->selected_pid = kept ? m->selected_pid : 0;
}

struct top_row *top_model_selected(const struct top_model *m)
{
    return m->at < m->nlines ? m->lines[m->at] : NULL;
}

static void keep_in_view(struct top_model *m)
{
    size_t height = max_u64(m->height, 1);
    size_t least = m->at >= height ? m->at - height + 1 : 0;
    size_t most = m->nlines > height ? m->nlines - height : 0;
    m->first = min_u64(clamp_u64(m->first, least, m->at), most);
}

void top_model_select(struct top_model *m, size_t line)
{
    m->at = m->nlines ? min_u64(line, m->nlines - 1) : 0;
    const struct top_row *r = top_model_selected(m);
    m->selected = r ? r->number : 0;
    m->selected_pid = r ? r->pid : 0;
    keep_in_view(m);
}

void top_model_move(struct top_model *m, long by)
{
    top_model_select(m, by < 0 && (size_t)-by > m->at ? 0 : m->at + (size_t)by);
    if (by <= -(long)m->nlines)
        m->selected_pid = 0; /* the selection stays on the first line, whichever row is there */
}

void top_model_height(struct top_model *m, size_t height)
{
    m->height = height;
    keep_in_view(m);
}
