/* libcede: the overlap loop; see cede/step.h. Calls the program's functions and the GPU in the
 * order that the pure part says (pure/step_order.h). The lock is for what other threads call, and
 * is never held while the program or the GPU is called. */
#include "cede/step.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcede/clock.h"
#include "libcede/cuda.h"
#include "libcede/error.h"
#include "libcede/future.h"
#include "libcede/owner.h"
#include "libcede/pure/step_order.h"
#include "libcede/queue_impl.h"

#define LANES (CEDE_STEP_DEPTH_MAX + 1)

struct step_lane {
    struct cede_step step;
    void *began, *ended; /* events */
    bool marked;         /* both are in the stream */
    bool follows;        /* a step, with nothing but the loop's work between */
    struct future_slot *copied;
    int64_t *result;
};

struct cede_step_loop {
    struct cede_step_config config;
    struct cuda cu; /* or the host's calls */
    bool gpu;
    void *stream, *own;            /* own: to be destroyed */
    struct step_lane lanes[LANES]; /* by number, of depth + 1 */
    uint64_t launched;             /* number of the last step */
    pthread_mutex_t lock;          /* what follows; `inside` for the others of its thread as well */
    struct step_order *order;
    struct cede_step_statistics s; /* its times in ns, until they are asked for */
    /* CPU time is exposed while the GPU has nothing to do: between the end of a step and the
     * beginning of the next, and while a step is launched into an empty stream. The rest of it is
     * hidden. */
    uint64_t exposed_ns;
    uint64_t last_ns; /* of `finish`, since the end of the latest step */
    bool going;       /* a step was launched since there was nothing to do */
    uint64_t *taken;  /* with a queue: by a request's slot, its batch */
    bool inside;      /* a thread is in cede_step_once() or cede_step_close() */
    bool scheduling;  /* `schedule` is called */
    bool failed;      /* step `launched` was not launched; what follows waits for its end */
};

/* ---- opening and closing --------------------------------------------------------------------- */

CEDE_API void cede_step_defaults(struct cede_step_config *c)
{
    *c = (struct cede_step_config){.size = sizeof(*c), .depth = 2, .batch = 256, .requests = 1024};
}

static struct step_lane *step_lane(struct cede_step_loop *l, uint64_t number)
{
    return &l->lanes[number % (l->config.depth + 1)];
}

static void step_free(struct cede_step_loop *l)
{
    for (unsigned i = 0; i < LANES; i++) {
        struct step_lane *n = &l->lanes[i];
        if (n->began)
            l->cu.event_destroy(n->began);
        if (n->ended)
            l->cu.event_destroy(n->ended);
        if (n->copied)
            l->cu.host_free(n->copied);
        free(n->result);
    }
    if (l->own)
        l->cu.stream_destroy(l->own);
    cede_order_free(l->order);
    free(l->taken);
    free(l);
}

static int step_set_up_lane(struct cede_step_loop *l, struct step_lane *n, struct gpu_error *e)
{
    const struct cuda *cu = &l->cu;
    unsigned flags = l->config.flags & CEDE_STEP_SPIN ? 0 : CUDA_EVENT_BLOCKING_SYNC;
    int r = 0;
    n->step.lane = (unsigned)(n - l->lanes);
    n->step.stream = l->stream;
    if (l->config.futures) {
        n->result = calloc(l->config.batch, sizeof(*n->result));
        r = n->result ? cede_cuda_pinned(cu, l->config.batch * sizeof(*n->copied),
                                         (void **)&n->copied, NULL, e)
                      : -ENOMEM;
    }
    return r ?: cede_cuda_failed(cu, cu->event_create(&n->began, 0), "create an event", e) ?:
           cede_cuda_failed(cu, cu->event_create(&n->ended, flags), "create an event", e);
}

