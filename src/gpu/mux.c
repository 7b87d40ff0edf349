/* Several drivers as one: the GPUs of the second come after those of the first, and so on. A
 * group belongs to the part that has its GPU; keys are unique within a part, and so only together
 * with the GPU.
 *
 * When one part fails the others are still asked. Their reports are passed on, with an error where
 * the caller has to know that the answer is incomplete (processes, scan). A part that cannot be
 * opened keeps its indices, so that a process that undoes changes can go on with the other parts.
 * Optional calls are never NULL and answer -ENOTSUP where no part has them. */
#include "gpu/mux.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/gate_proto.h"
#include "gpu/gate/gate.h"

/* Groups that are copied for one call of a part; the hardware's control takes 64 channels. */
#define GROUPS_AT_ONCE 64

struct mux {
    struct device_driver base;
    struct mux_part v[MUX_PARTS_MAX];
    unsigned n, gpus;
    struct device_watcher watcher; /* kept for parts that are opened later */
    char name[64];
    struct device_ops ops; /* a copy, whose name is made of the parts' */
};

static struct mux *mux(struct device_driver *d)
{
    return (struct mux *)(void *)d;
}

#define for_each_part(m, p) for (struct mux_part *p = (m)->v; p < (m)->v + (m)->n; p++)

/* Opens the part's driver if it is not open. */
static int mux_part_open(struct mux *m, struct mux_part *p, struct error *err)
{
    if (p->driver)
        return 0;
    int r = p->ops->open(p->where[0] ? p->where : NULL, &p->driver, err);
    if (r == 0 && m->watcher.add && p->ops->watch)
        p->ops->watch(p->driver, &m->watcher);
    return r;
}

/* Turns a GPU's index in the part into its index among all. False: the GPU was not there when the
 * part was opened, and so has no index. */
static bool part_gpu(const struct mux_part *p, uint32_t *gpu)
{
    bool known = *gpu < p->gpus;
    *gpu += p->first;
    return known;
}

static bool part_has(const struct mux_part *p, unsigned gpu)
{
    return gpu >= p->first && gpu - p->first < p->gpus;
}

/* Finds and opens the part that has this GPU; NULL with an error. */
static int mux_part_of(struct mux *m, unsigned gpu, struct mux_part **out, struct error *err)
{
    for_each_part (m, p) {
        if (part_has(p, gpu)) {
            int r = mux_part_open(m, p, err);
            *out = r < 0 ? NULL : p;
            return r;
        }
    }
    *out = NULL;
    return error_set(err, -ENODEV, "there is no GPU %u", gpu);
}

/* Keeps the first of several errors, which is the one to return. */
static void first_error(int *first, int r, struct error *err, const struct error *e)
{
    if (r < 0 && *first == 0)
        *first = error_set(err, r, "%s", e->text);
}

/* ---- open, close, info ---- */

static void mux_close(struct device_driver *base)
{
    struct mux *m = mux(base);
    for_each_part (m, p) {
        device_close(p->driver);
        pid_list_free(&p->users);
    }
    free(m);
}

static unsigned mux_gpus(struct device_driver *base)
{
    return mux(base)->gpus;
}

static int mux_info(struct device_driver *base, unsigned gpu, struct gpu_info *out)
{
    struct mux_part *p;
    int r = mux_part_of(mux(base), gpu, &p, NULL);
    if (r == 0)
        r = p->ops->info(p->driver, gpu - p->first, out);
    if (r < 0)
        return r;
    /* Numbers count over all parts of one kind: two software GPUs are soft0 and soft1. */
    unsigned number = gpu - p->first;
    for (struct mux_part *q = mux(base)->v; q < p; q++)
        number += q->ops == p->ops ? q->gpus : 0;
    char label[sizeof(out->label)];
    memcpy(label, out->label, sizeof(label));
    const char *profile = strchr(label, ':');
    if (profile)
        snprintf(out->label, sizeof(out->label), "%u%s", gpu, profile);
    else
        snprintf(out->label, sizeof(out->label), "%.12s%u", p->ops->name, number);
    return 0;
}

/* ---- processes and groups ---- */

static int mux_list(struct device_driver *base, bool clients, struct pid_list *out,
                    struct error *err)
{
    int first = 0;
    for_each_part (mux(base), p) {
        struct error e = {""};
        int r = mux_part_open(mux(base), p, &e);
        if (r == 0 && !clients)
            r = p->ops->processes(p->driver, out, &e);
        else if (r == 0 && p->ops->clients)
            r = p->ops->clients(p->driver, out, &e);
        first_error(&first, r, err, &e);
    }
    return first;
}

static int mux_processes(struct device_driver *base, struct pid_list *out, struct error *err)
{
    return mux_list(base, false, out, err);
}

