/* Several drivers as one: the GPUs of the second come after those of the first, and so on. A
 * group belongs to the part that has its GPU; its key is that part's, so keys are unique only
 * together with the GPU.
 *
 * A part that fails never keeps another from being asked: the answer has what the others report,
 * and is an error nevertheless (processes, scan) where the caller has to know that it is not all. A
 * part that cannot be opened keeps its indices, so that a process that undoes can go on with the
 * rest. Optional calls are always there and answer -ENOTSUP where no part has them. */
#include "device/mux.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copied to be passed down; the hardware's control takes as many at once. */
#define GROUPS_AT_ONCE 64

struct part {
    struct mux_part p;
    unsigned first; /* its GPU 0 here */
};

/* Which parts have groups of a process: a scan without their answer is not complete. */
struct known {
    pid_t pid;
    uint32_t parts; /* bit mask */
};

struct mux {
    struct device_driver base;
    struct part v[MUX_PARTS_MAX];
    unsigned n, gpus;
    struct known *known;
    size_t nknown, known_cap;
    struct device_watcher watcher; /* also for parts that are opened later */
    char name[64];
    struct device_ops ops; /* named after the parts */
};

static struct mux *mux(struct device_driver *d)
{
    return (struct mux *)(void *)d;
}

#define for_each_part(m, p) for (struct part *p = (m)->v; p < (m)->v + (m)->n; p++)

/* The part's driver, opened if it was not there before. */
static int mux_part_open(struct mux *m, struct part *p, struct error *err)
{
    if (p->p.driver)
        return 0;
    int r = p->p.ops->open(p->p.where[0] ? p->p.where : NULL, &p->p.driver, err);
    if (r == 0 && m->watcher.add && p->p.ops->watch)
        p->p.ops->watch(p->p.driver, &m->watcher);
    return r;
}

static struct part *mux_part_of(struct mux *m, unsigned gpu)
{
    for_each_part(m, p)
    {
        if (gpu >= p->first && gpu - p->first < p->p.gpus)
            return p;
    }
    return NULL;
}

/* The first of several errors is the one to return. */
static void first_error(int *first, int r, struct error *err, const struct error *e)
{
    if (r < 0 && *first == 0)
        *first = error_set(err, r, "%s", e->text);
}

/* ---- open, close, info ---- */

static void mux_close(struct device_driver *base)
{
    struct mux *m = mux(base);
    for_each_part(m, p) device_close(p->p.driver);
    free(m->known);
    free(m);
}

static unsigned mux_gpus(struct device_driver *base)
{
    return mux(base)->gpus;
}

static int mux_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct part *p = mux_part_of(mux(base), gpu);
    int r = p ? mux_part_open(mux(base), p, NULL) : -ENODEV;
    if (!p || r < 0)
        return r;
    r = p->p.ops->info(p->p.driver, gpu - p->first, out);
    if (r < 0)
        return r;
    /* Counted over parts of one kind: two software GPUs are soft0 and soft1. */
    unsigned number = gpu - p->first;
    for (struct part *q = mux(base)->v; q < p; q++)
        number += q->p.ops == p->p.ops ? q->p.gpus : 0;
    snprintf(out->label, sizeof(out->label), "%.12s%u", p->p.ops->name, number);
    return 0;
}

/* ---- processes and groups ---- */

static int mux_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    int first = 0;
    size_t before = out->n;
    for_each_part(mux(base), p)
    {
        struct pid_list l = {0};
        struct error e = {""};
        int r = mux_part_open(mux(base), p, &e);
        if (r == 0)
            r = p->p.ops->processes(p->p.driver, &l, &e);
        first_error(&first, r, err, &e);
        for (size_t i = 0; i < l.n; i++) {
            size_t k = before;
            while (k < out->n && out->v[k] != l.v[i])
                k++;
            if (k == out->n && pid_list_push(out, l.v[i]) < 0)
                first_error(&first, -ENOMEM, err, &(struct error){"out of memory"});
        }
        pid_list_free(&l);
    }
    return first;
}

