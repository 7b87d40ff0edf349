/* See top_model.h. */
#include "cli/top_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/json_text.h"
#include "lib/text.h"
#include "lib/util.h"

#define RING ARRAY_SIZE(((struct top_history *)0)->used)

/* Sums that are newer by less say nothing of a share: it stays as it was. */
#define SPAN_MIN_S  0.05
#define IDLE_SPAN_S 5.0 /* ceded counts that once per second */

/* ---- history ---- */

static void history_until(struct top_history *h, uint64_t end)
{
    uint64_t from = end > RING ? max_u64(h->end, end - RING) : h->end;
    for (uint64_t s = from; s < end; s++)
        h->used[s % RING] = 0;
    h->end = max_u64(h->end, end);
}

/* A share between two times; what is older than the ring is left out. */
static void history_add(struct top_history *h, uint64_t from_ns, uint64_t to_ns, double share)
{
    history_until(h, to_ns / NSEC_PER_SEC + 1);
    uint64_t oldest = h->end > RING ? (h->end - RING) * NSEC_PER_SEC : 0;
    for (uint64_t t = max_u64(from_ns, oldest); t < to_ns;) {
        uint64_t s = t / NSEC_PER_SEC, end = min_u64((s + 1) * NSEC_PER_SEC, to_ns);
        h->used[s % RING] += (float)(share * (double)(end - t) / 1e9);
        t = end;
    }
}

/* The second that is not over yet counts for nothing, nor does the one before, of which a sampled
 * count may come still. */
double top_history_part(const struct top_history *h, uint64_t now_ns, unsigned i, unsigned n)
{
    uint64_t end = now_ns / NSEC_PER_SEC - min_u64(1, now_ns / NSEC_PER_SEC);
    double sum = 0;
    unsigned from = i * TOP_SECONDS / n, to = (i + 1) * TOP_SECONDS / n;
    for (unsigned k = from; k < to; k++) {
        uint64_t back = TOP_SECONDS - k;
        if (end >= back && end - back < h->end && end - back + RING >= h->end)
            sum += (double)h->used[(end - back) % RING];
    }
    return to > from ? sum / (to - from) : 0;
}

/* ---- rows ---- */

void top_model_init(struct top_model *m)
{
    *m = (struct top_model){.sort = TOP_SHARE};
}

static void row_free(struct top_row *r)
{
    json_decref(r->entry);
    free(r);
}

void top_model_free(struct top_model *m)
{
    for (size_t i = 0; i < m->nrows; i++)
        row_free(m->rows[i]);
    free(m->rows);
    free(m->lines);
    json_decref(m->reply);
    *m = (struct top_model){.nrows = 0};
}

/* Jobs by number, then those in no job by pid. */
static int row_key_order(const void *a, const void *b)
{
    const struct top_row *x = *(struct top_row *const *)a, *y = *(struct top_row *const *)b;
    if (!x->number != !y->number)
        return x->number ? -1 : 1;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->number ? 0 : x->pid < y->pid ? -1 : x->pid > y->pid;
}

static double top_number(const json_t *o, const char *key)
{
    double v = json_number_value(json_object_get(o, key));
    return isfinite(v) && v > 0 ? v : 0;
}

/* The share on one GPU since the sums that were there before. */
static void row_counts(struct top_row *r, struct top_gpu *gpu, const json_t *c, double before_s,
                       double known_s, bool first, uint64_t now_ns)
{
    struct top_sums *on = &r->on[gpu->index];
    double gpu_s = top_number(c, "gpu_s"), counted_s = fmin(top_number(c, "counted_s"), known_s);
    if (first || counted_s <= 0)
        on->share = -1;
    if (counted_s <= 0) /* nobody counts */
        return;
    if (on->counted_s <= 0)
        on->counted_s = fmin(before_s, counted_s);
    double span = counted_s - on->counted_s;
    if (first) {
        ;
    } else if (span < SPAN_MIN_S) {
        return;
    } else {
        on->share = fmin(fmax(gpu_s - on->gpu_s, 0) / span, 1);
        uint64_t to = now_ns - min_u64(now_ns, (uint64_t)(fmin(known_s - counted_s, 60) * 1e9));
        uint64_t from = to - min_u64(to, (uint64_t)(fmin(span, TOP_SECONDS) * 1e9));
        history_add(&r->history, from, to, on->share);
        history_add(&gpu->history, from, to, on->share);
    }
    on->gpu_s = gpu_s;
    on->counted_s = counted_s;
}

