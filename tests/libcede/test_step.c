/* The overlap loop on the stand-in for libcuda, which runs what is in a stream as late as it may:
 * the order of calls, what is learnt late, and tokens that are the same at all depths. */
#include <stdatomic.h>

#include "toy_engine.h"

static char context[2];

/* ---- the order of calls ---------------------------------------------------------------------- */

struct trace {
    char text[256];
    unsigned steps, most;
    int fail_launch; /* of this step */
    struct cede_step_loop *loop;
};

static int no_step(void *arg, struct cede_step *s)
{
    return 0;
}

static void note(struct trace *t, char what, uint64_t number)
{
    size_t n = strlen(t->text);
    snprintf(t->text + n, sizeof(t->text) - n, "%c%llu", what, (unsigned long long)number);
}

static int trace_schedule(void *arg, struct cede_step *s)
{
    struct trace *t = arg;
    if (t->steps == t->most)
        return 0;
    t->steps++;
    note(t, 's', s->number);
    assert_int_equal(cede_step_once(t->loop), -EDEADLK);
    assert_int_equal(cede_step_close(t->loop), -EDEADLK);
    return 1;
}

static void nothing(void *arg)
{
}

static int trace_launch(void *arg, struct cede_step *s)
{
    struct trace *t = arg;
    note(t, 'l', s->number);
    for (unsigned i = 0; i < 100; i++)
        cuLaunchHostFunc(s->stream, nothing, NULL);
    return s->number == (uint64_t)t->fail_launch ? -EBADMSG : 0;
}

static int trace_finish(void *arg, struct cede_step *s)
{
    struct trace *t = arg;
    note(arg, s->error ? 'e' : 'f', s->number);
    assert_int_equal(s->error, s->number == (uint64_t)t->fail_launch ? -EBADMSG : 0);
    return 0;
}

static struct cede_step_config tracing(struct trace *t, unsigned depth, unsigned flags)
{
    return CONFIG(step, .depth = depth, .flags = flags, .arg = t, .schedule = trace_schedule,
                  .launch = trace_launch, .finish = trace_finish);
}

