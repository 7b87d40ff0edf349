/* Clients of MPS servers that come, go and change, and a daemon or a restorer that is killed or
 * late: nobody stays stopped or with what was set for others. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>

#include "clients.h"
#include "recovery/restorer.h"

/* One of three is a client no more, and the others still are. */
static void test_client_no_more(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    for (int i = 0; i < 3; i++)
        assert_int_equal(view(f, job[i]).unit, view(f, job[0]).number);
    client_of(f, p[0], 0);
    ticks(f, 6000);
    assert_false(view(f, job[0]).is_client);
    assert_int_equal(view(f, job[0]).unit, 0);
    assert_int_equal(view(f, job[2]).unit, view(f, job[1]).number);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* What was suspended when a program in no job came is resumed, even if not at the first attempt. */
static void test_left_alone_at_last(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    programs(f, p, 4, 2);
    client_of(f, p[0], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    for (int i = 0; i < 1000 && !suspended_of(f, p[0]); i++)
        ticks(f, 10);
    assert_int_equal(suspended_of(f, p[0]), 3);
    f->d.fail_resume = EIO;
    end(f, p[1]);
    end(f, p[2]);
    client_of(f, p[3], SERVER);
    ticks(f, 3000);
    assert_true(view(f, a).left_alone);
    f->d.fail_resume = 0;
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0);
}

/* A stopped program is found to have another context than the one that is on record. */
static void test_other_groups_while_stopped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    mock_exit(&f->d, p[1]);
    mock_context(&f->d, p[1], 0, 3);
    client_of(f, p[1], SERVER);
    ticks(f, 6000);
    assert_int_equal(view(f, job[1]).groups, 4);
    assert_int_equal(state_of(p[1]), 'T');
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
}

/* Its new groups have the old ones' places. */
static void test_other_groups_in_one_look(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    mock_exit(&f->d, p[1]);
    mock_context(&f->d, p[1], 0, 2);
    on(f, p[1])->timeslice_us = 1;
    client_of(f, p[1], SERVER);
    ticks(f, 6000);
    crash(f);
    end(f, p[0]);
    undo(f);
    assert_int_equal(changed_groups(f), 0);
}

/* Who stands for two ends, and in the same turn another job gets its place. */
static void test_place_of_the_oldest(void **state)
{
    struct fixture *f = *state;
    pid_t p[5];
    programs(f, p, 5, 2);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    uint32_t b = add(f, p[1], CLASS_LATENCY);
    add(f, p[2], CLASS_BATCH);
    ticks(f, 1500);
    end(f, p[2]);
    ticks(f, 100);
    engine_release(f->m, a);
    uint32_t c = add(f, p[3], CLASS_BATCH);
    assert_int_equal(c, a);
    assert_int_equal(engine_pause(f->m, b, true, 0), 0);
    assert_int_equal(engine_pause(f->m, b, false, 0), 0);
    add(f, p[4], CLASS_LATENCY);
    ticks(f, 3000);
    assert_int_equal(on(f, p[3])->timeslice_us, 1);
}

/* What follows in this process is when it sends a signal: an error, or this process is killed. */
static void on_signals(uint32_t action)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, action),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = {ARRAY_SIZE(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) < 0)
        _exit(99);
}

/* A stopped process of a suspended unit ends while it is about to be continued. */
static void test_ends_while_undone(void **state)
{
    struct fixture *f = *state;
    pid_t p[1];
    int status;
    programs(f, p, 1, 2);
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(journal_put_group(f->j, i, JG_STOPPED | JG_SUSPENDED, &f->d.g[i].dg), 0);
    pid_t restorer = fork();
    if (restorer == 0) {
        on_signals(SECCOMP_RET_ERRNO | ESRCH); /* as if every other process were gone */
        signal(SIGSEGV, SIG_DFL);              /* which cmocka would take for its own */
        _exit((int)journal_undo(f->j, &f->d.base, NULL, NULL));
    }
    assert_int_equal(waitpid(restorer, &status, 0), restorer);
    assert_int_equal(status, 0);
    journal_close(f->j);
}