static struct top_gpu *gpu_find(struct top_model *m, json_int_t index)
{
    for (unsigned i = 0; i < m->ngpus; i++) {
        if ((json_int_t)m->gpus[i].index == index)
            return &m->gpus[i];
    }
    return NULL;
}

/* Differences to the reply before. Sums that went back are another daemon's. */
static void row_progress(struct top_model *m, struct top_row *r, uint64_t now_ns)
{
    const json_t *counts = json_object_get(r->entry, "counts"), *c;
    double known_s = top_number(counts, "known_s"), waited_s = 0, share = 0;
    size_t i;
    bool first = !r->looks || known_s < r->known_s, known = false, unknown = first;
    if (first)
        memset(r->on, 0, sizeof(r->on));
    json_array_foreach(json_object_get(counts, "gpus"), i, c)
    {
        struct top_gpu *gpu = gpu_find(m, json_get_int(c, "gpu"));
        waited_s += top_number(c, "waited_s");
        if (!gpu)
            continue;
        row_counts(r, gpu, c, r->known_s, known_s, first, now_ns);
        known |= r->on[gpu->index].share >= 0;
        unknown |= r->on[gpu->index].share < 0;
        share += fmax(r->on[gpu->index].share, 0);
    }
    r->share = unknown && !known ? -1 : share;
    double span = known_s - r->known_s;
    if (first)
        r->wait = -1;
    else if (span >= SPAN_MIN_S)
        r->wait = fmin(fmax(waited_s - r->waited_s, 0) / (span * fmax(r->ngpus, 1)), 1);
    if (span >= SPAN_MIN_S || first) {
        r->known_s = known_s;
        r->waited_s = waited_s;
    }
}

/* told: by a daemon, which counts. */
static void row_fill(struct top_model *m, struct top_row *r, json_t *entry, bool told,
                     uint64_t now_ns)
{
    r->uid = (uid_t)json_get_int(entry, "uid");
    json_incref(entry);
    json_decref(r->entry);
    r->entry = entry;
    r->seen = true;
    const char *name = json_get_text(entry, "name");
    snprintf(r->name, sizeof(r->name), "%s", name ? name : "?");
    text_show(r->name);
    const json_t *gpu;
    size_t i;
    r->ngpus = 0;
    json_array_foreach(json_object_get(entry, "gpus"), i, gpu)
    {
        struct top_gpu *g = gpu_find(m, json_integer_value(gpu));
        if (g && r->number)
            g->jobs++;
        r->ngpus++;
    }
    if (r->number && told)
        row_progress(m, r, now_ns);
    else
        r->share = r->wait = -1;
    for (unsigned g = 0; g < m->ngpus && r->share >= 0; g++)
        m->gpus[g].share += fmax(r->on[m->gpus[g].index].share, 0);
    r->looks += r->looks < 2;
}

static void gpu_idle(struct top_gpu *g, const json_t *gpu, uint64_t now_ns)
{
    const double idle_s = json_number_value(json_object_get(gpu, "idle_while_waiting_s"));
    const double span_s = (double)(now_ns - g->idle_at_ns) * 1e-9;
    if (g->idle_at_ns && span_s < IDLE_SPAN_S && idle_s >= g->idle_s)
        return;
    g->idle = g->idle_at_ns && idle_s >= g->idle_s ? fmin((idle_s - g->idle_s) / span_s, 1) : -1;
    g->idle_s = idle_s;
    g->idle_at_ns = now_ns;
}

