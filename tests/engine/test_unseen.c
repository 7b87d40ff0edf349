/* What a program of a job had of the GPU before it was known is charged, though its programs come
 * and go; and programs of one launch are one job, as far as they are one user's. */
#include "fixture.h"

enum { PROGRAMS = 5 };

/* A process and so many children, which end with it. */
static pid_t family(struct fixture *f, pid_t *programs)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t first = fork();
    if (first == 0) {
        for (int i = 0; i < PROGRAMS; i++) {
            pid_t pid = fork_to_wait();
            if (write(fds[1], &pid, sizeof(pid)) != sizeof(pid))
                _exit(1);
        }
        wait_to_die();
    }
    for (int i = 0; i < PROGRAMS; i++)
        assert_int_equal(read(fds[0], &programs[i], sizeof(programs[i])), sizeof(programs[i]));
    close(fds[0]);
    close(fds[1]);
    return f->children[f->n++] = first;
}

static uint32_t add_of(struct fixture *f, pid_t pid, uid_t uid, uint32_t gpu_max)
{
    struct proc_stat st;
    struct error err = {""};
    uint32_t job = SLOT_NONE;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    const struct job_spec spec = {
        .terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .gpu_max = gpu_max},
        .source = JOB_PID,
        .uid = uid,
        .account_uid = uid};
    if (engine_add(f->m, st.id, &spec, &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
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
static void test_time_before_it_is_known(void **state)
{
    struct fixture *f = *state;
    pid_t latency = child(f), other = child(f), programs[PROGRAMS], first = family(f, programs);
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
static void test_ceiling_of_what_comes_and_goes(void **state)
{
    struct fixture *f = *state;
    unsigned ran = 0;
    pid_t other = child(f), programs[PROGRAMS], first = family(f, programs);
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
static void test_launch_of_another_user(void **state)
{
    struct fixture *f = *state;
    pid_t own[2] = {child(f), child(f)}, others = 0;
    int fds[2];
    char c;
    if (geteuid() != 0)
        skip();
    assert_int_equal(pipe(fds), 0);
    others = fork();
    if (others == 0) {
        if (setuid(65000) < 0 || write(fds[1], "", 1) != 1)
            _exit(1);
        wait_to_die();
    }
    f->children[f->n++] = others;
    assert_int_equal(read(fds[0], &c, 1), 1);
    close(fds[0]);
    close(fds[1]);
    f->rule = one_launch;
    for (int i = 0; i < 2; i++)
        mock_context(&f->d, own[i], 0, 1);
    mock_context(&f->d, others, 0, 1);
    start(f, "priority", NULL);
    ticks(f, 2000);
    const uint32_t job = engine_job_with(f->m, own[0]);
    assert_int_not_equal(job, SLOT_NONE);
    assert_int_equal(engine_job_with(f->m, own[1]), job);
    assert_int_not_equal(engine_job_with(f->m, others), SLOT_NONE);
    assert_int_not_equal(engine_job_with(f->m, others), job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_time_before_it_is_known),
        T(test_ceiling_of_what_comes_and_goes),
        T(test_launch_of_another_user),
    };
    return cmocka_run_group_tests_name("engine_unseen", tests, NULL, NULL);
}