static int mux_clients(struct device_driver *base, struct pid_list *out, struct error *err)
{
    return mux_list(base, true, out, err);
}

/* Removes the process from the part's users. Returns whether it was one. */
static bool part_forget(struct mux_part *p, pid_t pid)
{
    for (size_t i = 0; i < p->users.n; i++) {
        if (p->users.v[i] == pid) {
            p->users.v[i] = p->users.v[--p->users.n];
            return true;
        }
    }
    return false;
}

/* A part that fails makes the scan fail if the process had groups there, or if it has none at all,
 * because they may be there. */
static int mux_scan(struct device_driver *base, struct proc_id proc, struct group_list *out,
                    struct error *err)
{
    struct mux *m = mux(base);
    int first = 0, lost = 0;
    struct error any = {""};
    bool has_any = false;
    for_each_part (m, p) {
        size_t n = out->n;
        struct error e = {""};
        bool had = part_forget(p, proc.pid);
        int r = mux_part_open(m, p, &e);
        if (r == 0)
            r = p->ops->scan(p->driver, proc, out, &e);
        first_error(&first, r, &any, &e);
        if (had || r == -EAGAIN)
            first_error(&lost, r, err, &e);
        bool has = r < 0 && had;
        for (size_t i = n; i < out->n; i++) {
            if (!part_gpu(p, &out->v[i].gpu))
                continue;
            out->v[n++] = out->v[i];
            has = true;
        }
        out->n = n;
        if (has && pid_list_push(&p->users, proc.pid) < 0)
            first_error(&lost, -ENOMEM, err, &(struct error){"out of memory"});
        has_any |= has;
    }
    if (lost < 0 || has_any)
        return lost;
    return first < 0 ? error_set(err, first, "%s", any.text) : 0;
}

static void mux_forget(struct device_driver *base, pid_t pid)
{
    for_each_part (mux(base), p) {
        if (p->driver)
            p->ops->forget(p->driver, pid);
        part_forget(p, pid);
    }
}

/* ---- steering ---- */

/* Finds the group's part, and copies the group with its GPU's index in that part. */
static int mux_group(struct device_driver *base, const struct device_group *g,
                     struct mux_part **part, struct device_group *own, struct error *err)
{
    int r = mux_part_of(mux(base), g->gpu, part, err);
    *own = *g;
    own->gpu -= r < 0 ? 0 : (*part)->first;
    return r;
}

static int mux_set_timeslice(struct device_driver *base, const struct device_group *g, uint64_t us,
                             struct error *err)
{
    struct mux_part *p;
    struct device_group own;
    int r = mux_group(base, g, &p, &own, err);
    return r < 0 ? r : p->ops->set_timeslice(p->driver, &own, us, err);
}

static int mux_set_preempt(struct device_driver *base, const struct device_group *g,
                           bool block_ends, struct error *err)
{
    struct mux_part *p;
    struct device_group own;
    int r = mux_group(base, g, &p, &own, err);
    if (r < 0)
        return r;
    if (p->ops->set_preempt)
        return p->ops->set_preempt(p->driver, &own, block_ends, err);
    return block_ends ? error_set(err, -ENOTSUP, "no preemption modes on this GPU") : 0;
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
        if (g[i]->gpu >= m->gpus)
            first_error(&first, -ENODEV, err,
                        &(struct error){"a group of a GPU that is not there"});
    }
    for_each_part (m, p) {
        for (size_t i = 0; i < n;) {
            size_t k = 0;
            struct error e = {""};
            for (; i < n && k < GROUPS_AT_ONCE; i++) {
                if (!part_has(p, g[i]->gpu))
                    continue;
                own[k] = *g[i];
                own[k].gpu -= p->first;
                list[k] = &own[k];
                k++;
            }
            if (!k)
                break;
            int r = mux_part_open(m, p, &e);
            if (r == 0)
                r = p->ops->set_running(p->driver, list, k, on, &e);
            some_done |= r != -EPERM;
            first_error(&first, r, err, &e);
        }
    }
    return device_refused(first, some_done);
}

/* ---- time and memory ---- */

static int not_supported(struct error *err)
{
    return error_set(err, -ENOTSUP, "none of the drivers in use supports this");
}

/* Defines mux_all_CALL(), which joins the reports of all parts whose driver has the call. The first
 * error counts, and only if no part has answered. lacks(): a part has no report, or gave one. */
