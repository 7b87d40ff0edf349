/* Jobs whose programs are clients of one MPS server: one for the scheduler, suspended as a whole or
 * not at all; one of them is paused by a signal; nothing of it outlives who set it. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fixture.h"
#include "recovery/restorer.h"

#define SERVER 7

static void client_of(struct fixture *f, pid_t pid, uint32_t server)
{
    mock_share(&f->d, pid, server);
}

/* Three programs, all of them clients. */
static void three_clients(struct fixture *f, pid_t p[3], uint32_t job[3],
                          const enum job_class class[3])
{
    programs(f, p, 3, 2);
    for (int i = 0; i < 3; i++)
        client_of(f, p[i], SERVER);
    start(f, "priority", NULL);
    for (int i = 0; i < 3; i++)
        job[i] = add(f, p[i], class[i]);
    ticks(f, 100);
}

static struct job_view view(struct fixture *f, uint32_t job)
{
    struct job_view v;
    assert_true(engine_view(f->m, job, &v));
    return v;
}

static unsigned suspended_of(struct fixture *f, pid_t pid)
{
    unsigned n = 0;
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        n += f->d.g[i].dg.proc.pid == pid && f->d.g[i].suspended;
    return n;
}

static char state_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.state;
}

static bool reaches(pid_t pid, bool stopped)
{
    for (int i = 0; i < 2000; i++) {
        if ((state_of(pid) == 'T') == stopped)
            return true;
        usleep(1000);
    }
    return false;
}

static void pause_job(struct fixture *f, uint32_t job, bool on)
{
    assert_int_equal(engine_pause(f->m, job, on, 0), 0);
    ticks(f, 10);
}

/* What a restorer does. */
static void undo(struct fixture *f)
{
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    journal_close(f->j);
}

static void crash_and_undo(struct fixture *f)
{
    crash(f);
    undo(f);
}

static void test_nobody_is_suspended(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(view(f, job[i]).unit, view(f, job[0]).number);
        assert_int_equal(view(f, job[i]).unit_class, CLASS_LATENCY);
        assert_int_equal(on(f, p[i])->timeslice_us, on(f, p[0])->timeslice_us);
    }
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* Two clients, a latency job and a batch job of their own. */
static void test_turns_as_one(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    unsigned on_turn = 0, waits = 0;
    programs(f, p, 4, 2);
    client_of(f, p[2], SERVER);
    client_of(f, p[3], SERVER);
    start(f, "priority", NULL);
    uint32_t latency = add(f, p[0], CLASS_LATENCY);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_BATCH);
    uint32_t job = add(f, p[3], CLASS_BATCH);
    ticks(f, 100);
    const unsigned calls = f->d.timeslice_calls;
    for (int i = 0; i < 200; i++) {
        ticks(f, 10);
        unsigned n = suspended_of(f, p[2]);
        assert_int_equal(suspended_of(f, p[3]), n);
        assert_true(n == 0 || n == 3);
        assert_int_equal(suspended_of(f, p[1]), 3 - n);
        assert_int_equal(on(f, p[3])->timeslice_us, 1);
        *(n ? &waits : &on_turn) += 1;
    }
    assert_true(waits > 80 && on_turn > 80);
    assert_int_equal(f->d.timeslice_calls, calls);
    assert_false(view(f, latency).is_client);
    /* The class of the best of them. */
    struct job_terms t = {CLASS_LATENCY, WEIGHT_DEFAULT, 0, 0, 0};
    assert_int_equal(engine_change(f->m, job, &t, NULL), 0);
    ticks(f, 500);
    assert_int_equal(suspended_of(f, p[2]) + suspended_of(f, p[3]), 0);
    assert_true(on(f, p[2])->timeslice_us > 1);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_pause_is_a_signal(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    assert_int_equal(suspended_groups(f), 0);
    assert_true(view(f, job[1]).stopped);
    assert_false(view(f, job[2]).stopped);
    /* Somebody lets it go on: it is paused all the same. */
    kill(p[1], SIGCONT);
    assert_true(reaches(p[1], false));
    ticks(f, 1100);
    assert_true(reaches(p[1], true));
    /* The best of the others counts. */
    pause_job(f, job[0], true);
    assert_int_equal(view(f, job[2]).unit_class, CLASS_BATCH);
    pause_job(f, job[0], false);
    pause_job(f, job[1], false);
    for (int i = 0; i < 3; i++)
        assert_true(reaches(p[i], false));
    assert_false(view(f, job[1]).stopped);
}