static int step_set_up(struct cede_step_loop *l)
{
    const struct cede_step_config *c = &l->config;
    struct gpu_error e;
    void *context;
    int r = cede_order_new(c->depth, c->batch, c->requests, &l->order);
    l->gpu = !(c->flags & CEDE_STEP_NO_GPU);
    l->cu = cede_cuda_host;
    if (r == 0 && l->gpu)
        r = cede_cuda_here(&l->cu, CUDA_STEPS, &context);
    if (r == 0 && c->queue && !(l->taken = calloc(c->requests, sizeof(*l->taken))))
        r = -ENOMEM;
    if (r == 0 && !c->stream)
        r = cede_cuda_failed(&l->cu, l->cu.stream_create(&l->own, CUDA_STREAM_NONBLOCKING, 0),
                             "create a stream", &e);
    l->stream = c->stream ? c->stream : l->own;
    for (unsigned i = 0; r == 0 && i <= c->depth; i++)
        r = step_set_up_lane(l, &l->lanes[i], &e);
    return SAY(r, {-EIO, e.text}, {-ENOSYS, NO_CUDA ", or set CEDE_STEP_NO_GPU"});
}

static bool step_valid(const struct cede_step_config *c)
{
    struct cede_future_statistics s = {0};
    return SIZED(c->size, *c) &&
           SETTINGS(FLAGS(c, CEDE_STEP_NO_GPU | CEDE_STEP_SPIN),
                    SETTING(c, depth, 1, CEDE_STEP_DEPTH_MAX),
                    SETTING(c, batch, 1, CEDE_STEP_BATCH_MAX),
                    SETTING(c, requests, 1, CEDE_STEP_REQUESTS_MAX)) &&
           IS(c->schedule && c->launch && c->finish,
              "schedule, launch or finish is NULL: give all three") &&
           IS(!c->queue == !c->joined, "of queue and joined one is NULL: give both, or none") &&
           SETTINGS(SETTING(c, device, 0, c->queue ? c->queue->config.devices - 1 : 0)) &&
           IS(!c->queue || !c->queue->config.pool, "queue has a pool, of which each request would "
                                                   "have a lease until it leaves: open the "
                                                   "queue without") &&
           (!c->futures ||
            (cede_future_get_statistics(c->futures, &s, sizeof(s)) == 0 &&
             IS(s.slots >= c->batch, "the map has %u slots: give one with at least `batch`, %u",
                s.slots, c->batch) &&
             IS(cede_future_on_gpu(c->futures) == !(c->flags & CEDE_STEP_NO_GPU),
                "of map and loop one is on the GPU: open both with CEDE_..._NO_GPU, or none")));
}

CEDE_API int cede_step_open(const struct cede_step_config *config, struct cede_step_loop **out)
{
    LONG_CALL(GIVEN(out));
    *out = NULL;
    if (!GIVEN(config) || !step_valid(config))
        return -EINVAL;
    struct cede_step_loop *l = calloc(1, sizeof(*l));
    if (!l)
        return cede_no_memory();
    l->config = *config;
    int r = step_set_up(l);
    if (r) {
        step_free(l);
        return r;
    }
    pthread_mutex_init(&l->lock, NULL);
    *out = l;
    return 0;
}

/* -EDEADLK: one of the program's functions calls. */
static int step_enter(struct cede_step_loop *l)
{
    HOLD(&l->lock);
    int r = l->inside ? -EDEADLK : 0;
    l->inside = true;
    return SAY(r, {-EDEADLK, "a function of the program calls it: return from that first"});
}

static void step_tell_left(struct cede_step_loop *l)
{
    void *user;
    int reason;
    uint32_t slot;
    for (;;) {
        pthread_mutex_lock(&l->lock);
        bool any = cede_order_take_left(l->order, &user, &reason, &slot);
        l->s.left += any;
        uint64_t batch = any && l->taken ? l->taken[slot] : 0;
        pthread_mutex_unlock(&l->lock);
        if (!any)
            return;
        if (l->config.left)
            l->config.left(l->config.arg, user, reason);
        if (batch)
            cede_queue_end(l->config.queue, batch, l->config.device, reason != 0);
    }
}

