/* When a HIP submission is held, and how much of a program's work is under way.
 *
 * Rules, so that holding never deadlocks a program and is never seen by it:
 *  1. Only a submission that the device has not got yet is held, in the thread that makes it.
 *     Synchronisations, queries and event records never are. Streams keep their order because a
 *     thread's calls do.
 *  2. Nothing is held that is recorded rather than run (a stream that captures), nor in a callback
 *     of a stream, which the stream waits for.
 *  3. Holding for the limit ends after HOLD_MAX_NS whatever is under way: that work may itself wait
 *     for what this thread does next (a flag in memory). Holding because it is not this program's
 *     turn ends when the turn comes or the scheduler goes (gate.h).
 *  4. The gate's own calls leave the program's last error as it was: none is made while one is
 *     pending or after a call that failed, and what they raise is taken back.
 *
 * Durations: submissions to a stream are bundled into stretches with an event before and one after.
 * A stretch that is finished corrects the estimates of what was in it. An event costs the device a
 * few microseconds, so a stretch is as long as the limit allows. */
#include <string.h>
#include <unistd.h>

#include "base/cancel_guard.h"
#include "base/gate_proto.h"
#include "gate/clock.h"
#include "gate/estimate.h"
#include "gate/gate.h"
#include "gate/hip/hip.h"

#define HOLD_MAX_NS    100000000ULL
#define STRETCH_CALLS  16
#define STRETCH_SHARE  4 /* of the limit */
#define ESTIMATE_FLOOR 1000ULL
#define ESTIMATE_CEIL  10000000000ULL
#define LEVEL_GATE     1 /* device_level */

enum { STREAMS = 128, STRETCHES = 16, SHARES = 4 };

struct share {
    uint64_t key, cost_ns;
};
struct stretch {
    hipEvent_t start, stop;
    unsigned calls, nshares;
    uint64_t cost_ns;
    struct share shares[SHARES];
};
struct stream {
    hipStream_t handle;
    uintptr_t thread; /* whose, of a per-thread stream */
    int device;
    bool used, broken, open; /* open: ring[first + n] has begun */
    unsigned first, n;       /* finished being filled */
    struct stretch ring[STRETCHES];
};
static int gate_device =
    -2; /* all GPUs of the process are one there; -2: not asked for, -1: none */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream streams[STREAMS];
static uint64_t closed_ns; /* estimated cost of all full stretches that are not finished */
static int
    captures; /* grows with the lock held: no call of the gate is under way then, or follows */
static __thread bool in_gate;
static __thread char thread_mark;

/* What the library itself calls during a stay is not the program's. */
static struct stay track_stay(void)
{
    in_gate = true;
    return stay_begin();
}

static void track_go(struct stay s)
{
    in_gate = false;
    stay_end(&s);
}

/* Events and streams of the parent are nothing to the child; a thread that held the lock is not
 * there.
 */
static void track_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    memset(streams, 0, sizeof(streams));
    closed_ns = 0;
    captures = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, track_in_child);
}

/* A daemon schedules; it is asked for at the first submission. */
static bool track_active(void)
{
    int d = __atomic_load_n(&gate_device, __ATOMIC_RELAXED);
    if (__builtin_expect(d == -2, 0)) {
        d = gate_device_add("AMD GPU (HIP)", GATE_HIP_ID, LEVEL_GATE);
        __atomic_store_n(&gate_device, d, __ATOMIC_RELAXED);
    }
    return gate_active() && d >= 0;
}

static struct stream *stream_at(const struct hip_calls *c, hipStream_t handle)
{
    struct stream *spare = NULL;
    uintptr_t thread = handle == HIP_STREAM_PER_THREAD ? (uintptr_t)&thread_mark : 0;
    int device = 0;
    if (c->get_device(&device) != HIP_OK)
        return NULL;
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (s->used && s->handle == handle && s->thread == thread && s->device == device)
            return s;
        if (!s->used && !spare)
            spare = s;
    }
    if (spare) {
        if (spare->device != device || spare->broken) /* its events are no good here: rare */
            memset(spare->ring, 0, sizeof(spare->ring));
        spare->handle = handle;
        spare->thread = thread;
        spare->device = device;
        spare->used = true;
        spare->open = spare->broken = false;
        spare->first = spare->n = 0;
    }
    return spare;
}