static void gpus_read(struct top_model *m, const json_t *gpus, uint64_t now_ns)
{
    struct top_gpu before[DEVICE_GPUS_MAX];
    memcpy(before, m->gpus, sizeof(before));
    unsigned n = m->ngpus;
    const json_t *g;
    size_t i;
    m->ngpus = 0;
    json_array_foreach(gpus, i, g)
    {
        json_int_t index = json_get_int(g, "index");
        if (index < 0 || index >= DEVICE_GPUS_MAX || gpu_find(m, index))
            continue;
        struct top_gpu *to = &m->gpus[m->ngpus++];
        *to = (struct top_gpu){.index = (unsigned)index,
                               .entry = g,
                               .label = json_get_text(g, "label"),
                               .name = json_get_text(g, "name")};
        for (unsigned k = 0; k < n; k++) {
            if (before[k].index != to->index)
                continue;
            to->history = before[k].history;
            to->idle_s = before[k].idle_s;
            to->idle_at_ns = before[k].idle_at_ns;
            to->idle = before[k].idle;
        }
        gpu_idle(to, g, now_ns);
    }
}

/* The row of an entry, a new one if there is none yet, or if its process is another now. NULL: it
 * is no entry, or there is no memory (*r). */
static struct top_row *row_of(struct top_model *m, const json_t *entry, bool job, int *r)
{
    json_int_t number = job ? json_get_int(entry, "number") : 0, pid = json_get_int(entry, "pid");
    struct top_row key = {.number = (uint64_t)number, .pid = (pid_t)pid}, *find = &key, **at;
    if (pid <= 0 || pid > INT32_MAX || (job && number <= 0))
        return NULL;
    at = m->nrows ? bsearch(&find, m->rows, m->nrows, sizeof(void *), row_key_order) : NULL;
    if (at && (*at)->pid == pid)
        return (*at)->seen ? NULL : *at;
    struct top_row *made = malloc(sizeof(*made));
    if (made)
        *made = (struct top_row){.number = key.number,
                                 .pid = key.pid,
                                 .share = -1,
                                 .wait = -1,
                                 .tagged = at && (*at)->tagged};
    *r = made ? *r : -ENOMEM;
    return made;
}

/* Those that the reply has not named go. */
static void rows_replace(struct top_model *m, struct top_row **rows, size_t n)
{
    for (size_t i = 0; i < m->nrows; i++) {
        if (!m->rows[i]->seen)
            row_free(m->rows[i]);
    }
    free(m->rows);
    m->rows = rows;
    m->nrows = n;
    qsort(rows, n, sizeof(void *), row_key_order);
    for (size_t i = 0; i < n; i++)
        rows[i]->seen = false;
}

int top_model_update(struct top_model *m, json_t *reply, uint64_t now_ns)
{
    const char *const lists[] = {"jobs", "unmanaged", "others"};
    size_t most = 0, n = 0, i;
    int result = 0;
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++)
        most += json_array_size(json_object_get(reply, lists[l]));
    struct top_row **rows = calloc(most + 1, sizeof(void *));
    if (!rows)
        return -ENOMEM;
    gpus_read(m, json_object_get(reply, "gpus"), now_ns);
    m->njobs = 0;
    for (size_t l = 0; l < ARRAY_SIZE(lists); l++) {
        json_t *entry;
        json_array_foreach(json_object_get(reply, lists[l]), i, entry)
        {
            struct top_row *r = row_of(m, entry, l == 0, &result);
            if (!r)
                continue;
            row_fill(m, r, entry, json_get_true(reply, "daemon"), now_ns);
            rows[n++] = r;
            m->njobs += l == 0;
        }
    }
    rows_replace(m, rows, n);
    m->now_ns = now_ns;
    json_incref(reply);
    json_decref(m->reply);
    m->reply = reply;
    m->nlines = 0; /* they name rows by their places */
    return result;
}

double top_user_share(const struct top_model *m, uid_t uid, unsigned *rows)
{
    double share = 0;
    *rows = 0;
    for (size_t i = 0; i < m->nrows; i++) {
        if (m->rows[i]->uid != uid)
            continue;
        ++*rows;
        share += fmax(m->rows[i]->share, 0);
    }
    return share;
}

void top_model_untag(struct top_model *m)
{
    for (size_t i = 0; i < m->nrows; i++)
        m->rows[i]->tagged = false;
}