CEDE_API int cede_step_close(struct cede_step_loop *l)
{
    LONG_CALL(ALWAYS);
    int r = l ? step_enter(l) : 0;
    if (!l || r)
        return r;
    const struct order_step *s;
    while ((s = cede_order_oldest(l->order))) {
        if (step_lane(l, s->number)->marked)
            (void)l->cu.event_sync(step_lane(l, s->number)->ended);
        cede_order_finish(l->order, 0);
        cede_order_finished(l->order);
    }
    int64_t symbol;
    while (cede_order_take_free(l->order, &symbol))
        cede_future_release(l->config.futures, symbol);
    cede_order_leave_all(l->order, -ECANCELED);
    step_tell_left(l);
    pthread_mutex_destroy(&l->lock);
    step_free(l);
    return cede_succeed(); /* whatever `left` called */
}

/* ---- requests -------------------------------------------------------------------------------- */

CEDE_API int cede_step_join(struct cede_step_loop *l, void *user, struct cede_scope *scope,
                            cede_timeout timeout_us, uint64_t *id)
{
    CALL(TIMEOUT(timeout_us) && GIVEN(l) && GIVEN(id) &&
         IS(!l->config.queue, "the loop takes its requests from its queue: submit them there"));
    uint64_t deadline = timeout_end(timeout_us, cede_clock_now_ns(), CEDE_TIMEOUT_FOREVER);
    HOLD(&l->lock);
    int r = cede_order_join(l->order, user, scope, deadline, id);
    l->s.joined += r == 0;
    return SAY(r, {-ENOSPC, "`requests` have joined: try again when one has left"});
}

CEDE_API int cede_step_leave(struct cede_step_loop *l, uint64_t id, int reason)
{
    CALL(GIVEN(l));
    HOLD(&l->lock);
    return SAY(cede_order_leave(l->order, id, reason),
               {-ENOENT, "no request of this id has joined, or it has left: leave once"});
}

CEDE_API int cede_step_add(struct cede_step_loop *l, uint64_t id, int64_t *symbol)
{
    int64_t unwanted;
    CALL(GIVEN(l));
    HOLD(&l->lock);
    return SAY(l->scheduling ? cede_order_add(l->order, id, symbol ? symbol : &unwanted) : -EPERM,
               {-EPERM, "only `schedule` may add requests: call it there"},
               {-EALREADY, "the request is in this step: add it once"},
               {-ENOENT, "no request of this id has joined, or it has left: leave it out"},
               {-ENOSPC, "`batch` requests are in this step: leave the others to the next"});
}

/* Takes what the queue has for this loop while there is room for it. If nothing is to be done
 * otherwise it waits for that. 0, or why there will be none: -ESHUTDOWN, -ECANCELED, -ETIMEDOUT. */
static int step_take(struct cede_step_loop *l)
{
    const struct cede_step_config *c = &l->config;
    struct cede_queue_batch b;
    uint64_t id;
    for (;;) {
        unsigned joined = HOLDING(&l->lock, cede_order_requests(l->order));
        if (joined == c->requests)
            return 0;
        bool idle = !joined && !cede_order_running(l->order);
        int r = cede_queue_take(c->queue, c->device, 1,
                                idle ? CEDE_TIMEOUT_FOREVER : CEDE_TIMEOUT_NOW, &b);
        if (r)
            return r == -EAGAIN ? 0 : r;
        pthread_mutex_lock(&l->lock);
        (void)cede_order_join(l->order, b.user[0], NULL, TIME_NEVER, &id); /* there is room */
        l->s.joined++;
        l->taken[order_slot(id)] = b.id;
        pthread_mutex_unlock(&l->lock);
        c->joined(c->arg, &b, id);
    }
}

/* ---- a step begins --------------------------------------------------------------------------- */

/* Whether one more step may be scheduled. Its slots have to be free before the program is asked:
 * only then is it known that what it schedules can be launched. */
