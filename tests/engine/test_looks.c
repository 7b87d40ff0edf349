/* Looks at processes that fail, as on a machine that has run out of descriptors: what cannot be
 * told now is asked again, and until then no process is taken for one that it is not. And a process
 * that is found while its job is swapped out. */
#include "swapping.h"

/* ---- opens that fail ---- */

static struct {
    char of[32];    /* files below this */
    unsigned after; /* so many that succeed, */
    unsigned times; /* and then so many that do not */
} fault;
static unsigned proc_opens; /* files of processes that were opened */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    unsigned mode = flags & O_CREAT ? va_arg(ap, unsigned) : 0;
    va_end(ap);
    proc_opens += strncmp(path, "/proc/", 6) == 0;
    if (fault.times && strncmp(path, fault.of, strlen(fault.of)) == 0) {
        fault.times -= fault.after == 0;
        if (fault.after == 0) {
            errno = EMFILE;
            return -1;
        }
        fault.after--;
    }
    return __real_open64(path, flags, mode);
}

static void fail_looks_at(pid_t pid, unsigned after, unsigned times)
{
    snprintf(fault.of, sizeof(fault.of), "/proc/%d/", (int)pid);
    fault.after = after;
    fault.times = times;
}

static int looks_setup(void **state)
{
    fault.times = 0;
    return setup(state);
}

#define LOOKS_TEST(name) ENGINE_TEST_WITH(name, looks_setup, teardown)

/* ---- tests ---- */

/* A second process of a job begins with the GPU. Whichever look at it fails, it is found to be the
 * job's: a pause is of both. */
LOOKS_TEST(test_child_of_a_job)
{
    unsigned after = 0;
    start(f, "priority", NULL);
    for (bool failed = true; failed; after++) {
        pid_t both[2];
        assert_in_range(after, 0, 20);
        parent_and_child(f, both);
        mock_context(&f->d, both[0], 0, 1);
        uint32_t job = add(f, both[0], CLASS_NORMAL);
        ticks(f, 100);
        mock_context(&f->d, both[1], 0, 1);
        fail_looks_at(both[1], after, 1);
        ticks(f, 3000);
        failed = fault.times == 0;
        fault.times = 0;
        assert_int_equal(engine_pause(f->m, job, true, 0), 0);
        ticks(f, 100);
        if (!on(f, both[0])->suspended || !on(f, both[1])->suspended)
            fail_msg("the child runs, look %u of it failed", after + 1);
    }
    assert_in_range(after, 4, 20); /* its number, its parent, its owner, ... */
}

static int fails_once(void *arg, pid_t pid, struct job_spec *spec)
{
    int *left = arg;
    (void)pid;
    *spec = (struct job_spec){.terms = {.class = CLASS_BATCH, .weight = 50}, .source = JOB_RULE};
    return (*left)-- > 0 ? -EMFILE : 1;
}

LOOKS_TEST(test_rule)
{
    pid_t pid = child(f);
    int left = 1;
    f->rule = fails_once;
    mock_context(&f->d, pid, 0, 1);
    start(f, "priority", &left);
    ticks(f, 10);
    assert_int_equal(left, 0);
    assert_int_equal(engine_job_of(f->m, pid), SLOT_NONE);
    ticks(f, 2000);
    assert_int_not_equal(engine_job_of(f->m, pid), SLOT_NONE);
}

/* A program and its child match a rule: they are one job, whichever is listed first. */
LOOKS_TEST(test_rule_takes_the_older)
{
    int left = 0;
    f->rule = fails_once;
    start(f, "priority", &left);
    for (int first = 0; first < 2; first++) {
        pid_t both[2];
        parent_and_child(f, both);
        mock_context(&f->d, both[first], 0, 1);
        mock_context(&f->d, both[!first], 0, 1);
        ticks(f, 2000);
        uint32_t job = engine_job_of(f->m, both[0]);
        assert_int_not_equal(job, SLOT_NONE);
        assert_int_equal(engine_job_of(f->m, both[1]), job);
        assert_int_equal(view(f, job).job.root.pid, both[0]);
    }
}

/* A person took it out of its job: a failed look does not make it one for rules again. */
LOOKS_TEST(test_detached_stays)
{
    pid_t pid = child(f);
    mock_context(&f->d, pid, 0, 1);
    start(f, "priority", &pid);
    ticks(f, 2000);
    engine_release(f->m, engine_job_of(f->m, pid));
    ticks(f, 2000);
    assert_int_equal(engine_job_of(f->m, pid), SLOT_NONE);
    for (unsigned after = 0; after < 5; after++) {
        fail_looks_at(pid, after, 1);
        ticks(f, 3000);
        assert_int_equal(engine_job_of(f->m, pid), SLOT_NONE);
    }
}