static struct known *mux_known(struct mux *m, pid_t pid)
{
    for (size_t i = 0; i < m->nknown; i++) {
        if (m->known[i].pid == pid)
            return &m->known[i];
    }
    return NULL;
}

static int remember(struct mux *m, pid_t pid, uint32_t parts)
{
    struct known *k = mux_known(m, pid);
    if (!k && !parts)
        return 0;
    if (!k && m->nknown == m->known_cap) {
        size_t cap = m->known_cap ? m->known_cap * 2 : 64;
        struct known *v = reallocarray(m->known, cap, sizeof(*v));
        if (!v)
            return -ENOMEM;
        m->known = v;
        m->known_cap = cap;
    }
    k = k ? k : &m->known[m->nknown++];
    *k = (struct known){pid, parts};
    return 0;
}

/* A failing part matters to those who have something there, and to those who have nothing anywhere:
 * it may be what they wait for. */
static int mux_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                    struct error *err)
{
    struct mux *m = mux(base);
    const struct known *k = mux_known(m, proc.pid);
    uint32_t had = k ? k->parts : 0, has = 0;
    int first = 0, lost = 0;
    struct error any = {""};
    for_each_part(m, p)
    {
        struct group_list l = {0};
        struct error e = {""};
        uint32_t bit = 1U << (p - m->v);
        int r = mux_part_open(m, p, &e);
        if (r == 0)
            r = p->p.ops->scan(p->p.driver, proc, &l, &e);
        first_error(&first, r, &any, &e);
        if ((had & bit) || r == -EAGAIN)
            first_error(&lost, r, err, &e);
        if (r < 0)
            has |= had & bit;
        for (size_t i = 0; i < l.n; i++) {
            if (l.v[i].gpu >= p->p.gpus)
                continue; /* there were fewer when it was opened */
            l.v[i].gpu += p->first;
            has |= bit;
            if (group_list_push(out, &l.v[i]) < 0)
                first_error(&lost, -ENOMEM, err, &(struct error){"out of memory"});
        }
        group_list_free(&l);
    }
    if (remember(m, proc.pid, has) < 0)
        first_error(&lost, -ENOMEM, err, &(struct error){"out of memory"});
    if (lost < 0 || has)
        return lost;
    return first < 0 ? error_set(err, first, "%s", any.text) : 0;
}

static void mux_forget(struct device_driver *base, pid_t pid)
{
    struct mux *m = mux(base);
    for_each_part(m, p)
    {
        if (p->p.driver)
            p->p.ops->forget(p->p.driver, pid);
    }
    struct known *k = mux_known(m, pid);
    if (k)
        *k = m->known[--m->nknown];
}

/* ---- steering ---- */

static int no_gpu(unsigned gpu, struct error *err)
{
    return error_set(err, -ENODEV, "there is no GPU %u", gpu);
}

static int mux_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                             struct error *err)
{
    struct part *p = mux_part_of(mux(base), g->gpu);
    if (!p)
        return no_gpu(g->gpu, err);
    int r = mux_part_open(mux(base), p, err);
    if (r < 0)
        return r;
    struct device_group own = *g;
    own.gpu -= p->first;
    return p->p.ops->set_timeslice(p->p.driver, &own, us, err);
}

static int mux_set_running(struct device_driver *base, const struct device_group *const *g,
                           size_t n, bool on, struct error *err)
{
    struct mux *m = mux(base);
    struct device_group own[GROUPS_AT_ONCE];
    const struct device_group *list[GROUPS_AT_ONCE];
    int first = 0;
    bool some_done = false;
    for (size_t i = 0; i < n; i++) {
        if (!mux_part_of(m, g[i]->gpu))
            first_error(&first, -ENODEV, err,
                        &(struct error){"a group of a GPU that is not there"});
    }
    for_each_part(m, p)
    {
        for (size_t i = 0; i < n;) {
            size_t k = 0;
            struct error e = {""};
            for (; i < n && k < GROUPS_AT_ONCE; i++) {
                if (mux_part_of(m, g[i]->gpu) != p)
                    continue;
                own[k] = *g[i];
                own[k].gpu -= p->first;
                list[k] = &own[k];
                k++;
            }
            int r = k ? mux_part_open(m, p, &e) : 0;
            if (r == 0 && k)
                r = (on ? p->p.ops->resume : p->p.ops->suspend)(p->p.driver, list, k, &e);
            some_done |= k && r != -EPERM;
            first_error(&first, r, err, &e);
        }
    }
    return device_refused(first, some_done);
}