/* Events are made once a slot of the ring and used again. */
static bool record(const struct hip_calls *c, struct stream *s, hipEvent_t *event)
{
    if (!*event && c->event_create(event, 0) != HIP_OK)
        *event = NULL;
    if (*event && c->event_record(*event, s->handle) == HIP_OK)
        return true;
    c->get_error();
    s->broken = true; /* of another device than the current one, or being destroyed: left alone */
    return false;
}

static struct stretch *stretch_open(struct stream *s)
{
    return &s->ring[(s->first + s->n) % STRETCHES];
}

static void stretch_close(const struct hip_calls *c, struct stream *s)
{
    struct stretch *x = stretch_open(s);
    s->open = false;
    if (!x->calls || !record(c, s, &x->stop))
        return;
    s->n++;
    closed_ns += x->cost_ns;
}

static void learn(const struct stretch *x, double ns)
{
    double ratio = x->cost_ns ? ns / (double)x->cost_ns : 1;
    for (unsigned i = 0; i < x->nshares; i++) {
        uint64_t ns_before = estimate_of(x->shares[i].key);
        if (!ns_before)
            continue;
        /* Quickly for what makes up the stretch, hardly for what is lost in it. */
        double weight = 0.5 * (double)x->shares[i].cost_ns / (double)x->cost_ns;
        double to = (double)ns_before * (1 + weight * (ratio - 1));
        estimate_set(x->shares[i].key, to < ESTIMATE_FLOOR  ? ESTIMATE_FLOOR
                                       : to > ESTIMATE_CEIL ? ESTIMATE_CEIL
                                                            : (uint64_t)to);
    }
}

static void drop_first(struct stream *s)
{
    struct stretch *x = &s->ring[s->first];
    closed_ns -= x->cost_ns < closed_ns ? x->cost_ns : closed_ns;
    s->first = (s->first + 1) % STRETCHES;
    s->n--;
}

static void harvest(const struct hip_calls *c)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        while (s->used && s->n) {
            struct stretch *x = &s->ring[s->first];
            hipError_t r = c->event_query(x->stop);
            float ms;
            if (r == HIP_OK && c->event_elapsed(&ms, x->start, x->stop) == HIP_OK)
                learn(x, (double)ms * 1e6);
            if (r != HIP_OK)
                c->get_error();
            if (r == HIP_NOT_READY)
                break;
            drop_first(s);
            gate_ended(gate_device);
        }
    }
}

static bool any_captures(void)
{
    return __atomic_load_n(&captures, __ATOMIC_RELAXED) != 0;
}

/* Called and left with the lock held. */
static void hold_for_limit(const struct hip_calls *c, struct stream *s, uint64_t limit_ns)
{
    uint64_t own_ns = s->open ? stretch_open(s)->cost_ns : 0, begun = 0, pause_us = 20;
    while (closed_ns + own_ns > limit_ns || s->n >= STRETCHES - 1) {
        if (s->open)
            stretch_close(c, s);
        own_ns = 0;
        uint64_t now = gate_now_ns();
        begun = begun ? begun : now;
        if (s->broken || now - begun > HOLD_MAX_NS)
            break;
        pthread_mutex_unlock(&lock);
        usleep((useconds_t)pause_us);
        pause_us = pause_us < 500 ? pause_us * 2 : pause_us;
        pthread_mutex_lock(&lock);
        if (any_captures())
            break;
        harvest(c);
    }
}

static bool captures_now(const struct hip_calls *c, hipStream_t stream)
{
    int status = HIP_CAPTURE_NONE;
    if (c->is_capturing(stream, &status) == HIP_OK)
        return status != HIP_CAPTURE_NONE;
    c->get_error(); /* the default stream, while others capture */
    return true;
}

static uint64_t cost_of(uint64_t key, uint64_t guess_ns)
{
    uint64_t ns = estimate_of(key);
    if (!ns)
        estimate_set(key, ns = guess_ns);
    return ns;
}

