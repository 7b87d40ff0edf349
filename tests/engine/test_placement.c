/* Which facts a choice of GPUs is made from: what jobs were promised and for how long, and programs
 * that nobody has looked at before. How it is made is in tests/sched/test_placement_choice.c. */
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
static uint32_t job_as(struct fixture *f, unsigned i, enum job_class class)
{
    struct job_spec spec = {.terms = {.class = class, .weight = WEIGHT_DEFAULT}};
    snprintf(spec.name, sizeof(spec.name), "job%u", i);
    return add_spec(f, f->children[i], &spec);
}

static uint32_t job_of(struct fixture *f, unsigned i)
{
    return job_as(f, i, CLASS_BATCH);
}

static uint32_t place_among(struct fixture *f, uint32_t job, uint64_t memory_bytes,
                            uint32_t candidates)
{
    const struct place_need need = {
        .ngpus = 1, .candidates = candidates, .memory_bytes = memory_bytes};
    worked(f, engine_place(f->m, job, &need, &f->err));
    return view(f, job).job.placed;
}

/* Of two GPUs; as a bit map. */
static uint32_t place(struct fixture *f, uint32_t job, uint64_t memory_bytes)
{
    return place_among(f, job, memory_bytes, 3);
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

ENGINE_TEST(test_promise)
{
    promised(f);
    ticks(f, PROMISE_MS - 1000);
    assert_int_equal(placed(f, 3), 2);
}

ENGINE_TEST(test_promise_ends)
{
    promised(f);
    ticks(f, PROMISE_MS + 1000);
    assert_int_equal(placed(f, 3), 1);
}

/* A job that asks again keeps its GPU, also of the next ceded. */
ENGINE_TEST(test_record)
{
    begin(f);
    const uint32_t job = job_of(f, 0);
    assert_int_equal(place(f, job, 0), 1);
    assert_int_equal(placed(f, 1), 2);
    assert_int_equal(place(f, job, 0), 1);
    tick(f);
    restart(f, "priority");
    assert_int_equal(place(f, job, 0), 1);
    end(f, f->children[1]);
    ticks(f, 10);
    assert_int_equal(placed(f, 2), 2);
}

/* One that ran before this ceded began is known before the first choice. */
ENGINE_TEST(test_unmanaged)
{
    f->d.has_usage = true;
    mock_context(&f->d, child(f), 0, 3);
    begin(f);
    assert_int_equal(placed(f, 1), 2);
}

/* What a job says that it will take counts before it has taken it, and a GPU that is never large
 * enough is none to wait for. */
ENGINE_TEST(test_memory)
{
    f->d.has_usage = true;
    f->d.small = 2;
    begin(f);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(placed(f, i), 1U << i);
    const uint32_t large = job_of(f, 2);
    assert_int_equal(place(f, large, 40 * GIB), 1);
    assert_int_equal(engine_need(f->m, large, 40 * GIB, 0, &f->err), 0);
    assert_int_equal(place(f, job_of(f, 3), 30 * GIB), 2);
    assert_int_equal(place(f, job_of(f, 4), 30 * GIB), 2);
    assert_int_equal(place(f, job_of(f, 5), 50 * GIB), 1);
}

static void needs_among(struct fixture *f, uint32_t job, uint32_t gpu, uint32_t candidates)
{
    struct error err = {""};
    assert_int_equal(place_among(f, job, 40 * GIB, candidates), 1U << gpu);
    assert_int_equal(engine_need(f->m, job, 40 * GIB, gpu, &err), 0);
    ticks(f, 2000);
}

static void needs(struct fixture *f, uint32_t job, uint32_t gpu)
{
    needs_among(f, job, gpu, 3);
}

static void queued_on(struct fixture *f, uint32_t job, bool queued, uint32_t gpu)
{
    const struct job_view v = view(f, job);
    assert_int_equal(v.queued, queued);
    assert_int_equal(v.job.placed, 1U << gpu);
    assert_int_equal(v.job.memory_gpu, gpu);
}

/* A job that waits for memory goes where there is room first, but overtakes nobody there. */
ENGINE_TEST(test_moves_while_it_waits)
{
    f->d.has_usage = true;
    begin(f);
    memcpy(p, f->children, 6 * sizeof(p[0]));
    for (unsigned i = 0; i < 6; i++)
        needs(f, j[i] = job_of(f, i), i % 2);
    for (unsigned i = 0; i < 6; i++)
        queued_on(f, j[i], i > 1, i % 2);
    end(f, p[1]);
    ticks(f, 3000);
    queued_on(f, j[3], false, 1);
    queued_on(f, j[2], true, 0);
    end(f, p[3]);
    ticks(f, 3000);
    queued_on(f, j[5], false, 1);
    end(f, p[5]);
    ticks(f, 3000);
    queued_on(f, j[2], false, 1);
    queued_on(f, j[4], true, 0);
}

/* A job for which others have been swapped out stays where it is, and one whose user has named its
 * GPUs stays among them. */
ENGINE_TEST(test_stays)
{
    f->d.has_usage = true;
    begin(f);
    for (unsigned i = 0; i < 4; i++)
        j[i] = job_as(f, i, i == 2 ? CLASS_LATENCY : CLASS_BATCH);
    for (unsigned i = 0; i < 3; i++)
        needs(f, j[i], i % 2);
    needs_among(f, j[3], 0, 1);
    end(f, f->children[1]);
    ticks(f, 3000);
    queued_on(f, j[2], true, 0);
    queued_on(f, j[3], true, 0);
}

/* A slot of a gate is no GPU whose memory could be waited for, but where there is nothing else. */
static void asked_for_slots(struct fixture *f, uint32_t gates, int first, int second,
                            const char *says)
{
    struct error err = {""};
    f->d.gates = gates;
    begin(f);
    uint32_t j = job_as(f, 0, CLASS_LATENCY);
    assert_int_equal(engine_need(f->m, j, GIB, 1, &err), second);
    assert_int_equal(engine_need(f->m, j, GIB, 0, &err), first);
    assert_int_equal(engine_need(f->m, j, GIB, 7, &err), -EINVAL);
    assert_string_equal(err.text, says);
}

ENGINE_TEST(test_slot_of_a_gate)
{
    asked_for_slots(f, 2, 0, -EINVAL, "there is no GPU 7: the only one is 0");
}

ENGINE_TEST(test_slot_before_the_gpu)
{
    asked_for_slots(f, 1, -EINVAL, 0, "there is no GPU 7: the only one is 1");
}

ENGINE_TEST(test_slots_of_a_gate_alone)
{
    asked_for_slots(f, 3, 0, 0, "there is no GPU 7: they are 0, 1");
}