/* What somebody else has stopped stays stopped. */
static void test_stopped_by_others(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    kill(p[1], SIGSTOP);
    assert_true(reaches(p[1], true));
    pause_job(f, job[1], true);
    pause_job(f, job[1], false);
    stop(f, true);
    assert_int_equal(state_of(p[1]), 'T');
}

static void test_kill_while_stopped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    three_clients(f, p, job, (enum job_class[]){CLASS_LATENCY, CLASS_BATCH, CLASS_BATCH});
    pause_job(f, job[1], true);
    assert_true(reaches(p[1], true));
    crash(f);
    /* The next one takes it over as it is: not for a moment does it run, or does anybody wait. */
    start(f, "priority", NULL);
    for (int i = 0; i < 50; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(state_of(p[1]), 'T');
    }
    assert_true(view(f, job[1]).stopped);
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
    assert_int_equal(changed_groups(f), 0);
}

/* A program in no job is one of the clients: all is as it was, until it ends or joins. */
static void test_left_alone(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    programs(f, p, 4, 2);
    for (int i = 0; i < 3; i++)
        client_of(f, p[i], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[3], CLASS_LATENCY);
    ticks(f, 1500);
    assert_true(view(f, a).left_alone);
    for (int i = 0; i < 100; i++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 0);
        assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    }
    end(f, p[2]);
    ticks(f, 1500);
    assert_false(view(f, a).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    /* One leaves: it is in no job, and the rest is left alone again. */
    engine_release(f->m, a);
    ticks(f, 3500);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    assert_int_equal(suspended_of(f, p[0]) + suspended_of(f, p[1]), 0);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* The server is one of the processes; it is nobody's program. */
static void test_server(void **state)
{
    struct fixture *f = *state;
    pid_t p[3], server = fork();
    struct proc_stat st = {.comm = ""};
    if (server == 0) {
        prctl(PR_SET_NAME, "nvidia-cuda-mps-server");
        wait_to_die();
    }
    f->children[f->n++] = server;
    while (strcmp(st.comm, "nvidia-cuda-mps") != 0)
        assert_int_equal(proc_stat_read(server, &st), 0);
    programs(f, p, 3, 2);
    mock_context(&f->d, server, 0, 0);
    client_of(f, server, SERVER);
    client_of(f, p[0], SERVER);
    client_of(f, p[1], SERVER);
    start(f, "priority", NULL);
    uint32_t a = add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_BATCH);
    add(f, p[2], CLASS_LATENCY);
    ticks(f, 1500);
    assert_false(view(f, a).left_alone);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
}

/* Who was first ends; who comes later sees a timeslice that is ours. What is given back in the end
 * is what the first had found. */
static void test_comes_and_goes(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 2, 2);
    client_of(f, p[0], SERVER);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    p[2] = child(f);
    mock_context(&f->d, p[2], 0, 2);
    on(f, p[2])->timeslice_us = 1;
    client_of(f, p[2], SERVER);
    uint32_t c = add(f, p[2], CLASS_BATCH);
    ticks(f, 100);
    assert_int_not_equal(view(f, c).unit, 0);
    end(f, p[0]);
    ticks(f, 3000);
    assert_int_equal(view(f, c).unit, 0);
    assert_int_equal(on(f, p[2])->timeslice_us, 1);
    assert_int_equal(suspended_groups(f), 0);
    stop(f, true);
    assert_int_equal(on(f, p[2])->timeslice_us, 2048);
}

