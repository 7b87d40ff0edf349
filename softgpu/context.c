/* What a program asks of the software GPU's server, on its own connection: a context, alone, as a
 * rank of a gang or as a client of an MPS server, kernels, what they use, and memory. Must not
 * decide anything about scheduling. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/util.h"
#include "softgpu/server_impl.h"

static bool same_gang(const struct conn *a, const struct conn *b)
{
    return a != b && a->uid == b->uid && a->gang == b->gang;
}

/* The first rank begins the gang. */
static int context_join(struct server *s, struct conn *c)
{
    const struct conn *o;
    uint32_t present = 0;
    if (c->gang == 0 || c->ranks < 2 || c->ranks > s->fabric.n)
        return -EINVAL;
    for_each_context (s, o) {
        if (!same_gang(c, o))
            continue;
        if (o->ranks != c->ranks || o->gpu == c->gpu || ++present == c->ranks)
            return -EINVAL;
        c->gang_number = o->gang_number;
    }
    if (present == 0)
        c->gang_number = s->gangs++;
    return 0;
}

static bool same_server(const struct conn *a, const struct conn *b)
{
    return a->uid == b->uid && a->gpu == b->gpu && a->mps_inode == b->mps_inode &&
           a->mps_device == b->mps_device;
}

/* All clients of an MPS server have one compute group, which the first makes. A server is one
 * user's: another user's clients in the same directory have another. */
static int context_compute_group(struct server *s, struct conn *c)
{
    struct softgpu *e = s->fabric.engines[c->gpu];
    const struct conn *o;
    if (!c->mps_inode)
        return softgpu_group_add(e, s->now_ns, &c->groups[0]);
    for_each_context (s, o) {
        if (same_server(c, o)) {
            c->shared = o->shared;
            return softgpu_group_join(e, o->groups[0], s->now_ns, &c->groups[0]);
        }
    }
    s->mps_servers += s->mps_servers == UINT32_MAX ? 2 : 1; /* never 0 */
    c->shared = s->mps_servers;
    return softgpu_group_add(e, s->now_ns, &c->groups[0]);
}

/* Room for groups with numbers below n. */
static int by_group_room(struct gpu *g, size_t n)
{
    if (n <= g->by_group_n)
        return 0;
    struct conn **v = reallocarray(g->by_group, n, sizeof(struct conn *));
    if (!v)
        return -ENOMEM;
    g->by_group = v;
    g->by_group_n = n;
    return 0;
}

static int context_add(struct server *s, struct conn *c, const struct soft_msg *m)
{
    c->gpu = m->u.open.gpu;
    c->gang = m->u.open.gang;
    c->ranks = m->u.open.ranks;
    c->mps_device = m->u.open.mps_device;
    c->mps_inode = m->u.open.mps_inode;
    if (m->u.open.memory >= SOFT_MEMORY_KINDS || m->u.open.sm_percent > 100 ||
        m->u.open.priority > 1)
        return -EINVAL;
    c->memory = (enum soft_memory)m->u.open.memory;
    if (c->gpu >= s->fabric.n)
        return -ENODEV;
    struct gpu *g = &s->gpus[c->gpu];
    struct softgpu *e = s->fabric.engines[c->gpu];
    int r = c->gang || c->ranks ? context_join(s, c) : 0;
    if (r == 0)
        r = softgpu_reserve(e, (g->contexts + 1) * SOFT_CONTEXT_GROUPS,
                            (g->contexts + 1) * SOFT_OUTSTANDING_MAX);
    if (r == 0)
        r = by_group_room(g, (size_t)(g->contexts + 1) * SOFT_CONTEXT_GROUPS);
    if (r == 0)
        r = context_compute_group(s, c);
    if (r == 0)
        g->by_group[c->groups[0]] = c;
    if (r == 0)
        r = softgpu_tag(e, c->groups[0], (uint32_t)c->proc.pid);
    if (r == 0 && c->mps_inode)
        r = softgpu_client(e, c->groups[0], m->u.open.sm_percent, m->u.open.priority);
    for (unsigned i = 1; r == 0 && i < SOFT_CONTEXT_GROUPS; i++)
        r = softgpu_group_add(e, s->now_ns, &c->groups[i]); /* there is room */
    if (r < 0)
        return r;
    g->contexts++;
    c->kind = CONN_CONTEXT;
    return 0;
}