/* No process of a job is left on the GPU because it could not be looked at. */
LOOKS_TEST(test_nothing_left_behind)
{
    pid_t both[2];
    parent_and_child(f, both);
    swap_start(f);
    mock_context(&f->d, both[0], 0, 1);
    uint32_t job = add(f, both[0], CLASS_NORMAL);
    ticks(f, 100);
    mock_context(&f->d, both[1], 0, 1);
    on(f, both[0])->memory_bytes = on(f, both[1])->memory_bytes = GIB;
    fail_looks_at(both[1], 0, 1000);
    FAILS(-EMFILE, "left behind", engine_swap_out(f->m, job, 0, &f->err));
    fault.times = 0;
    f->d.fail_scan = EMFILE;
    assert_int_equal(engine_swap_out(f->m, job, 0, &f->err), -EMFILE);
    f->d.fail_scan = 0;
    assert_true(is(f, job, ""));
    assert_int_equal(engine_swap_out(f->m, job, 0, &f->err), 0);
    assert_true(EVENTUALLY(ordered(f, "out", -1))); /* both */
    write_answer(f, 0);
    stop(f, false);
}

/* A process that a swapped job begins with the GPU does not run before the job is back. */
LOOKS_TEST(test_found_while_away)
{
    pid_t both[2];
    parent_and_child(f, both);
    swap_start(f);
    mock_context(&f->d, both[0], 0, 1);
    on(f, both[0])->memory_bytes = GIB;
    uint32_t job = add(f, both[0], CLASS_NORMAL);
    ticks(f, 100);
    leave(f, job, both[0]);
    mock_context(&f->d, both[1], 0, 1);
    ticks(f, 3000);
    assert_true(on(f, both[1])->suspended);

    crash(f); /* nor under the next one */
    mock_compute(&f->d, both[1], 0)->suspended = 0;
    start(f, "priority", NULL);
    ticks(f, 3000);
    assert_true(is(f, job, "swapped"));
    assert_true(on(f, both[1])->suspended);
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    come(f, job, both[0]);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 0);
}

/* The record of a process that is out is not dropped because the process cannot be looked at. */
LOOKS_TEST(test_record_is_taken_over)
{
    pid_t both[2];
    parent_and_child(f, both);
    swap_start(f);
    mock_context(&f->d, both[1], 0, 1);
    on(f, both[1])->memory_bytes = GIB;
    uint32_t job = add(f, both[0], CLASS_NORMAL);
    ticks(f, 100);
    leave(f, job, both[1]);
    crash(f);

    struct engine_options o = {.loop = &f->loop, .policy = "priority", .swap = f->swap};
    params_default(&o.params);
    unsigned after = 0;
    for (int r = -EMFILE; r < 0; after++) {
        assert_in_range(after, 0, 20);
        assert_int_equal(journal_open(f->dir, 0, &f->j, &f->err), 0);
        fail_looks_at(both[1], after, 1);
        r = engine_new(&f->d.base, f->j, &o, &f->m, &f->err);
        const bool failed = fault.times == 0;
        fault.times = 0;
        assert_non_null(record(f));
        if (r == 0 && failed) /* whether it lives cannot be told, and need not: it is not dropped */
            r = -EAGAIN;
        if (r < 0 && f->m)
            engine_free(f->m, false);
        if (r < 0) {
            journal_close(f->j);
            f->m = NULL;
        }
    }
    assert_in_range(after, 3, 20);
    assert_true(is(f, job, "swapped"));
    assert_int_equal(swap_in(engine_model(f->m), job), 0);
    come(f, job, both[1]);
}

/* ---- crowds ---- */

enum { CHAIN = 120, PROGRAMS = 40, FILES_MAX = 1000 };

/* The last of so many processes, each the child of the one before it, forks the programs; their
 * numbers go to fd. All end with the first one. */
_Noreturn static void chain_of(uid_t uid, int fd)
{
    for (int level = 0; level < CHAIN; level++) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fork() != 0)
            wait_to_die();
    }
    if (uid && setuid(uid) < 0)
        _exit(1);
    for (int i = 0; i < PROGRAMS; i++) {
        pid_t pid = fork_to_wait();
        if (write(fd, &pid, sizeof(pid)) != sizeof(pid))
            _exit(1);
    }
    wait_to_die();
    _exit(1);
}

static pid_t crowd_below_a_chain(uid_t uid, pid_t *programs)
{
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t first = fork();
    if (first == 0)
        chain_of(uid, fds[1]);
    for (int i = 0; i < PROGRAMS; i++)
        assert_int_equal(read(fds[0], &programs[i], sizeof(programs[i])), sizeof(programs[i]));
    close(fds[0]);
    close(fds[1]);
    return first;
}

/* Ticks for a second; how many files of processes were opened, and *most: in one tick. */
static unsigned opened_in_a_second(struct fixture *f, unsigned *most)
{
    const unsigned before = proc_opens;
    *most = 0;
    for (int i = 0; i < 100; i++, f->now += 10 * NSEC_PER_MSEC) {
        const unsigned at = proc_opens;
        tick(f);
        *most = proc_opens - at > *most ? proc_opens - at : *most;
    }
    return proc_opens - before;
}

/* Programs in no job below a long chain of forks: their ancestors are read once, not once for each
 * program and once more for each job that begins. */
