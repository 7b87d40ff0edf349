/* What tests of swapping begin with: a driver without a device and a swapper, this program again,
 * that answers what the test says. Each helper is a copy in the test that uses it. */
#ifndef CEDE_TESTS_ENGINE_SWAPPING_H
#define CEDE_TESTS_ENGINE_SWAPPING_H

#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "recovery/swapper.h"

#define GIB (1ULL << 30)

/* ---- the swapper: this program again ---- */

/* Says in the directory $SWAP_TEST what it was ordered, and waits for the answer. */
HELPER int fake_swapper(void)
{
    static struct swap_order o;
    struct swap_result res = {.err = {"because the test says so"}};
    char path[128], text[64];
    const char *dir = getenv("SWAP_TEST");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!dir || read_full(SWAP_ORDER_FD, &o, sizeof(o)) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/order", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int len = snprintf(text, sizeof(text), "%s %d %llu", o.out ? "out" : "in",
                       o.n == 1 ? (int)o.v[0].proc.pid : -1, (unsigned long long)o.v[0].bytes[0]);
    if (fd < 0 || write_full(fd, text, (size_t)len) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/answer", dir);
    while ((fd = open(path, O_RDONLY)) < 0) {
        if (access(dir, F_OK) < 0) /* the test was over before the signal above was set */
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    memset(text, 0, sizeof(text));
    if (read(fd, text, sizeof(text) - 1) <= 0 || unlink(path) < 0)
        return 1;
    res.code = -atoi(text);
    res.locked_ns = strchr(text, '+') ? strtoull(strchr(text, '+'), NULL, 10) : 0;
    return write_full(SWAP_RESULT_FD, &res, sizeof(res)) < 0;
}

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

HELPER struct job_view view(struct fixture *f, uint32_t job)
{
    struct job_view v;
    uint32_t cursor = job;
    assert_true(engine_next_job(f->m, &cursor, &v) && cursor == job + 1);
    return v;
}

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

HELPER void parent_and_child(struct fixture *f, pid_t both[2])
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t a = fork();
    if (a == 0) {
        pid_t b = fork_to_wait();
        if (write(fds[1], &b, sizeof(b)) < 0)
            _exit(1);
        wait_to_die();
    }
    both[0] = f->children[f->n++] = a;
    assert_int_equal(read(fds[0], &both[1], sizeof(both[1])), sizeof(both[1]));
    close(fds[0]);
    close(fds[1]);
}

/* A swapper has the order to move it out. */
HELPER void sent_out(struct fixture *f, uint32_t job, pid_t pid, uid_t by)
{
    struct error err = {""};
    if (engine_swap_out(f->m, job, by, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(is(f, job, "swapping-out"));
    assert_true(EVENTUALLY(ordered(f, "out", pid)));
}

/* A swapper brings it in, and answers this. */
HELPER void brought_in(struct fixture *f, pid_t pid, int error)
{
    assert_true(EVENTUALLY(ordered(f, "in", pid)));
    write_answer(f, error);
}

/* One that has to leave: it is ordered to, and has. */
HELPER void leave(struct fixture *f, uint32_t job, pid_t pid)
{
    sent_out(f, job, pid, 7);
    mock_exit(&f->d, pid);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
}

HELPER void come(struct fixture *f, uint32_t job, pid_t pid)
{
    assert_true(EVENTUALLY(ordered(f, "in", pid)));
    assert_true(is(f, job, "swapping-in"));
    mock_context(&f->d, pid, 0, 3);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
}

HELPER void need(struct fixture *f, uint32_t job, unsigned gib)
{
    struct error err = {""};
    if (engine_need(f->m, job, gib * GIB, 0, &err) < 0)
        fail_msg("%s", err.text);
}

#endif