TEST(order_of_calls)
{
    static const struct {
        unsigned depth, flags;
        int fail;
        const char *want;
    } rows[] = {
        {1, 0, 0, "s1l1f1s2l2f2s3l3f3s4l4f4s5l5f5"},
        {2, 0, 0, "s1l1s2l2f1s3l3f2s4l4f3s5l5f4f5"},
        {3, 0, 0, "s1l1s2l2s3l3f1s4l4f2s5l5f3f4f5"},
        {4, 0, 0, "s1l1s2l2s3l3s4l4f1s5l5f2f3f4f5"},
        {2, CEDE_STEP_SPIN, 0, "s1l1s2l2f1s3l3f2s4l4f3s5l5f4f5"},
        {2, CEDE_STEP_NO_GPU, 0, "s1l1s2l2f1s3l3f2s4l4f3s5l5f4f5"},
        /* nothing is scheduled behind a step that failed until that is known */
        {3, 0, 2, "s1l1s2l2f1e2s3l3s4l4s5l5f3f4f5"},
        {1, CEDE_STEP_NO_GPU, 2, "s1l1f1s2l2e2s3l3f3s4l4f4s5l5f5"},
        {3, CEDE_STEP_NO_GPU, 2, "s1l1s2l2f1e2s3l3s4l4s5l5f3f4f5"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct trace t = {.most = 5, .fail_launch = rows[i].fail};
        struct cede_step_config c = tracing(&t, rows[i].depth, rows[i].flags);
        OK(cede_step_open(&c, &t.loop));
        OK(cede_step_run(t.loop));
        assert_string_equal(t.text, rows[i].want);
        OK(cede_step_once(t.loop));
        HAS(STATS(step, t.loop), (steps, 5), (failed, rows[i].fail != 0));
        if (rows[i].fail)
            assert_string_equal(STATS(step, t.loop).error, "step 2: launch() returned -74");
        OK(cede_step_close(t.loop));
        assert_int_equal(fake_cuda.bad + fake_cuda.events + fake_cuda.streams, 0);
    }
}

/* ---- requests that end, and errors ----------------------------------------------------------- */

/* Whatever the driver refuses while a map and a loop are opened, nothing is left of them. */
TEST(a_driver_without_memory)
{
    struct trace t = {.most = 1};
    struct cede_step_config c = tracing(&t, 2, 0);
    struct cede_futures *f;
    for (int i = 1; i <= 2; i++) {
        fake_cuda.fail_make = i; /* the ring; the word for what is missing */
        assert_int_equal(cede_future_open(NULL, &f), -EIO);
        assert_null(f);
        assert_int_equal(fake_cuda.memory + fake_cuda.pinned + fake_cuda.modules, 0);
    }
    OK(cede_future_open(NULL, &f));
    c.futures = f;
    for (int i = 1; i <= 9; i++) {
        fake_cuda.fail_make = i; /* three lanes: memory and two events each */
        assert_int_equal(cede_step_open(&c, &t.loop), -EIO);
        assert_null(t.loop);
        assert_int_equal(fake_cuda.events + fake_cuda.streams, 0);
        assert_int_equal(fake_cuda.pinned, 1); /* the map's */
        assert_int_equal(fake_cuda.modules, 1);
    }
    fake_cuda.fail_make = 0;
    fake_cuda.fail_streams = 1;
    assert_int_equal(cede_step_open(&c, &t.loop), -EIO);
    fake_cuda.fail_streams = 0;
    OK(cede_step_open(&c, &t.loop));
    OK(cede_step_close(t.loop));
    cede_future_close(f);
    assert_int_equal(fake_cuda.memory + fake_cuda.pinned + fake_cuda.modules + fake_cuda.bad, 0);
}

/* The toy of a test, with that many requests to come. */
static struct toy toy;

static struct cede_step_config open_toy(unsigned depth, unsigned flags, unsigned arrivals,
                                        unsigned slots)
{
    struct cede_step_config c = CONFIG(step, .depth = depth, .flags = flags);
    memset(&toy, 0, sizeof(toy));
    toy.arrivals = arrivals;
    toy_open(&toy, &c, slots);
    return c;
}

static void reopen_toy(const struct cede_step_config *c)
{
    cede_step_close(toy.loop);
    OK(cede_step_open(c, &toy.loop));
}

static void close_toy(void)
{
    toy_close(&toy);
    toy_check(&toy);
}

TEST(a_step_without_results_fails)
{
    struct cede_step_config c = open_toy(2, 0, 3, 64);
    c.launch = no_step; /* which stores nothing */
    reopen_toy(&c);
    OK(cede_step_run(toy.loop));
    assert_int_equal(toy.requests[0].reason, -ENODATA);
    assert_non_null(strstr(STATS(step, toy.loop).error, "cede_future_store()"));
    close_toy();
}

/* What still runs when a loop is closed has run before memory is freed; all requests leave. */
TEST(closing_in_the_middle)
{
    for (unsigned run = 0; run < 40; run++) {
        state = run;
        open_toy(1 + run % 4, 0, 20, 64);
        for (unsigned i = 0; i < 3 + run % 7; i++)
            cede_step_once(toy.loop);
        assert_true(toy.joined > toy.gone);
        close_toy();
    }
}

TEST(a_cancelled_loop_finishes_what_runs)
{
    struct cede_step_config c = open_toy(3, 0, REQUESTS, 64);
    OK(cede_scope_open(&c.scope, NULL, 0, CEDE_TIMEOUT_FOREVER));
    reopen_toy(&c);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(cede_step_once(toy.loop), 1);
    uint64_t launched = STATS(step, toy.loop).steps + STATS(step, toy.loop).running;
    cede_scope_cancel(c.scope);
    assert_int_equal(cede_step_run(toy.loop), -ECANCELED);
    assert_int_equal(STATS(step, toy.loop).steps, launched);
    assert_true(STATS(step, toy.loop).requests > 0);
    close_toy();
    cede_scope_close(c.scope);
}

/* Others that hold the map's slots are waited for while steps run, and are an error when none does.
 */
TEST(slots_that_others_hold)
{
    int64_t symbol;
    open_toy(2, 0, 5, 16);
    OK(cede_future_reserve(toy.futures, 9, &symbol));
    assert_int_equal(cede_step_run(toy.loop), -ENOBUFS);
    assert_int_equal(toy.joined, 0); /* nobody was asked for a step */
    OK(cede_future_release(toy.futures, symbol));
    while (toy.gone < 5)
        OK(cede_step_run(toy.loop));
    close_toy();
}

/* ---- requests from a queue ------------------------------------------------------------------- */

enum { ASKED = 12 };

/* A request that is in the loop for three steps, and its room. */
struct asked {
    uint64_t id;
    unsigned steps, joined, left;
    int reason;
};

static struct {
    struct asked requests[ASKED];
    struct cede_step_loop *loop;
    struct cede_queue *queue;
    unsigned in, most, gone;
} served;

static void serve_joined(void *arg, const struct cede_queue_batch *taken, uint64_t id)
{
    struct asked *a = taken->user[0];
    assert_int_equal(taken->n, 1);
    assert_int_equal(taken->room.bytes, 400);
    a->id = id;
    a->joined++;
    served.in++;
    served.most = served.in > served.most ? served.in : served.most;
}

static int serve_schedule(void *arg, struct cede_step *s)
{
    int n = 0;
    for (int i = 0; i < ASKED; i++) {
        const struct asked *a = &served.requests[i];
        n += a->joined && !a->left && cede_step_add(served.loop, a->id, NULL) == 0;
    }
    return n > 0;
}

static int serve_finish(void *arg, struct cede_step *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        struct asked *a = s->user[i];
        if (++a->steps == 3)
            cede_step_leave(served.loop, a->id, a == &served.requests[5] ? -EIO : 0);
    }
    return 0;
}