#define DEFINE_REPORT(call, list, lacks)                                                           \
    static int mux_all_##call(struct device_driver *base, struct list *out, struct error *err)     \
    {                                                                                              \
        int first = 0;                                                                             \
        bool some = false;                                                                         \
        for_each_part (mux(base), p) {                                                             \
            struct list l = {.v = NULL};                                                           \
            struct error e = {"out of memory"};                                                    \
            int r = p->ops->call ? mux_part_open(mux(base), p, &e) : 1;                            \
            if (r == 0)                                                                            \
                r = p->ops->call(p->driver, &l, &e);                                               \
            for (size_t i = 0; i < l.n && r == 0; i++)                                             \
                r = part_gpu(p, &l.v[i].gpu) ? list##_push(out, &l.v[i]) : 0;                      \
            lacks(out, p, &l, r);                                                                  \
            list##_free(&l);                                                                       \
            some |= r == 0;                                                                        \
            first_error(&first, r, err, &e);                                                       \
        }                                                                                          \
        return some ? 0 : first < 0 ? first : not_supported(err);                                  \
    }

/* A part without a report has gaps in the record of all its GPUs. */
static void has_gaps(struct activity_list *out, const struct mux_part *p,
                     const struct activity_list *of, int r)
{
    for (uint32_t i = 0; i < p->gpus; i++)
        out->incomplete |= r != 0 || (of->incomplete >> i & 1) ? 1U << (p->first + i) : 0;
}

#define NOTHING(...)
DEFINE_REPORT(usage, usage_list, NOTHING)
DEFINE_REPORT(memory_used, usage_list, NOTHING)
DEFINE_REPORT(switches, switch_list, NOTHING)
DEFINE_REPORT(demand, demand_list, NOTHING)
DEFINE_REPORT(activity, activity_list, has_gaps)

static int mux_switches(struct device_driver *base, struct switch_list *out, struct error *err)
{
    if (out)
        return mux_all_switches(base, out, err);
    for_each_part (mux(base), p) {
        if (p->driver && p->ops->switches)
            p->ops->switches(p->driver, NULL, NULL);
    }
    return 0;
}

static void mux_watch(struct device_driver *base, const struct device_watcher *w)
{
    struct mux *m = mux(base);
    m->watcher = w ? *w : (struct device_watcher){.add = NULL};
    for_each_part (m, p) {
        if (p->driver && p->ops->watch)
            p->ops->watch(p->driver, w);
    }
}

/* A descriptor belongs to one part; the others ignore it. */
static void mux_ready(struct device_driver *base, int fd)
{
    for_each_part (mux(base), p) {
        if (p->driver && p->ops->ready)
            p->ops->ready(p->driver, fd);
    }
}

static uint64_t mux_due_ns(struct device_driver *base)
{
    uint64_t due = UINT64_MAX;
    for_each_part (mux(base), p) {
        if (p->driver && p->ops->due_ns)
            due = min_u64(due, p->ops->due_ns(p->driver));
    }
    return due;
}

/* Defines mux_CALL(), which asks the part that has the GPU. */
#define DEFINE_OF_GPU(call, type)                                                                  \
    static int mux_##call(struct device_driver *base, unsigned gpu, type *out, struct error *err)  \
    {                                                                                              \
        struct mux_part *p;                                                                        \
        int r = mux_part_of(mux(base), gpu, &p, err);                                              \
        if (r == 0 && !p->ops->call)                                                               \
            r = not_supported(err);                                                                \
        return r < 0 ? r : p->ops->call(p->driver, gpu - p->first, out, err);                      \
    }

DEFINE_OF_GPU(memory_free, uint64_t)
DEFINE_OF_GPU(counters, struct gpu_counters)

/* ---- swapping ---- */

/* Finds the part that has a process's memory: the only part that can swap; else the part for which
 * the process is swapped out or locked; else the part in which it has groups. */
static int memory_part(struct mux *m, struct proc_id proc, struct mux_part **out, struct error *err)
{
    struct mux_part *movers[MUX_PARTS_MAX], *has = NULL;
    unsigned n = 0;
    int first = 0;
    for_each_part (m, p) {
        if (p->ops->swap_state)
            movers[n++] = p;
    }
    if (n == 0)
        return not_supported(err);
    *out = movers[0];
    if (n == 1)
        return mux_part_open(m, *out, err);
    for (unsigned i = 0; i < n; i++) {
        struct error e = {""};
        enum swap_state s;
        struct group_list l = {0};
        *out = movers[i];
        int r = mux_part_open(m, *out, &e);
        if (r == 0 && (*out)->ops->swap_state((*out)->driver, proc, &s, &e) == 0 &&
            s != SWAP_RUNNING)
            return 0;
        if (r == 0)
            r = (*out)->ops->scan((*out)->driver, proc, &l, &e);
        first_error(&first, r, err, &e);
        bool found = r == 0 && l.n;
        group_list_free(&l);
        if (found && has)
            return error_set(err, -ENOTSUP, "process %d uses GPUs of two drivers, %s and %s",
                             (int)proc.pid, has->ops->name, (*out)->ops->name);
        has = found ? *out : has;
    }
    *out = has;
    if (has)
        return 0;
    return first < 0 ? first
                     : error_set(err, -ESRCH, "process %d is gone, or uses no GPU", (int)proc.pid);
}