static int step_may_begin(struct cede_step_loop *l)
{
    struct cede_future_statistics s;
    unsigned running = cede_order_running(l->order);
    if (running == l->config.depth || l->failed)
        return 0;
    if (!l->config.futures)
        return 1;
    cede_future_get_statistics(l->config.futures, &s, sizeof(s));
    if (s.free >= l->config.batch)
        return 1;
    HOLD(&l->lock);
    l->s.blocked += running > 0;
    return running ? 0 : -ENOBUFS;
}

static bool step_has_run(struct cede_step_loop *l, uint64_t number)
{
    struct gpu_error e;
    const struct step_lane *n = step_lane(l, number);
    return !n->marked || cede_cuda_passed(&l->cu, n->ended, &e) != 0;
}

static bool step_stream_empty(struct cede_step_loop *l)
{
    return !cede_order_running(l->order) || step_has_run(l, l->launched);
}

static int step_mark(struct cede_step_loop *l, void *event, struct gpu_error *e)
{
    return cede_cuda_failed(&l->cu, l->cu.event_record(event, l->stream), "record an event", e);
}

static int step_launch_marked(struct cede_step_loop *l, struct step_lane *n, struct gpu_error *e)
{
    struct cede_step *s = &n->step;
    int r = step_mark(l, n->began, e);
    if (r == 0) {
        r = l->config.launch(l->config.arg, s);
        snprintf(e->text, sizeof(e->text), "step %llu: launch() returned %d",
                 (unsigned long long)s->number, r);
        r = cede_returned(r);
    }
    if (r == 0 && s->symbol)
        r = cede_future_copy_out(l->config.futures, l->stream, s->symbol, s->n, n->copied, e);
    /* Also after a failure: what was launched before it has to have run at the step's end. */
    struct gpu_error unused;
    int marked = step_mark(l, n->ended, r ? &unused : e);
    n->marked = marked == 0;
    return r ? r : marked;
}

static void step_note_error(struct cede_step_loop *l, const struct gpu_error *e)
{
    HOLD(&l->lock);
    memcpy(l->s.error, e->text, sizeof(l->s.error));
}

static void step_launch(struct cede_step_loop *l, const struct order_step *o, uint64_t schedule_ns)
{
    struct step_lane *n = step_lane(l, o->number);
    struct cede_step *s = &n->step;
    struct gpu_error e;
    bool empty = step_stream_empty(l);
    uint64_t from = cede_clock_now_ns();
    if (l->config.futures && s->n)
        s->error = cede_future_reserve(l->config.futures, s->n, &s->symbol);
    n->marked = false;
    snprintf(e.text, sizeof(e.text), "step %llu: others took the map's slots",
             (unsigned long long)s->number);
    if (!s->error)
        s->error = step_launch_marked(l, n, &e);
    uint64_t launch_ns = cede_clock_now_ns() - from;
    if (s->error)
        step_note_error(l, &e);
    pthread_mutex_lock(&l->lock);
    cede_order_launched(l->order, s->symbol);
    n->follows = l->going;
    l->s.schedule_us += schedule_ns;
    l->s.launch_us += launch_ns;
    l->exposed_ns += (empty ? launch_ns : 0) + (n->follows ? 0 : schedule_ns);
    l->last_ns = 0; /* it is in the gap that will be seen */
    l->going = true;
    pthread_mutex_unlock(&l->lock);
    l->launched = o->number;
    l->failed = s->error != 0;
}

/* 1: a step was launched. 0: none may be, or there is nothing to run. */
static int step_begin(struct cede_step_loop *l)
{
    int r = step_may_begin(l);
    if (r <= 0)
        return r;
    pthread_mutex_lock(&l->lock);
    struct order_step *o = cede_order_begin(l->order);
    l->scheduling = true;
    pthread_mutex_unlock(&l->lock);

    struct cede_step *s = &step_lane(l, o->number)->step;
    *s = (struct cede_step){
        .number = o->number, .stream = l->stream, .lane = s->lane, .user = o->user};
    uint64_t from = cede_clock_now_ns();
    r = l->config.schedule(l->config.arg, s);
    uint64_t schedule_ns = cede_clock_now_ns() - from;
    if (r < 0)
        r = cede_fail(cede_returned(r), "`schedule` returned %d: %s", r, cede_errno_words(r));

    pthread_mutex_lock(&l->lock);
    l->scheduling = false;
    s->n = o->n;
    if (r <= 0)
        cede_order_abandon(l->order);
    pthread_mutex_unlock(&l->lock);
    if (r > 0)
        step_launch(l, o, schedule_ns);
    return r;
}