/* A stopped process turns out to have nothing on the GPU, and the daemon is killed as it is about
 * to continue it. */
static void test_killed_as_groups_go(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    int status;
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    mock_exit(&f->d, p[1]);
    pid_t daemon = fork();
    if (daemon == 0) {
        on_signals(SECCOMP_RET_KILL_PROCESS);
        for (int i = 0; i < 100; i++)
            engine_tick(f->m, f->now += 100 * NSEC_PER_MSEC);
        _exit(0);
    }
    assert_int_equal(waitpid(daemon, &status, 0), daemon);
    assert_true(WIFSIGNALED(status));
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
}

/* A user's job whose program has started a client that is root's. */
static void test_other_users_client(void **state)
{
    struct fixture *f = *state;
    struct proc_stat st;
    struct error err = {""};
    int fds[2];
    uint32_t job;
    pid_t roots;
    assert_int_equal(pipe(fds), 0);
    pid_t users = fork();
    if (users == 0) {
        roots = fork();
        if (roots == 0)
            wait_to_die();
        if (setresuid(1000, 1000, 1000) < 0 || write(fds[1], &roots, sizeof(roots)) < 0)
            _exit(1);
        wait_to_die();
    }
    assert_int_equal(read(fds[0], &roots, sizeof(roots)), sizeof(roots));
    f->children[f->n++] = users;
    f->children[f->n++] = roots; /* whom no end of a user's process ends */
    close(fds[0]);
    close(fds[1]);
    pid_t p[2] = {users, roots};
    for (int i = 0; i < 2; i++) {
        mock_context(&f->d, p[i], 0, 1);
        client_of(f, p[i], SERVER);
    }
    start(f, "priority", NULL);
    assert_int_equal(proc_stat_read(users, &st), 0);
    struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT}, .uid = 1000};
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), 0);
    ticks(f, 1500);
    assert_int_equal(view(f, job).processes, 2);
    assert_int_equal(engine_pause(f->m, job, true, 1000), 0);
    ticks(f, 100);
    assert_true(reaches(users, true));
    assert_int_not_equal(state_of(roots), 'T');
    assert_non_null(strstr(view(f, job).error, "another user"));
    /* Root may. */
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1100);
    assert_true(reaches(roots, true));
    stop(f, true);
    assert_true(reaches(users, false));
    assert_true(reaches(roots, false));
}

/* As a verb without a daemon does: until nothing is due. */
static void quiesce(struct fixture *f)
{
    while (tick(f) <= f->now)
        f->now++;
}

static void test_left_alone_without_daemon(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "static", NULL);
    quiesce(f);
    add(f, p[2], CLASS_LATENCY);
    uint32_t job = add(f, p[0], CLASS_BATCH);
    quiesce(f);
    assert_true(view(f, job).left_alone);
    stop(f, false);
    assert_int_equal(on(f, p[1])->timeslice_us, 2048);
}

/* Programs in no job are looked at for no more than some of a tick's time. */
static void test_looks_are_bounded(void **state)
{
    struct fixture *f = *state;
    pid_t p[12];
    uint32_t job;
    programs(f, p, 12, 0);
    for (int i = 0; i < 12; i++)
        client_of(f, p[i], SERVER + (i > 0));
    start(f, "priority", NULL);
    job = add(f, p[0], CLASS_BATCH);
    ticks(f, 1500);
    f->d.scan_ns = 3 * NSEC_PER_MSEC;
    for (int i = 0; i < 50; i++) {
        const unsigned scans = f->d.scans;
        f->now += 100 * NSEC_PER_MSEC;
        tick(f);
        assert_in_range(f->d.scans - scans, 0, 4);
    }
    f->d.scan_ns = 0;
    assert_false(view(f, job).left_alone);
    client_of(f, p[11], SERVER);
    ticks(f, 3000);
    assert_true(view(f, job).left_alone);
}