bool context_open(struct server *s, struct conn *c, const struct soft_msg *m,
                  struct soft_msg *answer)
{
    return soft_reply(s, context_add(s, c, m), answer);
}

void context_end(struct server *s, struct conn *c)
{
    struct gpu *g = &s->gpus[c->gpu];
    struct conn *o;
    for (unsigned i = 0; i < SOFT_CONTEXT_GROUPS; i++)
        softgpu_group_remove(s->fabric.engines[c->gpu], c->groups[i], s->now_ns);
    g->contexts--;
    if (c->swap != SWAP_OUT || c->swap_at_ns != SOFTGPU_NEVER)
        g->used_bytes -= c->memory_bytes;
    /* Collectives of the others are never complete: their kernels occupy the GPU in their turns
     * until their programs end. */
    for_each_context (s, o) {
        if (c->gang && same_gang(c, o))
            o->gang = 0;
    }
}

/* An access to memory that is not there takes the context, and all that are clients of the same MPS
 * server. */
static bool context_fault(struct server *s, struct conn *c)
{
    const struct conn *o;
    for_each_context (s, o) {
        if (o == c || (c->mps_inode && same_server(c, o)))
            shutdown(o->fd, SHUT_RDWR);
    }
    return true;
}

bool context_submit(struct server *s, struct conn *c, const struct soft_msg *m,
                    struct soft_msg *answer)
{
    struct softgpu_kernel k = {
        .stream = m->u.submit.stream,
        .duration_ns = m->u.submit.duration_ns,
        .sm_fraction = m->u.submit.sm_fraction,
        .cookie = m->u.submit.cookie,
        .launch_ns = m->u.submit.launch_ns,
        .ranks = c->ranks,
        .collective = (uint64_t)c->gang_number << 32 | c->collectives++,
    };
    if (m->u.submit.fault == 1)
        return context_fault(s, c);
    /* A client that does not read its completions ends here too. */
    if (c->outstanding >= SOFT_OUTSTANDING_MAX || m->u.submit.fault != 0 ||
        softgpu_submit(s->fabric.engines[c->gpu], c->groups[0], &k, s->now_ns) < 0)
        return false;
    c->outstanding++;
    return true;
}

bool context_alloc(struct server *s, struct conn *c, const struct soft_msg *m,
                   struct soft_msg *answer)
{
    struct gpu *g = &s->gpus[c->gpu];
    int64_t more = m->u.alloc.bytes;
    if (c->outstanding || (more < 0 && (uint64_t) - (more + 1) + 1 > c->memory_bytes))
        return false;
    /* On a real GPU the calls of a swapped process wait; here they are answered "try again". */
    if (c->swap != SWAP_RUNNING || c->swap_at_ns != SOFTGPU_NEVER)
        return soft_reply(s, -EAGAIN, answer);
    if (more > 0 && (uint64_t)more > g->memory_bytes - g->used_bytes)
        return soft_reply(s, -ENOMEM, answer);
    c->memory_bytes += (uint64_t)more;
    g->used_bytes += (uint64_t)more;
    return soft_reply(s, 0, answer);
}

bool context_uses(struct server *s, struct conn *c, const struct soft_msg *m,
                  struct soft_msg *answer)
{
    if (c->outstanding ||
        softgpu_uses(s->fabric.engines[c->gpu], c->groups[0], m->u.uses.parts, s->now_ns) < 0)
        return false;
    return soft_reply(s, 0, answer);
}
