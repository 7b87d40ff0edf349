/* What the engine's tests begin with: an engine with its journal on the mock driver, children as
 * processes, and a clock that the test moves. Each helper is a copy in the test that uses it. */
#ifndef CEDE_TESTS_ENGINE_FIXTURE_H
#define CEDE_TESTS_ENGINE_FIXTURE_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "engine/engine.h"
#include "memory/yield.h"
#include "mock_driver.h"

/* The call, with f->err, has to end so. */
#define FAILS(code, says, call)                                                                    \
    do {                                                                                           \
        assert_int_equal(call, code);                                                              \
        if (!strstr(f->err.text, says))                                                            \
            fail_msg("%s", f->err.text);                                                           \
    } while (0)

#define HELPER static __attribute__((unused))

struct fixture {
    char dir[64];
    struct mock_driver d;
    struct device_driver *driver; /* NULL: d */
    struct journal *j;
    struct engine *m;
    uv_loop_t loop;
    uint64_t now;
    pid_t children[64];
    struct swap_options swap;
    rule_fn rule; /* instead of the one that takes a pid */
    void *rule_arg;
    const char *experience;
    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
    unsigned n;
    pid_t p[16];      /* programs of the test, */
    uint32_t job[16]; /* and their jobs' slots */
    unsigned ran[16]; /* in how many looks of count_turns() each ran */
    struct error err;
};

extern const uint64_t *work_time_clock; /* what monotonic_ns() goes by: work_time.c */

HELPER void worked(const struct fixture *f, int r)
{
    if (r < 0)
        fail_msg("%s", f->err.text);
}

HELPER int rule(void *arg, pid_t pid, struct job_spec *spec)
{
    const pid_t *match = arg;
    if (pid != *match)
        return false;
    *spec = (struct job_spec){
        .terms = {.class = CLASS_BATCH, .weight = 50}, .source = JOB_RULE, .name = "r"};
    return true;
}

/* As a restorer opens it, or the next engine. */
HELPER struct journal *journal_of(struct fixture *f)
{
    struct journal *j;
    worked(f, journal_open(f->dir, 0, &j, &f->err));
    return j;
}

HELPER void lose_journal(const struct fixture *f)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/journal", f->dir);
    assert_int_equal(unlink(path), 0);
}

/* Returns what it was. */
HELPER rlim_t limit(__rlimit_resource_t resource, rlim_t to)
{
    struct rlimit r;
    assert_int_equal(getrlimit(resource, &r), 0);
    const rlim_t before = r.rlim_cur;
    r.rlim_cur = to;
    assert_int_equal(setrlimit(resource, &r), 0);
    return before;
}

HELPER void start(struct fixture *f, const char *policy, pid_t *rule_pid)
{
    struct engine_options o = {.loop = &f->loop,
                               .policy = policy,
                               .swap = f->swap,
                               .rule = f->rule    ? f->rule
                                       : rule_pid ? rule
                                                  : NULL,
                               .rule_arg = f->rule_arg ? f->rule_arg : rule_pid,
                               .experience = f->experience,
                               .job_changed = f->job_changed,
                               .job_arg = f->job_arg};
    params_default(&o.params);
    f->d.clock = work_time_clock = &f->now;
    f->d.journal = &f->j;
    f->j = journal_of(f);
    worked(f, engine_new(f->driver ? f->driver : &f->d.base, f->j, &o, &f->m, &f->err));
    f->now = max_u64(f->now, monotonic_ns());
}

HELPER void stop(struct fixture *f, bool restore)
{
    assert_int_equal(engine_free(f->m, restore), 0);
    journal_close(f->j);
    f->m = NULL;
}

/* As after kill -9: the memory is gone, the files and the device stay. */
HELPER void crash(struct fixture *f)
{
    engine_free(f->m, false);
    journal_close(f->j);
    f->m = NULL;
}

/* The file that a crashed engine has left says of no job any more. */
HELPER void forget_jobs(struct fixture *f)
{
    struct journal *j = journal_of(f);
    for (uint32_t i = 0; i < JOURNAL_JOBS; i++)
        journal_put_job(j, i, NULL);
    journal_close(j);
}

HELPER void restart(struct fixture *f, const char *policy)
{
    crash(f);
    start(f, policy, NULL);
}

