/* See hints.h. */
#include "libcede/pure/hints.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/buckets.h"
#include "libcede/pure/times.h"

#define NOT_LISTED            UINT64_MAX
#define PUT(at, field, value) atomic_store_explicit(&(at)->field, value, memory_order_relaxed)

/* ---- histogram ------------------------------------------------------------------------------- */

static uint64_t hints_us(uint64_t ns)
{
    return (ns + NSEC_PER_USEC - 1) / NSEC_PER_USEC;
}

static uint64_t hints_quantile_us(const struct cede_hints *h, unsigned percent)
{
    uint64_t rank = (h->s.ended * percent + 99) / 100, seen = 0;
    for (unsigned b = 0; rank && b < HINTS_BUCKETS; b++) {
        seen += h->histogram[b];
        if (seen >= rank)
            return hints_us(min_u64(bucket_top(b, HINTS_BITS), h->max_ns));
    }
    return 0;
}

struct cede_statistics cede_hints_statistics(const struct cede_hints *h)
{
    struct cede_statistics s = h->s;
    s.p50_us = hints_quantile_us(h, 50);
    s.p99_us = hints_quantile_us(h, 99);
    s.max_us = hints_us(h->max_ns);
    return s;
}

/* ---- the page -------------------------------------------------------------------------------- */

static void hints_publish(const struct cede_hints *h)
{
    struct hints_page *p = h->page;
    const struct due_request *first = NULL;
    if (!p)
        return;
    for (uint32_t i = 0; i < h->open_end; i++) {
        const struct due_request *r = &h->open[i];
        if (r->deadline_ns && (!first || r->deadline_ns < first->deadline_ns))
            first = r;
    }
    PUT(p, begun, h->s.begun);
    PUT(p, ended, h->s.ended);
    PUT(p, due, h->s.with_deadline);
    PUT(p, met, h->s.deadlines_met);
    PUT(p, need_us, first ? first->need_us : 0);
    PUT(p, priority, first ? first->priority : 0);
    PUT(p, earliest_ns, first ? first->deadline_ns : 0);
    PUT(p, deadline_us, h->job.deadline_us);
    PUT(p, looks, h->looks);
}

static void hints_publish_wait(const struct cede_hints *h, unsigned what)
{
    if (!h->page)
        return;
    PUT(h->page, waits[what].leases, h->waits[what].leases);
    PUT(h->page, waits[what].total_us, h->waits[what].total_us);
}
_Static_assert(CEDE_WAITS == HINTS_WAITS, "the same");

struct hints_page *cede_hints_set_page(struct cede_hints *h, struct hints_page *page)
{
    struct hints_page *old = h->page;
    h->page = page;
    hints_publish(h);
    for (unsigned i = 0; i < CEDE_WAITS; i++)
        hints_publish_wait(h, i);
    return old;
}

static void hints_look(struct cede_hints *h, uint32_t at)
{
    if (h->looks & at)
        return;
    h->looks |= at;
    hints_publish(h);
}

uint32_t cede_hints_share(struct cede_hints *h, uint64_t now_ns)
{
    hints_look(h, HINTS_LOOKS_SHARE);
    return h->page
               ? hints_share_of(atomic_load_explicit(&h->page->share, memory_order_relaxed), now_ns)
               : HINTS_SHARE_WHOLE;
}

bool cede_hints_wanted(struct cede_hints *h)
{
    hints_look(h, HINTS_LOOKS_WANTED);
    return h->page && atomic_load_explicit(&h->page->wanted, memory_order_relaxed);
}

void cede_hints_reset(struct cede_hints *h)
{
    memset(&h->s, 0, sizeof(*h) - offsetof(struct cede_hints, s));
}

/* ---- job and streams ------------------------------------------------------------------------- */

static struct stream_hint *hints_find(struct cede_hints *h, cede_stream stream)
{
    if (stream == CEDE_JOB)
        return &h->job;
    for (uint32_t i = 0; i < h->nstreams; i++) {
        if (h->streams[i].stream == stream)
            return &h->streams[i];
    }
    return NULL;
}