static void serve_left(void *arg, void *user, int reason)
{
    struct asked *a = user;
    a->left++;
    a->reason = reason;
    served.in--;
    if (++served.gone == ASKED)
        cede_queue_shutdown(served.queue);
}

static int serve(struct cede_scope *s, void *arg)
{
    return cede_step_run(served.loop);
}

/* cancel: the last request is not there, and the loop waits for it until its scope is cancelled. */
static void serve_from_a_queue(bool cancel)
{
    const struct cede_shape room = {.memory_bytes = 400};
    const unsigned n = cancel ? ASKED - 1 : ASKED;
    struct cede_memory *memory = OPEN(memory, .flags = CEDE_MEMORY_NO_GPU, .total_bytes = 1000);
    struct cede_scope *scope;
    uint64_t id;
    memset(&served, 0, sizeof(served));
    served.queue = OPEN(queue, .memory = &memory, .batches = 8, .batch_wait_us = 0);
    OK(cede_queue_set_lease(served.queue, 0, NULL, &room));
    struct cede_step_config c = CONFIG(
        step, .flags = CEDE_STEP_NO_GPU, .queue = served.queue, .schedule = serve_schedule,
        .launch = no_step, .finish = serve_finish, .left = serve_left, .joined = serve_joined);
    OK(cede_step_open(&c, &served.loop));
    assert_int_equal(cede_step_join(served.loop, NULL, NULL, CEDE_TIMEOUT_FOREVER, &id), -EINVAL);
    OK(cede_scope_open(&scope, NULL, 1, CEDE_TIMEOUT_FOREVER));
    OK(cede_scope_fork(scope, serve, NULL)); /* it may wait before the first */
    for (unsigned i = 0; i < n; i++) {
        struct cede_queue_request r = {.user = &served.requests[i]};
        OK(cede_queue_submit(served.queue, &r, NULL));
    }
    UNTIL(STATS(queue, served.queue).ended + STATS(queue, served.queue).failed == n);
    if (cancel)
        cede_scope_cancel(scope);
    assert_int_equal(cede_scope_join(scope), cancel ? -ECANCELED : 0);
    assert_int_equal(cede_scope_close(scope), cancel ? -ECANCELED : 0);
    HAS(served, (gone, n), (most, 2)); /* as there is room for */
    assert_int_equal(STATS(queue, served.queue).failed, 1);
    for (unsigned i = 0; i < n; i++)
        HAS(served.requests[i], (joined, 1), (left, 1), (reason, i == 5 ? -EIO : 0));
    OK(cede_step_close(served.loop));
    cede_queue_close(served.queue);
    OK(STATS(memory, memory).reservations);
    cede_memory_close(memory);
}

