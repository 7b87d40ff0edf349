/* GPU programs that no job owns: what the engine knows of them, and what that costs. */
#include <sys/stat.h>

#include "fixture.h"

/* False: it is not listed. */
static bool unmanaged(struct fixture *f, pid_t pid, struct unmanaged *out)
{
    for (uint32_t cursor = 0; engine_next_unmanaged(f->m, &cursor, out);) {
        if (out->id.pid == pid)
            return true;
    }
    return false;
}

static bool listed(struct fixture *f, pid_t pid)
{
    struct unmanaged u;
    return unmanaged(f, pid, &u);
}

static void test_is_known_with_its_gpus(void **state)
{
    struct fixture *f = *state;
    struct unmanaged u;
    f->d.has_usage = true;
    pid_t job = child(f), other = child(f);
    mock_context(&f->d, job, 0, 0);
    mock_context(&f->d, other, 0, 0);
    mock_context(&f->d, other, 1, 0);
    start(f, "priority", NULL);
    ticks(f, 5000);
    /* Nobody runs jobs beside it, so nobody is asked where it is. */
    assert_true(unmanaged(f, other, &u));
    assert_int_equal(u.uid, getuid());
    assert_string_equal(u.comm, "test_unmanaged");
    assert_int_equal(u.gpus, 0);
    assert_int_equal(f->d.usage_calls, 0);

    /* As soon as there is a job, before who added it has an answer. */
    add(f, job, CLASS_LATENCY);
    tick(f);
    assert_false(listed(f, job));
    assert_true(unmanaged(f, other, &u));
    assert_int_equal(u.gpus, 3);
    assert_false(u.detached);
    assert_int_equal(f->d.usage_calls, 1);
    ticks(f, 5000);
    unsigned calls = f->d.usage_calls;
    assert_int_equal(calls, 6); /* for the count, as the job is young */

    /* What is known stays known when another job comes. */
    pid_t second = child(f);
    mock_context(&f->d, second, 0, 0);
    add(f, second, CLASS_LATENCY);
    tick(f);
    assert_true(unmanaged(f, other, &u));
    assert_int_equal(u.gpus, 3);
    assert_int_equal(f->d.usage_calls, calls);

    end(f, other);
    ticks(f, 1100);
    assert_false(listed(f, other));
}

/* A program that has the device open and nothing on it is asked for a few times. */
static void test_usage_is_asked_now_and_then(void **state)
{
    struct fixture *f = *state;
    struct unmanaged u;
    pid_t p, idle = child(f);
    f->d.has_usage = true;
    one_job(f, CLASS_LATENCY, &p);
    f->d.idle = &idle;
    f->d.nidle = 1;
    ticks(f, 3500);
    assert_in_range(f->d.usage_calls, 3, 4); /* once a second */
    ticks(f, 60000);
    assert_true(unmanaged(f, idle, &u));
    assert_int_equal(u.gpus, 0);
    assert_in_range(f->d.usage_calls, 20, 21); /* ten times for that, and every five seconds */
}

static void test_becomes_a_job(void **state)
{
    struct fixture *f = *state;
    pid_t p, other = child(f);
    mock_context(&f->d, other, 0, 0);
    one_job(f, CLASS_LATENCY, &p);
    tick(f);
    assert_true(listed(f, other));
    add(f, other, CLASS_BATCH);
    tick(f);
    assert_false(listed(f, other));
}

static void test_detached_stays_so(void **state)
{
    struct fixture *f = *state;
    struct unmanaged u;
    pid_t other = child(f);
    mock_context(&f->d, other, 0, 0);
    start(f, "priority", &other);
    ticks(f, 100);
    assert_false(listed(f, other));
    uint32_t job = engine_job_with(f->m, other);
    assert_int_not_equal(job, SLOT_NONE);
    engine_release(f->m, job);
    for (int i = 0; i < 3; i++) {
        assert_true(unmanaged(f, other, &u));
        assert_true(u.detached);
        ticks(f, 1100);
        /* A job that comes, and a configuration that is read again, make no difference. */
        if (i == 0) {
            pid_t p = child(f);
            add(f, p, CLASS_NORMAL);
        } else {
            struct sched_params params = *engine_params(f->m);
            assert_int_equal(engine_set_params(f->m, &params), 0);
        }
    }
    assert_int_equal(engine_job_with(f->m, other), SLOT_NONE);
}

