/* A serving engine in small, for tests of the overlap loop: the next token of a request is a hash
 * of its sequence so far, which the "GPU" (the stand-in for libcuda) keeps, and a token may end it.
 * So the right tokens are known, and any step that ran too early, twice, with another's value or
 * after its request's memory was free gives others. */
#ifndef CEDE_TESTS_LIBCEDE_TOY_ENGINE_H
#define CEDE_TESTS_LIBCEDE_TOY_ENGINE_H

#include "../random.h"
#include "cede/step.h"
#include "fake_gpu.h"
#include "fixture.h"

#define TOKENS   40U /* of a request at most */
#define REQUESTS 300U
#define BATCH    8U

struct toy_request {
    uint64_t id;
    uint64_t sequence; /* the hash, on the "GPU" */
    int32_t token;     /* the latest that is known */
    int64_t tokens[TOKENS];
    unsigned got, most;
    struct cede_scope *scope;
    bool joined, ended, gone;
    int reason;
};

/* A step's buffers, on the host. */
struct toy_work {
    unsigned n;
    struct toy_request *request[BATCH];
    int32_t inputs[BATCH];
};

struct toy {
    struct cede_step_loop *loop;
    struct cede_futures *futures;
    struct toy_request requests[REQUESTS];
    unsigned arrived, arrivals; /* so far; in all */
    unsigned joined, gone;
    struct toy_work work[CEDE_STEP_DEPTH_MAX + 1];
    /* on the "GPU" */
    struct toy_work now;
    int32_t inputs[BATCH];
    int64_t outputs[2 * BATCH]; /* each second one */
    struct fake_graph *graph;   /* NULL: launched one by one */
    unsigned cancel, fail;      /* one time in so many; 0: never */
    bool late;                  /* work runs when it is waited for */
    uint64_t surplus, skipped;
};

static uint64_t toy_hash(uint64_t h, int64_t token)
{
    h = (h ^ (uint64_t)token) * 0x9e3779b97f4a7c15U;
    return h ^ (h >> 29);
}

static int32_t toy_token(uint64_t h)
{
    return (int32_t)(h % 1000);
}

static bool toy_is_end(const struct toy_request *r, int64_t token)
{
    return token % 16 == 0 || r->got == r->most;
}

/* The model: runs when the stream comes to it. */
static void toy_model(void *arg)
{
    struct toy *t = arg;
    for (unsigned i = 0; i < t->now.n; i++) {
        struct toy_request *r = t->now.request[i];
        assert_false(r->gone);
        r->sequence = toy_hash(r->sequence, t->inputs[i]);
        t->outputs[2 * i] = toy_token(r->sequence);
    }
}

static struct cede_future_array toy_inputs(struct toy *t)
{
    return (struct cede_future_array){(uint64_t)(uintptr_t)t->inputs, 0, BATCH, 4};
}

static struct cede_future_array toy_outputs(struct toy *t, unsigned n)
{
    return (struct cede_future_array){(uint64_t)(uintptr_t)t->outputs, 2, n, 8};
}

static void toy_capture(struct toy *t)
{
    struct cede_future_array in = toy_inputs(t), out = toy_outputs(t, BATCH);
    t->graph = fake_capture();
    cede_future_resolve(t->futures, NULL, &in);
    cuLaunchHostFunc(NULL, toy_model, t);
    cede_future_store_placed(t->futures, NULL, &out);
    fake_capture_end();
}

static void toy_join(struct toy *t, struct toy_request *r)
{
    unsigned number = (unsigned)(r - t->requests);
    bool late = t->cancel && rnd(4 * t->cancel) == 0;
    r->sequence = number;
    r->token = (int32_t)number * 7;
    r->most = 1 + number % TOKENS;
    if (t->cancel && rnd(2))
        OK(cede_scope_open(&r->scope, NULL, 0, CEDE_TIMEOUT_FOREVER));
    int code = cede_step_join(t->loop, r, r->scope, late ? 0 : CEDE_TIMEOUT_FOREVER, &r->id);
    assert_int_equal(code, 0);
    r->joined = true;
    t->joined++;
}

/* Some arrive, some are cancelled. */
static void toy_disturb(struct toy *t)
{
    for (uint64_t n = rnd(4); n-- > 0 && t->arrived < t->arrivals && t->joined - t->gone < 16;)
        toy_join(t, &t->requests[t->arrived++]);
    if (t->cancel && t->arrived && rnd(t->cancel) == 0) {
        struct toy_request *r = &t->requests[rnd(t->arrived)];
        if (r->gone || !r->joined)
            return;
        if (r->scope)
            cede_scope_cancel(r->scope);
        else
            cede_step_leave(t->loop, r->id, -ECANCELED);
    }
}

