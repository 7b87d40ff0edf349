/* What a driver may ask of the software GPU's server, on a control connection: which groups there
 * are, their timeslices, suspension; memory; and the steps of swapping a process. A step, once
 * begun, ends at its time, whether or not the connection that asked for it is still there. */
#include "device/soft/server_impl.h"

#include <errno.h>

#include "device/soft/yama.h"
#include "lib/util.h"

/* ---- groups ---- */

bool soft_list(struct server *s, const struct soft_msg *m, struct soft_msg *answer)
{
    if (m->u.list.compute_only > 1)
        return false;
    *answer = (struct soft_msg){.type = SOFT_GROUPS, .u.groups.now_ns = s->now_ns};
    for (struct conn *o = s->conns.next; o != &s->conns && !answer->u.groups.more; o = o->next) {
        if (o->kind != CONN_CONTEXT || o->key + SOFT_CONTEXT_GROUPS <= m->u.list.after)
            continue;
        if (o->swap == SWAP_OUT) /* has nothing on the GPU */
            continue;
        if (m->u.list.pid != 0 &&
            (o->proc.pid != m->u.list.pid || o->proc.start_ticks != m->u.list.start_ticks))
            continue;
        for (unsigned i = 0; i < (m->u.list.compute_only ? 1 : SOFT_CONTEXT_GROUPS); i++) {
            struct softgpu_group_info info;
            if (o->key + i <= m->u.list.after ||
                softgpu_group_info(s->fabric.engines[o->gpu], o->groups[i], &info) < 0)
                continue;
            if (answer->u.groups.n == ARRAY_SIZE(answer->u.groups.v)) {
                answer->u.groups.more = 1;
                break;
            }
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
            };
        }
    }
    return true;
}

static struct conn *find_context(struct server *s, uint64_t key)
{
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next) {
        if (c->kind == CONN_CONTEXT && key - c->key < SOFT_CONTEXT_GROUPS)
            return c;
    }
    return NULL;
}

static bool may_steer(const struct server *s, const struct conn *c, const struct conn *o)
{
    return (c->uid == 0 || c->uid == o->uid) &&
           (!s->grants || yama_may_trace(s->grants, c->proc.pid, o->proc.pid));
}

static int control_one(struct server *s, const struct conn *c, const struct soft_msg *m,
                       uint64_t key, uint64_t now, uint64_t *done_ns)
{
    const struct conn *o = find_context(s, key);
    if (!o)
        return -ESRCH;
    if (!may_steer(s, c, o))
        return -EPERM;
    struct softgpu *e = s->fabric.engines[o->gpu];
    uint32_t g = o->groups[key - o->key];
    int r = m->type == SOFT_TIMESLICE
                ? softgpu_set_timeslice(e, g, m->u.control.timeslice_us, now, done_ns)
            : m->type == SOFT_SUSPEND ? softgpu_suspend(e, g, now, done_ns)
                                      : softgpu_resume(e, g, now, done_ns);
    return r == -ENOSPC ? -EAGAIN : r;
}

/* All groups are tried, at the same time; the answer, when the last one is done, is the first
 * error. */
bool soft_control(struct server *s, struct conn *c, const struct soft_msg *m)
{
    uint64_t now = s->now_ns, done_ns = now;
    bool some_done = false;
    if (m->u.control.n == 0 || m->u.control.n > ARRAY_SIZE(m->u.control.keys))
        return false;
    c->result = 0;
    for (uint32_t i = 0; i < m->u.control.n; i++) {
        uint64_t t = now;
        int r = control_one(s, c, m, m->u.control.keys[i], now, &t);
        some_done |= r == 0;
        if (r < 0 && c->result == 0)
            c->result = r;
        done_ns = max_u64(done_ns, t);
    }
    c->result = device_refused(c->result, some_done);
    c->reply_ns = done_ns;
    return true;
}

/* ---- memory, swapping ---- */

/* An H200's with driver 580: 1 to 64 GiB took 0.6 to 23.5 s out and 0.3 to 8.1 s in. */
#define LOCK_NS          (1 * NSEC_PER_MSEC)
#define MOVE_NS          (200 * NSEC_PER_MSEC)
#define OUT_BYTES_PER_NS 3
#define IN_BYTES_PER_NS  8

bool soft_alloc(struct server *s, struct conn *c, const struct soft_msg *m, struct soft_msg *answer)
{
    struct gpu *g = &s->gpus[c->gpu];
    int64_t more = m->u.alloc.bytes;
    if (c->outstanding || (more < 0 && (uint64_t) - (more + 1) + 1 > c->memory_bytes))
        return false;
    /* On a real GPU the calls of a swapped process wait; here they are answered "try again". */
    bool fits = more < 0 || (uint64_t)more <= g->memory_bytes - g->used_bytes;
    if (c->swap != SWAP_RUNNING || c->swap_at_ns != SOFTGPU_NEVER) {
        *answer = soft_result(s, -EAGAIN);
    } else {
        if (fits) {
            c->memory_bytes += (uint64_t)more;
            g->used_bytes += (uint64_t)more;
        }
        *answer = soft_result(s, fits ? 0 : -ENOMEM);
    }
    return true;
}

