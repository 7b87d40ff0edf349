/* See rooms.h. */
#include "libcede/pure/rooms.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/fnv.h"
#include "libcede/pure/times.h"

enum room_state { ROOM_FREE, ROOM_WAITS, ROOM_GRANTED };

struct room_entry {
    uint64_t id, bytes, arrival_ns, until_ns;
    uint64_t drawn; /* of it, for allocations that have not ended */
    uint64_t peak;
    TAILQ_ENTRY(room_entry) link; /* in the queue, or among the free ones */
    enum room_state state;
};
TAILQ_HEAD(room_queue, room_entry);

struct rooms {
    struct cede_memory_config c;
    struct room_entry *slots;
    struct room_queue queue, unused;
    struct cede_memory_statistics v;
    uint64_t generation, ever_allocated;
};

static struct room_entry *rooms_find(const struct rooms *r, uint64_t id)
{
    uint32_t i = room_slot(id);
    if (i >= r->c.capacity || r->slots[i].id != id || r->slots[i].state == ROOM_FREE)
        return NULL;
    return &r->slots[i];
}

/* ---- what there is --------------------------------------------------------------------------- */

int cede_rooms_pressure(double share, double high, double critical, int was)
{
    const double at[] = {0, high, critical};
    int now = share >= critical ? CEDE_PRESSURE_CRITICAL
              : share >= high   ? CEDE_PRESSURE_HIGH
                                : CEDE_PRESSURE_LOW;
    while (now < was && share < at[was] - PRESSURE_BAND)
        was--;
    return now > was ? now : was;
}

static void rooms_update(struct rooms *r)
{
    uint64_t own = saturating_sub(r->c.total_bytes, r->v.allocated_bytes);
    r->v.available_bytes = saturating_sub(min_u64(r->v.free_bytes, own),
                                          saturating_add(r->c.reserve_bytes, r->v.promised_bytes));
    uint64_t usable = r->c.total_bytes - r->c.reserve_bytes;
    r->v.pressure = cede_rooms_pressure(1 - (double)r->v.available_bytes / (double)usable,
                                        r->c.high, r->c.critical, r->v.pressure);
}

int cede_rooms_new(const struct cede_memory_config *c, struct rooms **out)
{
    *out = NULL;
    struct rooms *r = calloc(1, sizeof(*r));
    struct room_entry *slots = calloc(c->capacity, sizeof(*slots));
    if (!r || !slots) {
        free(slots);
        free(r);
        return -ENOMEM;
    }
    r->c = *c;
    r->slots = slots;
    r->v.total_bytes = r->v.free_bytes = c->total_bytes;
    r->v.reserve_bytes = c->reserve_bytes;
    rooms_update(r);
    TAILQ_INIT(&r->queue);
    TAILQ_INIT(&r->unused);
    for (uint32_t i = 0; i < c->capacity; i++) {
        slots[i].id = i;
        TAILQ_INSERT_TAIL(&r->unused, &slots[i], link);
    }
    *out = r;
    return 0;
}

void cede_rooms_free(struct rooms *r)
{
    if (!r)
        return;
    free(r->slots);
    free(r);
}

void cede_rooms_set_free(struct rooms *r, uint64_t free_bytes, uint64_t allocated_bytes)
{
    r->v.free_bytes = saturating_sub(free_bytes, r->ever_allocated - allocated_bytes);
    rooms_update(r);
}

uint64_t cede_rooms_allocated(const struct rooms *r)
{
    return r->ever_allocated;
}

bool cede_rooms_fits(const struct rooms *r, uint64_t bytes)
{
    return TAILQ_EMPTY(&r->queue) && bytes <= r->v.available_bytes;
}

/* ---- reservations ---------------------------------------------------------------------------- */

static void rooms_grant(struct rooms *r, struct room_entry *e)
{
    e->state = ROOM_GRANTED;
    r->v.promised_bytes += e->bytes;
    r->v.reservations++;
    rooms_update(r);
}

static void rooms_dequeue(struct rooms *r, struct room_entry *e)
{
    TAILQ_REMOVE(&r->queue, e, link);
    r->v.waiting--;
}

static void rooms_free_slot(struct rooms *r, struct room_entry *e)
{
    e->state = ROOM_FREE;
    TAILQ_INSERT_HEAD(&r->unused, e, link);
}

int cede_rooms_ask(struct rooms *r, uint64_t bytes, uint64_t until_ns, uint64_t now_ns,
                   uint64_t *id)
{
    struct room_entry *e = TAILQ_FIRST(&r->unused);
    *id = 0;
    if (bytes > r->c.total_bytes - r->c.reserve_bytes)
        return -ENOMEM;
    bool fits = !bytes || cede_rooms_fits(r, bytes);
    if (!fits && until_ns <= now_ns)
        return -ENOMEM;
    if (!e)
        return -ENOSPC;
    TAILQ_REMOVE(&r->unused, e, link);
    *e = (struct room_entry){.id = ++r->generation * ROOMS_CAPACITY_MAX + room_slot(e->id),
                             .bytes = bytes,
                             .arrival_ns = now_ns,
                             .until_ns = until_ns};
    *id = e->id;
    if (fits) {
        r->v.granted++;
        rooms_grant(r, e);
        return 0;
    }
    e->state = ROOM_WAITS;
    TAILQ_INSERT_TAIL(&r->queue, e, link);
    r->v.waiting++;
    r->v.waited++;
    return -EINPROGRESS;
}