/* ---- a step ends ----------------------------------------------------------------------------- */

static int step_wait(struct cede_step_loop *l, struct step_lane *n, struct gpu_error *e)
{
    int r;
    if (!n->marked)
        return 0;
    if (!(l->config.flags & CEDE_STEP_SPIN))
        return cede_cuda_failed(&l->cu, l->cu.event_sync(n->ended), "run a step", e);
    while ((r = cede_cuda_passed(&l->cu, n->ended, e)) == 0)
        ;
    return r < 0 ? r : 0;
}

static int step_read_results(struct step_lane *n, struct gpu_error *e)
{
    struct cede_step *s = &n->step;
    for (unsigned i = 0; s->symbol && i < s->n; i++) {
        int r = future_value(&n->copied[i], cede_future_symbol(s->symbol, i), &n->result[i]);
        if (r) {
            snprintf(e->text, sizeof(e->text),
                     "step %llu has no result of request %u of %u: cede_future_store() all in "
                     "launch()",
                     (unsigned long long)s->number, i, s->n);
            return r;
        }
    }
    return 0;
}

static void step_gpu_times(struct cede_step_loop *l, const struct step_lane *n, uint64_t *gpu,
                           uint64_t *gap)
{
    const struct step_lane *before = step_lane(l, n->step.number - 1);
    *gpu = *gap = 0;
    if (!l->gpu || !n->marked || n->step.error)
        return;
    *gpu = cede_cuda_elapsed_ns(&l->cu, n->began, n->ended);
    if (n->follows && before->marked)
        *gap = cede_cuda_elapsed_ns(&l->cu, before->ended, n->began);
}

static int step_finish(struct cede_step_loop *l)
{
    const struct order_step *o = cede_order_oldest(l->order);
    struct step_lane *n = step_lane(l, o->number);
    struct cede_step *s = &n->step;
    struct gpu_error e;
    uint64_t gpu, gap, from = cede_clock_now_ns();
    int r = step_wait(l, n, &e);
    uint64_t wait_ns = cede_clock_now_ns() - from;
    if (!s->error && r == 0)
        r = step_read_results(n, &e);
    if (!s->error && r) {
        s->error = r;
        step_note_error(l, &e);
    }
    l->failed = l->failed && s->number != l->launched;
    step_gpu_times(l, n, &gpu, &gap);
    s->gpu_us = gpu / NSEC_PER_USEC;
    s->idle_us = gap / NSEC_PER_USEC;
    bool empty = step_stream_empty(l);

    pthread_mutex_lock(&l->lock);
    cede_order_finish(l->order, s->error);
    s->surplus = o->surplus;
    s->result = s->symbol && !s->error ? n->result : NULL;
    l->s.steps++;
    l->s.failed += s->error != 0;
    l->s.results += s->error ? 0 : s->n;
    for (unsigned i = 0; !s->error && i < s->n; i++)
        l->s.surplus += s->surplus[i];
    pthread_mutex_unlock(&l->lock);
    int64_t symbol;
    while (cede_order_take_free(l->order, &symbol))
        cede_future_release(l->config.futures, symbol);

    from = cede_clock_now_ns();
    r = l->config.finish(l->config.arg, s);
    uint64_t finish_ns = cede_clock_now_ns() - from;
    pthread_mutex_lock(&l->lock);
    cede_order_finished(l->order);
    l->s.wait_us += wait_ns;
    l->s.finish_us += finish_ns;
    l->s.gpu_us += gpu;
    l->s.idle_us += gap;
    l->exposed_ns += gap;
    l->last_ns = empty ? l->last_ns + finish_ns : 0;
    pthread_mutex_unlock(&l->lock);
    return r ? cede_fail(cede_returned(r), "`finish` returned %d: %s", r, cede_errno_words(r)) : 0;
}

