/* The overlap loop on the stand-in for libcuda, which runs what is in a stream as late as it may:
 * the order of calls, what is learnt late, and tokens that are the same at all depths. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "toy_engine.h"

static char context[2];

static struct cede_step_statistics step_stats(struct cede_step_loop *l)
{
    struct cede_step_statistics s;
    assert_int_equal(cede_step_get_statistics(l, &s, sizeof(s)), 0);
    return s;
}

/* ---- the order of calls ---------------------------------------------------------------------- */

struct trace {
    char text[256];
    unsigned steps, most;
    int fail_launch; /* of this step */
    struct cede_step_loop *loop;
};

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
    struct cede_step_config c;
    cede_step_defaults(&c);
    c.depth = depth;
    c.flags = flags;
    c.arg = t;
    c.schedule = trace_schedule;
    c.launch = trace_launch;
    c.finish = trace_finish;
    return c;
}

static void order_of_calls(void **unused)
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
        {2, CEDE_STEP_NO_GPU, 0, "s1l1f1s2l2f2s3l3f3s4l4f4s5l5f5"},
        /* nothing is scheduled behind a step that failed until that is known */
        {3, 0, 2, "s1l1s2l2f1e2s3l3s4l4s5l5f3f4f5"},
        {1, CEDE_STEP_NO_GPU, 2, "s1l1f1s2l2e2s3l3f3s4l4f4s5l5f5"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct trace t = {.most = 5, .fail_launch = rows[i].fail};
        struct cede_step_config c = tracing(&t, rows[i].depth, rows[i].flags);
        assert_int_equal(cede_step_open(&c, &t.loop), 0);
        assert_int_equal(cede_step_run(t.loop), 0);
        assert_string_equal(t.text, rows[i].want);
        assert_int_equal(cede_step_once(t.loop), 0);
        assert_int_equal(step_stats(t.loop).steps, 5);
        assert_int_equal(step_stats(t.loop).failed, rows[i].fail != 0);
        if (rows[i].fail)
            assert_string_equal(step_stats(t.loop).error, "step 2: launch() returned -74");
        assert_int_equal(cede_step_close(t.loop), 0);
        assert_int_equal(fake_cuda.bad + fake_cuda.events + fake_cuda.streams, 0);
    }
}

/* ---- requests that end, and errors ----------------------------------------------------------- */

static void refusals(void **unused)
{
    struct trace t = {.most = 1};
    struct cede_futures *f;
    uint64_t id;
    struct cede_step_config c = tracing(&t, 2, 0), good = c;
    assert_int_equal(cede_step_open(NULL, &t.loop), -EINVAL);
    assert_int_equal(cede_step_open(&c, NULL), -EINVAL);
    c.depth = 5;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    c = good, c.size = 1;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    c = good, c.flags = 4;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    c = good, c.finish = NULL;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    assert_int_equal(cede_future_open(NULL, &f), 0);
    c = good, c.futures = f, c.batch = 4097;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    c.batch = 1, c.flags = CEDE_STEP_NO_GPU;
    assert_int_equal(cede_step_open(&c, &t.loop), -EINVAL);
    cede_future_close(f);
    fake_cuda.current = NULL;
    assert_int_equal(cede_step_open(&good, &t.loop), -ENOSYS);
    assert_null(t.loop);
    fake_cuda.current = context;
    good.requests = 1;
    assert_int_equal(cede_step_open(&good, &t.loop), 0);
    assert_int_equal(cede_step_join(t.loop, NULL, NULL, -1, &id), -EINVAL);
    assert_int_equal(cede_step_join(t.loop, NULL, NULL, 5, &id), 0);
    assert_int_equal(cede_step_add(t.loop, id, NULL), -EPERM);
    assert_int_equal(cede_step_join(t.loop, NULL, NULL, 5, &id), -ENOSPC);
    assert_int_equal(cede_step_leave(t.loop, id + 1, 0), -ENOENT);
    assert_int_equal(cede_step_close(t.loop), 0);
    assert_int_equal(cede_step_close(NULL), 0);
}

/* Whatever the driver refuses while a map and a loop are opened, nothing is left of them. */
static void a_driver_without_memory(void **unused)
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
    assert_int_equal(cede_future_open(NULL, &f), 0);
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
    assert_int_equal(cede_step_open(&c, &t.loop), 0);
    assert_int_equal(cede_step_close(t.loop), 0);
    cede_future_close(f);
    assert_int_equal(fake_cuda.memory + fake_cuda.pinned + fake_cuda.modules + fake_cuda.bad, 0);
}

static int forgets_to_store(void *arg, struct cede_step *s)
{
    return 0;
}

static void a_step_without_results_fails(void **unused)
{
    static struct toy t;
    struct cede_step_config c;
    cede_step_defaults(&c);
    memset(&t, 0, sizeof(t));
    t.arrivals = 3;
    toy_open(&t, &c, 64);
    cede_step_close(t.loop);
    c.launch = forgets_to_store;
    assert_int_equal(cede_step_open(&c, &t.loop), 0);
    assert_int_equal(cede_step_run(t.loop), 0);
    assert_int_equal(t.requests[0].reason, -ENODATA);
    assert_non_null(strstr(step_stats(t.loop).error, "cede_future_store()"));
    toy_check(&t);
    toy_close(&t);
}