TEST(requests_come_from_a_queue)
{
    serve_from_a_queue(false);
    serve_from_a_queue(true);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct outcome {
    uint64_t surplus, blocked, failed, cancelled, ended;
};

static void run_toy(unsigned seed, unsigned depth, bool disturbed, struct outcome *out)
{
    static const unsigned slots[] = {8, 16, 64};
    state = seed;
    open_toy(depth, seed & 1 ? CEDE_STEP_SPIN : 0, 60, slots[seed % 3]);
    toy.late = seed % 5 < 3;
    toy.cancel = disturbed ? 5 : 0;
    toy.fail = disturbed && seed % 3 == 0 ? 40 : 0;
    if (seed % 4 < 2)
        toy_capture(&toy);
    while (toy.arrived < toy.arrivals)
        OK(cede_step_run(toy.loop));
    struct cede_step_statistics s = STATS(step, toy.loop);
    HAS(s, (requests, 0), (joined, 60), (left, 60));
    close_toy();
    fake_cuda.fail_work = 0;
    out->surplus += toy.surplus;
    out->blocked += s.blocked;
    out->failed += s.failed;
    for (unsigned i = 0; i < toy.arrived; i++) {
        out->ended += toy.requests[i].ended;
        out->cancelled += toy.requests[i].reason == -ECANCELED;
        assert_true(disturbed || toy.requests[i].ended);
    }
}

TEST(tokens_are_the_same_at_all_depths)
{
    for (unsigned depth = 1; depth <= CEDE_STEP_DEPTH_MAX; depth++) {
        struct outcome calm = {0}, rough = {0};
        for (unsigned seed = 0; seed < 60; seed++) {
            run_toy(seed, depth, false, &calm);
            run_toy(1000 + seed, depth, true, &rough);
        }
        print_message("depth %u: %llu surplus, %llu steps put off; disturbed: %llu ended, "
                      "%llu cancelled, %llu steps failed\n",
                      depth, (unsigned long long)calm.surplus, (unsigned long long)calm.blocked,
                      (unsigned long long)rough.ended, (unsigned long long)rough.cancelled,
                      (unsigned long long)rough.failed);
        HAS(calm, (ended, 60 * 60), (failed, 0));
        assert_int_equal(calm.surplus > 0, depth > 1);
        assert_int_equal(calm.blocked > 0, depth > 1);
        assert_true(rough.cancelled > 0 && rough.failed > 0 && rough.ended > 1000);
    }
}

/* ---- threads ------------------------------------------------------------------------------- */

/* Other threads let requests join and leave while the loop runs. */
struct guests {
    struct cede_step_loop *loop;
    atomic_uint left;
};

static void guests_left(void *arg, void *user, int reason)
{
    struct guests *g = arg;
    assert_true(reason == -EINTR || reason == -ETIMEDOUT);
    g->left++;
}

static void *guests_thread(void *arg)
{
    struct guests *g = arg;
    for (unsigned joined = 0; joined < 500;) {
        uint64_t id;
        if (cede_step_join(g->loop, g, NULL, joined % 2 ? 0 : CEDE_TIMEOUT_FOREVER, &id) == 0) {
            joined++;
            cede_step_leave(g->loop, id, -EINTR);
        }
        STATS(step, g->loop);
    }
    return NULL;
}

TEST(other_threads_join_and_leave)
{
    struct guests g = {0};
    g.loop = OPEN(step, .flags = CEDE_STEP_NO_GPU, .requests = 4, .arg = &g, .schedule = no_step,
                  .launch = no_step, .finish = no_step, .left = guests_left);
    const pthread_t threads[2] = {start(guests_thread, &g), start(guests_thread, &g)};
    while (g.left < 1000)
        OK(cede_step_once(g.loop));
    join_threads(threads, 2, 0);
    assert_int_equal(STATS(step, g.loop).joined, 1000);
    OK(cede_step_close(g.loop));
    assert_int_equal(g.left, 1000);
}

int main(void)
{
    fake_cuda.current = context;
    return test_run(NULL, NULL);
}
