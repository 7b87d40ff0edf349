/* The manager with the AMD driver on the stand-in: jobs take turns as a whole on a device without
 * timeslices, nothing fails for their lack, and a scheduler that dies leaves nothing suspended. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../test.h"
#include "engine/engine.h"
#include "fake_kfd.h"

enum { JOBS = 3, QUEUES = 3 };

struct world {
    struct fake_kfd k;
    char dir[64];
    struct device_driver *d;
    struct journal *j;
    struct engine *m;
    uv_loop_t loop;
    uint64_t now;
    struct fake_process *p[JOBS];
    uint32_t job[JOBS];
};

static void start(struct world *w)
{
    struct error err = {""};
    struct engine_options o = {.loop = &w->loop, .policy = "priority"};
    params_default(&o.params);
    if (kfd_driver_open(&w->k.io, &w->d, &err) < 0 || journal_open(w->dir, 0, &w->j, &err) < 0 ||
        engine_new(w->d, w->j, &o, &w->m, &err) < 0)
        fail_msg("%s", err.text);
    w->now = max_u64(w->now, monotonic_ns());
}

static void stop(struct world *w, bool restore)
{
    engine_free(w->m, restore);
    journal_close(w->j);
    if (!restore)
        fake_we_die(&w->k); /* before close: kill -9 closes nothing politely */
    device_close(w->d);
    w->m = NULL;
}

static void add(struct world *w, unsigned i, enum job_class class)
{
    struct error err = {""};
    struct job_spec spec = {.terms = {.class = class, .weight = WEIGHT_DEFAULT}, .source = JOB_PID};
    if (engine_add(w->m, w->p[i]->id, &spec, &w->job[i], &err) < 0)
        fail_msg("%s", err.text);
}

static void ticks(struct world *w, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i++, w->now += NSEC_PER_MSEC) {
        uv_run(&w->loop, UV_RUN_NOWAIT);
        engine_tick(w->m, w->now);
    }
}

/* How many queues of the process are suspended. */
static unsigned off(const struct fake_process *p)
{
    unsigned n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++)
        n += p->queues[i].there && p->queues[i].suspended;
    return n;
}

static int set_up(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_int_equal(uv_loop_init(&w->loop), 0);
    fake_kfd_init(&w->k);
    snprintf(w->dir, sizeof(w->dir), "%s/state", w->k.root);
    for (unsigned i = 0; i < JOBS; i++) {
        struct proc_stat st;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
        assert_int_equal(proc_stat_read(pid, &st), 0);
        w->p[i] = fake_process(&w->k, i, pid, st.id.start_ticks);
        for (uint32_t q = 0; q < QUEUES; q++)
            fake_queue(&w->k, w->p[i], q, 0x1111, q ? KFD_COMPUTE : KFD_SDMA);
    }
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    if (w->m)
        stop(w, true);
    for (unsigned i = 0; i < JOBS; i++) {
        kill(w->p[i]->id.pid, SIGKILL);
        waitpid(w->p[i]->id.pid, NULL, 0);
    }
    fake_kfd_free(&w->k);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    free(w);
    return 0;
}

#define WORLD_TEST(name) TEST_IN(name, struct world *w, set_up, tear_down)

static void begin(struct world *w)
{
    start(w);
    add(w, 0, CLASS_LATENCY);
    add(w, 1, CLASS_BATCH);
    add(w, 2, CLASS_BATCH);
    ticks(w, 300);
}

static void no_job_failed(const struct world *w)
{
    struct error err = {""};
    for (unsigned i = 0; i < JOBS; i++)
        assert_int_equal(engine_job_status(w->m, w->job[i], &err), 0);
}

WORLD_TEST(test_turns)
{
    unsigned ran[JOBS] = {0};
    begin(w);
    for (int t = 0; t < 300; t++) {
        ticks(w, 10);
        for (unsigned i = 0; i < JOBS; i++) {
            unsigned n = off(w->p[i]);
            assert_true(n == 0 || n == QUEUES); /* a program's queues never take turns */
            ran[i] += n == 0;
        }
        assert_int_equal(off(w->p[0]), 0);
        assert_int_equal(off(w->p[1]) + off(w->p[2]), QUEUES);
    }
    assert_in_range(ran[1], 120, 180);
    no_job_failed(w);
    stop(w, true);
    for (unsigned i = 0; i < JOBS; i++)
        assert_false(off(w->p[i]) || w->p[i]->debugged);
}

WORLD_TEST(killed)
{
    begin(w);
    assert_int_equal(off(w->p[1]) + off(w->p[2]), QUEUES);
    stop(w, false);
    assert_int_equal(off(w->p[1]) + off(w->p[2]), 0);
    /* The next one takes the jobs back and goes on. */
    start(w);
    ticks(w, 300);
    for (int t = 0; t < 500; t++) {
        ticks(w, 10);
        assert_int_equal(off(w->p[1]) + off(w->p[2]), QUEUES);
    }
    no_job_failed(w);
    assert_int_equal(off(w->p[0]), 0);
    stop(w, true);
    assert_int_equal(off(w->p[1]) + off(w->p[2]), 0);
}
