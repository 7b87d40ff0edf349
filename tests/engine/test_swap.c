/* Jobs that leave the GPU's memory and come back, on a driver without a device and with a swapper
 * that answers what the test says: what is resumed, recorded, scanned and shown, in which order,
 * and that whatever fails nobody stays half-way. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "recovery/swapper.h"

#define GIB (1ULL << 30)

/* ---- the swapper: this program again ---- */

/* Says in the directory $SWAP_TEST what it was ordered, and waits for the answer. */
static int fake_swapper(void)
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
    return write_full(SWAP_RESULT_FD, &res, sizeof(res)) < 0;
}

static void write_answer(struct fixture *f, int error)
{
    char path[128], tmp[128];
    snprintf(tmp, sizeof(tmp), "%s/answer.new", f->dir);
    snprintf(path, sizeof(path), "%s/answer", f->dir);
    FILE *a = fopen(tmp, "we");
    assert_non_null(a);
    fprintf(a, "%d", error);
    assert_int_equal(fclose(a), 0);
    assert_int_equal(rename(tmp, path), 0);
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

static struct job_view view(struct fixture *f, uint32_t job)
{
    struct job_view v;
    uint32_t cursor = job;
    assert_true(engine_next_job(f->m, &cursor, &v) && cursor == job + 1);
    return v;
}

static bool is(struct fixture *f, uint32_t job, const char *swap)
{
    return strcmp(view(f, job).swap, swap) == 0;
}

/* The swapper at work has this order. Each is looked for once. */
static bool ordered(struct fixture *f, const char *what, pid_t pid)
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

static const struct journal_swap *record(struct fixture *f)
{
    const struct journal_swap *found = NULL;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++)
        found = journal_swap(f->j, i) ? journal_swap(f->j, i) : found;
    return found;
}

static void swap_start(struct fixture *f)
{
    setenv("SWAP_TEST", f->dir, 1);
    f->d.has_usage = true;
    start(f, "priority", NULL);
}

/* One that has to leave: it is ordered to, and has. */
static void leave(struct fixture *f, uint32_t job, pid_t pid)
{
    struct error err = {""};
    if (engine_swap_out(f->m, job, 7, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(is(f, job, "swapping-out"));
    assert_true(EVENTUALLY(ordered(f, "out", pid)));
    mock_exit(&f->d, pid);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
}

static void come(struct fixture *f, uint32_t job, pid_t pid)
{
    assert_true(EVENTUALLY(ordered(f, "in", pid)));
    assert_true(is(f, job, "swapping-in"));
    mock_context(&f->d, pid, 0, 3);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
}

/* ---- tests ---- */

static void test_out_and_in(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 3);
    mock_context(&f->d, a, 0, 3);
    on(f, a)->memory_bytes = 3 * GIB;
    swap_start(f);
    add(f, lat, CLASS_LATENCY);
    uint32_t job = add(f, a, CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(on(f, a)->timeslice_us, 1);
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1);
    assert_true(on(f, a)->suspended);

    /* It runs, with what it had, while it comes to rest. */
    struct error err = {""};
    assert_int_equal(engine_swap_out(f->m, job, 7, &err), 0);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, a)->timeslice_us, 2048);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0); /* nor is it looked at meanwhile */
    assert_int_equal(view(f, job).groups, 0);
    assert_int_equal(record(f)->proc.pid, a);
    assert_int_equal(record(f)->bytes[0], 3 * GIB);
    assert_int_equal(record(f)->by_user, 1);
    assert_int_equal(record(f)->uid, 7);
    assert_int_equal(record(f)->arrived, 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    mock_exit(&f->d, a);
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_int_equal(record(f)->arrived, 1);
    assert_int_equal(view(f, job).swapped_bytes, 3 * GIB);
    assert_int_equal(view(f, job).gpus, 1);

    ticks(f, 60000); /* nobody brings back what a person swapped out */
    assert_true(is(f, job, "swapped"));
    assert_int_equal(engine_swap_out(f->m, job, 8, &err), 0); /* is out already */
    assert_int_equal(view(f, job).swap_uid, 8);

    /* Back it is what it was, in new groups: paused, then batch beside latency. */
    assert_int_equal(engine_swap_in(f->m, job), 0);
    come(f, job, a);
    assert_null(record(f));
    assert_true(EVENTUALLY(on(f, a)->suspended));
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(on(f, a)->timeslice_us, 1);
    assert_int_equal(engine_swap_in(f->m, job), 0); /* is there already */
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_refused_runs_on(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    struct error err = {""};
    struct proc_stat st;
    mock_context(&f->d, lat, 0, 3);
    mock_context(&f->d, a, 0, 3);
    swap_start(f);
    add(f, lat, CLASS_LATENCY);
    uint32_t job = add(f, a, CLASS_BATCH);
    ticks(f, 100);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    write_answer(f, ENOTSUP);
    assert_true(EVENTUALLY(ordered(f, "in", a))); /* it may have been half-way */
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_true(EVENTUALLY(on(f, a)->timeslice_us == 1));
    assert_string_equal(view(f, job).swap_error, "because the test says so");
    assert_null(record(f));
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_string_equal(view(f, job).swap_error, "");

    /* Refusals that need no swapper. */
    f->d.fail_resume = EIO;
    assert_int_equal(engine_pause(f->m, job, true, 0), 0);
    ticks(f, 1);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -EIO); /* suspended it cannot rest */
    f->d.fail_resume = 0;
    assert_int_equal(engine_pause(f->m, job, false, 0), 0);
    assert_true(EVENTUALLY(!suspended_groups(f)));
    kill(a, SIGSTOP);
    assert_true(EVENTUALLY(proc_stat_read(a, &st) == 0 && st.state == 'T'));
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -EBUSY);
    assert_non_null(strstr(err.text, "is stopped"));
    kill(a, SIGCONT);
    mock_exit(&f->d, a);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -ENODEV);
    assert_null(record(f));
    stop(f, true);
}