static int mux_suspend(struct device_driver *d, const struct device_group *const *g, size_t n,
                       struct error *err)
{
    return mux_set_running(d, g, n, false, err);
}

static int mux_resume(struct device_driver *d, const struct device_group *const *g, size_t n,
                      struct error *err)
{
    return mux_set_running(d, g, n, true, err);
}

/* ---- time and memory ---- */

static int not_supported(struct error *err)
{
    return error_set(err, -ENOTSUP, "none of the drivers in use supports this");
}

/* What all parts report whose driver has the call: LIST is the list's kind, EACH what is done with
 * each part's own list `l` and its result `r`. Fails only where all do. */
#define ask_all(m, LIST, CALL, out, err, EACH)                                                     \
    ({                                                                                             \
        int first_ = 0;                                                                            \
        bool any_ = false, some_ = false;                                                          \
        for_each_part(m, p)                                                                        \
        {                                                                                          \
            struct LIST l = {0};                                                                   \
            struct error e_ = {""};                                                                \
            int r = p->p.ops->CALL ? mux_part_open(m, p, &e_) : -ENOTSUP;                          \
            if (r == 0)                                                                            \
                r = p->p.ops->CALL(p->p.driver, &l, &e_);                                          \
            any_ |= p->p.ops->CALL != NULL;                                                        \
            some_ |= r == 0;                                                                       \
            if (p->p.ops->CALL)                                                                    \
                first_error(&first_, r, err, &e_);                                                 \
            EACH;                                                                                  \
            for (size_t i_ = 0; r == 0 && i_ < l.n; i_++) {                                        \
                if (l.v[i_].gpu >= p->p.gpus)                                                      \
                    continue;                                                                      \
                l.v[i_].gpu += p->first;                                                           \
                some_ &= LIST##_push(out, &l.v[i_]) == 0;                                          \
            }                                                                                      \
            LIST##_free(&l);                                                                       \
        }                                                                                          \
        any_ ? (some_ ? 0 : first_ ? first_ : -ENOMEM) : not_supported(err);                       \
    })

static int mux_usage(struct device_driver *base, struct usage_list *out, struct error *err)
{
    return ask_all(mux(base), usage_list, usage, out, err, (void)0);
}

/* A part without activity() knows nothing of its GPUs. */
static uint32_t unknown(const struct part *p, uint32_t incomplete)
{
    uint32_t all = p->p.gpus < 32 ? (1U << p->p.gpus) - 1 : UINT32_MAX;
    return (incomplete & all) << p->first;
}

static int mux_activity(struct device_driver *base, struct activity_list *out, struct error *err)
{
    return ask_all(mux(base), activity_list, activity, out, err,
                   out->incomplete |= unknown(p, r == 0 ? l.incomplete : UINT32_MAX));
}

static int mux_demand(struct device_driver *base, struct demand_list *out, struct error *err)
{
    return ask_all(mux(base), demand_list, demand, out, err, (void)0);
}

static void mux_watch(struct device_driver *base, const struct device_watcher *w)
{
    struct mux *m = mux(base);
    m->watcher = w ? *w : (struct device_watcher){.add = NULL};
    for_each_part(m, p)
    {
        if (p->p.driver && p->p.ops->watch)
            p->p.ops->watch(p->p.driver, w);
    }
}

/* A descriptor is of one part; the others ignore its number. */
static void mux_ready(struct device_driver *base, int fd)
{
    for_each_part(mux(base), p)
    {
        if (p->p.driver && p->p.ops->ready)
            p->p.ops->ready(p->p.driver, fd);
    }
}

