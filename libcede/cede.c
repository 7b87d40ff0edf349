/* libcede: requests and statistics; see cede/cede.h. No system call but the clock's on the way of
 * a hint, except once a second (link.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/client.h"

#define NS_OF_US     1000ULL
#define FAR_NS       (1ULL << 62) /* later than this is never */
#define REQUEST_OPEN 0x43454445524f5045ULL

struct request {
    uint64_t state, generation, begun_ns, deadline_ns, slot, expected_ns;
    uint32_t lead;
    bool leading, queued; /* the lead was told of it; and that its work is queued */
};
_Static_assert(sizeof(struct request) <= sizeof(struct cede_request), "fits");

#define NO_SLOT UINT64_MAX

/* ---- histogram ------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t ns)
{
    if (ns < SUB)
        return (unsigned)ns;
    unsigned top = 63U - (unsigned)__builtin_clzll(ns), shift = top - 4;
    return top >= OCTAVES ? SUB * (OCTAVES - 3) - 1
                          : SUB * (shift + 1) + (unsigned)((ns >> shift) & (SUB - 1));
}

/* The largest value of a bucket. */
static uint64_t bucket_top(unsigned b)
{
    return b < SUB ? b : (((uint64_t)(b % SUB) + SUB + 1) << (b / SUB - 1)) - 1;
}

static uint64_t quantile_us(const struct cede *c, unsigned percent)
{
    uint64_t rank = (c->ended * percent + 99) / 100, seen = 0;
    for (unsigned b = 0; rank && b < sizeof(c->histogram) / sizeof(*c->histogram); b++) {
        seen += c->histogram[b];
        if (seen >= rank) {
            uint64_t top = bucket_top(b) < c->max_ns ? bucket_top(b) : c->max_ns;
            return (top + NS_OF_US - 1) / NS_OF_US;
        }
    }
    return 0;
}

/* ---- what the daemon can read ---------------------------------------------------------------- */

#define PUT(field, value) atomic_store_explicit(&p->field, value, memory_order_relaxed)

static void publish_requests(struct cede *c)
{
    struct hints_page *p = c->page;
    const struct open_request *first = c->earliest < OPEN_MAX ? &c->open[c->earliest] : NULL;
    if (!p)
        return;
    PUT(begun, c->begun);
    PUT(ended, c->ended);
    PUT(due, c->due);
    PUT(met, c->met);
    PUT(need_us, first ? first->need_us : 0);
    PUT(priority, first ? first->priority : 0);
    PUT(earliest_ns, first ? first->deadline_ns : 0);
}

void cede_client_publish(struct cede *c)
{
    struct hints_page *p = c->page;
    publish_requests(c);
    if (!p)
        return;
    PUT(deadline_us, c->job.deadline_us);
}

void cede_client_reset(struct cede *c)
{
    c->begun = c->ended = c->due = c->met = c->max_ns = 0;
    memset(c->open, 0, sizeof(c->open));
    c->earliest = OPEN_MAX;
    c->open_end = 0;
    memset(c->histogram, 0, sizeof(c->histogram));
}

/* ---- job and streams ------------------------------------------------------------------------- */

/* make: a place for one that nothing was said about; NULL: there is none left. */
static struct stream_hint *hint_of(struct cede *c, cede_stream stream, bool make)
{
    if (stream == CEDE_JOB)
        return &c->job;
    for (uint32_t i = 0; i < c->nstreams; i++) {
        if (c->streams[i].stream == stream)
            return &c->streams[i];
    }
    if (!make || c->nstreams == CEDE_STREAMS_MAX)
        return NULL;
    struct stream_hint *h = &c->streams[c->nstreams++];
    *h = (struct stream_hint){.stream = stream};
    return h;
}

static int say(struct cede *c, cede_stream stream, const uint64_t *deadline_us,
               const uint64_t *laxity_us, const int *priority)
{
    if (!c)
        return 0;
    pthread_mutex_lock(&c->lock);
    struct stream_hint *h = hint_of(c, stream, true);
    if (h && deadline_us)
        h->deadline_us = *deadline_us;
    if (h && laxity_us)
        h->laxity_us = *laxity_us;
    if (h && priority) {
        h->priority = *priority;
        h->prior = true;
    }
    cede_client_publish(c);
    pthread_mutex_unlock(&c->lock);
    return h ? 0 : -ENOSPC;
}

