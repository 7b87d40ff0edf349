/* Clients of MPS servers that come, go and change, and a daemon or a restorer that is killed or
 * late: nobody stays stopped or with what was set for others. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include "clients.h"
#include "journal/restorer.h"

/* One of three is a client no more, and the others still are. */
ENGINE_TEST(test_client_no_more)
{
    clients_of(f, "B* B* B*");
    for (int i = 0; i < 3; i++)
        assert_int_equal(view(f, j[i]).unit, view(f, j[0]).number);
    client_of(f, p[0], 0);
    ticks(f, 6000);
    assert_false(view(f, j[0]).is_client);
    assert_int_equal(view(f, j[0]).unit, 0);
    assert_int_equal(view(f, j[2]).unit, view(f, j[1]).number);
}

/* What was suspended when a program in no job came is resumed, even if not at the first attempt. */
ENGINE_TEST(test_left_alone_at_last)
{
    jobs_of(f, "priority", 2, "B* B L u");
    for (int i = 0; i < 1000 && !suspended_of(f, p[0]); i++)
        ticks(f, 10);
    assert_int_equal(suspended_of(f, p[0]), 3);
    f->d.fail_resume = EIO;
    end(f, p[1]);
    end(f, p[2]);
    client_of(f, p[3], SERVER);
    ticks(f, 3000);
    assert_true(view(f, j[0]).left_alone);
    f->d.fail_resume = 0;
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0);
}

/* A stopped program is found to have another context than the one that is on record. */
ENGINE_TEST(test_other_groups_while_stopped)
{
    clients_of(f, "B* B* B*");
    paused(f, 1);
    mock_exit(&f->d, p[1]);
    mock_context(&f->d, p[1], 0, 3);
    client_of(f, p[1], SERVER);
    ticks(f, 6000);
    assert_int_equal(view(f, j[1]).groups, 4);
    assert_int_equal(state_of(p[1]), 'T');
    crash_and_undo(f);
    assert_true(reaches(p[1], false));
}

/* Its new groups have the old ones' places. */
ENGINE_TEST(test_other_groups_in_one_look)
{
    clients_of(f, "B* B* L");
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    mock_exit(&f->d, p[1]);
    mock_context(&f->d, p[1], 0, 2);
    on(f, p[1])->timeslice_us = 1;
    client_of(f, p[1], SERVER);
    ticks(f, 6000);
    crash(f);
    end(f, p[0]);
    undo(f);
}

