/* See leases.h. A queue is in order of arrival; its first lease is searched for when it is needed,
 * as leases become old and urgent with time. */
#include "libcede/pure/leases.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/estimate.h"
#include "libcede/pure/lease_limit.h"
#include "libcede/pure/times.h"

#define KEYS_MAX  64U
#define KNOWN_MAX 1024U /* leases that the mean is of: halved then, so that it follows */

enum lease_state { SLOT_FREE, SLOT_WAITS, SLOT_STARTED };

struct lease_entry {
    struct lease_ask ask;
    uint64_t id, arrival_ns, latest_ns, started_ns; /* id: of a free slot, its last one */
    uint32_t device;                                /* it runs on it, or waits in its queue */
    TAILQ_ENTRY(lease_entry) link;                  /* in the queue, or among the free slots */
    enum lease_state state;
    enum lease_wait wait;  /* when it was asked for */
    bool displaces, known; /* known: its occupancy is no estimate */
};
TAILQ_HEAD(lease_queue, lease_entry);

struct lease_gpu {
    struct lease_view v;
    struct lease_queue queue;          /* in order of arrival */
    uint64_t lacks_id, lacks_until_ns; /* the first lease, if only a stream is missing, and when it
                                          times out; else 0, TIME_NEVER */
    uint32_t utilization;
    uint64_t memory_bytes; /* in all; 0: not known */
    uint64_t spare_bytes;  /* what would be free if no lease had started */
    uint64_t busy_since_ns;
    uint32_t displacing_occupancy; /* of leases that displace */
    struct lease_limit limit;
};

struct leases {
    struct cede_pool_config c;
    uint64_t max_occupancy;          /* millionths */
    uint64_t known, known_occupancy; /* leases with an occupancy, and the sum of these */
    struct lease_best bests[LEASE_BESTS];
    struct lease_gpu *gpus;
    struct lease_entry *slots;
    struct lease_queue unused;
    struct estimates *times;
    uint32_t waiting;
    uint64_t generation, stepped_ns; /* stepped_ns: of the latest step */
};

int cede_leases_new(const struct cede_pool_config *c, struct leases **out)
{
    *out = NULL;
    struct leases *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->c = *c;
    l->c.streams = c->streams ? c->streams : c->max_concurrent_streams;
    l->max_occupancy = (uint64_t)(c->max_total_occupancy * LEASE_WHOLE + 0.5);
    l->gpus = calloc(c->devices, sizeof(*l->gpus));
    l->slots = calloc(c->capacity, sizeof(*l->slots));
    if (!l->gpus || !l->slots || cede_estimates_new(KEYS_MAX, &l->times) < 0) {
        cede_leases_free(l);
        return -ENOMEM;
    }
    for (uint32_t d = 0; d < c->devices; d++) {
        l->gpus[d] = (struct lease_gpu){
            .lacks_until_ns = TIME_NEVER,
            .utilization = SLOT_NONE,
            .limit = {.limit = c->max_concurrent_streams, .most = c->max_concurrent_streams}};
        TAILQ_INIT(&l->gpus[d].queue);
    }
    TAILQ_INIT(&l->unused);
    for (uint32_t i = 0; i < c->capacity; i++) {
        l->slots[i].id = i;
        TAILQ_INSERT_TAIL(&l->unused, &l->slots[i], link);
    }
    *out = l;
    return 0;
}

