/* libcede: waits for room in a GPU's memory, allocates and frees; leases with memory; see
 * cede/memory.h, memory.h. The first thread in line looks at what the driver says is free and asks
 * the daemon for room; the others sleep until it is their turn or their time is up. Of a lease with
 * memory the room comes first and the lease second, and the ranges move while the lease is waited
 * for. A thread with a lease allocates from its reservation without waiting; so no thread waits for
 * a lease that waits for its room. */
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/handle.h"
#include "libcede/memory.h"

#define MEMORY_SOME(bytes) IS(bytes, "0 bytes: give at least 1")

#define ASK_NS    NSEC_PER_SEC        /* between two requests for the same room */
#define REFUSE_NS (10 * NSEC_PER_SEC) /* the same, where the daemon refused */

/* ---- the daemon ------------------------------------------------------------------------------ */

/* bytes: that are to be free; 0: no longer. */
static void memory_ask_daemon(struct cede_memory *m, uint64_t bytes, uint64_t now_ns)
{
    struct gpu_error why = {""};
    m->asked = bytes != 0;
    m->ask_ns = now_ns + ASK_NS;
    int r = OUTSIDE(m, cede_link_room(m->config.client, cede_gpus_facts(m->gpu, 0)->uuid, bytes,
                                      why.text, sizeof(why.text)));
    if (bytes && r == 0)
        m->s->daemon_asked++;
    if (bytes && r < 0) {
        m->error = why;
        m->asked = false;
        if (r == -EPERM || r == -EINVAL)
            m->ask_ns = now_ns + REFUSE_NS;
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* What the first in line does before it sleeps. True: it did something. */
static bool memory_look(struct cede_memory *m, uint64_t bytes, uint64_t now_ns)
{
    if (m->gpu && !m->sampling &&
        (m->stale || now_ns >= time_after(m->sampled_ns, m->config.polling_us, NSEC_PER_USEC))) {
        cede_memory_sample(m, true);
        return true;
    }
    if (m->gpu && m->config.client && now_ns >= m->ask_ns) {
        memory_ask_daemon(m, bytes, now_ns);
        return true;
    }
    return false;
}

static void memory_sleep(struct cede_memory *m, struct room_waiter *w, bool first,
                         uint64_t until_ns)
{
    uint64_t wake_ns = min_u64(until_ns, FAR_NS);
    if (first && m->gpu && !m->sampling)
        wake_ns = min_u64(wake_ns, time_after(m->sampled_ns, m->config.polling_us, NSEC_PER_USEC));
    struct timespec t = cede_clock_timespec(wake_ns);
    pthread_cond_timedwait(&w->cond, &m->lock, &t);
}

/* Ends a reservation, and wakes the threads whose turn it is. */
static int memory_end(struct cede_memory *m, uint64_t id)
{
    int r = cede_rooms_release(m->rooms, id);
    if (r == 0)
        cede_memory_run_events(m, cede_clock_now_ns());
    return r;
}

/* Until that reservation, which waits, is granted or times out, or its owner is stopped. */
static int memory_await(struct cede_memory *m, const struct lease_owner *owner, uint64_t id,
                        uint64_t until_ns)
{
    struct room_waiter w = {.owner = owner};
    uint64_t bytes;
    int stopped = 0;
    cede_clock_cond_init(&w.cond);
    m->data[room_slot(id)].waiter = &w;
    m->inside++;
    while (m->open && !w.done && !(stopped = owner_stopped(owner))) {
        uint64_t now_ns = cede_clock_now_ns();
        cede_memory_run_events(m, now_ns);
        if (w.done)
            break;
        bool first = cede_rooms_first(m->rooms, &bytes) == id;
        if (!first || !memory_look(m, bytes, now_ns))
            memory_sleep(m, &w, first, min_u64(until_ns, owner ? owner->deadline_ns : TIME_NEVER));
    }
    if (m->open && !w.done) {
        m->data[room_slot(id)].waiter = NULL;
        memory_end(m, id);
    }
    if (m->asked && m->open && !cede_rooms_first(m->rooms, &bytes))
        memory_ask_daemon(m, 0, 0);
    int r = !m->open    ? -ESHUTDOWN
            : w.granted ? 0
            : w.done    ? -ENOMEM
                        : cede_owner_fail(owner, stopped);
    slot_left(SLOT(m));
    pthread_cond_destroy(&w.cond);
    return r;
}

static uint64_t memory_until(const struct cede_memory *m, cede_timeout timeout_us)
{
    return timeout_end(timeout_us, cede_clock_now_ns(), m->config.block_timeout_us);
}

/* Reserves by until_ns, for an owner or NULL. *id: see rooms.h. */
static int memory_wait(struct cede_memory *m, const struct lease_owner *owner, uint64_t bytes,
                       uint64_t until_ns, uint64_t *id)
{
    cede_memory_sample(m, false);
    if (m->open && bytes && !cede_rooms_fits(m->rooms, bytes))
        cede_memory_sample(m, true); /* others may have freed some since */
    if (!m->open)
        return -ESHUTDOWN;
    int r = cede_rooms_ask(m->rooms, bytes, until_ns, cede_clock_now_ns(), id);
    if (r == 0 || r == -EINPROGRESS)
        m->data[room_slot(*id)] = (struct room_data){0};
    return r == -EINPROGRESS ? memory_await(m, owner, *id, until_ns) : r;
}

void cede_memory_wake_owners(void)
{
    for (struct cede_memory *m = cede_memory_table; m < cede_memory_table + CEDE_MEMORIES_MAX;
         m++) {
        if (!slot_enter(SLOT(m)))
            continue;
        if (m->inside)
            SLOT_WAKE(m, true);
        pthread_mutex_unlock(&m->lock);
    }
}

/* ---- reservations ---------------------------------------------------------------------------- */

static struct cede_reservation memory_reservation(const struct cede_memory *m, uint64_t id,
                                                  uint64_t bytes)
{
    return (struct cede_reservation){
        .bytes = bytes,
        .opaque = {m->generation * CEDE_MEMORIES_MAX + (uint64_t)(m - cede_memory_table), id}};
}

static bool memory_has(const struct cede_memory *m, const struct cede_reservation *r)
{
    return m->generation == r->opaque[0] / CEDE_MEMORIES_MAX &&
           m == &cede_memory_table[r->opaque[0] % CEDE_MEMORIES_MAX];
}

CEDE_API int cede_memory_can_allocate(struct cede_memory *m, uint64_t bytes)
{
    LONG_CALL(ALWAYS);
    ENTER(m);
    cede_memory_sample(m, false);
    if (m->open && m->stale && !cede_rooms_fits(m->rooms, bytes))
        cede_memory_sample(m, true);
    return cede_memory_leave(m, m->open ? cede_rooms_fits(m->rooms, bytes) : -ESHUTDOWN, 0);
}

CEDE_API int cede_memory_reserve(struct cede_memory *m, uint64_t bytes, cede_timeout timeout_us,
                                 struct cede_reservation *out)
{
    uint64_t id;
    LONG_CALL(TIMEOUT(timeout_us) && GIVEN(out) && MEMORY_SOME(bytes));
    ENTER(m);
    r = memory_wait(m, cede_owner_here(), bytes, memory_until(m, timeout_us), &id);
    if (r == 0)
        *out = memory_reservation(m, id, bytes);
    return cede_memory_leave(m, r, bytes);
}

CEDE_API int cede_memory_release(const struct cede_reservation *r)
{
    LONG_CALL(GIVEN(r) && IS(r->opaque[0], "the reservation is all 0: give one that was set"));
    struct cede_memory *m = &cede_memory_table[r->opaque[0] % CEDE_MEMORIES_MAX];
    if (cede_memory_enter(m) < 0)
        return cede_fail(-ESTALE, "its handle is closed: memory was freed by that");
    uint64_t id = r->opaque[1], peak = memory_has(m, r) ? cede_rooms_peak(m->rooms, id) : 0;
    uint64_t key = peak ? m->data[room_slot(id)].key : 0;
    int code = memory_has(m, r) && memory_end(m, id) == 0 ? 0 : -ESTALE;
    if (code == 0 && key)
        cede_needs_learn(&m->needs, key, peak);
    m->stale = true; /* the program's own allocator may have the memory now */
    return cede_memory_leave(m, code, 0);
}

/* ---- allocations ----------------------------------------------------------------------------- */

/* Allocates what was drawn of a reservation. The caller's *a becomes the handle's. */
static int memory_take(struct cede_memory *m, uint64_t id, uint64_t bytes, struct allocation *a)
{
    struct gpu_error why = {""};
    int r = OUTSIDE(m, cede_gpus_allocate(m->gpu, bytes, &a->address, &why));
    a->bytes = bytes;
    a->reservation = id;
    if (r == 0 && !tsearch(a, &m->allocations, cede_memory_compare)) {
        OUTSIDE(m, cede_gpus_deallocate(m->gpu, a->address, &why));
        a->address = 0;
        r = -ENOMEM;
    }
    if (r == 0) {
        cede_rooms_took(m->rooms, bytes);
        m->s->allocations++;
        return 0;
    }
    m->error = why;
    cede_rooms_undraw(m->rooms, id, bytes);
    return r;
}

static int memory_allocate(struct cede_memory *m, uint64_t bytes, uint64_t until_ns,
                           struct allocation *a)
{
    uint64_t id;
    int r = memory_wait(m, cede_owner_here(), bytes, until_ns, &id);
    if (r)
        return r;
    for (;;) {
        r = cede_rooms_draw(m->rooms, id, bytes);
        if (r == 0)
            r = memory_take(m, id, bytes, a);
        if (r != -ENOMEM || !m->open)
            break;
        /* The driver had less than it said, which is not believed until it is asked again, later.
         */
        cede_rooms_set_free(m->rooms, 0, cede_rooms_allocated(m->rooms));
        m->sampled_ns = cede_clock_now_ns();
        m->stale = false;
        cede_rooms_again(m->rooms, id, until_ns);
        r = memory_await(m, cede_owner_here(), id, until_ns);
        if (r)
            return r;
    }
    memory_end(m, id);
    return m->open ? r : -ESHUTDOWN;
}

static int memory_allocate_from(struct cede_memory *m, const struct cede_reservation *from,
                                uint64_t bytes, struct allocation *a)
{
    uint64_t id = from->opaque[1];
    if (!memory_has(m, from))
        return -ESTALE;
    int r = cede_rooms_draw(m->rooms, id, bytes);
    if (r == -ENOMEM) { /* it lacks some: others may have freed it since */
        cede_memory_sample(m, true);
        r = m->open ? cede_rooms_draw(m->rooms, id, bytes) : -ESHUTDOWN;
    }
    if (r == -ENOENT)
        return -ESTALE;
    if (r == 0)
        r = memory_take(m, id, bytes, a);
    return m->open ? r : -ESHUTDOWN;
}

CEDE_API int cede_memory_allocate(struct cede_memory *m, const struct cede_reservation *from,
                                  uint64_t bytes, cede_timeout timeout_us, uint64_t *address)
{
    LONG_CALL(TIMEOUT(timeout_us) && GIVEN(address) && MEMORY_SOME(bytes));
    ENTER(m);
    struct allocation *a = m->gpu ? calloc(1, sizeof(*a)) : NULL;
    if (!a)
        r = m->gpu ? -ENOMEM : -ENODEV;
    else if (from)
        r = memory_allocate_from(m, from, bytes, a);
    else
        r = memory_allocate(m, bytes, memory_until(m, timeout_us), a);
    if (r == 0)
        *address = a->address;
    else if (r != -ESHUTDOWN || !a || !a->address) /* else closing frees it */
        free(a);
    return cede_memory_leave(m, r, a ? bytes : 0);
}

CEDE_API int cede_memory_free(struct cede_memory *m, uint64_t address)
{
    const struct allocation key = {.address = address};
    LONG_CALL(ALWAYS);
    ENTER(m);
    void *node = tfind(&key, &m->allocations, cede_memory_compare);
    if (!node) {
        pthread_mutex_unlock(&m->lock);
        return cede_fail(-ENOENT, "%#llx was freed, or not allocated by this handle: free it once",
                         (unsigned long long)address);
    }
    struct allocation *a = *(struct allocation **)node;
    struct gpu_error why = {""};
    tdelete(a, &m->allocations, cede_memory_compare);
    m->s->allocations--;
    r = OUTSIDE(m, cede_gpus_deallocate(m->gpu, address, &why));
    cede_rooms_freed(m->rooms, a->reservation, a->bytes);
    free(a);
    if (r)
        m->error = why;
    m->stale = true;
    if (m->open)
        cede_memory_wake_first(m);
    return cede_memory_leave(m, r, 0);
}

/* ---- leases with memory: room, then ranges, then the lease -------------------------------------
 */

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
    m->s->skipped_ranges++;
    snprintf(m->s->skipped, sizeof(m->s->skipped), "a range of %llu bytes: %s",
             (unsigned long long)range->bytes, why);
}

/* Advises on a range and begins to move it; 0 bytes of it are moved without room for all. *id: of
 * the room that is kept for it meanwhile; 0: it does not move. With the lock held. */
static void memory_move(struct cede_memory *m, const struct cede_range *range, void **stream,
                        uint64_t *id)
{
    const char *why = m->gpu ? cede_gpus_facts(m->gpu, 0)->unmanaged : "the handle has no GPU";
    struct gpu_error e = {""};
    *id = 0;
    if (why) {
        memory_skip(m, range, why);
        return;
    }
    if (memory_wait(m, NULL, range->bytes, 0, id)) {
        *id = 0;
        memory_skip(m, range, "the GPU has no room for it now");
        return;
    }
    struct gpu_error why_not = {""};
    int advised = OUTSIDE(m, cede_gpus_advise(m->gpu, range, &e));
    int r = OUTSIDE(m, cede_gpus_prefetch(m->gpu, range, stream, &why_not));
    if (r || advised)
        memory_skip(m, range, r ? why_not.text : e.text);
    if (r == 0) {
        m->s->prefetched_ranges++;
        m->s->prefetched_bytes += range->bytes;
        return;
    }
    memory_end(m, *id);
    *id = 0;
}

/* Waits until the ranges are there. What the driver says is free then is without them. */
static void memory_moved(struct cede_memory *m, void *stream, const uint64_t *ids, unsigned n)
{
    struct gpu_error why = {""};
    if (stream) {
        if (OUTSIDE(m, cede_gpus_finish(m->gpu, stream, &why)))
            m->error = why;
        cede_memory_sample(m, true);
    }
    for (unsigned i = 0; i < n; i++) {
        if (ids[i])
            memory_end(m, ids[i]);
    }
}

/* The parts of a lease with memory, in order: room, ranges, the lease of a pool (NULL: none). Ends
 * cede_memory_enter(). */
static int memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                        const char *kernel, const struct cede_shape *shape,
                        const struct cede_range *ranges, unsigned nranges, cede_timeout timeout_us,
                        struct cede_lease *lease, struct cede_reservation *room)
{
    struct cede_shape s = shape ? *shape : (struct cede_shape){0};
    uint64_t ids[CEDE_RANGES_MAX], id, key = memory_key(kernel, shape);
    uint64_t until_ns = memory_until(m, timeout_us);
    void *stream = NULL;
    if (!s.memory_bytes)
        s.memory_bytes = cede_needs_get(&m->needs, key);
    int r = memory_wait(m, owner, s.memory_bytes, until_ns, &id);
    if (r)
        return cede_memory_leave(m, r, s.memory_bytes);
    m->data[room_slot(id)].key = key;
    m->inside++; /* a handle that is closed now keeps what it has until the end of this */
    for (unsigned i = 0; i < nranges; i++)
        memory_move(m, &ranges[i], &stream, &ids[i]);
    if (p)
        r = OUTSIDE(m, cede_lease_acquire(p, owner, CEDE_ONLY_DEVICE(m->config.device), kernel, &s,
                                          timeout_left(until_ns, cede_clock_now_ns()), lease));
    memory_moved(m, stream, ids, nranges); // cppcheck-suppress uninitvar ; the first nranges are
    if (r == 0 && !m->open) {
        if (p)
            cede_release(lease);
        r = -ESHUTDOWN;
    }
    if (r == 0)
        *room = memory_reservation(m, id, s.memory_bytes);
    else if (m->open)
        memory_end(m, id);
    slot_left(SLOT(m));
    return cede_memory_leave(m, r, 0);
}