static int takes_all(void *arg, pid_t pid, struct job_spec *spec)
{
    (void)arg;
    (void)pid;
    *spec = (struct job_spec){
        .terms = {.class = CLASS_BATCH, .weight = 50}, .source = JOB_RULE, .name = "r"};
    return 1;
}

/* How often it was asked about each of two programs: about the first that is not known at once. */
struct slow_rule {
    pid_t later;
    unsigned asked_later, asked;
    bool slow;
};

static int takes_slowly(void *arg, pid_t pid, struct job_spec *spec)
{
    struct slow_rule *s = arg;
    const uint64_t until = monotonic_ns() + 6 * NSEC_PER_MSEC;
    while (s->slow && monotonic_ns() < until)
        ;
    s->asked += pid != s->later;
    if (pid == s->later && s->asked_later++ < 3)
        return -EAGAIN;
    return takes_all(NULL, pid, spec);
}

/* What is not known yet is asked again, while the program is left alone; one that is left alone for
 * good is asked about once. */
static void test_rule_answers_later(void **state)
{
    struct fixture *f = *state;
    struct slow_rule s = {.later = child(f)};
    mock_context(&f->d, s.later, 0, 0);
    f->rule = takes_slowly;
    f->rule_arg = &s;
    start(f, "priority", NULL);
    tick(f);
    assert_int_equal(s.asked_later, 1);
    assert_true(listed(f, s.later));
    ticks(f, 900);
    assert_int_equal(s.asked_later, 1); /* not before the next look, */
    engine_look_for_jobs(f->m, false);
    ticks(f, 30);
    assert_int_equal(s.asked_later, 2); /* for which an answer asks */
    assert_int_equal(engine_job_with(f->m, s.later), SLOT_NONE);
    ticks(f, 3000);
    assert_int_equal(s.asked_later, 4); /* and no more */
    assert_int_not_equal(engine_job_with(f->m, s.later), SLOT_NONE);
    assert_false(listed(f, s.later));
}

/* What a program shall be is known later than what its child shall be: it is the job all the same.
 */
static void test_child_waits_for_its_parent(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    pid_t parent, v;
    assert_int_equal(pipe(fds), 0);
    if ((parent = fork()) == 0) {
        v = fork_to_wait();
        if (write(fds[1], &v, sizeof(v)) < 0)
            _exit(1);
        wait_to_die();
    }
    f->children[f->n++] = parent;
    assert_int_equal(read(fds[0], &v, sizeof(v)), sizeof(v));
    close(fds[0]);
    close(fds[1]);
    struct slow_rule s = {.later = parent};
    mock_context(&f->d, v, 0, 0);
    mock_context(&f->d, parent, 0, 0);
    f->rule = takes_slowly;
    f->rule_arg = &s;
    start(f, "priority", NULL);
    tick(f);
    assert_int_equal(s.asked, 1);
    assert_int_equal(engine_job_with(f->m, v), SLOT_NONE);
    ticks(f, 5000);
    assert_int_not_equal(engine_job_with(f->m, v), SLOT_NONE);
    assert_int_equal(engine_job_with(f->m, v), engine_job_with(f->m, parent));
}

/* Rules that take long take all jobs' time: one program a look then, each in its turn. */
static void test_rules_take_their_time(void **state)
{
    struct fixture *f = *state;
    struct slow_rule s = {.slow = true};
    pid_t v[4];
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        v[i] = child(f);
        mock_context(&f->d, v[i], 0, 0);
    }
    f->rule = takes_slowly;
    f->rule_arg = &s;
    start(f, "priority", NULL);
    unsigned jobs = 0;
    for (unsigned n = 1; n <= 2; n++) { /* a tick may look twice: there is a new job */
        tick(f);
        jobs = 0;
        for (size_t i = 0; i < ARRAY_SIZE(v); i++)
            jobs += engine_job_with(f->m, v[i]) != SLOT_NONE;
        assert_true(jobs > 0 && jobs == s.asked && jobs <= 2 * n);
    }
    ticks(f, 1000);
    for (size_t i = 0; i < ARRAY_SIZE(v); i++)
        assert_int_not_equal(engine_job_with(f->m, v[i]), SLOT_NONE);
    assert_int_equal(s.asked, ARRAY_SIZE(v));
}

