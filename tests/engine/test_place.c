/* Which facts a choice of GPUs is made from: what jobs were promised and for how long, and programs
 * that nobody has looked at before. How it is made is in tests/sched/test_place.c. */
#include "fixture.h"

#define PROMISE_MS 600000
#define PROGRAMS   6
#define GIB        (1ULL << 30)

/* With programs for the jobs of the test: those that are started later hold its journal. */
static void begin(struct fixture *f)
{
    f->d.free_bytes = 1ULL << 36;
    while (f->n < PROGRAMS)
        child(f);
    start(f, "priority", NULL);
}

/* The program of this number as a job of its own name. */
static uint32_t job_of(struct fixture *f, unsigned i)
{
    struct proc_stat st;
    struct error err = {""};
    struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT}};
    uint32_t job = SLOT_NONE;
    assert_int_equal(proc_stat_read(f->children[i], &st), 0);
    snprintf(spec.name, sizeof(spec.name), "job%u", i);
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), 0);
    return job;
}

/* Of two GPUs; as a bit map. */
static uint32_t place(struct fixture *f, uint32_t job, uint64_t memory_bytes)
{
    struct error err = {""};
    struct job_view v;
    const struct place_wish w = {.ngpus = 1, .candidates = 3, .memory_bytes = memory_bytes};
    if (engine_place(f->m, job, &w, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(engine_view(f->m, job, &v));
    return v.job.placed;
}

static uint32_t placed(struct fixture *f, unsigned i)
{
    return place(f, job_of(f, i), 0);
}

/* Three jobs, of which the one on the second GPU opens it. */
static void promised(struct fixture *f)
{
    begin(f);
    assert_int_equal(placed(f, 0), 1);
    assert_int_equal(placed(f, 1), 2);
    mock_context(&f->d, f->children[1], 1, 3);
    assert_int_equal(placed(f, 2), 1);
}

static void test_promise(void **state)
{
    struct fixture *f = *state;
    promised(f);
    ticks(f, PROMISE_MS - 1000);
    assert_int_equal(placed(f, 3), 2);
}

static void test_promise_ends(void **state)
{
    struct fixture *f = *state;
    promised(f);
    ticks(f, PROMISE_MS + 1000);
    assert_int_equal(placed(f, 3), 1);
}

/* A job that asks again keeps its GPU, also of the next ceded. */
static void test_record(void **state)
{
    struct fixture *f = *state;
    begin(f);
    const uint32_t job = job_of(f, 0);
    assert_int_equal(place(f, job, 0), 1);
    assert_int_equal(placed(f, 1), 2);
    assert_int_equal(place(f, job, 0), 1);
    tick(f);
    crash(f);
    start(f, "priority", NULL);
    assert_int_equal(place(f, job, 0), 1);
    end(f, f->children[1]);
    ticks(f, 10);
    assert_int_equal(placed(f, 2), 2);
}

/* One that ran before this ceded began is known before the first choice. */
static void test_unmanaged(void **state)
{
    struct fixture *f = *state;
    f->d.has_usage = true;
    mock_context(&f->d, child(f), 0, 3);
    begin(f);
    assert_int_equal(placed(f, 1), 2);
}

/* What a job says that it will take counts before it has taken it, and a GPU that is never large
 * enough is none to wait for. */
static void test_memory(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    f->d.has_usage = true;
    f->d.small = 2;
    begin(f);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(placed(f, i), 1U << i);
    const uint32_t large = job_of(f, 2);
    assert_int_equal(place(f, large, 40 * GIB), 1);
    assert_int_equal(engine_need(f->m, large, 40 * GIB, 0, &err), 0);
    assert_int_equal(place(f, job_of(f, 3), 30 * GIB), 2);
    assert_int_equal(place(f, job_of(f, 4), 30 * GIB), 2);
    assert_int_equal(place(f, job_of(f, 5), 50 * GIB), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_promise), T(test_promise_ends), T(test_record), T(test_unmanaged), T(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
