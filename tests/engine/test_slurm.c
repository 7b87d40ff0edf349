/* Processes of one Slurm job, which are named one by one and have no ancestor in common: one job,
 * with the terms of the last, that lasts as long as one of them. */
#include "clients.h"

static int add_to(struct fixture *f, pid_t pid, uint64_t number, uid_t uid, enum job_class class,
                  uint32_t *job)
{
    struct proc_stat st;
    struct error err = {""};
    struct job_spec spec = {.terms = {.class = class, .weight = WEIGHT_DEFAULT},
                            .source = JOB_SLURM,
                            .uid = uid,
                            .slurm_job = number};
    snprintf(spec.name, sizeof(spec.name), SLURM_JOB_NAME "%d", (int)number);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return engine_add(f->m, st.id, &spec, job, &err);
}

ENGINE_TEST(one_job_of_several_trees)
{
    pid_t a = child(f), b = child(f), other = child(f), others = child(f);
    uint32_t job, second, third, fourth;
    start(f, "priority", NULL);
    assert_int_equal(add_to(f, a, 77, 5, CLASS_BATCH, &job), 0);
    assert_int_equal(add_to(f, b, 77, 5, CLASS_NORMAL, &second), 0);
    assert_int_equal(add_to(f, b, 77, 5, CLASS_NORMAL, &second), 0); /* once more is no more */
    assert_int_equal(second, job);
    assert_int_equal(add_to(f, other, 78, 5, CLASS_BATCH, &third), 0);
    assert_int_equal(add_to(f, others, 77, 6, CLASS_BATCH, &fourth), 0);
    ticks(f, 100);
    assert_int_equal(model_jobs(engine_model(f->m)), 3);
    assert_int_equal(view(f, job).job.class, CLASS_NORMAL);
    assert_int_equal(job_with(f, b), job);
    assert_int_equal(job_with(f, other), third);
    assert_int_equal(job_with(f, others), fourth);
    end(f, a);
    ticks(f, 100);
    assert_int_equal(job_with(f, b), job);
    end(f, b);
    ticks(f, 100);
    assert_int_equal(model_jobs(engine_model(f->m)), 2);
}

/* It was found in another job before. */
ENGINE_TEST(leaves_another_job)
{
    pid_t pid = child(f);
    uint32_t job;
    start(f, "priority", NULL);
    const uint32_t before = add(f, pid, CLASS_LATENCY);
    pid_t root = child(f);
    assert_int_equal(add_to(f, root, 77, 0, CLASS_BATCH, &job), 0);
    assert_int_not_equal(job, before);
    assert_int_equal(add_to(f, pid, 77, 0, CLASS_BATCH, &job), 0);
    ticks(f, 100);
    mock_context(&f->d, pid, 0, 1);
    ticks(f, 100);
    assert_int_equal(view(f, job).processes, 1);
}