/* A program that is called `name`, by an executable of another name. */
static pid_t called(struct fixture *f, const char *name)
{
    char path[128];
    assert_int_equal(chmod(f->dir, 0755), 0);
    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    assert_int_equal(symlink("/bin/sleep", path), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getuid() == 0 && setuid(65534) < 0)
            _exit(1);
        execl(path, name, "1000", NULL);
        _exit(1);
    }
    struct proc_stat st = {.comm = ""};
    for (int i = 0; i < 2000 && strcmp(st.comm, name) != 0; i++) {
        usleep(5000);
        proc_stat_read(pid, &st);
    }
    assert_string_equal(st.comm, name);
    return f->children[f->n++] = pid;
}

/* Processes that schedule are no programs: neither shown nor taken. Programs that only call
 * themselves so are. */
static void test_schedulers_are_left_out(void **state)
{
    static const char *const names[] = {"ceded", "cede-restore", "cede-swap"};
    struct fixture *f = *state;
    pid_t ours[ARRAY_SIZE(names)], liar[ARRAY_SIZE(names)], mps = called(f, "nvidia-cuda-mps");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int ready[2];
        char c;
        assert_int_equal(pipe(ready), 0);
        ours[i] = fork(); /* of this executable, which is the engine's */
        assert_true(ours[i] >= 0);
        if (ours[i] == 0) {
            prctl(PR_SET_NAME, names[i]);
            close(ready[0]);
            close(ready[1]);
            wait_to_die();
        }
        f->children[f->n++] = ours[i];
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 0);
        close(ready[0]);
        mock_context(&f->d, ours[i], 0, 0);
        mock_context(&f->d, liar[i] = called(f, names[i]), 0, 0);
    }
    mock_context(&f->d, mps, 0, 0);
    start(f, "priority", NULL);
    tick(f);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_false(listed(f, ours[i]));
        assert_true(listed(f, liar[i]));
    }
    assert_true(listed(f, mps));
    crash(f);

    f->rule = takes_all;
    start(f, "priority", NULL);
    ticks(f, 2000);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(engine_job_with(f->m, ours[i]), SLOT_NONE);
        assert_int_not_equal(engine_job_with(f->m, liar[i]), SLOT_NONE);
    }
    assert_int_not_equal(engine_job_with(f->m, mps), SLOT_NONE);
}

/* What keeps a pool, and the server that it has started, are below the first program's runner where
 * another runner is above, and serve others too. */
static void test_pool_is_in_no_job(void **state)
{
    static const char *const names[] = {"cede-pool", "nvidia-cuda-mps"};
    struct fixture *f = *state;
    pid_t v[3]; /* runner, keeper, server: each the parent of the next */
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    if ((v[0] = fork()) == 0) {
        for (size_t i = 0; i < ARRAY_SIZE(names) && (v[i + 1] = fork()) == 0; i++) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            prctl(PR_SET_NAME, names[i]);
            v[0] = getpid();
            if (write(fds[1], v, sizeof(v[0])) < 0)
                _exit(1);
        }
        wait_to_die();
    }
    assert_true(v[0] > 0);
    f->children[f->n++] = v[0];
    assert_int_equal(read(fds[0], &v[1], sizeof(v[1])), sizeof(v[1]));
    assert_int_equal(read(fds[0], &v[2], sizeof(v[2])), sizeof(v[2]));
    close(fds[0]);
    close(fds[1]);
    mock_context(&f->d, v[2], 0, 0);
    start(f, "priority", NULL);
    add(f, v[0], CLASS_BATCH);
    ticks(f, 2000);
    assert_int_equal(engine_job_with(f->m, v[2]), SLOT_NONE);
    assert_true(listed(f, v[2]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_is_known_with_its_gpus),
        T(test_usage_is_asked_now_and_then),
        T(test_becomes_a_job),
        T(test_detached_stays_so),
        T(test_schedulers_are_left_out),
        T(test_pool_is_in_no_job),
        T(test_rule_answers_later),
        T(test_rules_take_their_time),
        T(test_child_waits_for_its_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
