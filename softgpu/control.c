/* What a driver may ask of the software GPU's server, on a control connection: which groups there
 * are, their timeslices, suspension; free memory; what the parts of a GPU do; and the steps of
 * swapping a process. A step, once begun, ends at its time, whether or not the connection that
 * asked for it is still there. */
#include <errno.h>
#include <stdlib.h>

#include "base/util.h"
#include "softgpu/server_impl.h"

/* ---- groups ---- */

static bool is_of(const struct conn *c, int32_t pid, uint64_t start_ticks)
{
    return proc_same(c->proc, (struct proc_id){pid, start_ticks});
}

static bool list_context(struct server *s, const struct conn *o, const struct soft_msg *m,
                         struct soft_msg *answer)
{
    for (unsigned i = 0; i < (m->u.list.compute_only ? 1 : SOFT_CONTEXT_GROUPS); i++) {
        struct softgpu_group_info info;
        if (o->key + i <= m->u.list.after ||
            softgpu_group_info(s->fabric.engines[o->gpu], o->groups[i], &info) < 0)
            continue;
        if (answer->u.groups.n == ARRAY_SIZE(answer->u.groups.v))
            return false;
        answer->u.groups.v[answer->u.groups.n++] = (struct soft_group){
            .key = o->key + i,
            .start_ticks = o->proc.start_ticks,
            .busy_ns = info.busy_ns,
            .bursts = info.bursts,
            .memory_bytes = i > 0 ? 0 : o->memory_bytes,
            .pid = o->proc.pid,
            .gpu = o->gpu,
            .copy = i > 0,
            .timeslice_us = info.timeslice_us,
            .block_ends = info.block_ends,
            .shared = i > 0 ? 0 : o->shared,
        };
    }
    return true;
}

bool control_list(struct server *s, struct conn *c, const struct soft_msg *m,
                  struct soft_msg *answer)
{
    const struct conn *o;
    if (m->u.list.compute_only > 1)
        return false;
    *answer = (struct soft_msg){.type = SOFT_GROUPS, .u.groups.now_ns = s->now_ns};
    for_each_conn_from (s, server_find(s, m->u.list.after), o) {
        /* What is swapped out has nothing on the GPU. */
        if (o->kind != CONN_CONTEXT || o->swap == SWAP_OUT ||
            (m->u.list.pid != 0 && !is_of(o, m->u.list.pid, m->u.list.start_ticks)))
            continue;
        answer->u.groups.more = !list_context(s, o, m, answer);
        if (answer->u.groups.more)
            break;
    }
    return true;
}

/* Whether a test's stand-in for Yama's rule where kernel.yama.ptrace_scope is 1 (Linux,
 * security/yama/yama_lsm.c) lets `tracer` reach into `tracee`: an ancestor, or, by the tracee's
 * last grant, the process that it names or a descendant of that one, now. `grants` has lines
 * "TRACEE TRACER START", in the order in which they were made: TRACER 0 is any, -1 none; START is
 * the tracer's start time, because a grant ends with the process it names. */
static bool yama_may_trace(const char *grants, pid_t tracer, pid_t tracee)
{
    int who, whom = -1;
    unsigned long long start;
    struct proc_id named = {.pid = -1};
    if (proc_is_descendant(tracee, tracer))
        return true;
    _cleanup_fclose_ FILE *f = fopen(grants, "re");
    while (f && fscanf(f, "%d %d %llu", &who, &whom, &start) == 3) {
        if (who == tracee)
            named = (struct proc_id){.pid = whom, .start_ticks = start};
    }
    return named.pid == 0 ||
           (named.pid > 0 && proc_alive(named) && proc_is_descendant(tracer, named.pid));
}

static bool may_steer(const struct server *s, const struct conn *c, const struct conn *o)
{
    return (c->uid == 0 || c->uid == o->uid) &&
           (!s->grants || yama_may_trace(s->grants, c->proc.pid, o->proc.pid));
}

static bool is_inert(const struct server *s, struct conn *o, uint64_t k, uint32_t call)
{
    const bool second = call == SOFTGPU_SUSPEND && ++o->suspensions[k] % 2 == 0;
    return (s->inert >> call & 1) || (second && (s->inert >> INERT_SECOND_SUSPEND & 1));
}

static int control_one(struct server *s, const struct conn *c, const struct soft_msg *m,
                       uint64_t key, uint64_t *done_ns)
{
    const size_t at = server_find(s, key);
    struct conn *o = at < s->nconns ? s->conns[at] : NULL;
    if (!o || o->kind != CONN_CONTEXT || key < o->key)
        return -ESRCH;
    if (!may_steer(s, c, o))
        return -EPERM;
    if (is_inert(s, o, key - o->key, m->u.control.what))
        return 0;
    int r = softgpu_control(s->fabric.engines[o->gpu], o->groups[key - o->key], m->u.control.what,
                            m->u.control.value, s->now_ns, done_ns);
    return r == -ENOSPC ? -EAGAIN : r;
}

/* All groups are tried, at the same time; the answer, when the last one is done, is the first
 * error. */