/* Until its work has come to rest a job runs as if it were in no class: not over and over. */
static void test_not_all_the_time(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f), b = child(f);
    struct error err = {""};
    mock_context(&f->d, lat, 0, 3);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    swap_start(f);
    add(f, lat, CLASS_LATENCY);
    uint32_t job = add(f, a, CLASS_BATCH);
    add(f, b, CLASS_BATCH);
    ticks(f, 100);
    for (int i = 0; i < 2; i++) { /* refused, and done */
        assert_int_equal(engine_swap_out(f->m, job, 7, &err), 0);
        ticks(f, 100);
        assert_false(on(f, a)->suspended);
        assert_int_equal(on(f, a)->timeslice_us, 2048);
        assert_true(EVENTUALLY(ordered(f, "out", a)));
        write_answer(f, i ? 0 : ETIMEDOUT);
        if (i) {
            assert_true(EVENTUALLY(is(f, job, "swapped")));
            assert_int_equal(engine_swap_in(f->m, job), 0);
        }
        assert_true(EVENTUALLY(ordered(f, "in", a)));
        write_answer(f, 0);
        assert_true(EVENTUALLY(is(f, job, "")));
        assert_true(EVENTUALLY(on(f, a)->timeslice_us == 1));
        assert_int_equal(engine_swap_out(f->m, job, 7, &err), -EBUSY);
        assert_non_null(strstr(err.text, "once a minute"));
        assert_true(is(f, job, ""));
        ticks(f, 60000);
    }
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0); /* root always */
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    stop(f, false);
}

/* Two processes of one job may share memory, with which neither could be brought back. */
static void test_several_processes(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    pid_t both[2];
    assert_int_equal(pipe(fds), 0);
    pid_t a = fork();
    if (a == 0) {
        pid_t b = fork();
        if (b != 0 && write(fds[1], &b, sizeof(b)) < 0)
            _exit(1);
        wait_to_die();
    }
    both[0] = f->children[f->n++] = a;
    assert_int_equal(read(fds[0], &both[1], sizeof(both[1])), sizeof(both[1]));
    for (int i = 0; i < 2; i++)
        mock_context(&f->d, both[i], 0, 1);
    swap_start(f);
    uint32_t job = add(f, a, CLASS_BATCH);
    struct error err = {""};
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), -ENOTSUP); /* found at once */
    assert_non_null(strstr(err.text, "2 of its processes"));
    assert_int_equal(view(f, job).groups, 4);
    stop(f, true);
}

/* Asked back on its way out, it turns round when it is there. */
static void test_called_back(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f);
    struct error err = {""};
    mock_context(&f->d, a, 0, 3);
    swap_start(f);
    uint32_t job = add(f, a, CLASS_BATCH);
    ticks(f, 10);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_true(is(f, job, "swapping-out"));
    mock_exit(&f->d, a);
    write_answer(f, 0);
    come(f, job, a);
    assert_null(record(f));
    stop(f, true);
}