static int toy_schedule(void *arg, struct cede_step *s)
{
    struct toy *t = arg;
    struct toy_work *w = &t->work[s->lane];
    toy_disturb(t);
    w->n = 0;
    for (unsigned i = 0; i < t->arrived; i++) {
        struct toy_request *r = &t->requests[i];
        int64_t symbol;
        if (!r->joined || r->gone || r->ended)
            continue;
        if (rnd(5) == 0 && w->n) { /* not each time */
            t->skipped++;
            continue;
        }
        int code = cede_step_add(t->loop, r->id, &symbol);
        if (code == -ENOSPC)
            break;
        if (code)
            continue; /* it has left */
        w->request[w->n] = r;
        w->inputs[w->n++] = symbol ? (int32_t)symbol : r->token;
    }
    memset(w->inputs + w->n, 0, (BATCH - w->n) * sizeof(w->inputs[0]));
    s->batch = w;
    fake_run(t->late ? 0 : (unsigned)rnd(6));
    return w->n > 0;
}

static int toy_launch(void *arg, struct cede_step *s)
{
    struct toy *t = arg;
    const struct toy_work *w = s->batch;
    struct cede_future_array in = toy_inputs(t), out = toy_outputs(t, s->n);
    assert_int_equal(s->n, w->n);
    if (t->fail && rnd(t->fail) == 0)
        return -EBADMSG;
    cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)&t->now, w, sizeof(*w), s->stream);
    cuMemcpyHtoDAsync_v2((uint64_t)(uintptr_t)t->inputs, w->inputs, sizeof(w->inputs), s->stream);
    if (t->graph) {
        OK(cede_future_place(t->futures, s->stream, s->symbol, s->n));
        fake_replay(t->graph);
    } else {
        OK(cede_future_resolve(t->futures, s->stream, &in));
        cuLaunchHostFunc(s->stream, toy_model, t);
        if (t->fail && rnd(t->fail) == 0)
            return -EBADMSG; /* some of it is in the stream */
        OK(cede_future_store(t->futures, s->stream, &out, s->symbol));
    }
    if (t->fail && rnd(t->fail) == 0)
        fake_cuda.fail_work = 1 + (int)rnd(6);
    fake_run(t->late ? 0 : (unsigned)rnd(12));
    return 0;
}

static int toy_finish(void *arg, struct cede_step *s)
{
    struct toy *t = arg;
    for (unsigned i = 0; i < s->n; i++) {
        struct toy_request *r = s->user[i];
        assert_false(r->gone);
        t->surplus += s->surplus[i];
        if (s->surplus[i] || s->error)
            continue;
        assert_false(r->ended);
        r->tokens[r->got++] = s->result[i];
        r->token = (int32_t)s->result[i];
        if (toy_is_end(r, s->result[i])) {
            r->ended = true;
            OK(cede_step_leave(t->loop, r->id, 0));
        }
    }
    fake_run(t->late ? 0 : (unsigned)rnd(6));
    return 0;
}

static void toy_left(void *arg, void *user, int reason)
{
    struct toy *t = arg;
    struct toy_request *r = user;
    assert_false(r->gone);
    assert_int_equal(r->ended, reason == 0);
    r->gone = true;
    r->reason = reason;
    cede_scope_close(r->scope);
    t->gone++;
}

/* Its tokens are what they have to be: all of them, or, of one that was cancelled, the first. */
static void toy_check(const struct toy *t)
{
    for (unsigned i = 0; i < t->arrived; i++) {
        struct toy_request want = {.sequence = i, .most = 1 + i % TOKENS};
        const struct toy_request *r = &t->requests[i];
        int64_t token = (int64_t)i * 7;
        bool end = false;
        while (!end && want.got < r->got) {
            want.sequence = toy_hash(want.sequence, token);
            token = toy_token(want.sequence);
            assert_int_equal(r->tokens[want.got++], token);
            end = toy_is_end(&want, token);
        }
        assert_int_equal(r->got, want.got);
        assert_int_equal(r->ended, end);
        assert_true(!r->joined || r->gone);
    }
}

static void toy_open(struct toy *t, struct cede_step_config *c, unsigned slots)
{
    t->futures = OPEN(future, .slots = slots);
    c->batch = BATCH;
    c->requests = 16;
    c->futures = t->futures;
    c->arg = t;
    c->schedule = toy_schedule;
    c->launch = toy_launch;
    c->finish = toy_finish;
    c->left = toy_left;
    OK(cede_step_open(c, &t->loop));
}

static void toy_close(struct toy *t)
{
    struct cede_future_statistics s;
    OK(cede_step_close(t->loop));
    assert_int_equal(t->gone, t->joined);
    OK(cede_future_get_statistics(t->futures, &s, sizeof(s)));
    assert_int_equal(s.free, s.slots);
    assert_int_equal(s.missing, 0);
    cede_future_close(t->futures);
    if (t->graph)
        fake_graph_free(t->graph);
    assert_int_equal(fake_cuda.memory + fake_cuda.pinned + fake_cuda.modules, 0);
    assert_int_equal(fake_cuda.events + fake_cuda.streams + fake_cuda.bad, 0);
}

#endif
