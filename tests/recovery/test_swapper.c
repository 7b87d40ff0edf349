/* What is on record of a swap, and how long is waited for a swapper that does not end. Starts no
 * swapper: tests/e2e/test_swap.c does. */
#include "journal/swapper.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "../test.h"

struct fixture {
    char dir[64];
    struct journal *j;
    struct proc_id hangs;
};

static struct proc_id child(void)
{
    struct proc_stat st;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

static void end(struct proc_id id)
{
    kill(id.pid, SIGKILL);
    assert_int_equal(waitpid(id.pid, NULL, 0), id.pid);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    snprintf(f->dir, sizeof(f->dir), "/tmp/cede-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(journal_open(f->dir, 0, &f->j, NULL), 0);
    f->hangs = child();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char cmd[128];
    end(f->hangs);
    journal_close(f->j);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

TEST_WITH(phases, setup, teardown)
{
    struct fixture *f = *fixture;
    struct journal_swap rec = {.proc = child(), .swapper = f->hangs};
    assert_int_equal(swapper_phase(&rec), SWAP_MOVING);
    rec.swapper.start_ticks++; /* its pid is another's now */
    assert_int_equal(swapper_phase(&rec), SWAP_STRANDED);
    rec.arrived = 1;
    assert_int_equal(swapper_phase(&rec), SWAP_AWAY);
    rec.swapper = f->hangs;
    assert_int_equal(swapper_phase(&rec), SWAP_MOVING);
    end(rec.proc);
}

TEST_WITH(bounded, setup, teardown)
{
    struct fixture *f = *fixture;
    struct error err = {""};
    struct journal_swap rec = {.proc = child(), .swapper = f->hangs, .job = 3};
    journal_put_swap(f->j, 5, &rec);
    assert_int_equal(swapper_undo(f->j, 30, false, &err), 1);
    assert_non_null(strstr(err.text, "does not end"));
    assert_non_null(journal_swap(f->j, 5));
    assert_int_equal(journal_swap(f->j, 5)->swapper.pid, f->hangs.pid);
    /* What has ended needs nobody. */
    end(rec.proc);
    assert_int_equal(swapper_undo(f->j, 30, false, &err), 0);
    assert_null(journal_swap(f->j, 5));
}

/* Somebody else takes the journal while it waits: what is on record is theirs. */
TEST_WITH(left_to_others, setup, teardown)
{
    struct fixture *f = *fixture;
    struct error err = {""};
    struct journal_swap rec = {.proc = child(), .swapper = f->hangs};
    journal_put_swap(f->j, 0, &rec);
    pid_t other = fork();
    assert_true(other >= 0);
    if (other == 0) {
        struct journal *j;
        /* The lock is shared with this process by inheritance: let go of that first. */
        close(journal_lock_fd(f->j));
        if (journal_open(f->dir, 20000, &j, NULL) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(swapper_undo(f->j, 20000, true, &err), 0);
    assert_int_equal(kill(other, 0), 0);
    assert_int_equal(journal_reclaim(f->j), -EBUSY);
    assert_int_equal(journal_swap(f->j, 0)->swapper.pid, f->hangs.pid);
    kill(other, SIGKILL);
    assert_int_equal(waitpid(other, NULL, 0), other);
    assert_int_equal(journal_reclaim(f->j), 0);
    end(rec.proc);
}