void cede_leases_free(struct leases *l)
{
    if (!l)
        return;
    cede_estimates_free(l->times);
    free(l->gpus);
    free(l->slots);
    free(l);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static uint64_t leases_aged_ns(const struct leases *l, const struct lease_entry *s)
{
    return time_after(s->arrival_ns, l->c.age_us, NSEC_PER_USEC);
}

static bool leases_aged(const struct leases *l, const struct lease_entry *s, uint64_t now_ns)
{
    return now_ns >= leases_aged_ns(l, s);
}

/* The leases that count where s is to start. Those that displace are beyond the limits; for an aged
 * lease they are not there, as one after another could otherwise keep it waiting for ever. */
static uint32_t leases_beside(const struct leases *l, const struct lease_gpu *g,
                              const struct lease_entry *s, uint64_t now_ns)
{
    return g->v.active - (g->v.displacing && leases_aged(l, s, now_ns) ? g->v.displacing : 0);
}

/* What is free for leases that run beside others. */
static uint64_t leases_spare(const struct leases *l, const struct lease_gpu *g, uint64_t used_bytes)
{
    uint64_t reserve = (uint64_t)((double)g->memory_bytes * l->c.memory_reserve_fraction);
    return saturating_sub(g->spare_bytes, saturating_add(used_bytes, reserve));
}

/* Whether memory would do if s ran alone. One that is larger than the GPU starts then, and the
 * driver will refuse it. */
static bool leases_memory_alone(const struct lease_gpu *g, const struct lease_entry *s,
                                uint64_t used_bytes)
{
    return s->ask.memory_bytes <= saturating_sub(g->spare_bytes, used_bytes) ||
           s->ask.memory_bytes > g->memory_bytes;
}

/* Whether a GPU has memory for a lease: in addition to the reserve, unless it runs alone. */
static bool leases_memory_fits(const struct leases *l, const struct lease_gpu *g,
                               const struct lease_entry *s, uint64_t now_ns)
{
    if (!g->memory_bytes || !s->ask.memory_bytes)
        return true;
    if (!leases_beside(l, g, s, now_ns))
        return leases_memory_alone(g, s, g->v.memory_bytes);
    return s->ask.memory_bytes <= leases_spare(l, g, g->v.memory_bytes);
}

/* What keeps a lease from starting on g, whatever waits in the queue. */
static enum lease_wait leases_wait(const struct leases *l, const struct lease_gpu *g,
                                   const struct lease_entry *s, uint64_t now_ns)
{
    if (!leases_memory_fits(l, g, s, now_ns))
        return WAIT_MEMORY;
    uint32_t beside = leases_beside(l, g, s, now_ns);
    uint64_t occupancy = (uint64_t)g->v.occupancy + s->ask.occupancy;
    if (!beside)
        return WAIT_NONE;
    if (beside >= g->limit.limit)
        return WAIT_COUNT;
    if (occupancy - (beside < g->v.active ? g->displacing_occupancy : 0) > l->max_occupancy)
        return WAIT_OCCUPANCY;
    if (g->utilization <= 100 && g->utilization > l->c.target_utilization_percent)
        return WAIT_UTILIZATION;
    if (beside >= l->c.streams)
        return WAIT_STREAM;
    return WAIT_NONE;
}

static bool leases_urgent(const struct leases *l, const struct lease_entry *s, uint64_t now_ns)
{
    return s->latest_ns != TIME_NEVER &&
           (s->latest_ns <= now_ns || s->latest_ns - now_ns < l->c.urgent_us * NSEC_PER_USEC);
}

/* a is to start before b. */
static bool leases_before(const struct leases *l, const struct lease_entry *a,
                          const struct lease_entry *b, uint64_t now_ns)
{
    bool old = leases_aged(l, a, now_ns), soon = leases_urgent(l, a, now_ns);
    if (old != leases_aged(l, b, now_ns))
        return old;
    if (!old && soon != leases_urgent(l, b, now_ns))
        return soon;
    if (!old && a->ask.priority != b->ask.priority)
        return a->ask.priority > b->ask.priority;
    return a->arrival_ns != b->arrival_ns ? a->arrival_ns < b->arrival_ns : a->id < b->id;
}

static struct lease_entry *leases_first(const struct leases *l, const struct lease_gpu *g, bool dry,
                                        uint64_t now_ns)
{
    struct lease_entry *best = NULL;
    for (struct lease_entry *s = TAILQ_FIRST(&g->queue); s; s = TAILQ_NEXT(s, link)) {
        if (!(dry && s->ask.memory_bytes) && (!best || leases_before(l, s, best, now_ns)))
            best = s;
    }
    return best;
}

/* An aged lease with memory only for it alone: no other may start, or it never would. */
static bool leases_only_alone(const struct leases *l, const struct lease_gpu *g,
                              const struct lease_entry *s, uint64_t now_ns)
{
    return leases_aged(l, s, now_ns) && s->ask.memory_bytes > leases_spare(l, g, 0) &&
           leases_memory_alone(g, s, 0);
}

/* The first of a queue; if that lacks memory, and dry, the first that needs none, or NULL. */
static struct lease_entry *leases_head(const struct leases *l, const struct lease_gpu *g, bool dry,
                                       uint64_t now_ns)
{
    struct lease_entry *s = leases_first(l, g, false, now_ns);
    return s && dry && !leases_memory_fits(l, g, s, now_ns) && !leases_only_alone(l, g, s, now_ns)
               ? leases_first(l, g, true, now_ns)
               : s;
}

/* A lease may start beyond the limits, but not with memory that an earlier one is to have. */
static bool leases_displaces(const struct leases *l, const struct lease_gpu *g,
                             const struct lease_entry *s, uint64_t now_ns)
{
    if (g->v.displacing >= l->c.displace || !leases_urgent(l, s, now_ns) ||
        !leases_memory_fits(l, g, s, now_ns))
        return false;
    const struct lease_entry *h = s->ask.memory_bytes ? leases_first(l, g, false, now_ns) : NULL;
    if (!h || h == s || !g->memory_bytes || !h->ask.memory_bytes || !leases_before(l, h, s, now_ns))
        return true;
    return h->ask.memory_bytes <=
           leases_spare(l, g, saturating_add(g->v.memory_bytes, s->ask.memory_bytes));
}

/* What keeps s, which is in no queue yet, from starting there now. */
static enum lease_wait leases_wait_now(const struct leases *l, const struct lease_gpu *g,
                                       const struct lease_entry *s, uint64_t now_ns)
{
    const struct lease_entry *h = leases_head(l, g, !s->ask.memory_bytes, now_ns);
    if (!h || !leases_before(l, h, s, now_ns))
        return leases_wait(l, g, s, now_ns);
    const bool outranks = h->ask.priority > s->ask.priority ||
                          (leases_urgent(l, h, now_ns) && !leases_urgent(l, s, now_ns));
    enum lease_wait why = outranks ? WAIT_CLASS : leases_wait(l, g, h, now_ns);
    return why == WAIT_NONE ? WAIT_CLASS : why;
}

static bool leases_less_loaded(const struct lease_gpu *a, const struct lease_gpu *b)
{
    uint64_t x = (uint64_t)a->v.active + a->v.waiting, y = (uint64_t)b->v.active + b->v.waiting;
    return x != y ? x < y : a->v.occupancy < b->v.occupancy;
}

/* ---- starting and ending --------------------------------------------------------------------- */

static struct lease_event leases_event(const struct leases *l, const struct lease_entry *s,
                                       uint32_t device, uint64_t now_ns)
{
    return (struct lease_event){.id = s->id,
                                .device = device,
                                .urgent = leases_urgent(l, s, now_ns),
                                .occupancy = s->ask.occupancy,
                                .waited_for = s->wait,
                                .waited_us = saturating_sub(now_ns, s->arrival_ns) / NSEC_PER_USEC};
}

static void leases_dequeue(struct leases *l, struct lease_entry *s, uint64_t now_ns)
{
    struct lease_gpu *g = &l->gpus[s->device];
    lease_waits_add(&g->v.waits[s->wait], saturating_sub(now_ns, s->arrival_ns) / NSEC_PER_USEC);
    TAILQ_REMOVE(&g->queue, s, link);
    g->v.waiting--;
    l->waiting--;
}

static void leases_free_slot(struct leases *l, struct lease_entry *s)
{
    s->state = SLOT_FREE;
    TAILQ_INSERT_HEAD(&l->unused, s, link);
}

/* The occupancy of a lease whose kernel is not known is the mean of those that are. */
static uint32_t leases_unknown(const struct leases *l)
{
    if (l->c.unknown_occupancy > 0 && l->known)
        return (uint32_t)(l->known_occupancy / l->known);
    return (uint32_t)(l->c.unknown_occupancy * LEASE_WHOLE + 0.5);
}

static void leases_start(struct leases *l, struct lease_entry *s, uint32_t device, bool displaces,
                         uint64_t now_ns)
{
    struct lease_gpu *g = &l->gpus[device];
    s->displaces = displaces;
    g->v.displacing += displaces;
    g->v.displaced += displaces;
    g->displacing_occupancy += displaces ? s->ask.occupancy : 0;
    if (s->known && l->known >= KNOWN_MAX) {
        l->known /= 2;
        l->known_occupancy /= 2;
    }
    l->known += s->known;
    l->known_occupancy += s->known ? s->ask.occupancy : 0;
    if (s->state == SLOT_WAITS) {
        g->v.stolen += s->device != device;
        leases_dequeue(l, s, now_ns);
    } else {
        g->v.waits[WAIT_NONE].leases++;
    }
    if (!g->v.active)
        g->busy_since_ns = now_ns;
    s->state = SLOT_STARTED;
    s->device = device;
    s->started_ns = now_ns;
    g->v.active++;
    g->v.started++;
    g->v.occupancy += s->ask.occupancy;
    g->v.memory_bytes += s->ask.memory_bytes;
    lease_limit_started(&g->limit, g->v.active);
}

static int leases_check(const struct leases *l, const struct lease_ask *a)
{
    if ((a->occupancy > LEASE_WHOLE && a->occupancy != LEASE_UNKNOWN) ||
        (a->preferred != SLOT_NONE && a->preferred >= l->c.devices) ||
        (a->only && a->preferred == SLOT_NONE) || a->memory_bytes > UINT64_MAX / l->c.capacity)
        return -EINVAL;
    return TAILQ_EMPTY(&l->unused) ? -ENOSPC : 0;
}

/* The device to start on, or, where *why is not WAIT_NONE, to wait for. */
static uint32_t leases_place(const struct leases *l, const struct lease_entry *s, uint64_t now_ns,
                             enum lease_wait *why)
{
    uint32_t last = s->ask.last < l->c.devices ? s->ask.last : 0, can = SLOT_NONE;
    uint32_t least = s->ask.preferred == SLOT_NONE ? last : s->ask.preferred;
    *why =
        s->ask.preferred == SLOT_NONE ? WAIT_CLASS : leases_wait_now(l, &l->gpus[least], s, now_ns);
    if (*why == WAIT_NONE || s->ask.only)
        return least;
    for (uint32_t i = 0; i < l->c.devices; i++) {
        uint32_t d = (last + i) % l->c.devices;
        const struct lease_gpu *g = &l->gpus[d];
        if (leases_less_loaded(g, &l->gpus[least]))
            least = d;
        if ((can == SLOT_NONE || leases_less_loaded(g, &l->gpus[can])) &&
            leases_wait_now(l, g, s, now_ns) == WAIT_NONE)
            can = d;
    }
    *why = can == SLOT_NONE ? leases_wait_now(l, &l->gpus[least], s, now_ns) : WAIT_NONE;
    return can == SLOT_NONE ? least : can;
}

int cede_leases_ask(struct leases *l, const struct lease_ask *a, uint64_t now_ns,
                    struct lease_event *out)
{
    *out = (struct lease_event){.device = SLOT_NONE};
    int r = leases_check(l, a);
    if (r < 0)
        return r;
    struct lease_entry *s = TAILQ_FIRST(&l->unused);
    s->ask = *a;
    s->known = a->occupancy != LEASE_UNKNOWN;
    if (!s->known)
        s->ask.occupancy = leases_unknown(l);
    s->id = ++l->generation * LEASE_CAPACITY_MAX + lease_slot(s->id);
    s->arrival_ns = now_ns;
    s->latest_ns =
        a->deadline_ns == TIME_NEVER
            ? TIME_NEVER
            : saturating_sub(a->deadline_ns, cede_estimates_get(l->times, a->key, 0.99, 0));
    uint32_t device = leases_place(l, s, now_ns, &s->wait);
    bool displaces = s->wait != WAIT_NONE && leases_displaces(l, &l->gpus[device], s, now_ns);
    if (displaces)
        s->wait = WAIT_NONE;
    out->wait = s->wait;
    if (s->wait != WAIT_NONE && a->until_ns <= now_ns)
        return -EAGAIN;
    TAILQ_REMOVE(&l->unused, s, link);
    *out = leases_event(l, s, device, now_ns);
    out->wait = s->wait;
    if (s->wait == WAIT_NONE) {
        leases_start(l, s, device, displaces, now_ns);
        return 0;
    }
    s->state = SLOT_WAITS;
    s->device = device;
    TAILQ_INSERT_TAIL(&l->gpus[device].queue, s, link);
    l->gpus[device].v.waiting++;
    l->waiting++;
    return -EINPROGRESS;
}

static struct lease_entry *leases_find(const struct leases *l, uint64_t id, enum lease_state state)
{
    uint32_t i = lease_slot(id);
    if (i >= l->c.capacity || l->slots[i].id != id || l->slots[i].state != state)
        return NULL;
    return &l->slots[i];
}

int cede_leases_release(struct leases *l, uint64_t id, uint64_t now_ns)
{
    struct lease_entry *s = leases_find(l, id, SLOT_STARTED);
    if (!s)
        return -ENOENT;
    struct lease_gpu *g = &l->gpus[s->device];
    uint64_t took_ns = saturating_sub(now_ns, s->started_ns);
    g->v.active--;
    g->v.displacing -= s->displaces;
    g->displacing_occupancy -= s->displaces ? s->ask.occupancy : 0;
    g->v.occupancy -= s->ask.occupancy;
    g->v.memory_bytes -= s->ask.memory_bytes;
    if (!g->v.active)
        g->v.busy_ns += saturating_sub(now_ns, g->busy_since_ns);
    if (s->ask.key) {
        if (l->c.max_slowdown > 0 && !s->displaces) /* the limit is not that one's */
            cede_lease_limit_ended(&g->limit, l->bests, s->ask.key, took_ns, g->v.active,
                                   l->c.max_slowdown);
        cede_estimates_add(l->times, s->ask.key, took_ns);
    }
    leases_free_slot(l, s);
    return 0;
}

int cede_leases_cancel(struct leases *l, uint64_t id, uint64_t now_ns, struct lease_event *out)
{
    struct lease_entry *s = leases_find(l, id, SLOT_WAITS);
    if (!s)
        return -ENOENT;
    *out = leases_event(l, s, s->device, now_ns);
    leases_dequeue(l, s, now_ns);
    leases_free_slot(l, s);
    return 0;
}

/* ---- starts and timeouts of waiting leases --------------------------------------------------- */

/* The first lease of the other queues that fits on g. */
static struct lease_entry *leases_steal(const struct leases *l, const struct lease_gpu *g,
                                        uint64_t now_ns)
{
    struct lease_entry *best = NULL;
    for (uint32_t d = 0; d < l->c.devices; d++) {
        struct lease_entry *s = TAILQ_FIRST(&l->gpus[d].queue);
        for (; s; s = TAILQ_NEXT(s, link)) {
            if (!s->ask.only && (!best || leases_before(l, s, best, now_ns)) &&
                leases_wait(l, g, s, now_ns) == WAIT_NONE)
                best = s;
        }
    }
    return best;
}

static bool leases_expire(struct leases *l, uint64_t limit_ns, struct lease_event *out)
{
    for (uint32_t d = 0; d < l->c.devices; d++) {
        struct lease_gpu *g = &l->gpus[d];
        for (struct lease_entry *s = TAILQ_FIRST(&g->queue); s; s = TAILQ_NEXT(s, link)) {
            bool lacks = s->id == g->lacks_id && g->lacks_until_ns <= limit_ns;
            if (s->ask.until_ns > limit_ns && !lacks)
                continue;
            enum lease_wait why = lacks ? WAIT_STREAM : leases_wait(l, g, s, limit_ns);
            *out = leases_event(l, s, d, limit_ns);
            out->wait = why == WAIT_NONE ? WAIT_CLASS : why;
            g->v.timed_out++;
            leases_dequeue(l, s, limit_ns);
            leases_free_slot(l, s);
            return true;
        }
    }
    return false;
}

/* The first lease of a queue that may displace. */
static struct lease_entry *leases_displacer(const struct leases *l, const struct lease_gpu *g,
                                            uint64_t now_ns)
{
    struct lease_entry *best = NULL;
    if (g->v.displacing >= l->c.displace)
        return NULL;
    for (struct lease_entry *s = TAILQ_FIRST(&g->queue); s; s = TAILQ_NEXT(s, link)) {
        if (leases_displaces(l, g, s, now_ns) && (!best || leases_before(l, s, best, now_ns)))
            best = s;
    }
    return best;
}

static bool leases_start_one(struct leases *l, uint64_t now_ns, struct lease_event *out)
{
    for (uint32_t d = 0; d < l->c.devices; d++) {
        struct lease_gpu *g = &l->gpus[d];
        struct lease_entry *s = leases_head(l, g, true, now_ns);
        bool displaces = false;
        enum lease_wait why = s ? leases_wait(l, g, s, now_ns) : WAIT_NONE;
        if (!s || why != WAIT_STREAM) {
            g->lacks_id = 0;
            g->lacks_until_ns = TIME_NEVER;
        } else if (s->id != g->lacks_id) {
            g->lacks_id = s->id;
            g->lacks_until_ns = timeout_end(l->c.stream_timeout_us, now_ns, 0);
        }
        if (TAILQ_EMPTY(&g->queue))
            s = leases_steal(l, g, now_ns);
        else if ((displaces = !s || why != WAIT_NONE))
            s = leases_displacer(l, g, now_ns);
        if (s) {
            *out = leases_event(l, s, d, now_ns);
            leases_start(l, s, d, displaces, now_ns);
            return true;
        }
    }
    return false;
}

bool cede_leases_step(struct leases *l, uint64_t now_ns, struct lease_event *out)
{
    l->stepped_ns = now_ns;
    if (!l->waiting)
        return false;
    return (now_ns && leases_expire(l, now_ns - 1, out)) || leases_start_one(l, now_ns, out) ||
           leases_expire(l, now_ns, out);
}

uint64_t cede_leases_next_ns(const struct leases *l)
{
    uint64_t next = TIME_NEVER;
    for (uint32_t d = 0; l->waiting && d < l->c.devices; d++) {
        const struct lease_gpu *g = &l->gpus[d];
        for (const struct lease_entry *s = TAILQ_FIRST(&g->queue); s; s = TAILQ_NEXT(s, link)) {
            next = min_u64(s->ask.until_ns, next);
            next = s->id == g->lacks_id ? min_u64(g->lacks_until_ns, next) : next;
            next = min_u64(cede_leases_look_ns(l, s->id, l->stepped_ns), next);
        }
    }
    return next;
}

void cede_leases_set_utilization(struct leases *l, uint32_t device, uint32_t percent)
{
    if (device < l->c.devices)
        l->gpus[device].utilization = percent;
}

/* What would be free without leases is at least what is free now, if none of them has allocated
 * anything, and at most that and all that they are to take. Between the two the former figure
 * stands, so that neither a lease's memory counts twice once it is allocated, nor what others took
 * or gave back meanwhile is missed. */
void cede_leases_set_memory(struct leases *l, uint32_t device, uint64_t free_bytes,
                            uint64_t total_bytes)
{
    if (device >= l->c.devices)
        return;
    struct lease_gpu *g = &l->gpus[device];
    uint64_t most = saturating_add(free_bytes, g->v.memory_bytes);
    g->spare_bytes = max_u64(free_bytes, min_u64(g->memory_bytes ? g->spare_bytes : most, most));
    g->memory_bytes = total_bytes;
}

uint64_t cede_leases_look_ns(const struct leases *l, uint64_t id, uint64_t now_ns)
{
    const struct lease_entry *s = leases_find(l, id, SLOT_WAITS);
    if (!s)
        return TIME_NEVER;
    uint64_t aged_ns = leases_aged_ns(l, s), urgent_ns = TIME_NEVER;
    if (s->latest_ns != TIME_NEVER && l->c.displace)
        urgent_ns = saturating_add(saturating_sub(s->latest_ns, l->c.urgent_us * NSEC_PER_USEC), 1);
    return min_u64(aged_ns > now_ns ? aged_ns : TIME_NEVER,
                   urgent_ns > now_ns ? urgent_ns : TIME_NEVER);
}

bool cede_leases_displaced(const struct leases *l, uint64_t id)
{
    const struct lease_entry *s = leases_find(l, id, SLOT_STARTED);
    return s && !s->displaces && l->gpus[s->device].v.displacing;
}

struct lease_view cede_leases_view(const struct leases *l, uint32_t device, uint64_t now_ns)
{
    const struct lease_gpu *g = &l->gpus[device];
    struct lease_view v = g->v;
    v.limit = g->limit.limit;
    if (v.active)
        v.busy_ns += saturating_sub(now_ns, g->busy_since_ns);
    return v;
}