/* Whether what is to be stopped still is is looked at once a second, however many ticks there are.
 */
static void test_stops_are_looked_at_rarely(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    kill(p[1], SIGCONT);
    assert_true(reaches(p[1], false));
    for (int i = 0; i < 50; i++) {
        ticks(f, 10);
        assert_int_not_equal(state_of(p[1]), 'T');
    }
    /* Not of one that is paused anew. */
    pause_job(f, job[1], false);
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
}

/* A unit whose jobs are all paused is no better than others. */
static void test_all_are_paused(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    programs(f, p, 2, 2);
    client_of(f, p[0], SERVER);
    start(f, "priority", NULL);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    pause_job(f, latency, true);
    ticks(f, 100);
    assert_int_not_equal(on(f, p[1])->timeslice_us, 1);
    pause_job(f, latency, false);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

/* Daemon and restorer were killed, and there is no GPU to be had any more. */
static void test_stopped_and_no_device(void **state)
{
    struct fixture *f = *state;
    pid_t p[1];
    struct error err = {""};
    programs(f, p, 1, 0);
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    snprintf(journal_shared(f->j)->driver, sizeof(journal_shared(f->j)->driver), "soft");
    snprintf(journal_shared(f->j)->where, sizeof(journal_shared(f->j)->where), "/nowhere");
    journal_store_shared(f->j);
    assert_int_equal(journal_put_group(f->j, 0, JG_STOPPED, &f->d.g[0].dg), 0);
    journal_close(f->j);
    kill(p[0], SIGSTOP);
    assert_true(reaches(p[0], true));
    (void)restorer_undo_abandoned(f->dir, &err);
    assert_true(reaches(p[0], false));
}

/* That it was cede that stopped a program nobody knows any more; who asks for it gets it. */
static void test_resumed_without_journal(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    char path[80];
    struct proc_stat st;
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    crash(f);
    snprintf(path, sizeof(path), "%s/journal", f->dir);
    assert_int_equal(unlink(path), 0);
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(reaches(p[1], false));
    kill(p[1], SIGSTOP); /* that is a person's doing */
    assert_true(reaches(p[1], true));
    ticks(f, 3000);
    assert_int_equal(state_of(p[1]), 'T');
    assert_int_equal(proc_stat_read(p[1], &st), 0);
    assert_int_equal(engine_resume_unmanaged(f->m, st.id, NULL), 0);
    assert_true(reaches(p[1], false));
}

/* One that is detached is known as a client at once: nothing is set for it through the other. */
static void test_detached_at_once(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 3100);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    engine_release(f->m, a);
    f->now += NSEC_PER_MSEC;
    tick(f);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    end(f, p[1]);
    ticks(f, 3000);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
}

/* Of the clients that had the timeslice before us nobody is left when the next one is looked at. */
static void test_nobody_knows(void **state)
{
    struct fixture *f = *state;
    pid_t p[2];
    programs(f, p, 2, 2);
    client_of(f, p[0], SERVER);
    on(f, p[0])->timeslice_us = 1;
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    crash_and_undo(f);
    assert_int_equal(changed_groups(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_nobody_knows),
        T(test_client_no_more),
        T(test_left_alone_at_last),
        T(test_other_groups_while_stopped),
        T(test_other_groups_in_one_look),
        T(test_place_of_the_oldest),
        T(test_ends_while_undone),
        T(test_killed_as_groups_go),
        T(test_other_users_client),
        T(test_left_alone_without_daemon),
        T(test_looks_are_bounded),
        T(test_stops_are_looked_at_rarely),
        T(test_all_are_paused),
        T(test_stopped_and_no_device),
        T(test_resumed_without_journal),
        T(test_detached_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
