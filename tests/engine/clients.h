/* Programs that are clients of one MPS server, and what the tests ask of them. */
#ifndef CEDE_TESTS_ENGINE_CLIENTS_H
#define CEDE_TESTS_ENGINE_CLIENTS_H

#include <unistd.h>

#include "fixture.h"

#define SERVER 7

HELPER void client_of(struct fixture *f, pid_t pid, uint32_t server)
{
    mock_share(&f->d, pid, server);
}

/* Three programs, all of them clients. */
HELPER void three_clients(struct fixture *f, pid_t p[3], uint32_t job[3],
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

HELPER struct job_view view(struct fixture *f, uint32_t job)
{
    struct job_view v;
    assert_true(engine_view(f->m, job, &v));
    return v;
}

HELPER unsigned suspended_of(struct fixture *f, pid_t pid)
{
    unsigned n = 0;
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        n += f->d.g[i].dg.proc.pid == pid && f->d.g[i].suspended;
    return n;
}

HELPER char state_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.state;
}

HELPER bool reaches(pid_t pid, bool stopped)
{
    for (int i = 0; i < 2000; i++) {
        if ((state_of(pid) == 'T') == stopped)
            return true;
        usleep(1000);
    }
    return false;
}

HELPER void pause_job(struct fixture *f, uint32_t job, bool on)
{
    assert_int_equal(engine_pause(f->m, job, on, 0), 0);
    ticks(f, 10);
}

/* What a restorer does. */
HELPER void undo(struct fixture *f)
{
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    journal_close(f->j);
}

HELPER void crash_and_undo(struct fixture *f)
{
    crash(f);
    undo(f);
}

#endif