HELPER void setup_in(struct fixture *f)
{
    snprintf(f->dir, sizeof(f->dir), "/tmp/cede-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    mock_init(&f->d, 2);
}

HELPER int setup(void **state)
{
    setup_in(*state = calloc(1, sizeof(struct fixture)));
    return 0;
}

HELPER unsigned suspended_on(struct mock_driver *d, pid_t pid)
{
    unsigned n = 0;
    for_each_context (d, g)
        n += g->dg.proc.pid == pid && g->suspended;
    return n;
}

HELPER unsigned suspended_of(struct fixture *f, pid_t pid)
{
    return suspended_on(&f->d, pid);
}

HELPER unsigned suspended_groups(struct fixture *f)
{
    unsigned n = 0;
    for_each_context (&f->d, g)
        n += g->suspended > 0;
    return n;
}

HELPER unsigned changed_groups(struct fixture *f)
{
    unsigned n = 0;
    for_each_context (&f->d, g)
        n += g->suspended || g->block_ends || g->timeslice_us != 2048;
    return n;
}

/* Ends the engine in order, if there is one: then nothing of it stays on the device. */
HELPER void clear(struct fixture *f)
{
    char cmd[128];
    const unsigned left = f->m ? engine_free(f->m, true) : 0;
    const unsigned changed = f->m ? changed_groups(f) : 0;
    if (f->m)
        journal_close(f->j);
    work_time_clock = NULL;
    for (unsigned i = 0; i < f->n; i++) {
        kill(f->children[i], SIGKILL);
        waitpid(f->children[i], NULL, 0);
    }
    switch_list_free(&f->d.record);
    f->d.record = (struct switch_list){0};
    snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    assert_int_equal(left, 0);
    assert_int_equal(changed, 0);
}

HELPER int teardown(void **state)
{
    clear(*state);
    free(*state);
    return 0;
}

HELPER void wait_to_die(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

/* A process that does nothing and ends with the one that calls this, even one that ends at once. */
HELPER pid_t fork_to_wait(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            pause();
        _exit(0);
    }
    return pid;
}

HELPER pid_t child(struct fixture *f)
{
    pid_t pid = fork_to_wait();
    assert_true(pid > 0);
    return f->children[f->n++] = pid;
}

HELPER void await_name(pid_t pid, const char *name)
{
    struct proc_stat st = {.comm = ""};
    for (int i = 0; i < 2000 && strcmp(st.comm, name) != 0; i++) {
        usleep(5000);
        assert_int_equal(proc_stat_read(pid, &st), 0);
    }
    assert_string_equal(st.comm, name);
}

HELPER pid_t named_child(struct fixture *f, const char *name)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_NAME, name);
        wait_to_die();
    }
    await_name(pid, name);
    return f->children[f->n++] = pid;
}

/* A process of that user's, and n children of it, which are the test's user's. */
HELPER pid_t family(struct fixture *f, uid_t uid, unsigned n, pid_t *children)
{
    int fds[2];
    char ready;
    assert_int_equal(pipe(fds), 0);
    pid_t first = fork();
    assert_true(first >= 0);
    if (first == 0) {
        for (unsigned i = 0; i < n; i++) {
            pid_t pid = fork_to_wait();
            if (write(fds[1], &pid, sizeof(pid)) != sizeof(pid))
                _exit(1);
        }
        if (setresuid(uid, uid, uid) < 0 || write(fds[1], "", 1) != 1)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (wait(NULL) > 0)
            ;
        wait_to_die();
    }
    f->children[f->n++] = first;
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(read(fds[0], &children[i], sizeof(children[i])), sizeof(children[i]));
        if (uid != getuid()) /* the end of another user's process does not end them */
            f->children[f->n++] = children[i];
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &ready, 1), 1);
    close(fds[0]);
    return first;
}

HELPER void parent_and_child(struct fixture *f, pid_t both[2])
{
    both[0] = family(f, getuid(), 1, &both[1]);
}

/* Each is the parent of the next and has that name, if it is not NULL. The last is in a session of
 * its own, and outlives the others. */
HELPER void three_generations(struct fixture *f, pid_t v[3], const char *const names[3])
{
    int fds[2];
    const pid_t test = getpid();
    assert_int_equal(pipe(fds), 0);
    for (int i = 0; i < 3 && fork() == 0; i++) {
        const pid_t self = getpid();
        if (i == 2)
            setsid();
        else
            prctl(PR_SET_PDEATHSIG, SIGKILL);
        if ((names[i] && prctl(PR_SET_NAME, names[i]) < 0) ||
            write(fds[1], &self, sizeof(self)) != sizeof(self))
            _exit(1);
    }
    while (getpid() != test)
        pause();
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(fds[0], &v[i], sizeof(v[i])), sizeof(v[i]));
    close(fds[0]);
    close(fds[1]);
    f->children[f->n++] = v[0];
    f->children[f->n++] = v[2];
}

HELPER void end(struct fixture *f, pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (unsigned i = 0; i < f->n; i++) {
        if (f->children[i] == pid)
            f->children[i] = f->children[--f->n];
    }
    mock_exit(&f->d, pid);
}

HELPER uint64_t tick(struct fixture *f)
{
    uv_run(&f->loop, UV_RUN_NOWAIT);
    return engine_tick(f->m, f->now);
}

HELPER void ticks(struct fixture *f, uint64_t ms)
{
    uint64_t until = f->now + ms * NSEC_PER_MSEC;
    while (f->now < until) {
        uint64_t next = tick(f);
        f->now = max_u64(min_u64(next, until), f->now + NSEC_PER_MSEC);
    }
    tick(f);
}