CLIENT_API int cede_set_deadline(struct cede *c, cede_stream stream, uint64_t deadline_us)
{
    return say(c, stream, &deadline_us, NULL, NULL);
}

CLIENT_API int cede_set_laxity(struct cede *c, cede_stream stream, uint64_t laxity_us)
{
    return say(c, stream, NULL, &laxity_us, NULL);
}

CLIENT_API int cede_set_priority(struct cede *c, cede_stream stream, int priority)
{
    return say(c, stream, NULL, NULL, &priority);
}

CLIENT_API int cede_set_class(struct cede *c, enum cede_class cls)
{
    if ((unsigned)cls > CEDE_BATCH)
        return -EINVAL;
    return c ? cede_link_set(c, (int)cls, -1) : 0;
}

CLIENT_API int cede_set_weight(struct cede *c, unsigned weight)
{
    if (weight < CEDE_WEIGHT_MIN || weight > CEDE_WEIGHT_MAX)
        return -EINVAL;
    return c ? cede_link_set(c, -1, (int)weight) : 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* h: what was said of its stream; may be NULL. */
static uint64_t open_add(struct cede *c, const struct stream_hint *h, uint64_t deadline_ns,
                         uint64_t deadline_us)
{
    uint32_t i = 0;
    while (i < c->open_end && c->open[i].deadline_ns)
        i++;
    if (i == OPEN_MAX)
        return NO_SLOT;
    uint64_t laxity = h && h->laxity_us ? h->laxity_us : c->job.laxity_us;
    c->open[i] = (struct open_request){
        .deadline_ns = deadline_ns,
        .need_us = laxity && laxity < deadline_us ? deadline_us - laxity : 0,
        .priority = h && h->prior ? h->priority : c->job.priority,
    };
    c->open_end = i == c->open_end ? i + 1 : c->open_end;
    if (c->earliest == OPEN_MAX || deadline_ns < c->open[c->earliest].deadline_ns)
        c->earliest = i;
    return i;
}

static void open_remove(struct cede *c, uint64_t slot)
{
    if (slot >= c->open_end)
        return;
    c->open[slot].deadline_ns = 0;
    while (c->open_end && !c->open[c->open_end - 1].deadline_ns)
        c->open_end--;
    if (slot != c->earliest)
        return;
    c->earliest = OPEN_MAX;
    for (uint32_t i = 0; i < c->open_end; i++) {
        if (c->open[i].deadline_ns &&
            (c->earliest == OPEN_MAX || c->open[i].deadline_ns < c->open[c->earliest].deadline_ns))
            c->earliest = i;
    }
}

CLIENT_API int cede_request_begin(struct cede *c, struct cede_request *out, cede_stream stream,
                                  uint64_t expected_us, uint64_t deadline_us)
{
    if (!out)
        return -EINVAL;
    struct request r = {.state = REQUEST_OPEN, .begun_ns = cede_client_now_ns(), .slot = NO_SLOT};
    bool expected = expected_us && expected_us < FAR_NS / NS_OF_US;
    r.expected_ns = r.begun_ns + (expected ? expected_us * NS_OF_US : 0);
    if (c) {
        pthread_mutex_lock(&c->lock);
        const struct stream_hint *h = hint_of(c, stream, false);
        if (!deadline_us && h)
            deadline_us = h->deadline_us;
        if (!deadline_us)
            deadline_us = c->job.deadline_us;
        if (deadline_us && deadline_us < FAR_NS / NS_OF_US) {
            r.deadline_ns = r.begun_ns + deadline_us * NS_OF_US;
            r.slot = open_add(c, h, r.deadline_ns, deadline_us);
        }
        r.generation = c->generation;
        c->begun++;
        publish_requests(c);
        bool look = r.begun_ns >= c->look_ns;
        r.leading = c->lead && c->page && !c->lead_forked;
        pthread_mutex_unlock(&c->lock);
        if (r.leading)
            r.lead = cede_lead_begin(c->lead, r.begun_ns, r.expected_ns);
        if (look)
            cede_link_look(c, 0);
    }
    memcpy(out, &r, sizeof(r));
    return 0;
}

/* The request in the caller's memory. */
static int open_request(const struct cede_request *in, struct request *out)
{
    if (!in)
        return -EINVAL;
    memcpy(out, in, sizeof(*out));
    return out->state == REQUEST_OPEN ? 0 : -EINVAL;
}

CLIENT_API int cede_request_queued(struct cede *c, struct cede_request *in)
{
    struct request r;
    int code = open_request(in, &r);
    if (code || !c)
        return code;
    pthread_mutex_lock(&c->lock);
    bool stale = r.generation != c->generation;
    pthread_mutex_unlock(&c->lock);
    if (stale || !r.leading || r.queued)
        return stale ? -ESTALE : 0;
    cede_lead_queued(c->lead, r.lead, cede_client_now_ns(), r.expected_ns);
    r.queued = true;
    memcpy(in, &r, sizeof(r));
    return 0;
}

CLIENT_API int cede_request_end(struct cede *c, struct cede_request *in)
{
    struct request r;
    uint64_t now = cede_client_now_ns();
    int code = open_request(in, &r);
    if (code)
        return code;
    memset(in, 0, sizeof(*in));
    if (!c)
        return 0;
    uint64_t took = now > r.begun_ns ? now - r.begun_ns : 0;
    pthread_mutex_lock(&c->lock);
    bool stale = r.generation != c->generation;
    if (!stale) {
        open_remove(c, r.slot);
        c->ended++;
        c->due += r.deadline_ns != 0;
        c->met += r.deadline_ns && now <= r.deadline_ns;
        c->max_ns = took > c->max_ns ? took : c->max_ns;
        c->histogram[bucket_of(took)]++;
        publish_requests(c);
    }
    pthread_mutex_unlock(&c->lock);
    if (!stale && r.leading)
        cede_lead_end(c->lead, r.lead, r.queued);
    return stale ? -ESTALE : 0;
}

CLIENT_API int cede_lead_cuda(struct cede *c, uint64_t keep_us)
{
    struct lead *l = NULL;
    if (keep_us > LEAD_KEEP_MAX_US)
        return -EINVAL;
    const char *wanted = getenv("CEDE_LEAD");
    if (!c || (wanted && strcmp(wanted, "0") == 0))
        return 0;
    int r = cede_lead_open((keep_us ? keep_us : LEAD_KEEP_US) * NS_OF_US, &l);
    if (r)
        return r;
    pthread_mutex_lock(&c->lock);
    bool again = c->lead != NULL;
    if (!again)
        c->lead = l;
    pthread_mutex_unlock(&c->lock);
    if (again)
        cede_lead_close(l, false);
    return again ? -EALREADY : 0;
}

CLIENT_API int cede_get_statistics(struct cede *c, struct cede_statistics *out, size_t size)
{
    if (!out || size != sizeof(*out))
        return -EINVAL;
    memset(out, 0, sizeof(*out));
    if (!c)
        return 0;
    pthread_mutex_lock(&c->lock);
    *out = (struct cede_statistics){
        .begun = c->begun,
        .ended = c->ended,
        .with_deadline = c->due,
        .deadlines_met = c->met,
        .p50_us = quantile_us(c, 50),
        .p99_us = quantile_us(c, 99),
        .max_us = (c->max_ns + NS_OF_US - 1) / NS_OF_US,
    };
    pthread_mutex_unlock(&c->lock);
    return 0;
}

/* ---- handles --------------------------------------------------------------------------------- */

CLIENT_API int cede_connect(struct cede **out)
{
    if (!out)
        return -EINVAL;
    struct cede *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (!c)
        return -ENOMEM;
    c->fd = c->told_class = c->told_weight = -1;
    c->earliest = OPEN_MAX;
    pthread_mutex_init(&c->talk, NULL);
    pthread_mutex_init(&c->lock, NULL);
    int r = cede_link_add(c);
    if (r < 0) {
        free(c);
        return r;
    }
    cede_link_look(c, 100);
    *out = c;
    return 0;
}

CLIENT_API void cede_close(struct cede *c)
{
    if (!c)
        return;
    cede_link_remove(c);
    if (c->lead)
        cede_lead_close(c->lead, c->lead_forked);
    pthread_mutex_destroy(&c->talk);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

CLIENT_API int cede_connected(struct cede *c)
{
    if (!c)
        return 0;
    cede_link_look(c, 0);
    pthread_mutex_lock(&c->lock);
    int yes = c->page != NULL;
    pthread_mutex_unlock(&c->lock);
    return yes;
}
