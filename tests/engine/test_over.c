/* Jobs with a memory-max: watched about ten times per second, and only while there is a limit. */
#include "fixture.h"

#define LIMITED(mib, what)                                                                         \
    (struct job_terms)                                                                             \
    {                                                                                              \
        .class = CLASS_BATCH, .weight = WEIGHT_DEFAULT, .memory_max_mib = (mib),                   \
        .memory_over = (what)                                                                      \
    }

static void has_mib(struct fixture *f, pid_t pid, uint64_t mib)
{
    on(f, pid)->memory_bytes = mib << 20;
}

/* Three batch jobs, of which the first has a limit. */
static void begin_limited(struct fixture *f, enum memory_over over)
{
    jobs_of(f, "priority", 0, "B B B");
    ticks(f, 1000);
    assert_int_equal(f->d.memory_calls, 0);
    change(f, f->job[0], LIMITED(1000, over));
    for (int i = 0; i < 3; i++)
        has_mib(f, f->p[i], 1000);
    ticks(f, 2000);
    assert_int_equal(view(f, f->job[0]).error[0], 0);
    assert_in_range(f->d.memory_calls, 15, 21);
    has_mib(f, f->p[1], 50000); /* no limit is his */
}

ENGINE_TEST(warned)
{
    begin_limited(f, MEMORY_WARN);
    has_mib(f, p[0], 1001);
    ticks(f, 110);
    assert_non_null(
        strstr(view(f, j[0]).error, "1001 MiB on GPU 0, more than its memory-max of 1000 MiB"));
    assert_true(view(f, j[0]).memory_exceeded);
    ticks(f, 10000);
    assert_int_equal(view(f, j[0]).error[0], 0); /* not all the time */
    assert_false(view(f, j[0]).memory_exceeded);
    assert_int_equal(view(f, j[0]).job.paused, 0);
    ticks(f, 52000);
    assert_int_not_equal(view(f, j[0]).error[0], 0);
    /* Without a limit nobody asks. */
    change(f, j[0], LIMITED(0, MEMORY_WARN));
    const unsigned calls = f->d.memory_calls;
    ticks(f, 2000);
    assert_int_equal(f->d.memory_calls, calls);
}

ENGINE_TEST(paused)
{
    begin_limited(f, MEMORY_PAUSE);
    has_mib(f, p[0], 1500);
    ticks(f, 110);
    assert_int_equal(view(f, j[0]).job.paused, 1);
    assert_int_equal(view(f, j[1]).job.paused, 0);
    assert_true(on(f, p[0])->suspended);
    assert_non_null(strstr(view(f, j[0]).error, "paused until `cede resume"));
    pause_job(f, j[0], false); /* it goes on with what it has */
    assert_string_equal(view(f, j[0]).error, "");
    ticks(f, 2000);
    assert_int_equal(view(f, j[0]).job.paused, 0);
    has_mib(f, p[0], 1501);
    ticks(f, 110);
    assert_int_equal(view(f, j[0]).job.paused, 1);
}

ENGINE_TEST(killed)
{
    begin_limited(f, MEMORY_KILL);
    has_mib(f, p[0], 1001);
    ticks(f, 110);
    int status;
    assert_int_equal(waitpid(p[0], &status, 0), p[0]);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    end(f, p[0]);
    ticks(f, 1000);
    assert_int_equal(waitpid(p[1], &status, WNOHANG), 0);
    assert_int_equal(waitpid(p[2], &status, WNOHANG), 0);
    assert_int_equal(job_with(f, p[0]), SLOT_NONE);
}

/* A user's job whose program has started one that is root's. */
ENGINE_TEST(another_users_process)
{
    int status;
    p[0] = family(f, 1000, 1, &p[1]);
    mock_context(&f->d, p[0], 0, 1);
    mock_context(&f->d, p[1], 0, 1);
    start(f, "priority", NULL);
    j[0] = add_as(f, p[0], CLASS_BATCH, 1000);
    ticks(f, 1500);
    has_mib(f, p[1], 1001);
    change(f, j[0], LIMITED(1000, MEMORY_KILL));
    ticks(f, 110);
    assert_non_null(
        strstr(view(f, j[0]).error, ": 1 of its processes killed, 1 of other users left running"));
    assert_int_equal(waitpid(p[0], &status, 0), p[0]);
    assert_true(proc_alive(id_of(p[1])));
}

/* What its processes have on a GPU counts together, and each GPU by itself. */
ENGINE_TEST(sums)
{
    pid_t both[2];
    f->d.ngpus = 2;
    parent_and_child(f, both);
    mock_context(&f->d, both[0], 0, 0);
    mock_context(&f->d, both[1], 0, 0);
    mock_context(&f->d, both[1], 1, 0);
    start(f, "priority", NULL);
    j[0] = add(f, both[0], CLASS_BATCH);
    ticks(f, 500);
    change(f, j[0], LIMITED(1000, MEMORY_WARN));
    has_mib(f, both[0], 500);
    has_mib(f, both[1], 500);
    mock_compute(&f->d, both[1], 1)->memory_bytes = 900 << 20;
    ticks(f, 500);
    assert_int_equal(view(f, j[0]).error[0], 0);
    has_mib(f, both[0], 600);
    ticks(f, 110);
    assert_non_null(strstr(view(f, j[0]).error, "1100 MiB on GPU 0"));
}