/* Begins a stretch if there is none, after what the limit makes it wait for. */
static bool stretch_ready(const struct hip_calls *c, struct stream *s, uint64_t limit_ns)
{
    harvest(c);
    if (limit_ns != UINT64_MAX)
        hold_for_limit(c, s, limit_ns);
    if (!s->broken && !s->open && s->n < STRETCHES - 1 && !any_captures()) {
        struct stretch *x = stretch_open(s);
        x->calls = x->nshares = 0;
        x->cost_ns = 0;
        s->open = record(c, s, &x->start);
    }
    return s->open;
}

static void track_hold(struct ticket *t, hipStream_t stream, uint64_t key, uint64_t guess_ns)
{
    const struct hip_calls *c = hip_calls();
    bool silent = c && c->peek_error() == HIP_OK; /* may call without being seen */
    if (any_captures() && (!silent || captures_now(c, stream)))
        return;
    gate_pass(gate_device);
    if (!silent || any_captures() || captures_now(c, stream))
        return;
    uint64_t limit_ns = gate_limit_ns(gate_device);
    pthread_mutex_lock(&lock);
    struct stream *s = any_captures() ? NULL : stream_at(c, stream);
    if (s && !s->broken && stretch_ready(c, s, limit_ns))
        *t = (struct ticket){.stream = s, .key = key, .cost_ns = cost_of(key, guess_ns)};
    pthread_mutex_unlock(&lock);
}

void track_enter(struct ticket *t, hipStream_t stream, uint64_t key, uint64_t guess_ns)
{
    t->stream = NULL;
    if (!track_active() || gate_callback(0) || in_gate)
        return;
    struct stay stay = track_stay();
    track_hold(t, stream, key, guess_ns);
    track_go(stay);
}

static void stretch_add(struct stream *s, const struct ticket *t, uint64_t limit_ns)
{
    struct stretch *x = stretch_open(s);
    unsigned i = 0;
    while (i < x->nshares && x->shares[i].key != t->key)
        i++;
    if (i == x->nshares && i < SHARES)
        x->shares[x->nshares++] = (struct share){.key = t->key};
    if (i < SHARES)
        x->shares[i].cost_ns += t->cost_ns;
    x->calls++;
    x->cost_ns += t->cost_ns;
    if (!any_captures() && (x->calls >= STRETCH_CALLS || x->cost_ns >= limit_ns / STRETCH_SHARE))
        stretch_close(hip_calls(), s);
}

void track_leave(struct ticket *t, hipError_t result)
{
    struct stream *s = t->stream;
    if (!s || result != HIP_OK)
        return;
    struct stay stay = track_stay();
    uint64_t limit_ns = gate_limit_ns(gate_device);
    pthread_mutex_lock(&lock);
    if (s->used && s->open)
        stretch_add(s, t, limit_ns);
    gate_queued(gate_device, closed_ns);
    pthread_mutex_unlock(&lock);
    track_go(stay);
}

void track_drained(hipStream_t stream, bool all)
{
    if (!track_active() || any_captures() || in_gate)
        return;
    uintptr_t thread = stream == HIP_STREAM_PER_THREAD ? (uintptr_t)&thread_mark : 0;
    struct stay stay = track_stay();
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (s->used && (all || (s->handle == stream && s->thread == thread)))
            s->open = false; /* its start stands for nothing that is still to come */
    }
    const struct hip_calls *c = hip_calls();
    if (c && !any_captures() && c->peek_error() == HIP_OK)
        harvest(c);
    gate_queued(gate_device, closed_ns);
    pthread_mutex_unlock(&lock);
    track_go(stay);
}

/* Its events stay in the slot, for the next stream of this device that gets it. */
void track_forget(hipStream_t stream)
{
    if (in_gate)
        return;
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        if (!s->used || s->handle != stream)
            continue;
        while (s->n)
            drop_first(s);
        s->used = s->open = false;
    }
    pthread_mutex_unlock(&lock);
}

void track_capture(int change)
{
    if (in_gate)
        return;
    pthread_mutex_lock(&lock);
    if (__atomic_add_fetch(&captures, change, __ATOMIC_RELAXED) < 0)
        __atomic_store_n(&captures, 0, __ATOMIC_RELAXED); /* it began before we were there */
    pthread_mutex_unlock(&lock);
}