HELPER struct proc_id id_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

HELPER uint32_t add_spec(struct fixture *f, pid_t pid, const struct job_spec *spec)
{
    uint32_t job = SLOT_NONE;
    worked(f, engine_add(f->m, id_of(pid), spec, &job, &f->err));
    return job;
}

HELPER uint32_t add_as(struct fixture *f, pid_t pid, enum job_class class, uid_t uid)
{
    return add_spec(f, pid,
                    &(struct job_spec){.terms = {.class = class, .weight = WEIGHT_DEFAULT},
                                       .source = JOB_PID,
                                       .uid = uid,
                                       .principal = uid});
}

HELPER uint32_t add(struct fixture *f, pid_t pid, enum job_class class)
{
    return add_as(f, pid, class, 0);
}

HELPER void change(struct fixture *f, uint32_t job, struct job_terms terms)
{
    worked(f, engine_change(f->m, job, &terms, &f->err));
}

HELPER void change_class(struct fixture *f, uint32_t job, enum job_class class)
{
    change(f, job, (struct job_terms){.class = class, .weight = WEIGHT_DEFAULT});
}

HELPER void pause_job(struct fixture *f, uint32_t job, bool on)
{
    assert_int_equal(engine_pause(f->m, job, on, 0), 0);
    ticks(f, 10);
}

HELPER struct job_view view(const struct fixture *f, uint32_t job)
{
    struct job_view v;
    assert_true(engine_view(f->m, job, &v));
    return v;
}

/* SLOT_NONE: it is in none. */
HELPER uint32_t job_with(const struct fixture *f, pid_t pid)
{
    return model_job_with(engine_model(f->m), pid);
}

HELPER struct mock_group *on(struct fixture *f, pid_t pid)
{
    return mock_compute(&f->d, pid, 0);
}

/* Looks every 10 ms which of the first n programs run. */
HELPER void count_turns(struct fixture *f, int n, unsigned ms)
{
    memset(f->ran, 0, sizeof(f->ran));
    for (unsigned t = 0; t < ms; t += 10) {
        ticks(f, 10);
        for (int i = 0; i < n; i++)
            f->ran[i] += !on(f, f->p[i])->suspended;
    }
}

/* What the driver tells of it from now on: of each 100 ms so many it worked, and its part. */
HELPER void works(struct fixture *f, pid_t pid, uint32_t bursts, unsigned ms, double busy)
{
    struct mock_group *g = on(f, pid);
    g->bursts = bursts;
    g->busy_ns = ms * NSEC_PER_MSEC;
    g->busy = busy;
}

/* A program with one compute and three copy groups, not looked at yet. */
HELPER uint32_t one_job(struct fixture *f, enum job_class class, pid_t *p)
{
    *p = child(f);
    mock_context(&f->d, *p, 0, 3);
    start(f, "priority", NULL);
    return add(f, *p, class);
}

/* Programs with one compute and so many copy groups each. */
HELPER void programs(struct fixture *f, pid_t *p, int n, unsigned ncopy)
{
    for (int i = 0; i < n; i++)
        mock_context(&f->d, p[i] = child(f), 0, ncopy);
}

#define SERVER 7 /* of MPS */

HELPER enum job_class class_of(char letter)
{
    return letter == 'L' ? CLASS_LATENCY : letter == 'N' ? CLASS_NORMAL : CLASS_BATCH;
}

/* Programs as above and their jobs, by letters: L, N and B have these classes, u is in no job, and
 * one that * follows is a client of SERVER. */
HELPER void jobs_of(struct fixture *f, const char *policy, unsigned ncopy, const char *letters)
{
    unsigned n = 0;
    for (const char *c = letters; *c; c++) {
        if (*c == '*')
            mock_share(&f->d, f->p[n - 1], SERVER);
        else if (*c != ' ')
            programs(f, &f->p[n++], 1, ncopy);
    }
    start(f, policy, NULL);
    n = 0;
    for (const char *c = letters; *c; c++) {
        if (strchr("LNB", *c))
            f->job[n] = add(f, f->p[n], class_of(*c));
        n += *c != ' ' && *c != '*';
    }
}

HELPER void three_jobs(struct fixture *f)
{
    jobs_of(f, "priority", 3, "L B B");
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

/* A test of the engine: f is its fixture, p and j are f->p and f->job. */
#define ENGINE_TEST_WITH(name, set_up, tear_down)                                                  \
    static void name##_on(struct fixture *f, pid_t *p, uint32_t *j);                               \
    TEST_WITH(name, set_up, tear_down)                                                             \
    {                                                                                              \
        struct fixture *f = *fixture;                                                              \
        name##_on(f, f->p, f->job);                                                                \
    }                                                                                              \
    static void name##_on(struct fixture *f, pid_t *p, uint32_t *j)
#define ENGINE_TEST(name) ENGINE_TEST_WITH(name, setup, teardown)
#define T(name)           cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