static void test_no_room(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    struct error err = {""};
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    swap_start(f);
    uint32_t job = add(f, a, CLASS_BATCH), other = add(f, b, CLASS_BATCH);
    ticks(f, 10);
    leave(f, job, a);
    assert_int_equal(engine_swap_in(f->m, job), 0);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    assert_int_equal(engine_swap_out(f->m, other, 0, &err), -EBUSY); /* one at a time */
    write_answer(f, ENOMEM);
    assert_true(EVENTUALLY(is(f, job, "swapped")));
    assert_string_equal(view(f, job).swap_error, "because the test says so");
    ticks(f, 60000);
    assert_false(ordered(f, "in", a)); /* not before it is asked again */
    assert_int_equal(engine_swap_in(f->m, job), 0);
    come(f, job, a);
    assert_string_equal(view(f, job).swap_error, "");
    stop(f, true);
}

/* A swapper that is killed leaves the job anywhere: another one brings it in. */
static void test_killed_swapper(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f);
    struct error err = {""};
    mock_context(&f->d, a, 0, 3);
    swap_start(f);
    uint32_t job = add(f, a, CLASS_BATCH);
    ticks(f, 10);
    assert_int_equal(engine_swap_out(f->m, job, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", a)));
    kill(record(f)->swapper.pid, SIGKILL);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    kill(record(f)->swapper.pid, SIGKILL);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    write_answer(f, EIO);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    write_answer(f, 0);
    assert_true(EVENTUALLY(is(f, job, "")));
    assert_non_null(strstr(view(f, job).swap_error, "was killed"));
    assert_null(record(f));
    assert_true(EVENTUALLY(view(f, job).groups == 4));
    stop(f, true);
}

static void test_job_dies_meanwhile(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    struct error err = {""};
    struct job_view v;
    uint32_t cursor = 0;
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    swap_start(f);
    uint32_t ja = add(f, a, CLASS_BATCH), jb = add(f, b, CLASS_BATCH);
    ticks(f, 10);
    leave(f, ja, a);
    assert_int_equal(engine_swap_out(f->m, jb, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", b)));
    end(f, a);
    end(f, b);
    ticks(f, 10);
    assert_null(record(f));
    write_answer(f, ESRCH);
    assert_true(EVENTUALLY((cursor = 0, !engine_next_job(f->m, &cursor, &v))));
    assert_null(record(f));
    stop(f, true);
}

static void test_takeover(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    struct error err = {""};
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    swap_start(f);
    uint32_t ja = add(f, a, CLASS_BATCH), jb = add(f, b, CLASS_BATCH);
    ticks(f, 10);
    leave(f, ja, a);
    assert_int_equal(engine_swap_out(f->m, jb, 0, &err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", b)));
    crash(f);

    /* Who is out stays out; who was on the way is waited for, and brought in. */
    swap_start(f);
    ticks(f, 1000);
    assert_true(is(f, ja, "swapped"));
    assert_int_equal(view(f, ja).swap_uid, 7);
    assert_true(is(f, jb, "swapping-in"));
    assert_false(ordered(f, "in", b));
    mock_exit(&f->d, b);
    write_answer(f, 0); /* the earlier swapper's */
    come(f, jb, b);
    assert_true(is(f, ja, "swapped"));

    /* One that leaves well brings back, and waits for it. */
    write_answer(f, 0);
    stop(f, true);
    assert_true(EVENTUALLY(ordered(f, "in", a)));
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), 0);
    assert_null(record(f));
    journal_close(f->j);
}

/* ---- automatic ---- */

/* A latency job that says what it needs, beside a small batch, a large batch and a normal job, of
 * 4, 20 and 30 GiB. */
static void crowd(struct fixture *f, pid_t p[4], uint32_t jobs[4])
{
    static const enum job_class classes[] = {CLASS_BATCH, CLASS_BATCH, CLASS_NORMAL, CLASS_LATENCY};
    static const unsigned gib[] = {4, 20, 30, 0};
    f->d.free_bytes = 10 * GIB;
    swap_start(f);
    for (int i = 0; i < 4; i++) {
        p[i] = child(f);
        if (gib[i]) {
            mock_context(&f->d, p[i], 0, 3);
            on(f, p[i])->memory_bytes = gib[i] * GIB;
        }
        jobs[i] = add(f, p[i], classes[i]);
    }
    ticks(f, 100);
}

static void need(struct fixture *f, uint32_t job, unsigned gib)
{
    struct error err = {""};
    if (engine_need(f->m, job, gib * GIB, 0, &err) < 0)
        fail_msg("%s", err.text);
}

/* The swapper is to move this one, and does. */
static void moves(struct fixture *f, const char *what, pid_t pid, unsigned gib)
{
    assert_true(EVENTUALLY(ordered(f, what, pid)));
    if (what[0] == 'o') {
        mock_exit(&f->d, pid);
        f->d.free_bytes += gib * GIB;
    } else {
        mock_context(&f->d, pid, 0, 3);
        on(f, pid)->memory_bytes = gib * GIB;
        f->d.free_bytes -= gib * GIB;
    }
    write_answer(f, 0);
}

static void test_room_for_a_latency_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    crowd(f, p, j);
    assert_false(view(f, j[3]).needs);
    need(f, j[3], 10);
    ticks(f, 1);
    assert_true(view(f, j[3]).needs && view(f, j[3]).room); /* there already */
    need(f, j[3], 45);
    ticks(f, 1);
    assert_false(view(f, j[3]).room);
    /* Batch before normal, the largest first, and no more than it takes. */
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    assert_false(view(f, j[1]).swap_by_user);
    assert_false(view(f, j[3]).room);
    moves(f, "out", p[2], 30);
    assert_true(EVENTUALLY(view(f, j[3]).room));
    assert_true(is(f, j[0], ""));

    /* Nobody comes back into what it has not taken yet; nor into what it has. */
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));
    mock_context(&f->d, p[3], 0, 3);
    on(f, p[3])->memory_bytes = 45 * GIB;
    f->d.free_bytes -= 45 * GIB;
    ticks(f, 30000);
    assert_true(is(f, j[1], "swapped") && is(f, j[2], "swapped"));

    /* It ends: normal first, then batch. */
    end(f, p[3]);
    f->d.free_bytes += 45 * GIB;
    moves(f, "in", p[2], 30);
    moves(f, "in", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "")));
    assert_null(record(f));
    stop(f, true);
}