LOOKS_TEST(test_crowd_below_a_chain)
{
    pid_t programs[PROGRAMS], jobs[4];
    unsigned most, all;
    pid_t first = crowd_below_a_chain(0, programs);
    f->d.idle = programs;
    f->d.nidle = PROGRAMS;
    start(f, "priority", NULL);
    all = opened_in_a_second(f, &most);
    assert_in_range(all, PROGRAMS, CHAIN + 20 * PROGRAMS + 100); /* and what runs this test */
    assert_in_range(most, 1, FILES_MAX);
    const unsigned before = proc_opens;
    for (int i = 0; i < PROGRAMS; i++) /* whoever asks */
        assert_int_equal(engine_job_of(f->m, programs[i]), SLOT_NONE);
    assert_in_range(proc_opens - before, PROGRAMS, 6 * PROGRAMS);
    for (int i = 0; i < 4; i++) {
        mock_context(&f->d, jobs[i] = child(f), 0, 1);
        add(f, jobs[i], CLASS_BATCH);
        all = opened_in_a_second(f, &most);
        assert_in_range(all, 0, 6 * PROGRAMS);
    }
    /* They are found all the same if the chain's first becomes a job. */
    uint32_t job = add(f, first, CLASS_BATCH);
    ticks(f, 2000);
    assert_int_equal(view(f, job).processes, 0);
    for (int i = 0; i < PROGRAMS; i++)
        assert_int_equal(job_with(f, programs[i]), job);
    kill(first, SIGKILL);
    waitpid(first, NULL, 0);
    f->d.nidle = 0;
}

/* Where programs of a job come and go, the next one has its order within ten looks of 10 ms, and
 * where nothing happens looks are rare. */
LOOKS_TEST(test_programs_that_come_and_go)
{
    pid_t both[2], latency = child(f);
    parent_and_child(f, both);
    start(f, "priority", NULL);
    mock_context(&f->d, latency, 0, 1);
    add(f, latency, CLASS_LATENCY);
    add(f, both[0], CLASS_BATCH);
    ticks(f, 70000);
    for (int i = 0; i < 5; i++) {
        mock_context(&f->d, both[1], 0, 1);
        ticks(f, i ? 100 : 1100);
        assert_int_equal(on(f, both[1])->timeslice_us, 1);
        mock_exit(&f->d, both[1]); /* which its next scan shows */
        kill(both[1], SIGKILL);
        ticks(f, 300);
        kill(both[0], SIGKILL);
        waitpid(both[0], NULL, 0);
        f->children[--f->n] = 0;
        parent_and_child(f, both);
        add(f, both[0], CLASS_BATCH);
        ticks(f, 300);
    }
    ticks(f, 70000);
    unsigned before = proc_opens;
    ticks(f, 10000);
    assert_in_range(proc_opens - before, 0, 200);
}

/* One that descends from another which has ended is not taken for that one's descendant. */
LOOKS_TEST(test_orphan_below_a_chain)
{
    three_generations(f, p, (const char *const[3]){NULL});
    const pid_t first = p[0], between = p[1], last = p[2];
    f->d.idle = &last;
    f->d.nidle = 1;
    start(f, "priority", NULL);
    ticks(f, 2000);
    kill(between, SIGKILL);
    assert_true(EVENTUALLY(!proc_is_descendant(last, between)));
    ticks(f, 3000);
    add(f, first, CLASS_BATCH);
    ticks(f, 2000);
    assert_int_equal(job_with(f, last), SLOT_NONE);
}

/* A user's crowd does not keep another user's program waiting. */
LOOKS_TEST(test_crowd_of_another_user)
{
    pid_t pids[3 * PROGRAMS + 1], first[3];
    unsigned turn = 0;
    if (geteuid() != 0)
        skip();
    for (int i = 0; i < 3; i++)
        first[i] = crowd_below_a_chain(65000, pids + (ptrdiff_t)i * PROGRAMS);
    pid_t last = child(f), own = pids[3 * PROGRAMS] = fork_to_wait(); /* the youngest */
    f->rule = fails_once;
    int left = 0;
    f->d.idle = pids;
    f->d.nidle = ARRAY_SIZE(pids);
    mock_context(&f->d, last, 0, 1);
    start(f, "priority", &left);
    for (; turn < 20 && job_with(f, own) == SLOT_NONE; turn++, f->now += NSEC_PER_SEC / 50)
        tick(f);
    assert_in_range(turn, 1, 5);
    assert_int_equal(job_with(f, pids[3 * PROGRAMS - 1]), SLOT_NONE);
    ticks(f, 3000);
    for (int i = 0; i < 3 * PROGRAMS; i++)
        assert_int_not_equal(job_with(f, pids[i]), SLOT_NONE);
    f->d.nidle = 0;
    for (int i = 0; i < 3; i++) {
        kill(first[i], SIGKILL);
        waitpid(first[i], NULL, 0);
    }
    kill(own, SIGKILL);
    waitpid(own, NULL, 0);
}