/* What still runs when a loop is closed has run before memory is freed; all requests leave. */
static void closing_in_the_middle(void **unused)
{
    static struct toy t;
    for (unsigned run = 0; run < 40; run++) {
        struct cede_step_config c;
        cede_step_defaults(&c);
        c.depth = 1 + run % 4;
        memset(&t, 0, sizeof(t));
        state = run;
        t.arrivals = 20;
        toy_open(&t, &c, 64);
        for (unsigned i = 0; i < 3 + run % 7; i++)
            cede_step_once(t.loop);
        assert_true(t.joined > t.gone);
        toy_close(&t);
        toy_check(&t);
    }
}

static void a_cancelled_loop_finishes_what_runs(void **unused)
{
    static struct toy t;
    struct cede_step_config c;
    cede_step_defaults(&c);
    c.depth = 3;
    memset(&t, 0, sizeof(t));
    t.arrivals = REQUESTS;
    assert_int_equal(cede_scope_open(&c.scope, NULL, 0, CEDE_NO_TIMEOUT), 0);
    toy_open(&t, &c, 64);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(cede_step_once(t.loop), 1);
    uint64_t launched = step_stats(t.loop).steps + step_stats(t.loop).running;
    cede_scope_cancel(c.scope);
    assert_int_equal(cede_step_run(t.loop), -ECANCELED);
    assert_int_equal(step_stats(t.loop).steps, launched);
    assert_true(step_stats(t.loop).requests > 0);
    toy_close(&t);
    toy_check(&t);
    cede_scope_close(c.scope);
}

/* Others that hold the map's slots are waited for while steps run, and are an error when none does.
 */
static void slots_that_others_hold(void **unused)
{
    static struct toy t;
    struct cede_step_config c;
    int64_t symbol;
    cede_step_defaults(&c);
    memset(&t, 0, sizeof(t));
    t.arrivals = 5;
    toy_open(&t, &c, 16);
    assert_int_equal(cede_future_reserve(t.futures, 9, &symbol), 0);
    assert_int_equal(cede_step_run(t.loop), -ENOBUFS);
    assert_int_equal(t.joined, 0); /* nobody was asked for a step */
    assert_int_equal(cede_future_release(t.futures, symbol), 0);
    while (t.gone < 5)
        assert_int_equal(cede_step_run(t.loop), 0);
    toy_check(&t);
    toy_close(&t);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

struct outcome {
    uint64_t surplus, blocked, failed, cancelled, ended;
};

static void run_toy(unsigned seed, unsigned depth, bool disturbed, struct outcome *out)
{
    static struct toy t;
    struct cede_step_config c;
    struct cede_step_statistics s;
    static const unsigned slots[] = {8, 16, 64};
    cede_step_defaults(&c);
    c.depth = depth;
    c.flags = seed & 1 ? CEDE_STEP_SPIN : 0;
    memset(&t, 0, sizeof(t));
    state = seed;
    t.arrivals = 60;
    t.late = seed % 5 < 3;
    t.cancel = disturbed ? 5 : 0;
    t.fail = disturbed && seed % 3 == 0 ? 40 : 0;
    toy_open(&t, &c, slots[seed % 3]);
    if (seed % 4 < 2)
        toy_capture(&t);
    int r;
    while ((r = cede_step_run(t.loop)) == 0 && t.arrived < t.arrivals)
        ;
    assert_int_equal(r, 0);
    s = step_stats(t.loop);
    assert_int_equal(s.requests, 0);
    assert_int_equal(s.joined, 60);
    assert_int_equal(s.left, 60);
    toy_close(&t);
    toy_check(&t);
    fake_cuda.fail_work = 0;
    out->surplus += t.surplus;
    out->blocked += s.blocked;
    out->failed += s.failed;
    for (unsigned i = 0; i < t.arrived; i++) {
        out->ended += t.requests[i].ended;
        out->cancelled += t.requests[i].reason == -ECANCELED;
        assert_true(disturbed || t.requests[i].ended);
    }
}

static void tokens_are_the_same_at_all_depths(void **unused)
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
        assert_int_equal(calm.ended, 60 * 60);
        assert_int_equal(calm.failed, 0);
        assert_int_equal(calm.surplus > 0, depth > 1);
        assert_int_equal(calm.blocked > 0, depth > 1);
        assert_true(rough.cancelled > 0 && rough.failed > 0 && rough.ended > 1000);
    }
}

/* ---- with the other parts of the library ----------------------------------------------------- */

/* A queue with a device for each request that may run at a time: it decides who joins next, and
 * refuses who would be late, while others run. */
#define PLACES 4U

struct served {
    struct toy toy;
    struct cede_queue_batch batch[PLACES];
    unsigned refused;
};

