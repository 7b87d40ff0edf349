/* What tests of swapping begin with: a driver without a device and a swapper, this program again,
 * that answers what the test says (fake_swapper.c). Each helper is a copy in the test that uses it.
 */
#ifndef CEDE_TESTS_ENGINE_SWAPPING_H
#define CEDE_TESTS_ENGINE_SWAPPING_H

#include "fixture.h"

#include <fcntl.h>
#include <time.h>

#include "journal/swapper.h"

#define GIB (1ULL << 30)

/* locked_ns: when its work had ended. */
HELPER void write_answer_when(struct fixture *f, int error, uint64_t locked_ns)
{
    char path[128], tmp[128];
    snprintf(tmp, sizeof(tmp), "%s/answer.new", f->dir);
    snprintf(path, sizeof(path), "%s/answer", f->dir);
    FILE *a = fopen(tmp, "we");
    assert_non_null(a);
    fprintf(a, "%d+%llu", error, (unsigned long long)locked_ns);
    assert_int_equal(fclose(a), 0);
    assert_int_equal(rename(tmp, path), 0);
}

HELPER void write_answer(struct fixture *f, int error)
{
    write_answer_when(f, error, 0);
}

/* ---- looking ---- */

#define EVENTUALLY(condition)                                                                      \
    ({                                                                                             \
        int eventually_ = 10000;                                                                   \
        while (!(condition) && --eventually_ > 0) {                                                \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                               \
            if (f->m)                                                                              \
                ticks(f, 1);                                                                       \
        }                                                                                          \
        eventually_ > 0;                                                                           \
    })

HELPER bool is(struct fixture *f, uint32_t job, const char *swap)
{
    return strcmp(view(f, job).swap, swap) == 0;
}

/* The swapper at work has this order. Each is looked for once. */
HELPER bool ordered(struct fixture *f, const char *what, pid_t pid)
{
    char path[128], text[64] = "", want[64];
    snprintf(path, sizeof(path), "%s/order", f->dir);
    snprintf(want, sizeof(want), "%s %d ", what, (int)pid);
    FILE *o = fopen(path, "re");
    bool same = o && fgets(text, sizeof(text), o) && strncmp(text, want, strlen(want)) == 0;
    if (o)
        fclose(o);
    return same && unlink(path) == 0;
}

HELPER const struct journal_swap *record(struct fixture *f)
{
    const struct journal_swap *found = NULL;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++)
        found = journal_swap(f->j, i) ? journal_swap(f->j, i) : found;
    return found;
}

HELPER void swap_start(struct fixture *f)
{
    setenv("SWAP_TEST", f->dir, 1);
    f->d.has_usage = true;
    start(f, "priority", NULL);
    journal_complete(f->j, JOURNAL_SWAPS_MISSING); /* as after the search */
}

/* Batch jobs, of a program each that has 3 GiB; with `latency`, a latency job beside them. */
HELPER void swap_jobs(struct fixture *f, bool latency, int n, pid_t *p, uint32_t *jobs)
{
    pid_t lat = 0;
    if (latency)
        programs(f, &lat, 1, 3);
    programs(f, p, n, 3);
    for (int i = 0; i < n; i++)
        on(f, p[i])->memory_bytes = 3 * GIB;
    swap_start(f);
    if (latency)
        add(f, lat, CLASS_LATENCY);
    for (int i = 0; i < n; i++)
        jobs[i] = add(f, p[i], CLASS_BATCH);
    ticks(f, 100);
}

/* A swapper has the order to move it out. */
HELPER void sent_out(struct fixture *f, uint32_t job, pid_t pid, uid_t by)
{
    worked(f, engine_swap_out(f->m, job, by, &f->err));
    assert_true(is(f, job, "swapping-out"));
    assert_true(EVENTUALLY(ordered(f, "out", pid)));
}

/* A swapper brings it in, and answers this. */
HELPER void brought_in(struct fixture *f, pid_t pid, int error)
{
    assert_true(EVENTUALLY(ordered(f, "in", pid)));
    write_answer(f, error);
}

/* The swapper at work answers this, and the job gets there. */
HELPER void answered(struct fixture *f, int error, uint32_t job, const char *swap)
{
    write_answer(f, error);
    assert_true(EVENTUALLY(is(f, job, swap)));
}

HELPER void moved(struct fixture *f, const char *what, pid_t pid, uint32_t job, const char *swap)
{
    assert_true(EVENTUALLY(ordered(f, what, pid)));
    answered(f, 0, job, swap);
}

/* By its user. */
HELPER void stop_program(struct fixture *f, pid_t pid)
{
    struct proc_stat st;
    kill(pid, SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(pid, &st) == 0 && st.state == 'T'));
}

/* One that has to leave: it is ordered to, and has. */
HELPER void leave(struct fixture *f, uint32_t job, pid_t pid)
{
    sent_out(f, job, pid, 7);
    mock_exit(&f->d, pid);
    answered(f, 0, job, "swapped");
}

HELPER void come(struct fixture *f, uint32_t job, pid_t pid)
{
    assert_true(EVENTUALLY(ordered(f, "in", pid)));
    assert_true(is(f, job, "swapping-in"));
    mock_context(&f->d, pid, 0, 3);
    answered(f, 0, job, "");
}

HELPER void need(struct fixture *f, uint32_t job, unsigned gib)
{
    worked(f, engine_need(f->m, job, gib * GIB, 0, &f->err));
}

#endif
