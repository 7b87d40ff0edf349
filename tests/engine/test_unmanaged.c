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

ENGINE_TEST(test_is_known_with_its_gpus)
{
    struct unmanaged u;
    f->d.has_usage = true;
    programs(f, p, 2, 0);
    const pid_t job = p[0], other = p[1];
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
    assert_in_range(calls, 5, 6); /* once a second, for the count, as the job is young */

    /* What is known stays known when another job comes. */
    programs(f, p + 2, 1, 0);
    add(f, p[2], CLASS_LATENCY);
    tick(f);
    assert_true(unmanaged(f, other, &u));
    assert_int_equal(u.gpus, 3);
    assert_int_equal(f->d.usage_calls, calls);

    end(f, other);
    ticks(f, 1100);
    assert_false(listed(f, other));
}

/* A program that has the device open and nothing on it is asked for a few times. */
ENGINE_TEST(test_usage_is_asked_now_and_then)
{
    struct unmanaged u;
    pid_t idle = child(f);
    f->d.has_usage = true;
    one_job(f, CLASS_LATENCY, p);
    f->d.idle = &idle;
    f->d.nidle = 1;
    ticks(f, 3500);
    assert_in_range(f->d.usage_calls, 3, 4); /* once a second */
    ticks(f, 60000);
    assert_true(unmanaged(f, idle, &u));
    assert_int_equal(u.gpus, 0);
    assert_in_range(f->d.usage_calls, 20, 21); /* ten times for that, and every five seconds */
}

ENGINE_TEST(test_becomes_a_job)
{
    programs(f, p + 1, 1, 0);
    const pid_t other = p[1];
    one_job(f, CLASS_LATENCY, p);
    tick(f);
    assert_true(listed(f, other));
    add(f, other, CLASS_BATCH);
    tick(f);
    assert_false(listed(f, other));
}

ENGINE_TEST(test_detached_stays_so)
{
    struct unmanaged u;
    programs(f, p, 1, 0);
    const pid_t other = p[0];
    start(f, "priority", p);
    /* A job that somebody asks for and does not get leaves its program to the rules. */
    uint32_t job = add(f, other, CLASS_LATENCY);
    tick(f);
    engine_untold(f->m, job);
    ticks(f, 100);
    assert_false(listed(f, other));
    job = job_with(f, other);
    assert_int_equal(view(f, job).job.source, JOB_RULE);
    engine_release(f->m, job);
    /* Nor does a job that somebody asked for and does not get. */
    engine_untold(f->m, add(f, other, CLASS_NORMAL));
    for (int i = 0; i < 3; i++) {
        assert_true(unmanaged(f, other, &u));
        assert_true(u.detached);
        ticks(f, 1100);
        /* A job that comes, and a configuration that is read again, make no difference. */
        if (i == 0) {
            add(f, child(f), CLASS_NORMAL);
        } else {
            assert_int_equal(engine_set_params(f->m, engine_params(f->m)), 0);
        }
    }
    assert_int_equal(job_with(f, other), SLOT_NONE);
}

static int takes_all(void *arg, pid_t pid, struct job_spec *spec)
{
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

static void start_with(struct fixture *f, struct slow_rule *s)
{
    f->rule = takes_slowly;
    f->rule_arg = s;
    start(f, "priority", NULL);
}

/* What is not known yet is asked again, while the program is left alone; one that is left alone for
 * good is asked about once. */
ENGINE_TEST(test_rule_answers_later)
{
    struct slow_rule s = {.later = child(f)};
    mock_context(&f->d, s.later, 0, 0);
    start_with(f, &s);
    tick(f);
    assert_int_equal(s.asked_later, 1);
    assert_true(listed(f, s.later));
    ticks(f, 900);
    assert_int_equal(s.asked_later, 1); /* not before the next look, */
    engine_look_for_jobs(f->m, false);
    ticks(f, 30);
    assert_int_equal(s.asked_later, 2); /* for which an answer asks */
    assert_int_equal(job_with(f, s.later), SLOT_NONE);
    ticks(f, 3000);
    assert_int_equal(s.asked_later, 4); /* and no more */
    assert_int_not_equal(job_with(f, s.later), SLOT_NONE);
    assert_false(listed(f, s.later));
}

/* What a program shall be is known later than what its child shall be: it is the job all the same.
 */
ENGINE_TEST(test_child_waits_for_its_parent)
{
    parent_and_child(f, p);
    struct slow_rule s = {.later = p[0]};
    mock_context(&f->d, p[1], 0, 0);
    mock_context(&f->d, p[0], 0, 0);
    start_with(f, &s);
    tick(f);
    assert_int_equal(s.asked, 1);
    assert_int_equal(job_with(f, p[1]), SLOT_NONE);
    ticks(f, 5000);
    assert_int_not_equal(job_with(f, p[1]), SLOT_NONE);
    assert_int_equal(job_with(f, p[1]), job_with(f, p[0]));
}

/* Rules that take long take all jobs' time: one program a look then, each in its turn. */
ENGINE_TEST(test_rules_take_their_time)
{
    struct slow_rule s = {.slow = true};
    programs(f, p, 4, 0);
    start_with(f, &s);
    for (unsigned n = 1; n <= 2; n++) { /* a tick may look twice: there is a new job */
        unsigned jobs = 0;
        tick(f);
        for (int i = 0; i < 4; i++)
            jobs += job_with(f, p[i]) != SLOT_NONE;
        assert_true(jobs > 0 && jobs == s.asked && jobs <= 2 * n);
    }
    ticks(f, 1000);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(job_with(f, p[i]), SLOT_NONE);
    assert_int_equal(s.asked, 4);
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
    await_name(pid, name);
    return f->children[f->n++] = pid;
}

/* Processes that schedule are no programs: neither shown nor taken. Programs that only call
 * themselves so are. */
ENGINE_TEST(test_schedulers_are_left_out)
{
    static const char *const names[] = {"ceded", "cede-restore", "cede-swap"};
    pid_t ours[ARRAY_SIZE(names)], liar[ARRAY_SIZE(names)], mps = called(f, "nvidia-cuda-mps");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        ours[i] = named_child(f, names[i]); /* of this executable, which is the engine's */
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
        assert_int_equal(job_with(f, ours[i]), SLOT_NONE);
        assert_int_not_equal(job_with(f, liar[i]), SLOT_NONE);
    }
    assert_int_not_equal(job_with(f, mps), SLOT_NONE);
}

/* What keeps a pool, and the server that it has started, are below the first program's runner where
 * another runner is above, and serve others too. */
ENGINE_TEST(test_pool_is_in_no_job)
{
    pid_t v[3]; /* runner, keeper, server */
    three_generations(f, v, (const char *const[3]){NULL, "cede-pool", "nvidia-cuda-mps"});
    mock_context(&f->d, v[2], 0, 0);
    start(f, "priority", NULL);
    add(f, v[0], CLASS_BATCH);
    ticks(f, 2000);
    assert_int_equal(job_with(f, v[2]), SLOT_NONE);
    assert_true(listed(f, v[2]));
}