/* ---- the loop -------------------------------------------------------------------------------- */

/* Finishes the steps that have to be finished, and those that have run while the GPU has another
 * one. If it has none, and one more may be launched, that comes first. launched: a step was, just
 * now. 1: any was finished. */
static int step_finish_some(struct cede_step_loop *l, bool launched)
{
    bool any = false;
    for (unsigned running; (running = cede_order_running(l->order)) > 0; any = true) {
        bool has_to = running == l->config.depth || !(launched || any);
        const uint64_t oldest = cede_order_oldest(l->order)->number;
        /* without a GPU what `launch` began may still run: `finish` waits for it */
        bool may = l->gpu ? step_has_run(l, oldest) : step_lane(l, oldest)->step.error;
        if (!has_to && (!may || (any && step_stream_empty(l))))
            break;
        int r = step_finish(l);
        step_tell_left(l);
        if (r < 0)
            return r;
    }
    return any;
}

static int step_turn(struct cede_step_loop *l)
{
    const struct lease_owner *here = cede_owner_here();
    int stopped = cede_scope_stopped(l->config.scope) ?: owner_stopped(here);
    int r = l->config.queue && !stopped ? step_take(l) : 0;
    if (r == -ECANCELED)
        stopped = owner_stopped(here) ?: r;
    else if (r && r != -ESHUTDOWN)
        return r;
    HOLDING(&l->lock, cede_order_expire(l->order, cede_clock_now_ns(), cede_scope_cancelled));
    step_tell_left(l);
    r = stopped ? 0 : step_begin(l);
    int finished = r < 0 ? r : step_finish_some(l, r);
    if (r || finished)
        return finished < 0 ? finished : 1;
    pthread_mutex_lock(&l->lock);
    l->exposed_ns += l->last_ns;
    l->last_ns = 0;
    l->going = false;
    pthread_mutex_unlock(&l->lock);
    return stopped ? cede_fail(-ECANCELED, "%s, and all steps have ended: return",
                               STOPPED_TEXT(stopped))
                   : 0;
}

static int step_once(struct cede_step_loop *l)
{
    WHOLE_CALL;
    int r = step_enter(l);
    if (r)
        return r;
    r = step_turn(l);
    HOLD(&l->lock);
    l->inside = false;
    return SAY(r, {-ENOBUFS, "others hold the map's slots: release some, or open a larger map"});
}

CEDE_API int cede_step_once(struct cede_step_loop *l)
{
    CALL(GIVEN(l));
    return step_once(l);
}

CEDE_API int cede_step_run(struct cede_step_loop *l)
{
    int r;
    CALL(GIVEN(l));
    while ((r = step_once(l)) > 0)
        ;
    return r;
}

CEDE_API int cede_step_get_statistics(struct cede_step_loop *l, struct cede_step_statistics *out,
                                      size_t size)
{
    CALL(GIVEN(l) && GIVEN(out) && SIZED(size, *out));
    HOLD(&l->lock);
    uint64_t *const times[] = {&out->schedule_us, &out->launch_us, &out->finish_us, &out->wait_us,
                               &out->hidden_us,   &out->gpu_us,    &out->idle_us};
    *out = l->s;
    if (l->gpu)
        out->hidden_us =
            saturating_sub(out->schedule_us + out->launch_us + out->finish_us, l->exposed_ns);
    for (unsigned i = 0; i < ARRAY_SIZE(times); i++)
        *times[i] /= NSEC_PER_USEC;
    out->running = cede_order_running(l->order);
    out->requests = cede_order_requests(l->order);
    return 0;
}