static int mux_swap_shares(struct device_driver *base, struct proc_id proc, bool several,
                           struct error *err)
{
    struct mux_part *p;
    int r = memory_part(mux(base), proc, &p, err);
    return r < 0 ? r : p->ops->swap_shares(p->driver, proc, several, err);
}

static int mux_swap_step(struct device_driver *base, struct proc_id proc, enum swap_step step,
                         unsigned lock_ms, struct error *err)
{
    struct mux_part *p;
    int r = memory_part(mux(base), proc, &p, err);
    return r < 0 ? r : p->ops->swap_step(p->driver, proc, step, lock_ms, err);
}

static int mux_swap_state(struct device_driver *base, struct proc_id proc, enum swap_state *state,
                          struct error *err)
{
    struct mux_part *p;
    int r = memory_part(mux(base), proc, &p, err);
    return r < 0 ? r : p->ops->swap_state(p->driver, proc, state, err);
}

static const struct device_ops mux_ops = {
    .summary = "several drivers as one",
    .close = mux_close,
    .gpus = mux_gpus,
    .info = mux_info,
    .processes = mux_processes,
    .clients = mux_clients,
    .scan = mux_scan,
    .forget = mux_forget,
    .set_timeslice = mux_set_timeslice,
    .set_preempt = mux_set_preempt,
    .set_running = mux_set_running,
    .usage = mux_all_usage,
    .memory_used = mux_all_memory_used,
    .activity = mux_all_activity,
    .switches = mux_switches,
    .demand = mux_all_demand,
    .watch = mux_watch,
    .ready = mux_ready,
    .due_ns = mux_due_ns,
    .counters = mux_counters,
    .memory_free = mux_memory_free,
    .swap_shares = mux_swap_shares,
    .swap_step = mux_swap_step,
    .swap_state = mux_swap_state,
};

/* A program whose queues KFD suspends is not held by its HIP gate as well: where both take turns,
 * the job that has one's turn may wait for the other's. */
static void mux_steer_hip_once(const struct mux_part *v, unsigned n)
{
    bool suspends = false;
    for (unsigned i = 0; i < n; i++) {
        struct gpu_info g;
        for (unsigned k = 0; v[i].ops == &device_amd && v[i].driver && k < v[i].gpus; k++)
            suspends |= v[i].ops->info(v[i].driver, k, &g) == 0 && g.caps & GPU_CAP_SUSPEND;
    }
    for (unsigned i = 0; suspends && i < n; i++) {
        if (v[i].ops == &device_gate && v[i].driver)
            gate_leave_out(v[i].driver, GATE_HIP_ID);
    }
}

int mux_new(const struct mux_part *parts, unsigned n, struct device_driver **out, struct error *err)
{
    struct mux *m = NULL;
    unsigned gpus = 0;
    int r = 0;
    for (unsigned i = 0; i < n; i++)
        gpus += parts[i].gpus;
    if (n > MUX_PARTS_MAX || gpus > DEVICE_GPUS_MAX)
        r = error_set(err, -E2BIG,
                      "%u drivers with %u GPUs together: at most %u and %u; name fewer", n, gpus,
                      MUX_PARTS_MAX, DEVICE_GPUS_MAX);
    else if (!(m = calloc(1, sizeof(*m))))
        r = error_set(err, -ENOMEM, "out of memory");
    for (unsigned i = 0; r < 0 && i < n; i++)
        device_close(parts[i].driver);
    if (r < 0)
        return r;
    m->ops = mux_ops;
    m->ops.name = m->name;
    m->base.ops = &m->ops;
    for (; m->n < n; m->n++) {
        struct mux_part *p = &m->v[m->n];
        *p = parts[m->n];
        p->first = m->gpus;
        m->gpus += p->gpus;
        /* Each kind is named once: "soft,gate" also with two servers. */
        bool named = false;
        for (unsigned i = 0; i < m->n; i++)
            named |= m->v[i].ops == p->ops;
        size_t at = strlen(m->name);
        if (!named)
            snprintf(m->name + at, sizeof(m->name) - at, "%s%s", at ? "," : "", p->ops->name);
    }
    mux_steer_hip_once(m->v, n);
    *out = &m->base;
    return 0;
}

int mux_where(const struct device_driver *d, char *buf, size_t size)
{
    const struct mux *m = (const void *)d;
    size_t at = 0;
    for (unsigned i = 0; i < m->n; i++) {
        const struct mux_part *p = &m->v[i];
        int n = snprintf(buf + at, size - at, "%s%s*%u%s%s", i ? "," : "", p->ops->name, p->gpus,
                         p->where[0] ? "@" : "", p->where);
        at += n > 0 ? (size_t)n : 0;
        if (at >= size)
            return -E2BIG;
    }
    return 0;
}
