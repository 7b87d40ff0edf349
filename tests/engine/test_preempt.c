/* Jobs that are preempted at block ends: what they ask for is so in all their compute groups, on
 * record before it is made, and so no more once it may not be, or nobody is left who would end it.
 */
#include <errno.h>

#include "clients.h"

static int set(struct fixture *f, uint32_t job, enum job_class class, enum preempt_mode mode)
{
    struct job_terms t = {.class = class, .weight = WEIGHT_DEFAULT, .preempt = mode};
    return engine_change(f->m, job, &t, NULL);
}

/* A batch job with a context, its mode set. */
static uint32_t blocks_job(struct fixture *f, pid_t *p)
{
    uint32_t job = one_job(f, CLASS_BATCH, p);
    ticks(f, 100);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_BLOCK), 0);
    ticks(f, 1);
    assert_true(on(f, *p)->block_ends);
    assert_true(view(f, job).preempt_active);
    return job;
}

static unsigned on_record(const struct fixture *f)
{
    unsigned n = 0;
    for (uint32_t i = 0, flags = 0; i < journal_groups_end(f->j); i++)
        n += journal_group(f->j, i, &flags) && (flags & JG_PREEMPT);
    return n;
}

static void test_set_and_back(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    assert_int_equal(on_record(f), 1); /* the compute group alone */
    unsigned calls = f->d.preempt_calls;
    ticks(f, 2000);
    assert_int_equal(f->d.preempt_calls, calls);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_INSTRUCTION), 0);
    ticks(f, 1);
    assert_false(on(f, p)->block_ends || view(f, job).preempt_active);
    assert_int_equal(on_record(f), 0);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* Contexts that come later; a job that has none yet. */
static void test_new_contexts(void **state)
{
    struct fixture *f = *state;
    pid_t p = child(f);
    start(f, "priority", NULL);
    uint32_t job = add(f, p, CLASS_BATCH);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_BLOCK), 0);
    ticks(f, 100);
    assert_false(view(f, job).preempt_active);
    unsigned first = mock_context(&f->d, p, 0, 3);
    ticks(f, 3000);
    unsigned second = mock_context(&f->d, p, 0, 3);
    ticks(f, 3000);
    assert_true(f->d.g[first].block_ends && f->d.g[second].block_ends);
    assert_int_equal(on_record(f), 2);
}

static void test_ends_with_class_and_detach(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    /* Whoever changes the class takes the mode away too; if not, it has no effect. */
    assert_int_equal(set(f, job, CLASS_NORMAL, PREEMPT_BLOCK), 0);
    ticks(f, 1);
    assert_false(on(f, p)->block_ends);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_BLOCK), 0);
    ticks(f, 1);
    assert_true(on(f, p)->block_ends);
    engine_release(f->m, job);
    ticks(f, 1);
    assert_int_equal(changed_groups(f), 0);
    assert_int_equal(on_record(f), 0);
}

/* On a second GPU: from then on blocks may wait for each other. */
static void test_ends_with_gang(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    mock_context(&f->d, p, 1, 3);
    ticks(f, 3000);
    assert_false(on(f, p)->block_ends || mock_compute(&f->d, p, 1)->block_ends);
    assert_false(view(f, job).preempt_active);
    assert_int_equal(view(f, job).job.preempt, PREEMPT_BLOCK);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_INSTRUCTION), 0);
    struct job_terms t = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .preempt = PREEMPT_BLOCK};
    assert_int_equal(engine_change(f->m, job, &t, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "several GPUs"));
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_ends_with_unit(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    mock_share(&f->d, p, SERVER);
    ticks(f, 3000);
    assert_true(view(f, job).is_client);
    assert_false(on(f, p)->block_ends || view(f, job).preempt_active);
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_INSTRUCTION), 0);
    struct job_terms t = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .preempt = PREEMPT_BLOCK};
    assert_int_equal(engine_change(f->m, job, &t, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "MPS"));
}

/* ceded killed: the restorer's part is journal_undo(). */
static void test_restored(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    blocks_job(f, &p);
    crash(f);
    assert_true(on(f, p)->block_ends);
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    assert_int_equal(on_record(f), 1);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    assert_int_equal(changed_groups(f), 0);
    assert_int_equal(on_record(f), 0);
    journal_close(f->j);
}

/* A record that says so of a driver without such modes is damage: nothing is there to undo. */
static void test_no_such_driver(void **state)
{
    struct fixture *f = *state;
    struct device_ops ops = *f->d.base.ops;
    pid_t p;
    blocks_job(f, &p);
    crash(f);
    ops.set_preempt = NULL;
    f->d.base.ops = &ops;
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    assert_int_equal(on_record(f), 0);
    journal_close(f->j);
}

/* Its restorer was killed too: the next one takes over, and the mode stays the job's. */
static void test_taken_over(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    uint64_t number = view(f, job).number;
    crash(f);
    start(f, "priority", NULL);
    ticks(f, 3000);
    job = engine_job_by_number(f->m, number);
    assert_int_equal(view(f, job).job.preempt, PREEMPT_BLOCK);
    assert_true(on(f, p)->block_ends && view(f, job).preempt_active);
    /* A record may be of what was never made: it is made, and undone once that is asked for. */
    crash(f);
    on(f, p)->block_ends = false;
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(on(f, p)->block_ends);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* A restorer took us for hung, and undid everything. */
static void test_undone_by_restorer(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t job = blocks_job(f, &p);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    atomic_fetch_add(&journal_shared(f->j)->restored, 1);
    assert_false(on(f, p)->block_ends);
    ticks(f, 100);
    assert_true(on(f, p)->block_ends && view(f, job).preempt_active);
    assert_int_equal(on_record(f), 1);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_failures(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t job = one_job(f, CLASS_BATCH, &p);
    ticks(f, 100);
    /* It failed, and was done: on record until it is known to be undone. */
    f->d.fail_preempt = EIO;
    f->d.partial = true;
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_BLOCK), 0);
    ticks(f, 1);
    assert_int_equal(on_record(f), 1);
    assert_false(view(f, job).preempt_active);
    assert_non_null(strstr(view(f, job).error, "mock preempt"));
    f->d.fail_preempt = 0;
    ticks(f, 1100);
    assert_true(view(f, job).preempt_active);
    /* Without the right nothing is done, and nothing on record. */
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_INSTRUCTION), 0);
    ticks(f, 1);
    f->d.fail_preempt = EPERM;
    f->d.partial = false;
    assert_int_equal(set(f, job, CLASS_BATCH, PREEMPT_BLOCK), 0);
    ticks(f, 1);
    assert_false(on(f, p)->block_ends);
    assert_int_equal(on_record(f), 0);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_set_and_back),   T(test_new_contexts),   T(test_ends_with_class_and_detach),
        T(test_ends_with_gang), T(test_ends_with_unit), T(test_restored),
        T(test_no_such_driver), T(test_taken_over),     T(test_undone_by_restorer),
        T(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