static void take_from_queue(struct served *s)
{
    for (unsigned i = 0; i < PLACES; i++) {
        if (!s->batch[i].n && cede_queue_next(s->toy.queue, i, 0, &s->batch[i]) == 0)
            toy_join(&s->toy, s->batch[i].user[0]);
    }
}

static int served_schedule(void *arg, struct cede_step *s)
{
    struct served *v = arg;
    struct cede_queue_request q = {.cls = CEDE_NORMAL};
    struct cede_queue_ticket ticket;
    if (v->toy.arrived < v->toy.arrivals) {
        q.user = &v->toy.requests[v->toy.arrived++];
        assert_int_equal(cede_queue_submit(v->toy.queue, &q, NULL), 0);
        q.deadline_us = 1; /* that is not possible */
        assert_int_equal(cede_queue_submit(v->toy.queue, &q, &ticket), -EBUSY);
        assert_int_equal(ticket.answer, CEDE_QUEUE_ALONE);
        v->refused++;
    }
    take_from_queue(v);
    return toy_schedule(&v->toy, s);
}

static void served_left(void *arg, void *user, int reason)
{
    struct served *v = arg;
    for (unsigned i = 0; i < PLACES; i++) {
        if (v->batch[i].n && v->batch[i].user[0] == user) {
            assert_int_equal(cede_queue_done(v->toy.queue, &v->batch[i], reason != 0), 0);
            v->batch[i].n = 0;
        }
    }
    toy_left(&v->toy, user, reason);
}

static void a_queue_admits_while_others_run(void **unused)
{
    static struct served v;
    struct cede_queue_config q;
    struct cede_step_config c;
    struct cede_queue_statistics s;
    memset(&v, 0, sizeof(v));
    cede_queue_defaults(&q);
    q.devices = PLACES;
    q.batch_max = 1;
    q.admit = 1;
    assert_int_equal(cede_queue_open(&q, &v.toy.queue), 0);
    v.toy.arrivals = 100;
    cede_step_defaults(&c);
    toy_open(&v.toy, &c, 64);
    cede_step_close(v.toy.loop);
    c.schedule = served_schedule;
    c.left = served_left;
    assert_int_equal(cede_step_open(&c, &v.toy.loop), 0);
    while (v.toy.gone < v.toy.arrivals)
        assert_true(cede_step_run(v.toy.loop) >= 0);
    assert_int_equal(v.refused, 100);
    assert_int_equal(cede_queue_get_statistics(v.toy.queue, &s, sizeof(s)), 0);
    assert_int_equal(s.ended, 100);
    assert_int_equal(s.alone, 100);
    toy_check(&v.toy);
    toy_close(&v.toy);
    cede_queue_close(v.toy.queue);
}

/* Other threads let requests join and leave while the loop runs. */
struct guests {
    struct cede_step_loop *loop;
    atomic_uint left;
};

static int guests_schedule(void *arg, struct cede_step *s)
{
    return 0;
}

static int guests_step(void *arg, struct cede_step *s)
{
    return 0;
}

static void guests_left(void *arg, void *user, int reason)
{
    struct guests *g = arg;
    assert_true(reason == -EINTR || reason == -ETIMEDOUT);
    g->left++;
}

static void *guests_thread(void *arg)
{
    struct guests *g = arg;
    struct cede_step_statistics s;
    for (unsigned joined = 0; joined < 500;) {
        uint64_t id;
        if (cede_step_join(g->loop, g, NULL, joined % 2 ? 0 : CEDE_NO_TIMEOUT, &id) == 0) {
            joined++;
            cede_step_leave(g->loop, id, -EINTR);
        }
        cede_step_get_statistics(g->loop, &s, sizeof(s));
    }
    return NULL;
}

static void other_threads_join_and_leave(void **unused)
{
    struct guests g = {0};
    struct cede_step_config c;
    pthread_t threads[2];
    cede_step_defaults(&c);
    c.flags = CEDE_STEP_NO_GPU;
    c.requests = 4;
    c.arg = &g;
    c.schedule = guests_schedule;
    c.launch = c.finish = guests_step;
    c.left = guests_left;
    assert_int_equal(cede_step_open(&c, &g.loop), 0);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, guests_thread, &g);
    while (g.left < 1000)
        assert_int_equal(cede_step_once(g.loop), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(step_stats(g.loop).joined, 1000);
    assert_int_equal(cede_step_close(g.loop), 0);
    assert_int_equal(g.left, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_of_calls),
        cmocka_unit_test(refusals),
        cmocka_unit_test(a_driver_without_memory),
        cmocka_unit_test(a_step_without_results_fails),
        cmocka_unit_test(closing_in_the_middle),
        cmocka_unit_test(a_cancelled_loop_finishes_what_runs),
        cmocka_unit_test(slots_that_others_hold),
        cmocka_unit_test(tokens_are_the_same_at_all_depths),
        cmocka_unit_test(a_queue_admits_while_others_run),
        cmocka_unit_test(other_threads_join_and_leave),
    };
    fake_cuda.current = context;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
