/* Jobs that are preempted at block ends: what they ask for is so in all their compute groups, on
 * record before it is made, and so no more once it may not be, or nobody is left who would end it.
 */

#include "clients.h"

static void set(struct fixture *f, enum job_class class, enum preempt_mode mode)
{
    change(f, f->job[0],
           (struct job_terms){.class = class, .weight = WEIGHT_DEFAULT, .preempt = mode});
    ticks(f, 1);
}

/* In force, and shown. */
static bool active(struct fixture *f)
{
    const bool is = on(f, f->p[0])->block_ends;
    assert_int_equal(view(f, f->job[0]).preempt_active, is);
    return is;
}

/* A batch job with a context, its mode set. */
static void blocks_job(struct fixture *f)
{
    f->job[0] = one_job(f, CLASS_BATCH, f->p);
    ticks(f, 100);
    set(f, CLASS_BATCH, PREEMPT_BLOCK);
    assert_true(active(f));
}

static unsigned on_record(const struct fixture *f)
{
    unsigned n = 0;
    for (uint32_t i = 0, flags = 0; i < journal_groups_end(f->j); i++)
        n += journal_group(f->j, i, &flags) && (flags & JG_PREEMPT);
    return n;
}

ENGINE_TEST(test_set_and_back)
{
    blocks_job(f);
    assert_int_equal(on_record(f), 1); /* the compute group alone */
    unsigned calls = f->d.preempt_calls;
    ticks(f, 2000);
    assert_int_equal(f->d.preempt_calls, calls);
    set(f, CLASS_BATCH, PREEMPT_INSTRUCTION);
    assert_false(active(f));
    assert_int_equal(on_record(f), 0);
}

/* Contexts that come later; a job that has none yet. */
ENGINE_TEST(test_new_contexts)
{
    p[0] = child(f);
    start(f, "priority", NULL);
    j[0] = add(f, p[0], CLASS_BATCH);
    set(f, CLASS_BATCH, PREEMPT_BLOCK);
    ticks(f, 100);
    assert_false(view(f, j[0]).preempt_active);
    unsigned first = mock_context(&f->d, p[0], 0, 3);
    ticks(f, 3000);
    unsigned second = mock_context(&f->d, p[0], 0, 3);
    ticks(f, 3000);
    assert_true(f->d.g[first].block_ends && f->d.g[second].block_ends);
    assert_int_equal(on_record(f), 2);
}

ENGINE_TEST(test_ends_with_class_and_detach)
{
    blocks_job(f);
    /* Whoever changes the class takes the mode away too; if not, it has no effect. */
    set(f, CLASS_NORMAL, PREEMPT_BLOCK);
    assert_false(on(f, p[0])->block_ends);
    set(f, CLASS_BATCH, PREEMPT_BLOCK);
    assert_true(on(f, p[0])->block_ends);
    engine_release(f->m, j[0]);
    ticks(f, 1);
    assert_int_equal(changed_groups(f) + on_record(f), 0);
}

/* Whoever asks for it anew. */
static void assert_refused(struct fixture *f, const char *says)
{
    const struct job_terms t = {
        .class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .preempt = PREEMPT_BLOCK};
    set(f, CLASS_BATCH, PREEMPT_INSTRUCTION);
    FAILS(-ENOTSUP, says, engine_change(f->m, f->job[0], &t, &f->err));
}

/* On a second GPU: from then on blocks may wait for each other. */
ENGINE_TEST(test_ends_with_gang)
{
    blocks_job(f);
    mock_context(&f->d, p[0], 1, 3);
    ticks(f, 3000);
    assert_false(active(f) || mock_compute(&f->d, p[0], 1)->block_ends);
    assert_int_equal(view(f, j[0]).job.preempt, PREEMPT_BLOCK);
    assert_refused(f, "several GPUs");
}

ENGINE_TEST(test_ends_with_unit)
{
    blocks_job(f);
    mock_share(&f->d, p[0], SERVER);
    ticks(f, 3000);
    assert_true(view(f, j[0]).is_client);
    assert_false(active(f));
    assert_refused(f, "MPS");
}

/* ceded killed: the restorer's part is journal_undo(). */
ENGINE_TEST(test_restored)
{
    blocks_job(f);
    crash(f);
    assert_true(on(f, p[0])->block_ends);
    f->j = journal_of(f);
    assert_int_equal(on_record(f), 1);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    assert_int_equal(changed_groups(f), 0);
    assert_int_equal(on_record(f), 0);
    journal_close(f->j);
}

/* A record that says so of a driver without such modes is damage: nothing is there to undo. */
ENGINE_TEST(test_no_such_driver)
{
    struct device_ops ops = *f->d.base.ops;
    blocks_job(f);
    crash(f);
    ops.set_preempt = NULL;
    f->d.base.ops = &ops;
    f->j = journal_of(f);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    assert_int_equal(on_record(f), 0);
    journal_close(f->j);
}

/* Its restorer was killed too: the next one takes over, and the mode stays the job's. */
ENGINE_TEST(test_taken_over)
{
    blocks_job(f);
    uint64_t number = view(f, j[0]).number;
    restart(f, "priority");
    ticks(f, 3000);
    j[0] = model_job_by_number(engine_model(f->m), number);
    assert_int_equal(view(f, j[0]).job.preempt, PREEMPT_BLOCK);
    assert_true(active(f));
    /* A record may be of what was never made: it is made, and undone once that is asked for. */
    crash(f);
    on(f, p[0])->block_ends = false;
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(on(f, p[0])->block_ends);
}

/* A restorer took us for hung, and undid everything. */
ENGINE_TEST(test_undone_by_restorer)
{
    blocks_job(f);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    atomic_fetch_add(&journal_shared(f->j)->restored, 1);
    assert_false(on(f, p[0])->block_ends);
    ticks(f, 100);
    assert_true(active(f));
    assert_int_equal(on_record(f), 1);
}

ENGINE_TEST(test_failures)
{
    j[0] = one_job(f, CLASS_BATCH, p);
    ticks(f, 100);
    /* It failed, and was done: on record until it is known to be undone. */
    f->d.fail_preempt = EIO;
    f->d.partial = true;
    set(f, CLASS_BATCH, PREEMPT_BLOCK);
    assert_int_equal(on_record(f), 1);
    assert_false(view(f, j[0]).preempt_active);
    assert_non_null(strstr(view(f, j[0]).error, "mock preempt"));
    f->d.fail_preempt = 0;
    ticks(f, 1100);
    assert_true(view(f, j[0]).preempt_active);
    /* Without the right nothing is done, and nothing on record. */
    set(f, CLASS_BATCH, PREEMPT_INSTRUCTION);
    f->d.fail_preempt = EPERM;
    f->d.partial = false;
    set(f, CLASS_BATCH, PREEMPT_BLOCK);
    assert_false(on(f, p[0])->block_ends);
    assert_int_equal(on_record(f), 0);
}
