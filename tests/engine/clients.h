/* Programs that are clients of one MPS server, and what the tests ask of them. */
#ifndef CEDE_TESTS_ENGINE_CLIENTS_H
#define CEDE_TESTS_ENGINE_CLIENTS_H

#include "fixture.h"

HELPER void client_of(struct fixture *f, pid_t pid, uint32_t server)
{
    mock_share(&f->d, pid, server);
}

/* Their jobs, by letters; see jobs_of(). */
HELPER void clients_of(struct fixture *f, const char *letters)
{
    jobs_of(f, "priority", 2, letters);
    ticks(f, 100);
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

/* The job of this number, whose program then is stopped. */
HELPER void paused(struct fixture *f, int i)
{
    pause_job(f, f->job[i], true);
    assert_true(reaches(f->p[i], true));
}

/* What a restorer does: nothing stays set. */
HELPER void undo(struct fixture *f)
{
    f->j = journal_of(f);
    assert_int_equal(journal_undo(f->j, &f->d.base, NULL, NULL), 0);
    journal_close(f->j);
    assert_int_equal(changed_groups(f), 0);
}

HELPER void crash_and_undo(struct fixture *f)
{
    crash(f);
    undo(f);
}

#endif