int cede_rooms_release(struct rooms *r, uint64_t id)
{
    struct room_entry *e = rooms_find(r, id);
    if (!e)
        return -ENOENT;
    if (e->state == ROOM_WAITS) {
        rooms_dequeue(r, e);
    } else {
        r->v.promised_bytes -= saturating_sub(e->bytes, e->drawn);
        r->v.reservations--;
    }
    rooms_free_slot(r, e);
    rooms_update(r);
    return 0;
}

int cede_rooms_draw(struct rooms *r, uint64_t id, uint64_t bytes)
{
    struct room_entry *e = rooms_find(r, id);
    if (!e || e->state != ROOM_GRANTED)
        return -ENOENT;
    if (bytes > r->c.total_bytes)
        return -ENOMEM;
    /* An entry keeps all of it, or what is drawn if that is more. */
    uint64_t more = max_u64(e->bytes, e->drawn + bytes) - max_u64(e->bytes, e->drawn);
    if (more && !cede_rooms_fits(r, more))
        return -ENOMEM;
    e->drawn += bytes;
    e->peak = max_u64(e->peak, e->drawn);
    r->v.promised_bytes += more;
    rooms_update(r);
    return 0;
}

void cede_rooms_took(struct rooms *r, uint64_t bytes)
{
    r->v.promised_bytes -= bytes;
    r->v.allocated_bytes += bytes;
    r->v.free_bytes = saturating_sub(r->v.free_bytes, bytes);
    r->ever_allocated += bytes;
    rooms_update(r);
}

/* Drawn bytes of an entry end; what it is promised of them it keeps. */
static uint64_t rooms_return(struct rooms *r, uint64_t id, uint64_t bytes)
{
    struct room_entry *e = rooms_find(r, id);
    if (!e || e->state != ROOM_GRANTED)
        return 0;
    uint64_t before = saturating_sub(e->bytes, e->drawn);
    e->drawn = saturating_sub(e->drawn, bytes);
    return saturating_sub(e->bytes, e->drawn) - before;
}

void cede_rooms_undraw(struct rooms *r, uint64_t id, uint64_t bytes)
{
    r->v.promised_bytes -= bytes - rooms_return(r, id, bytes);
    rooms_update(r);
}

void cede_rooms_again(struct rooms *r, uint64_t id, uint64_t until_ns)
{
    struct room_entry *e = rooms_find(r, id);
    if (!e || e->state != ROOM_GRANTED)
        return;
    r->v.promised_bytes -= saturating_sub(e->bytes, e->drawn);
    r->v.reservations--;
    r->v.waiting++;
    r->v.granted--;
    e->until_ns = until_ns;
    e->state = ROOM_WAITS;
    TAILQ_INSERT_HEAD(&r->queue, e, link);
    rooms_update(r);
}

void cede_rooms_freed(struct rooms *r, uint64_t id, uint64_t bytes)
{
    r->v.allocated_bytes -= bytes;
    r->v.promised_bytes += rooms_return(r, id, bytes);
    rooms_update(r);
}

uint64_t cede_rooms_peak(const struct rooms *r, uint64_t id)
{
    const struct room_entry *e = rooms_find(r, id);
    return e ? e->peak : 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static bool rooms_expire(struct rooms *r, uint64_t limit_ns, struct room_event *out)
{
    struct room_entry *e = TAILQ_FIRST(&r->queue);
    while (e && e->until_ns > limit_ns)
        e = TAILQ_NEXT(e, link);
    if (!e)
        return false;
    *out = (struct room_event){.id = e->id};
    r->v.timed_out++;
    rooms_dequeue(r, e);
    rooms_free_slot(r, e);
    return true;
}

bool cede_rooms_step(struct rooms *r, uint64_t now_ns, struct room_event *out)
{
    if (now_ns && rooms_expire(r, now_ns - 1, out))
        return true;
    struct room_entry *e = TAILQ_FIRST(&r->queue);
    if (e && e->bytes <= r->v.available_bytes) {
        *out = (struct room_event){.id = e->id, .granted = true};
        rooms_dequeue(r, e);
        r->v.granted++;
        r->v.longest_wait_us =
            max_u64(r->v.longest_wait_us, saturating_sub(now_ns, e->arrival_ns) / NSEC_PER_USEC);
        rooms_grant(r, e);
        return true;
    }
    return rooms_expire(r, now_ns, out);
}

uint64_t cede_rooms_first(const struct rooms *r, uint64_t *bytes)
{
    const struct room_entry *e = TAILQ_FIRST(&r->queue);
    *bytes =
        e ? saturating_add(e->bytes, saturating_add(r->c.reserve_bytes, r->v.promised_bytes)) : 0;
    return e ? e->id : 0;
}

struct cede_memory_statistics *cede_rooms_statistics(struct rooms *r)
{
    return &r->v;
}

/* ---- needs ----------------------------------------------------------------------------------- */

uint64_t cede_needs_key(const char *kernel, const uint64_t *shape, unsigned n)
{
    uint64_t h = fnv(FNV_START, kernel, kernel ? strlen(kernel) : 0);
    h = fnv(h, shape, n * sizeof(*shape));
    return h ? h : 1;
}

static uint32_t needs_slot(uint64_t key)
{
    return (uint32_t)(key * 0x9e3779b97f4a7c15U >> 32) & (NEEDS - 1);
}

uint64_t cede_needs_get(const struct needs *n, uint64_t key)
{
    uint32_t i = needs_slot(key);
    return n->v[i].key == key ? n->v[i].bytes : 0;
}

void cede_needs_learn(struct needs *n, uint64_t key, uint64_t bytes)
{
    uint32_t i = needs_slot(key);
    uint64_t *known = &n->v[i].bytes;
    if (n->v[i].key != key || bytes >= *known)
        *known = bytes;
    else
        *known -= (*known - bytes) / 8;
    n->v[i].key = key;
}