/* Also when nobody was there to see it, and the other way round: it was found to be a client when
 * its timeslice had been set by us already. */
static void test_found_late(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    programs(f, p, 3, 2);
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    on(f, p[2])->timeslice_us = on(f, p[0])->timeslice_us;
    uint32_t c = add(f, p[2], CLASS_BATCH);
    ticks(f, 100);
    client_of(f, p[2], SERVER);
    ticks(f, 6000);
    client_of(f, p[0], SERVER);
    ticks(f, 6000);
    assert_int_not_equal(view(f, c).unit, 0);
    assert_int_equal(suspended_groups(f), 0);
    end(f, p[0]);
    ticks(f, 100);
    crash_and_undo(f);
    assert_int_equal(changed_groups(f), 0);
}

/* The one that was first ends when nobody is there to see it. */
static void test_first_ends_unseen(void **state)
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
    crash(f);
    end(f, p[0]);
    undo(f);
    assert_int_equal(changed_groups(f), 0);
}

static void test_two_servers_and_gpus(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t job[4];
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        mock_context(&f->d, p[i], (unsigned)i / 2, 1);
        client_of(f, p[i], SERVER); /* numbers count on one GPU */
    }
    start(f, "priority", NULL);
    for (int i = 0; i < 4; i++)
        job[i] = add(f, p[i], CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(view(f, job[0]).unit, view(f, job[1]).unit);
    assert_int_equal(view(f, job[2]).unit, view(f, job[3]).unit);
    assert_int_not_equal(view(f, job[0]).unit, view(f, job[2]).unit);
}

static void test_not_swapped(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    uint32_t job[3];
    struct error err = {""};
    three_clients(f, p, job, (enum job_class[]){CLASS_BATCH, CLASS_BATCH, CLASS_BATCH});
    f->d.has_usage = true;
    assert_int_equal(engine_swap_out(f->m, job[0], 0, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "MPS"));
}

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

/* For what follows in this process every other one is gone when it is sent a signal. */
static void lose_signals(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_send_signal, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ESRCH),
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
        lose_signals();
        signal(SIGSEGV, SIG_DFL); /* which cmocka would take for its own */
        _exit((int)journal_undo(f->j, &f->d.base, NULL, NULL));
    }
    assert_int_equal(waitpid(restorer, &status, 0), restorer);
    assert_int_equal(status, 0);
    journal_close(f->j);
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
    struct job_spec spec = {.terms = {CLASS_BATCH, WEIGHT_DEFAULT, 0, 0, 0}, .uid = 1000};
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
    assert_int_equal(state_of(p[1]), 'T'); /* it may be a person's doing */
    assert_int_equal(proc_stat_read(p[1], &st), 0);
    assert_int_equal(engine_resume_unmanaged(f->m, st.id, NULL), 0);
    assert_true(reaches(p[1], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_nobody_is_suspended),
        T(test_turns_as_one),
        T(test_pause_is_a_signal),
        T(test_stopped_by_others),
        T(test_kill_while_stopped),
        T(test_left_alone),
        T(test_server),
        T(test_comes_and_goes),
        T(test_found_late),
        T(test_first_ends_unseen),
        T(test_two_servers_and_gpus),
        T(test_not_swapped),
        T(test_client_no_more),
        T(test_left_alone_at_last),
        T(test_other_groups_while_stopped),
        T(test_other_groups_in_one_look),
        T(test_place_of_the_oldest),
        T(test_ends_while_undone),
        T(test_other_users_client),
        T(test_left_alone_without_daemon),
        T(test_looks_are_bounded),
        T(test_stops_are_looked_at_rarely),
        T(test_all_are_paused),
        T(test_stopped_and_no_device),
        T(test_resumed_without_journal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
