/* What a program of a job had of the GPU before it was known is charged, though its programs come
 * and go; and programs of one launch are one job, as far as they are one user's. */
#include "fixture.h"

enum { PROGRAMS = 5 };

static uint32_t add_of(struct fixture *f, pid_t pid, uid_t uid, uint32_t gpu_max)
{
    return add_spec(
        f, pid,
        &(struct job_spec){
            .terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .gpu_max = gpu_max},
            .source = JOB_PID,
            .uid = uid,
            .principal = uid});
}

/* Until looks are once a second. */
static void quiet(struct fixture *f)
{
    ticks(f, 1000);
    f->now += 70 * NSEC_PER_SEC;
    ticks(f, 2000);
}

/* The program opens the GPU, and is found in the end. */
static void open_and_wait(struct fixture *f, pid_t pid)
{
    mock_context(&f->d, pid, 0, 3);
    for (int ms = 0; !on(f, pid)->suspended; ms++) {
        assert_in_range(ms, 0, 1100);
        ticks(f, 1);
    }
}

/* For how many of the next ms the program's group is not suspended. */
static unsigned runs_of(struct fixture *f, pid_t pid, unsigned ms)
{
    unsigned ran = 0;
    for (; ms; ms--) {
        ticks(f, 1);
        ran += !on(f, pid)->suspended;
    }
    return ran;
}

/* A look comes once a second where nothing happens. What a program may have had of the GPU before
 * the first that shows it is charged to its account, so the other one's turns come first. */
ENGINE_TEST(test_time_before_it_is_known)
{
    pid_t latency = child(f), other = child(f), programs[PROGRAMS],
          first = family(f, getuid(), PROGRAMS, programs);
    start(f, "priority", NULL);
    mock_context(&f->d, latency, 0, 1);
    mock_context(&f->d, other, 0, 1);
    add_of(f, other, 1, 0);
    add_of(f, first, 2, 0);
    add(f, latency, CLASS_LATENCY);
    quiet(f);
    open_and_wait(f, programs[0]);
    assert_in_range(runs_of(f, programs[0], 700), 0, 10);
    assert_in_range(runs_of(f, programs[0], 2000), 600, 1300); /* and then they are equals */
}

/* The same below a ceiling, which a job keeps although its programs come and go. */
ENGINE_TEST(test_ceiling_of_what_comes_and_goes)
{
    unsigned ran = 0;
    pid_t other = child(f), programs[PROGRAMS], first = family(f, getuid(), PROGRAMS, programs);
    start(f, "priority", NULL);
    mock_context(&f->d, other, 0, 1);
    add_of(f, other, 1, 0);
    add_of(f, first, 2, 20);
    quiet(f);
    for (int i = 0; i < 4; i++) {
        open_and_wait(f, programs[i]);
        ran += runs_of(f, programs[i], 600);
        mock_exit(&f->d, programs[i]);
        kill(programs[i], SIGKILL);
    }
    assert_in_range(ran, 0, 40);
}

static int one_launch(void *arg, pid_t pid, struct job_spec *spec)
{
    (void)arg, (void)pid;
    *spec = (struct job_spec){
        .terms = {.class = CLASS_BATCH, .weight = 50}, .source = JOB_RULE, .launch = 7};
    return 1;
}

/* Programs of one launch are one job, but none of another user is, whatever its number is. */
ENGINE_TEST(test_launch_of_another_user)
{
    if (geteuid() != 0)
        skip();
    pid_t own[2] = {child(f), child(f)}, others = family(f, 65000, 0, NULL);
    f->rule = one_launch;
    for (int i = 0; i < 2; i++)
        mock_context(&f->d, own[i], 0, 1);
    mock_context(&f->d, others, 0, 1);
    start(f, "priority", NULL);
    ticks(f, 2000);
    const uint32_t job = job_with(f, own[0]);
    assert_int_not_equal(job, SLOT_NONE);
    assert_int_equal(job_with(f, own[1]), job);
    assert_int_not_equal(job_with(f, others), SLOT_NONE);
    assert_int_not_equal(job_with(f, others), job);
}
