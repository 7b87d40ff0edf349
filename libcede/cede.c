/* libcede: requests and statistics; see cede/cede.h. A hint makes no system call but the clock's,
 * except once a second (link.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/probe.h"
#include "libcede/clock.h"
#include "libcede/error.h"
#include "libcede/handle.h"

#define REQUEST_OPEN 0x43454445524f5045ULL

/* What a struct cede_request contains. */
struct reported_request {
    uint64_t state; /* REQUEST_OPEN from begin to end */
    struct hint_request hint;
    uint64_t expected_ns;
    uint32_t lead;
    bool leading, queued; /* the lead knows of it; and that its work is queued */
};
_Static_assert(sizeof(struct reported_request) <= sizeof(struct cede_request), "fits");

/* ---- job and streams ------------------------------------------------------------------------- */

static int set_hint(struct cede *c, cede_stream stream, const uint64_t *deadline_us,
                    const uint64_t *laxity_us, const int *priority)
{
    if (!c)
        return 0;
    HOLD(&c->lock);
    return SAY(cede_hints_set(&c->hints, stream, deadline_us, laxity_us, priority),
               {-ENOSPC, "CEDE_STREAMS_MAX streams have settings: give CEDE_JOB"});
}

CEDE_API int cede_set_deadline(struct cede *c, cede_stream stream, uint64_t deadline_us)
{
    CALL(SETTINGS(cede_setting("deadline_us", deadline_us, 0, MOST_US)));
    return set_hint(c, stream, &deadline_us, NULL, NULL);
}

CEDE_API int cede_set_laxity(struct cede *c, cede_stream stream, uint64_t laxity_us)
{
    CALL(SETTINGS(cede_setting("laxity_us", laxity_us, 0, MOST_US)));
    return set_hint(c, stream, NULL, &laxity_us, NULL);
}

CEDE_API int cede_set_priority(struct cede *c, cede_stream stream, int priority)
{
    CALL(ALWAYS);
    return set_hint(c, stream, NULL, NULL, &priority);
}

static int set_job(struct cede *c, unsigned class, unsigned weight)
{
    return SAY(
        c ? cede_link_set(c, class, weight) : 0,
        {-EPERM, "a user may lower class and weight, but not raise them: ask an administrator"},
        {-ETIMEDOUT, "the daemon did not answer, and will not do it later: try again"});
}

CEDE_API int cede_set_class(struct cede *c, enum cede_class cls)
{
    enum job_class class = cede_class_of(cls);
    CALL(IS(class != CLASS_COUNT, "cls is %d: give CEDE_LATENCY, CEDE_NORMAL or CEDE_BATCH",
            (int)cls));
    return set_job(c, 1 + class, 0);
}

CEDE_API int cede_set_weight(struct cede *c, unsigned weight)
{
    CALL(SETTINGS(cede_setting("weight", weight, CEDE_WEIGHT_MIN, CEDE_WEIGHT_MAX)));
    return set_job(c, 0, weight);
}

/* ---- requests -------------------------------------------------------------------------------- */

CEDE_API int cede_request_begin(struct cede *c, struct cede_request *out, cede_stream stream,
                                uint64_t queued_in_us, uint64_t deadline_us)
{
    CALL(GIVEN_AS(out, "r"));
    uint64_t now = cede_clock_now_ns();
    struct reported_request r = {
        .state = REQUEST_OPEN,
        .expected_ns = now + (queued_in_us < FAR_US ? queued_in_us * NSEC_PER_USEC : 0)};
    if (c) {
        pthread_mutex_lock(&c->lock);
        cede_hints_begin(&c->hints, stream, now, deadline_us, &r.hint);
        bool check = now >= c->check_ns;
        r.leading = c->lead && c->hints.page && !c->lead_forked;
        pthread_mutex_unlock(&c->lock);
        if (r.leading)
            r.lead = cede_lead_begin(c->lead, now, r.expected_ns);
        if (check)
            cede_link_check(c, false);
    }
    memcpy(out, &r, sizeof(r));
    return 0;
}

static int request_say(int r)
{
    return SAY(r, {-EINVAL, "the request has not begun, or has ended: begin it, end it once"},
               {-ESTALE, "the request began before a fork(): leave it to the parent"});
}

/* The request in the caller's memory. */
static int reported_request(const struct cede_request *in, struct reported_request *out)
{
    memcpy(out, in, sizeof(*out));
    return out->state == REQUEST_OPEN ? 0 : -EINVAL;
}