bool control_groups(struct server *s, struct conn *c, const struct soft_msg *m,
                    struct soft_msg *answer)
{
    bool some_done = false;
    if (m->u.control.n == 0 || m->u.control.n > ARRAY_SIZE(m->u.control.keys) ||
        m->u.control.what > SOFTGPU_PREEMPT)
        return false;
    c->result = 0;
    c->reply_ns = s->now_ns;
    for (uint32_t i = 0; i < m->u.control.n; i++) {
        uint64_t done_ns = s->now_ns;
        int r = control_one(s, c, m, m->u.control.keys[i], &done_ns);
        some_done |= r == 0;
        if (r < 0 && c->result == 0)
            c->result = r;
        c->reply_ns = max_u64(c->reply_ns, done_ns);
    }
    c->result = device_refused(c->result, some_done);
    return true;
}

/* ---- memory, counters, swapping ---- */

bool control_memory(struct server *s, struct conn *c, const struct soft_msg *m,
                    struct soft_msg *answer)
{
    if (m->u.memory.gpu >= s->fabric.n)
        return false;
    *answer = *m;
    const struct gpu *g = &s->gpus[m->u.memory.gpu];
    snprintf(answer->u.memory.driver, sizeof(answer->u.memory.driver), "%s",
             s->driver ? s->driver : "");
    answer->u.memory.total_bytes = g->memory_bytes;
    answer->u.memory.free_bytes = g->memory_bytes - g->used_bytes;
    return true;
}

bool control_counters(struct server *s, struct conn *c, const struct soft_msg *m,
                      struct soft_msg *answer)
{
    if (m->u.counters.gpu >= s->fabric.n)
        return false;
    *answer = *m;
    answer->u.counters.now_ns = s->now_ns;
    softgpu_counters(s->fabric.engines[m->u.counters.gpu], answer->u.counters.parts_ns);
    return true;
}

static void switches_stop(struct server *s, unsigned gpu)
{
    softgpu_record(s->fabric.engines[gpu], NULL, 0, NULL);
    free(s->gpus[gpu].switches);
    s->gpus[gpu].switches = NULL;
    s->gpus[gpu].switches_first = ++s->gpus[gpu].switches_end; /* one is missing: readers see it */
}

void control_switches_due(struct server *s)
{
    for (unsigned i = 0; i < s->fabric.n; i++) {
        if (s->gpus[i].switches && s->now_ns >= s->gpus[i].switches_until_ns)
            switches_stop(s, i);
    }
}

bool control_switches(struct server *s, struct conn *c, const struct soft_msg *m,
                      struct soft_msg *answer)
{
    if (m->u.switches.gpu >= s->fabric.n || m->u.switches.on > 1)
        return false;
    struct gpu *g = &s->gpus[m->u.switches.gpu];
    *answer = (struct soft_msg){.type = SOFT_SWITCHES, .u.switches.gpu = m->u.switches.gpu};
    if (!m->u.switches.on && g->switches)
        switches_stop(s, m->u.switches.gpu);
    if (m->u.switches.on && !g->switches) {
        g->switches = calloc(SWITCHES, sizeof(*g->switches));
        if (g->switches) /* without memory there is never one */
            softgpu_record(s->fabric.engines[m->u.switches.gpu], g->switches, SWITCHES,
                           &g->switches_end);
    }
    if (!g->switches)
        return true;
    g->switches_until_ns = s->now_ns + SWITCHES_IDLE_NS;
    uint64_t kept = min_u64(g->switches_end - g->switches_first, SWITCHES);
    uint64_t at = max_u64(m->u.switches.first, g->switches_end - kept);
    answer->u.switches.first = at;
    answer->u.switches.end = g->switches_end;
    for (; at < g->switches_end && answer->u.switches.n < ARRAY_SIZE(answer->u.switches.v); at++) {
        const struct softgpu_switch *w = &g->switches[at % SWITCHES];
        answer->u.switches.v[answer->u.switches.n++] =
            (struct soft_switch){w->ns, (int32_t)w->who, 0};
    }
    return true;
}

static void lock_context(struct server *s, const struct conn *c, bool on)
{
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++)
        softgpu_lock(s->fabric.engines[c->gpu], c->groups[i], on, s->now_ns);
}

/* A restored context has new groups on a real GPU: nothing is set on them, not even what the
 * vendor's library sets on a compute group. */
static void forget_controls(struct server *s, const struct conn *c)
{
    struct softgpu *e = s->fabric.engines[c->gpu];
    struct softgpu_params p;
    uint64_t done_ns;
    softgpu_params_h200(&p);
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++) {
        uint32_t us = i ? p.timeslice_us : SOFT_TIMESLICE_BACK_US;
        softgpu_control(e, c->groups[i], SOFTGPU_TIMESLICE, us, s->now_ns, &done_ns);
        softgpu_control(e, c->groups[i], SOFTGPU_RESUME, 0, s->now_ns, &done_ns);
        softgpu_control(e, c->groups[i], SOFTGPU_PREEMPT, 0, s->now_ns, &done_ns);
    }
}