static uint64_t mux_due_ns(struct device_driver *base)
{
    uint64_t due = UINT64_MAX;
    for_each_part(mux(base), p)
    {
        if (p->p.driver && p->p.ops->due_ns)
            due = min_u64(due, p->p.ops->due_ns(p->p.driver));
    }
    return due;
}

static int mux_memory_free(struct device_driver *base, unsigned gpu, uint64_t *bytes,
                           struct error *err)
{
    struct part *p = mux_part_of(mux(base), gpu);
    if (!p)
        return no_gpu(gpu, err);
    if (!p->p.ops->memory_free)
        return not_supported(err);
    int r = mux_part_open(mux(base), p, err);
    return r < 0 ? r : p->p.ops->memory_free(p->p.driver, gpu - p->first, bytes, err);
}

/* ---- swapping ---- */

static bool can_swap(const struct part *p)
{
    return p->p.ops->swap_out && p->p.ops->swap_in && p->p.ops->swap_state;
}

/* Where a process's memory is: the only part that can move any; else the one where it is away, or
 * half-way; else the one where it has groups. */
static int memory_part(struct mux *m, struct proc_id proc, struct part **out, struct error *err)
{
    unsigned n = 0;
    *out = NULL;
    for_each_part(m, p)
    {
        if (can_swap(p)) {
            *out = p;
            n++;
        }
    }
    if (n < 2)
        return n ? mux_part_open(m, *out, err) : not_supported(err);
    struct part *has = NULL;
    int first = 0;
    for_each_part(m, p)
    {
        struct error e = {""};
        enum swap_state s;
        struct group_list l = {0};
        if (!can_swap(p))
            continue;
        int r = mux_part_open(m, p, &e);
        if (r == 0 && p->p.ops->swap_state(p->p.driver, proc, &s, &e) == 0 && s != SWAP_RUNNING) {
            *out = p;
            return 0;
        }
        if (r == 0)
            r = p->p.ops->scan(p->p.driver, proc, &l, &e);
        first_error(&first, r, err, &e);
        if (r == 0 && l.n && has)
            first = error_set(err, -ENOTSUP, "process %d uses GPUs of two drivers, %s and %s",
                              (int)proc.pid, has->p.ops->name, p->p.ops->name);
        has = r == 0 && l.n && !has ? p : has;
        group_list_free(&l);
        if (first == -ENOTSUP)
            return first;
    }
    *out = has;
    if (has)
        return 0;
    return first < 0 ? first
                     : error_set(err, -ESRCH, "process %d is gone, or uses no GPU", (int)proc.pid);
}

/* A job's processes, part by part. where, v: room for n each. */
static int swap_parts(struct mux *m, const struct proc_id *procs, size_t n, bool out,
                      unsigned lock_ms, struct part **where, struct proc_id *v, struct error *err)
{
    int first = 0;
    for (size_t i = 0; i < n; i++) {
        struct error e = {""};
        first_error(&first, memory_part(m, procs[i], &where[i], &e), err, &e);
    }
    if (out && first < 0)
        return first;
    for_each_part(m, p)
    {
        size_t k = 0;
        struct error e = {""};
        for (size_t i = 0; i < n; i++) {
            if (where[i] == p)
                v[k++] = procs[i];
        }
        if (!k)
            continue;
        first_error(&first,
                    out ? p->p.ops->swap_out(p->p.driver, v, k, lock_ms, &e)
                        : p->p.ops->swap_in(p->p.driver, v, k, &e),
                    err, &e);
        if (!out || first == 0)
            continue;
        /* All or none: those of the parts before come back. */
        for (struct part *q = m->v; q < p; q++) {
            for (size_t i = 0; i < n; i++) {
                if (where[i] == q)
                    q->p.ops->swap_in(q->p.driver, &procs[i], 1, NULL);
            }
        }
        break;
    }
    return first;
}