CEDE_API int cede_request_queued(struct cede *c, struct cede_request *in)
{
    struct reported_request r;
    CALL(GIVEN_AS(in, "r"));
    int code = reported_request(in, &r);
    if (code || !c)
        return request_say(code);
    bool stale = HOLDING(&c->lock, r.hint.generation != c->hints.generation);
    if (stale || !r.leading || r.queued)
        return request_say(stale ? -ESTALE : 0);
    uint64_t now = cede_clock_now_ns();
    uint64_t launched_ns = cede_lead_queued(c->lead, r.lead, now, r.expected_ns);
    if (launched_ns)
        cede_hints_led(&r.hint, launched_ns, now);
    r.queued = true;
    memcpy(in, &r, sizeof(r));
    return 0;
}

int cede_request_finish(struct cede *c, struct cede_request *in, bool served)
{
    struct reported_request r;
    uint64_t now = cede_clock_now_ns();
    int code = reported_request(in, &r);
    if (code)
        return code;
    memset(in, 0, sizeof(*in));
    if (!c)
        return 0;
    bool own = HOLDING(&c->lock, cede_hints_end(&c->hints, &r.hint, served, now));
    PROBE(request, r.hint.begun_ns, now, r.hint.deadline_ns);
    if (own && r.leading)
        cede_lead_end(c->lead, r.lead, r.queued);
    return own ? 0 : -ESTALE;
}

CEDE_API int cede_request_end(struct cede *c, struct cede_request *in)
{
    CALL(GIVEN_AS(in, "r"));
    return request_say(cede_request_finish(c, in, true));
}

bool cede_lease_report(struct cede *c, const struct lease_event *e, const char *kernel, int result)
{
    uint64_t now = cede_clock_now_ns();
    HOLD(&c->lock);
    cede_hints_lease(&c->hints, e, kernel, result, now);
    return now >= c->check_ns;
}

CEDE_API int cede_lead_cuda(struct cede *c, uint64_t keep_us)
{
    struct lead *l = NULL;
    LONG_CALL(SETTINGS(cede_setting("keep_us", keep_us, 0, LEAD_KEEP_MAX_US)));
    const char *wanted = getenv("CEDE_LEAD");
    if (!c || (wanted && strcmp(wanted, "0") == 0))
        return 0;
    int r = cede_lead_open((keep_us ? keep_us : LEAD_KEEP_US) * NSEC_PER_USEC, &l);
    if (r)
        return SAY(r, {-ENOSYS, NO_CUDA}, {-EIO, "the driver refused: see that its context works"});
    if (HOLDING(&c->lock, !c->lead && (c->lead = l)))
        return 0;
    cede_lead_close(l, false);
    return cede_fail(-EALREADY, "called before for this handle: call it once");
}

CEDE_API int cede_wanted(struct cede *c)
{
    if (!c)
        return 0;
    uint64_t now = cede_clock_now_ns();
    pthread_mutex_lock(&c->lock);
    bool wanted = cede_hints_wanted(&c->hints), check = now >= c->check_ns;
    pthread_mutex_unlock(&c->lock);
    if (check)
        cede_link_check(c, false);
    return wanted;
}

CEDE_API double cede_share(struct cede *c)
{
    if (!c)
        return 1;
    uint64_t now = cede_clock_now_ns();
    pthread_mutex_lock(&c->lock);
    uint32_t share = cede_hints_share(&c->hints, now);
    bool check = now >= c->check_ns;
    pthread_mutex_unlock(&c->lock);
    if (check)
        cede_link_check(c, false);
    return (double)share / HINTS_SHARE_WHOLE;
}

CEDE_API int cede_get_statistics(struct cede *c, struct cede_statistics *out, size_t size)
{
    CALL(GIVEN(out) && SIZED(size, *out));
    memset(out, 0, sizeof(*out));
    if (!c)
        return 0;
    HOLD(&c->lock);
    *out = cede_hints_statistics(&c->hints);
    return 0;
}

/* ---- handles --------------------------------------------------------------------------------- */

CEDE_API int cede_connect(struct cede **out)
{
    CALL(GIVEN(out));
    struct cede *c = calloc(1, sizeof(*c));
    *out = NULL;
    if (!c)
        return cede_no_memory();
    c->link.own.fd = -1;
    cede_hints_reset(&c->hints);
    pthread_mutex_init(&c->talk, NULL);
    pthread_mutex_init(&c->lock, NULL);
    int r = cede_link_add(c);
    if (r < 0) {
        free(c);
        return cede_no_memory();
    }
    cede_link_check(c, true);
    *out = c;
    return 0;
}

CEDE_API void cede_close(struct cede *c)
{
    WHOLE_CALL;
    if (!c)
        return;
    cede_link_remove(c);
    if (c->lead)
        cede_lead_close(c->lead, c->lead_forked);
    pthread_mutex_destroy(&c->talk);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

CEDE_API int cede_connected(struct cede *c)
{
    if (!c)
        return 0;
    cede_link_check(c, false);
    HOLD(&c->lock);
    return c->hints.page != NULL;
}