void control_swap_due(struct server *s)
{
    struct conn *c;
    if (s->swap_due_ns > s->now_ns)
        return;
    s->swap_due_ns = SOFTGPU_NEVER;
    for_each_context (s, c) {
        if (c->swap_at_ns > s->now_ns) {
            s->swap_due_ns = min_u64(s->swap_due_ns, c->swap_at_ns);
            continue;
        }
        if (c->swap_to == SWAP_OUT)
            s->gpus[c->gpu].used_bytes -= c->memory_bytes;
        if (c->swap_to == SWAP_RUNNING)
            lock_context(s, c, false);
        c->swap = c->swap_to;
        c->swap_at_ns = SOFTGPU_NEVER;
    }
}

/* What one of a process's contexts is refused, the process is as a whole, before anything is begun.
 */
static int refusal(struct server *s, int32_t pid, uint64_t start_ticks, uint32_t step)
{
    const struct conn *o;
    for_each_context (s, o) {
        if (!is_of(o, pid, start_ticks))
            continue;
        if ((step == SOFT_LOCK && o->shared) ||
            (step == SOFT_MOVE_OUT && o->memory == SOFT_MEMORY_MANAGED))
            return -ENOTSUP;
        if (step == SOFT_MOVE_IN && o->memory == SOFT_MEMORY_SHARED)
            return -EIO;
    }
    return 0;
}

static bool waits_suspended(struct server *s, const struct conn *c)
{
    struct softgpu_group_info info;
    return softgpu_group_info(s->fabric.engines[c->gpu], c->groups[0], &info) == 0 &&
           info.suspended && info.kernels;
}

static int begin_step(struct server *s, struct conn *o, uint32_t step)
{
    /* An H200's with driver 580: 1 to 64 GiB took 0.6 to 23.5 s out and 0.3 to 8.1 s in. */
    static const struct {
        enum swap_state from, to;
        uint64_t ns, bytes_per_ns; /* 0: whatever the size */
    } steps[] = {
        [SOFT_LOCK] = {SWAP_RUNNING, SWAP_LOCKED, NSEC_PER_MSEC, 0},
        [SOFT_MOVE_OUT] = {SWAP_LOCKED, SWAP_OUT, 200 * NSEC_PER_MSEC, 3},
        [SOFT_MOVE_IN] = {SWAP_OUT, SWAP_LOCKED, 200 * NSEC_PER_MSEC, 8},
        [SOFT_UNLOCK] = {SWAP_LOCKED, SWAP_RUNNING, NSEC_PER_MSEC, 0},
    };
    struct gpu *g = &s->gpus[o->gpu];
    if (o->swap_at_ns != SOFTGPU_NEVER)
        return -EBUSY;
    if (o->swap != steps[step].from)
        return -EINVAL;
    if (step == SOFT_MOVE_IN && o->memory_bytes > g->memory_bytes - g->used_bytes)
        return -ENOMEM;
    if (step == SOFT_LOCK)
        lock_context(s, o, true);
    if (step == SOFT_MOVE_IN) {
        g->used_bytes += o->memory_bytes;
        forget_controls(s, o);
    }
    uint64_t rate = steps[step].bytes_per_ns;
    o->swap_to = steps[step].to;
    o->swap_at_ns = s->now_ns + steps[step].ns + (rate ? o->memory_bytes / rate : 0);
    s->swap_due_ns = min_u64(s->swap_due_ns, o->swap_at_ns);
    return 0;
}

/* All contexts of one process; the first error is the answer. */
bool control_swap(struct server *s, struct conn *c, const struct soft_msg *m,
                  struct soft_msg *answer)
{
    uint32_t step = m->u.swap.step;
    struct conn *o;
    if (step > SOFT_SHARES || m->u.swap.zero)
        return false;
    const int refused = refusal(s, m->u.swap.pid, m->u.swap.start_ticks, step);
    c->result = -ESRCH;
    c->reply_ns = s->now_ns;
    for_each_context (s, o) {
        int r;
        if (!is_of(o, m->u.swap.pid, m->u.swap.start_ticks))
            continue;
        if (!may_steer(s, c, o)) {
            r = -EPERM;
        } else if (step == SOFT_SHARES) {
            r = o->memory == SOFT_MEMORY_SHARED;
        } else if (step == SOFT_SWAP_STATE) { /* on a real GPU too this waits for a step's end */
            r = o->swap_at_ns == SOFTGPU_NEVER ? (int)o->swap : -EBUSY;
        } else if (refused) {
            r = refused;
        } else if (step == SOFT_LOCK && waits_suspended(s, o)) {
            /* Its kernels would have to end first, and cannot. */
            r = -ETIMEDOUT;
            c->reply_ns = max_u64(c->reply_ns, s->now_ns + m->u.swap.lock_ms * NSEC_PER_MSEC);
        } else {
            r = begin_step(s, o, step);
            if (r == 0)
                c->reply_ns = max_u64(c->reply_ns, o->swap_at_ns);
        }
        c->result =
            c->result == -ESRCH || (c->result >= 0 && (r < 0 || r > c->result)) ? r : c->result;
    }
    return true;
}