static void test_refused_is_left_alone(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    crowd(f, p, j);
    need(f, j[3], 30);
    assert_true(EVENTUALLY(ordered(f, "out", p[1])));
    write_answer(f, ENOTSUP);
    assert_true(EVENTUALLY(ordered(f, "in", p[1])));
    write_answer(f, 0);
    moves(f, "out", p[2], 30); /* another one instead */
    assert_true(EVENTUALLY(view(f, j[3]).room));
    assert_true(is(f, j[1], ""));
    write_answer(f, 0);
    stop(f, true);
}

/* The reserve is for the first minute of a latency job that did not say what it needs. */
static void test_reserve(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    f->swap.reserve_bytes = 25 * GIB;
    f->d.ngpus = 1;
    crowd(f, p, j);
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    ticks(f, 40000);
    assert_true(is(f, j[1], "swapped"));
    ticks(f, 20000);
    moves(f, "in", p[1], 20); /* it took nothing */
    assert_true(EVENTUALLY(is(f, j[1], "")));
    stop(f, true);
}

static void test_switched_off(void **state)
{
    struct fixture *f = *state;
    pid_t p[4];
    uint32_t j[4];
    struct error err = {""};
    f->swap.mode = SWAP_MANUAL;
    crowd(f, p, j);
    need(f, j[3], 30);
    ticks(f, 10000);
    assert_null(record(f));
    assert_false(view(f, j[3]).room);
    f->d.free_bytes += 20 * GIB; /* it may be had all the same */
    ticks(f, 2000);
    assert_true(view(f, j[3]).room);
    f->d.free_bytes -= 20 * GIB;
    assert_int_equal(engine_need(f->m, j[3], 65 * GIB, 0, &err), -EINVAL);
    assert_int_equal(engine_need(f->m, j[3], 1, 2, &err), -EINVAL);

    /* Who is out when it is switched off comes back. */
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_AUTO});
    moves(f, "out", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "swapped")));
    engine_set_swap(f->m, &(struct swap_options){.mode = SWAP_OFF});
    moves(f, "in", p[1], 20);
    assert_true(EVENTUALLY(is(f, j[1], "")));
    assert_int_equal(engine_swap_out(f->m, j[0], 0, &err), -EPERM);

    /* Where nobody can tell, nobody waits. */
    f->d.free_unknown = true;
    need(f, j[3], 30);
    ticks(f, 1);
    assert_true(view(f, j[3]).room);
    stop(f, true);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-swap") == 0)
        return fake_swapper();
    const struct CMUnitTest tests[] = {
        T(test_called_back),
        T(test_out_and_in),
        T(test_refused_runs_on),
        T(test_not_all_the_time),
        T(test_several_processes),
        T(test_no_room),
        T(test_killed_swapper),
        T(test_job_dies_meanwhile),
        T(test_takeover),
        T(test_room_for_a_latency_job),
        T(test_refused_is_left_alone),
        T(test_reserve),
        T(test_switched_off),
    };
    (void)argc;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