/* Who stands for two ends, and in the same turn another job gets its place. */
ENGINE_TEST(test_place_of_the_oldest)
{
    jobs_of(f, "priority", 2, "B* L* B u u");
    ticks(f, 1500);
    end(f, p[2]);
    ticks(f, 100);
    engine_release(f->m, j[0]);
    uint32_t c = add(f, p[3], CLASS_BATCH);
    assert_int_equal(c, j[0]);
    assert_int_equal(engine_pause(f->m, j[1], true, 0), 0);
    assert_int_equal(engine_pause(f->m, j[1], false, 0), 0);
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
ENGINE_TEST(test_ends_while_undone)
{
    int status;
    programs(f, p, 1, 2);
    f->j = journal_of(f);
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
ENGINE_TEST(test_killed_as_groups_go)
{
    int status;
    clients_of(f, "B* B* B*");
    paused(f, 1);
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
ENGINE_TEST(test_other_users_client)
{
    p[0] = family(f, 1000, 1, &p[1]);
    for (int i = 0; i < 2; i++) {
        mock_context(&f->d, p[i], 0, 1);
        client_of(f, p[i], SERVER);
    }
    start(f, "priority", NULL);
    const uint32_t job = add_as(f, p[0], CLASS_BATCH, 1000);
    ticks(f, 1500);
    assert_int_equal(view(f, job).processes, 2);
    assert_int_equal(engine_pause(f->m, job, true, 1000), 0);
    ticks(f, 100);
    assert_true(reaches(p[0], true));
    assert_int_not_equal(state_of(p[1]), 'T');
    assert_non_null(strstr(view(f, job).error, "another user"));
    /* Root may. */
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1100);
    assert_true(reaches(p[1], true));
    stop(f, true);
    assert_true(reaches(p[0], false));
    assert_true(reaches(p[1], false));
}

/* Programs in no job are looked at for no more than some of a tick's time. */
ENGINE_TEST(test_looks_are_bounded)
{
    programs(f, p, 12, 0);
    for (int i = 0; i < 12; i++)
        client_of(f, p[i], SERVER + (i > 0));
    start(f, "priority", NULL);
    const uint32_t job = add(f, p[0], CLASS_BATCH);
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
ENGINE_TEST(test_stops_are_looked_at_rarely)
{
    clients_of(f, "B* B* B*");
    paused(f, 1);
    kill(p[1], SIGCONT);
    assert_true(reaches(p[1], false));
    for (int i = 0; i < 50; i++) {
        ticks(f, 10);
        assert_int_not_equal(state_of(p[1]), 'T');
    }
    /* Not of one that is paused anew. */
    pause_job(f, j[1], false);
    paused(f, 1);
}

/* A unit whose jobs are all paused is no better than others. */
ENGINE_TEST(test_all_are_paused)
{
    clients_of(f, "L* B");
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
    pause_job(f, j[0], true);
    ticks(f, 100);
    assert_int_not_equal(on(f, p[1])->timeslice_us, 1);
    pause_job(f, j[0], false);
    ticks(f, 100);
    assert_int_equal(on(f, p[1])->timeslice_us, 1);
}

/* Daemon and restorer were killed, and there is no GPU to be had any more. */
ENGINE_TEST(test_stopped_and_no_device)
{
    programs(f, p, 1, 0);
    f->j = journal_of(f);
    snprintf(journal_shared(f->j)->driver, sizeof(journal_shared(f->j)->driver), "soft");
    snprintf(journal_shared(f->j)->where, sizeof(journal_shared(f->j)->where), "/nowhere");
    journal_store_shared(f->j);
    assert_int_equal(journal_put_group(f->j, 0, JG_STOPPED, &f->d.g[0].dg), 0);
    journal_close(f->j);
    kill(p[0], SIGSTOP);
    assert_true(reaches(p[0], true));
    (void)restorer_undo_abandoned(f->dir, &f->err);
    assert_true(reaches(p[0], false));
}

/* That it was cede that stopped a program nobody knows any more; who asks for it gets it. */
ENGINE_TEST(test_resumed_without_journal)
{
    clients_of(f, "B* B* B*");
    paused(f, 1);
    crash(f);
    lose_journal(f);
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(reaches(p[1], false));
    kill(p[1], SIGSTOP); /* that is a person's doing */
    assert_true(reaches(p[1], true));
    ticks(f, 3000);
    assert_int_equal(state_of(p[1]), 'T');
    assert_int_equal(engine_resume_unmanaged(f->m, id_of(p[1]), NULL), 0);
    assert_true(reaches(p[1], false));
}

/* A paused one whose record is lost is stopped by cede all the same, and goes on when it is
 * resumed. */
ENGINE_TEST(test_paused_and_record_lost)
{
    clients_of(f, "B* B* B*");
    paused(f, 1);
    crash(f);
    f->j = journal_of(f);
    for (uint32_t i = 0; i < MOCK_GROUPS; i++)
        journal_put_group(f->j, i, 0, NULL);
    journal_shared(f->j)->incomplete |= JOURNAL_GROUPS_MISSING;
    journal_store_shared(f->j);
    journal_close(f->j);
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(reaches(p[1], true));
    assert_true(view(f, j[1]).signalled);
    pause_job(f, j[1], false);
    assert_true(reaches(p[1], false));
}

/* What a person has stopped meanwhile is shown as paused, too, and stays stopped. */
ENGINE_TEST(test_stopped_before_it_is_paused)
{
    clients_of(f, "B* B* B*");
    kill(p[1], SIGSTOP);
    assert_true(reaches(p[1], true));
    assert_false(view(f, j[1]).signalled);
    pause_job(f, j[1], true);
    assert_true(view(f, j[1]).signalled);
    pause_job(f, j[1], false);
    assert_int_equal(state_of(p[1]), 'T');
    stop(f, true);
    assert_int_equal(state_of(p[1]), 'T');
}

/* One that is detached is known as a client at once: nothing is set for it through the other. */
ENGINE_TEST(test_detached_at_once)
{
    jobs_of(f, "priority", 2, "B* B* L");
    ticks(f, 3100);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    engine_release(f->m, j[0]);
    f->now += NSEC_PER_MSEC;
    tick(f);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
    end(f, p[1]);
    ticks(f, 3000);
    assert_int_equal(on(f, p[0])->timeslice_us, 2048);
}

/* Of the clients that had the timeslice before us nobody is left when the next one is looked at. */
ENGINE_TEST(test_nobody_knows)
{
    programs(f, p, 2, 2);
    client_of(f, p[0], SERVER);
    on(f, p[0])->timeslice_us = 1;
    start(f, "priority", NULL);
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_LATENCY);
    ticks(f, 100);
    crash_and_undo(f);
}

/* One that has ended while no ceded was there leaves what it had to another, which is in no job. */
ENGINE_TEST(test_timeslice_stays_with_others)
{
    jobs_of(f, "priority", 2, "B* L");
    ticks(f, 100);
    assert_int_equal(on(f, p[0])->timeslice_us, 1);
    crash(f);
    p[2] = child(f);
    mock_context(&f->d, p[2], 0, 2);
    client_of(f, p[2], SERVER);
    on(f, p[2])->timeslice_us = 1;
    end(f, p[0]);
    start(f, "priority", NULL);
    ticks(f, 3000); /* its record is waited for */
    assert_int_equal(on(f, p[2])->timeslice_us, 2048);
    assert_false(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
}

/* While nothing can be looked at and no signal sent, what was stopped stays on record. */
ENGINE_TEST(test_stopped_without_descriptors)
{
    clients_of(f, "B* B*");
    paused(f, 0);
    const rlim_t before = limit(RLIMIT_NOFILE, 0);
    ticks(f, 3000);
    limit(RLIMIT_NOFILE, before);
    crash_and_undo(f);
    assert_true(reaches(p[0], false));
}