static int mux_swap(struct device_driver *base, const struct proc_id *procs, size_t n, bool out,
                    unsigned lock_ms, struct error *err)
{
    struct part **where = calloc(n + 1, sizeof(struct part *));
    struct proc_id *v = calloc(n + 1, sizeof(*v));
    int first = 0;
    if (!where || !v)
        first = error_set(err, -ENOMEM, "out of memory");
    else
        first = swap_parts(mux(base), procs, n, out, lock_ms, where, v, err);
    free(where);
    free(v);
    return first;
}

static int mux_swap_out(struct device_driver *d, const struct proc_id *procs, size_t n,
                        unsigned lock_ms, struct error *err)
{
    return mux_swap(d, procs, n, true, lock_ms, err);
}

static int mux_swap_in(struct device_driver *d, const struct proc_id *procs, size_t n,
                       struct error *err)
{
    return mux_swap(d, procs, n, false, 0, err);
}

static int mux_swap_state(struct device_driver *base, struct proc_id proc, enum swap_state *state,
                          struct error *err)
{
    struct part *p;
    int r = memory_part(mux(base), proc, &p, err);
    return r < 0 || !p ? r : p->p.ops->swap_state(p->p.driver, proc, state, err);
}

static const struct device_ops mux_ops = {
    .summary = "several drivers as one",
    .close = mux_close,
    .gpus = mux_gpus,
    .info = mux_info,
    .processes = mux_processes,
    .scan = mux_scan,
    .forget = mux_forget,
    .set_timeslice = mux_set_timeslice,
    .suspend = mux_suspend,
    .resume = mux_resume,
    .usage = mux_usage,
    .activity = mux_activity,
    .demand = mux_demand,
    .watch = mux_watch,
    .ready = mux_ready,
    .due_ns = mux_due_ns,
    .memory_free = mux_memory_free,
    .swap_out = mux_swap_out,
    .swap_in = mux_swap_in,
    .swap_state = mux_swap_state,
};

int mux_new(const struct mux_part *parts, unsigned n, struct device_driver **out, struct error *err)
{
    struct mux *m = n <= MUX_PARTS_MAX ? calloc(1, sizeof(*m)) : NULL;
    unsigned gpus = 0;
    for (unsigned i = 0; i < n; i++)
        gpus += parts[i].gpus;
    if (!m || gpus > DEVICE_GPUS_MAX) {
        for (unsigned i = 0; i < n; i++)
            device_close(parts[i].driver);
        bool memory = !m && n <= MUX_PARTS_MAX;
        free(m);
        return memory ? error_set(err, -ENOMEM, "out of memory")
                      : error_set(err, -E2BIG,
                                  "%u drivers with %u GPUs together: at most %u and %u; name fewer",
                                  n, gpus, MUX_PARTS_MAX, DEVICE_GPUS_MAX);
    }
    m->ops = mux_ops;
    m->ops.name = m->name;
    m->base.ops = &m->ops;
    for (; m->n < n; m->n++) {
        m->v[m->n] = (struct part){parts[m->n], m->gpus};
        m->gpus += parts[m->n].gpus;
        /* Each kind once: "soft,gate" also with two servers. */
        bool named = false;
        for (unsigned i = 0; i < m->n; i++)
            named |= m->v[i].p.ops == parts[m->n].ops;
        size_t at = strlen(m->name);
        if (!named)
            snprintf(m->name + at, sizeof(m->name) - at, "%s%s", at ? "," : "",
                     parts[m->n].ops->name);
    }
    *out = &m->base;
    return 0;
}

int mux_where(const struct device_driver *d, char *buf, size_t size)
{
    const struct mux *m = (const void *)d;
    size_t at = 0;
    for (unsigned i = 0; i < m->n; i++) {
        const struct mux_part *p = &m->v[i].p;
        int n = snprintf(buf + at, size - at, "%s%s*%u%s%s", i ? "," : "", p->ops->name, p->gpus,
                         p->where[0] ? "@" : "", p->where);
        at += n > 0 ? (size_t)n : 0;
        if (at >= size)
            return -E2BIG;
    }
    return 0;
}