int cede_hints_set(struct cede_hints *h, cede_stream stream, const uint64_t *deadline_us,
                   const uint64_t *laxity_us, const int *priority)
{
    struct stream_hint *s = hints_find(h, stream);
    if (!s && h->nstreams == CEDE_STREAMS_MAX)
        return -ENOSPC;
    if (!s) {
        s = &h->streams[h->nstreams++];
        *s = (struct stream_hint){.stream = stream};
    }
    if (deadline_us)
        s->deadline_us = *deadline_us;
    if (laxity_us)
        s->laxity_us = *laxity_us;
    if (priority) {
        s->priority = *priority;
        s->priority_set = true;
    }
    hints_publish(h);
    return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* s: of its stream; may be NULL. */
static uint64_t hints_list(struct cede_hints *h, const struct stream_hint *s, uint64_t deadline_ns,
                           uint64_t deadline_us)
{
    uint32_t i = 0;
    while (i < h->open_end && h->open[i].deadline_ns)
        i++;
    if (i == HINTS_OPEN_MAX)
        return NOT_LISTED;
    uint64_t laxity = s && s->laxity_us ? s->laxity_us : h->job.laxity_us;
    h->open[i] = (struct due_request){
        .deadline_ns = deadline_ns,
        .need_us = laxity && laxity < deadline_us ? deadline_us - laxity : 0,
        .priority = s && s->priority_set ? s->priority : h->job.priority,
    };
    h->open_end = i == h->open_end ? i + 1 : h->open_end;
    return i;
}

static void hints_unlist(struct cede_hints *h, uint64_t index)
{
    if (index >= h->open_end)
        return;
    h->open[index].deadline_ns = 0;
    while (h->open_end && !h->open[h->open_end - 1].deadline_ns)
        h->open_end--;
}

void cede_hints_begin(struct cede_hints *h, cede_stream stream, uint64_t now_ns,
                      uint64_t deadline_us, struct hint_request *out)
{
    const struct stream_hint *s = hints_find(h, stream);
    *out =
        (struct hint_request){.generation = h->generation, .begun_ns = now_ns, .index = NOT_LISTED};
    if (!deadline_us && s)
        deadline_us = s->deadline_us;
    if (!deadline_us)
        deadline_us = h->job.deadline_us;
    if (deadline_us && deadline_us < FAR_US) {
        out->deadline_ns = now_ns + deadline_us * NSEC_PER_USEC;
        out->index = hints_list(h, s, out->deadline_ns, deadline_us);
    }
    h->s.begun++;
    hints_publish(h);
}

void cede_hints_led(struct hint_request *r, uint64_t launched_ns, uint64_t now_ns)
{
    uint64_t after_ns = saturating_sub(launched_ns, r->begun_ns);
    r->lead_after_ns = (uint32_t)min_u64(after_ns, UINT32_MAX);
    r->lead_for_ns = (uint32_t)min_u64(saturating_sub(now_ns, launched_ns), UINT32_MAX);
}

/* For those who trace. The number is the last that is written: what a reader of it finds is whole,
 * unless the ring has come round. */
static void hints_publish_done(const struct cede_hints *h, const struct hint_request *r,
                               uint64_t now_ns)
{
    struct hints_page *p = h->page;
    if (!p)
        return;
    uint64_t n = atomic_load_explicit(&p->ndone, memory_order_relaxed);
    struct hints_done *d = &p->done[n % HINTS_DONE];
    uint64_t lead_ns = r->lead_for_ns ? r->begun_ns + r->lead_after_ns : 0;
    PUT(d, begun_ns, r->begun_ns);
    PUT(d, ended_ns, now_ns);
    PUT(d, lead_ns, lead_ns);
    PUT(d, lead_end_ns, lead_ns + r->lead_for_ns);
    atomic_store_explicit(&p->ndone, n + 1, memory_order_release);
}

void cede_hints_lease(struct cede_hints *h, const struct lease_event *e, const char *kernel,
                      int result, uint64_t now_ns)
{
    struct hints_page *p = h->page;
    lease_waits_add(&h->waits[e->waited_for], e->waited_us);
    hints_publish_wait(h, e->waited_for);
    if (!p || e->waited_for == WAIT_NONE)
        return;
    uint64_t n = atomic_load_explicit(&p->nleases, memory_order_relaxed), name[HINTS_KERNEL] = {0};
    struct hints_lease *d = &p->leases[n % HINTS_LEASES];
    if (kernel)
        memcpy(name, kernel, min_u64(strlen(kernel), sizeof(name)));
    PUT(d, asked_ns, saturating_sub(now_ns, e->waited_us * NSEC_PER_USEC));
    PUT(d, ended_ns, now_ns);
    PUT(d, what, hints_lease_what(e->waited_for, (unsigned)(result != 0), e->device, e->occupancy));
    for (unsigned i = 0; i < HINTS_KERNEL; i++)
        PUT(d, kernel[i], name[i]);
    atomic_store_explicit(&p->nleases, n + 1, memory_order_release);
}

bool cede_hints_end(struct cede_hints *h, const struct hint_request *r, bool served,
                    uint64_t now_ns)
{
    uint64_t took_ns = saturating_sub(now_ns, r->begun_ns);
    if (r->generation != h->generation)
        return false;
    hints_unlist(h, r->index);
    h->s.ended++;
    h->s.with_deadline += r->deadline_ns != 0;
    h->s.deadlines_met += served && r->deadline_ns && now_ns <= r->deadline_ns;
    h->max_ns = max_u64(took_ns, h->max_ns);
    h->histogram[min_u64(bucket_of(took_ns, HINTS_BITS), HINTS_BUCKETS - 1)]++;
    hints_publish(h);
    hints_publish_done(h, r, now_ns);
    return true;
}