CEDE_API int cede_memory_acquire(struct cede_memory *m, struct cede_pool *p, const char *kernel,
                                 const struct cede_shape *shape, const struct cede_range *ranges,
                                 unsigned nranges, cede_timeout timeout_us,
                                 struct cede_lease *lease, struct cede_reservation *room)
{
    LONG_CALL(TIMEOUT(timeout_us) && GIVEN(lease) && GIVEN(room) &&
              IS(nranges <= CEDE_RANGES_MAX, "%u ranges: give at most CEDE_RANGES_MAX", nranges) &&
              (nranges == 0 || GIVEN(ranges)));
    ENTER(m);
    r = cede_lease_check(p, CEDE_ONLY_DEVICE(m->config.device), kernel,
                         shape); /* not after a wait */
    return r ? cede_memory_leave(m, r, 0)
             : memory_lease(m, p, cede_owner_here(), kernel, shape, ranges, nranges, timeout_us,
                            lease, room);
}

int cede_memory_lease(struct cede_memory *m, struct cede_pool *p, struct lease_owner *owner,
                      const char *kernel, const struct cede_shape *shape, cede_timeout timeout_us,
                      struct cede_lease *lease, struct cede_reservation *room)
{
    int r = cede_memory_enter(m);
    return r ?: memory_lease(m, p, owner, kernel, shape, NULL, 0, timeout_us, lease, room);
}
