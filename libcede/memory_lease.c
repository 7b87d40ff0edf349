/* libcede: leases with memory. Room comes first and the lease second, and the ranges move while the
 * lease is waited for. A thread with a lease allocates from its reservation without waiting; so no
 * thread waits for a lease that waits for its room. See cede/memory.h. */
#include <errno.h>
#include <stdio.h>

#include "base/cancel_guard.h"
#include "libcede/api.h"
#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/memory.h"
#include "libcede/owner.h"

static uint64_t memory_key(const char *kernel, const struct cede_shape *s)
{
    const uint64_t shape[] = {s ? s->blocks : 0, s ? s->threads : 0, s ? s->shared_bytes : 0};
    return cede_needs_key(kernel, shape, 3);
}

CEDE_API uint64_t cede_memory_need(struct cede_memory *m, const char *kernel,
                                   const struct cede_shape *shape)
{
    if (cede_memory_enter(m) < 0)
        return 0;
    uint64_t bytes = cede_needs_get(&m->needs, memory_key(kernel, shape));
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void memory_skip(struct cede_memory *m, const struct cede_range *range, const char *why)
{
    m->skipped_ranges++;
    snprintf(m->skipped, sizeof(m->skipped), "a range of %llu bytes: %s",
             (unsigned long long)range->bytes, why);
}

/* Advises on a range and begins to move it; 0 bytes of it are moved without room for all. *id: of
 * the room that is kept for it meanwhile; 0: it does not move. With the lock held. */
static void memory_move(struct cede_memory *m, const struct cede_range *range, void **stream,
                        uint64_t *id)
{
    const char *why = m->gpu ? cede_gpus_unmanaged(m->gpu) : "the handle has no GPU";
    struct gpu_error e = {""};
    *id = 0;
    if (why) {
        memory_skip(m, range, why);
        return;
    }
    if (cede_memory_wait(m, NULL, range->bytes, 0, id)) {
        *id = 0;
        memory_skip(m, range, "the GPU has no room for it now");
        return;
    }
    cede_memory_step_out(m);
    int advised = cede_gpus_advise(m->gpu, range, &e);
    struct gpu_error why_not = {""};
    int r = cede_gpus_prefetch(m->gpu, range, stream, &why_not);
    cede_memory_step_in(m);
    if (r || advised)
        memory_skip(m, range, r ? why_not.text : e.text);
    if (r == 0) {
        m->prefetched_ranges++;
        m->prefetched_bytes += range->bytes;
        return;
    }
    cede_memory_end(m, *id);
    *id = 0;
}

/* Waits until the ranges are there. What the driver says is free then is without them. */
static void memory_moved(struct cede_memory *m, void *stream, const uint64_t *ids, unsigned n)
{
    struct gpu_error why = {""};
    if (stream) {
        cede_memory_step_out(m);
        int r = cede_gpus_finish(m->gpu, stream, &why);
        cede_memory_step_in(m);
        if (r)
            m->error = why;
        cede_memory_sample(m, true);
    }
    for (unsigned i = 0; i < n; i++) {
        if (ids[i])
            cede_memory_end(m, ids[i]);
    }
}

/* ---- leases ---------------------------------------------------------------------------------- */

/* The parts of a lease with memory, in order: room, ranges, the lease of a pool (NULL: none). */
static int memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                        const char *kernel, const struct cede_shape *shape,
                        const struct cede_range *ranges, unsigned nranges, cede_timeout timeout_us,
                        struct cede_lease *lease, struct cede_reservation *room)
{
    struct cede_shape s = shape ? *shape : (struct cede_shape){0};
    uint64_t ids[CEDE_RANGES_MAX], id, key = memory_key(kernel, shape);
    uint64_t until_ns = cede_memory_until(m, timeout_us);
    void *stream = NULL;
    if (!s.memory_bytes)
        s.memory_bytes = cede_needs_get(&m->needs, key);
    int r = cede_memory_wait(m, owner, s.memory_bytes, until_ns, &id);
    if (r)
        return r;
    m->data[room_slot(id)].key = key;
    m->inside++; /* a handle that is closed now keeps what it has until the end of this */
    for (unsigned i = 0; i < nranges; i++)
        memory_move(m, &ranges[i], &stream, &ids[i]);
    cede_memory_step_out(m);
    if (p)
        r = cede_lease_acquire(p, owner, CEDE_ONLY_DEVICE(m->config.device), kernel, &s,
                               timeout_left(until_ns, cede_clock_now_ns()), lease);
    cede_memory_step_in(m);
    memory_moved(m, stream, ids, nranges);
    if (r == 0 && !m->open) {
        if (p)
            cede_release(lease);
        r = -ESHUTDOWN;
    }
    if (r == 0)
        *room = cede_memory_reservation(m, id, s.memory_bytes);
    else if (m->open)
        cede_memory_end(m, id);
    if (--m->inside == 0)
        pthread_cond_broadcast(&m->left);
    return r;
}

CEDE_API int cede_memory_acquire(struct cede_memory *m, struct cede_pool *p, const char *kernel,
                                 const struct cede_shape *shape, const struct cede_range *ranges,
                                 unsigned nranges, cede_timeout timeout_us,
                                 struct cede_lease *lease, struct cede_reservation *room)
{
    WHOLE_CALL;
    CALL(TIMEOUT(timeout_us) && GIVEN(lease) && GIVEN(room) &&
         IS(nranges <= CEDE_RANGES_MAX, "%u ranges: give at most CEDE_RANGES_MAX", nranges) &&
         (nranges == 0 || GIVEN(ranges)));
    int r = cede_memory_enter(m);
    if (r)
        return r;
    r = cede_lease_check(p, CEDE_ONLY_DEVICE(m->config.device), kernel,
                         shape); /* not after a wait */
    if (r == 0)
        r = memory_lease(m, p, cede_owner_here(), kernel, shape, ranges, nranges, timeout_us, lease,
                         room);
    return cede_memory_leave(m, r);
}

int cede_memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                      const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                      struct cede_lease *lease, struct cede_reservation *room)
{
    int r = cede_memory_enter(m);
    return r ? r
             : cede_memory_leave(
                   m, memory_lease(m, p, owner, kernel, shape, NULL, 0, timeout_us, lease, room));
}