bool soft_memory(struct server *s, const struct soft_msg *m, struct soft_msg *answer)
{
    if (m->u.memory.gpu >= s->fabric.n)
        return false;
    *answer = (struct soft_msg){.type = SOFT_MEMORY, .u.memory.gpu = m->u.memory.gpu};
    const struct gpu *g = &s->gpus[m->u.memory.gpu];
    answer->u.memory.total_bytes = g->memory_bytes;
    answer->u.memory.free_bytes = g->memory_bytes - g->used_bytes;
    return true;
}

static bool holds_memory(const struct conn *c)
{
    return c->swap != SWAP_OUT || c->swap_at_ns != SOFTGPU_NEVER;
}

void soft_memory_end(struct server *s, struct conn *c)
{
    if (holds_memory(c))
        s->gpus[c->gpu].used_bytes -= c->memory_bytes;
}

static void hold(struct server *s, const struct conn *c, bool on)
{
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++)
        softgpu_hold(s->fabric.engines[c->gpu], c->groups[i], on, s->now_ns);
}

/* A restored context has new groups on a real GPU: nothing is set on them. */
static void forget_controls(struct server *s, const struct conn *c, uint64_t now_ns)
{
    struct softgpu_params p;
    uint64_t done_ns;
    softgpu_params_h200(&p);
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++) {
        struct softgpu *e = s->fabric.engines[c->gpu];
        softgpu_set_timeslice(e, c->groups[i], p.timeslice_us, now_ns, &done_ns);
        softgpu_resume(e, c->groups[i], now_ns, &done_ns);
    }
}

void soft_swap_due(struct server *s)
{
    for (struct conn *c = s->conns.next; c != &s->conns; c = c->next) {
        if (c->kind != CONN_CONTEXT || c->swap_at_ns > s->now_ns)
            continue;
        if (c->swap_to == SWAP_OUT)
            s->gpus[c->gpu].used_bytes -= c->memory_bytes;
        if (c->swap_to == SWAP_RUNNING)
            hold(s, c, false);
        c->swap = c->swap_to;
        c->swap_at_ns = SOFTGPU_NEVER;
    }
}

static bool suspended(struct server *s, const struct conn *c)
{
    struct softgpu_group_info info;
    return softgpu_group_info(s->fabric.engines[c->gpu], c->groups[0], &info) == 0 &&
           info.suspended && info.kernels;
}

static int begin_step(struct server *s, struct conn *o, uint32_t step, uint64_t now_ns)
{
    static const struct {
        enum swap_state from, to;
    } steps[] = {
        [SOFT_LOCK] = {SWAP_RUNNING, SWAP_LOCKED},
        [SOFT_MOVE_OUT] = {SWAP_LOCKED, SWAP_OUT},
        [SOFT_MOVE_IN] = {SWAP_OUT, SWAP_LOCKED},
        [SOFT_UNLOCK] = {SWAP_LOCKED, SWAP_RUNNING},
    };
    struct gpu *g = &s->gpus[o->gpu];
    if (o->swap_at_ns != SOFTGPU_NEVER)
        return -EBUSY;
    if (o->swap != steps[step].from)
        return -EINVAL;
    if (step == SOFT_MOVE_IN && o->memory_bytes > g->memory_bytes - g->used_bytes)
        return -ENOMEM;
    if (step == SOFT_LOCK)
        hold(s, o, true);
    if (step == SOFT_MOVE_IN) {
        g->used_bytes += o->memory_bytes;
        forget_controls(s, o, now_ns);
    }
    o->swap_to = steps[step].to;
    o->swap_at_ns =
        now_ns + (step == SOFT_LOCK || step == SOFT_UNLOCK ? LOCK_NS
                  : step == SOFT_MOVE_OUT ? MOVE_NS + o->memory_bytes / OUT_BYTES_PER_NS
                                          : MOVE_NS + o->memory_bytes / IN_BYTES_PER_NS);
    return 0;
}

/* All contexts of one process; the first error is the answer. */
bool soft_swap_step(struct server *s, struct conn *c, const struct soft_msg *m)
{
    uint64_t now = s->now_ns, done_ns = now;
    uint32_t step = m->u.swap.step;
    if (step > SOFT_UNLOCK || m->u.swap.zero)
        return false;
    c->result = -ESRCH;
    for (struct conn *o = s->conns.next; o != &s->conns; o = o->next) {
        if (o->kind != CONN_CONTEXT || o->proc.pid != m->u.swap.pid ||
            o->proc.start_ticks != m->u.swap.start_ticks)
            continue;
        int r = 0;
        if (!may_steer(s, c, o)) {
            r = -EPERM;
        } else if (step == SOFT_SWAP_STATE) {
            r = (int)o->swap;
        } else if (step == SOFT_LOCK && suspended(s, o)) {
            /* Its kernels would have to end first, and cannot. */
            r = -ETIMEDOUT;
            done_ns = max_u64(done_ns, now + m->u.swap.lock_ms * NSEC_PER_MSEC);
        } else {
            r = begin_step(s, o, step, now);
            if (r == 0)
                done_ns = max_u64(done_ns, o->swap_at_ns);
        }
        c->result = c->result == -ESRCH || (c->result >= 0 && r < 0) ? r : c->result;
    }
    c->reply_ns = done_ns;
    return true;
}
