/* What the engine's tests begin with: an engine with its journal on the mock driver, children as
 * processes, and a clock that the test moves. Each helper is a copy in the test that uses it. */
#ifndef CEDE_TESTS_ENGINE_FIXTURE_H
#define CEDE_TESTS_ENGINE_FIXTURE_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "engine/engine.h"
#include "mock_driver.h"

#define HELPER static __attribute__((unused))

struct fixture {
    char dir[64];
    struct mock_driver d;
    struct journal *j;
    struct engine *m;
    uv_loop_t loop;
    uint64_t now;
    pid_t children[64];
    struct swap_options swap;
    rule_fn rule; /* instead of the one that takes a pid */
    void *rule_arg;
    bool once;
    const char *experience;
    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
    unsigned n;
};

extern const uint64_t *work_time_clock; /* what monotonic_ns() goes by: work_time.c */

HELPER int rule(void *arg, pid_t pid, struct job_spec *spec)
{
    const pid_t *match = arg;
    if (pid != *match)
        return false;
    *spec = (struct job_spec){
        .terms = {.class = CLASS_BATCH, .weight = 50}, .source = JOB_RULE, .name = "r"};
    return true;
}

HELPER void start(struct fixture *f, const char *policy, pid_t *rule_pid)
{
    struct error err = {""};
    struct engine_options o = {.loop = &f->loop,
                               .policy = policy,
                               .swap = f->swap,
                               .rule = f->rule    ? f->rule
                                       : rule_pid ? rule
                                                  : NULL,
                               .rule_arg = f->rule_arg ? f->rule_arg : rule_pid,
                               .once = f->once,
                               .experience = f->experience,
                               .job_changed = f->job_changed,
                               .job_arg = f->job_arg};
    params_default(&o.params);
    f->d.clock = work_time_clock = &f->now;
    f->d.journal = &f->j;
    if (journal_open(f->dir, 0, &f->j, &err) < 0)
        fail_msg("%s", err.text);
    if (engine_new(&f->d.base, f->j, &o, &f->m, &err) < 0)
        fail_msg("%s", err.text);
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

HELPER int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    snprintf(f->dir, sizeof(f->dir), "/tmp/cede-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    mock_init(&f->d, 2);
    *state = f;
    return 0;
}

HELPER void clear(struct fixture *f)
{
    char cmd[128];
    if (f->m)
        crash(f);
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

HELPER uint32_t add_as(struct fixture *f, pid_t pid, enum job_class class, uid_t uid)
{
    struct proc_stat st;
    struct error err = {""};
    uint32_t job = SLOT_NONE;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    struct job_spec spec = {
        .terms = {.class = class, .weight = WEIGHT_DEFAULT}, .source = JOB_PID, .uid = uid};
    if (engine_add(f->m, st.id, &spec, &job, &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

HELPER uint32_t add(struct fixture *f, pid_t pid, enum job_class class)
{
    return add_as(f, pid, class, 0);
}

HELPER struct mock_group *on(struct fixture *f, pid_t pid)
{
    return mock_compute(&f->d, pid, 0);
}

HELPER unsigned suspended_groups(const struct fixture *f)
{
    unsigned n = 0;
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        n += f->d.g[i].dg.proc.pid && f->d.g[i].suspended;
    return n;
}

HELPER unsigned changed_groups(const struct fixture *f)
{
    unsigned n = 0;
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        n += f->d.g[i].dg.proc.pid &&
             (f->d.g[i].suspended || f->d.g[i].block_ends || f->d.g[i].timeslice_us != 2048);
    return n;
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

HELPER void three_jobs(struct fixture *f, pid_t p[3])
{
    programs(f, p, 3, 3);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
