/* What a client is told is what happens: nothing is done later than it waits for, and what cannot
 * be done is not said to be. */
#include "server_env.h"

static int asker; /* of the requests below */
static int both_leave = -1;

static void asker_leaves(void *arg)
{
    (void)arg;
    assert_int_equal(close(asker), 0);
    if (both_leave >= 0)
        assert_int_equal(close(both_leave), 0);
    both_leave = -1;
}

/* Sends a request, and goes before it is acted upon, or when that is done and not yet answered. */
static void ask_and_leave(struct env *e, const char *text, bool at_once)
{
    asker = dial(e->path);
    e->m->on_apply = at_once ? NULL : asker_leaves;
    send_request(asker, "%s", text);
    if (at_once)
        asker_leaves(NULL);
    turns(e, 5);
    e->m->on_apply = NULL;
}

/* Who has gone was told that nothing was done, and finds nothing done. */
TEST_OF_SERVER(asker_has_gone)
{
    char add[96];
    snprintf(add, sizeof(add), "{'op':'add','pid':%d,'run':true}", (int)getpid());
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    const struct journal_job *job = &e->m->jobs[0].job;
    for (int at_once = 0; at_once < 2; at_once++) {
        e->m->recorded = 0;
        ask_and_leave(e, "{'op':'pause','target':'job'}", at_once);
        assert_int_equal(job->paused, 0);
        assert_int_equal(e->m->recorded, !at_once); /* before it learns that */
        ask_and_leave(e, "{'op':'set','target':'job','weight':7}", at_once);
        assert_int_equal(job->weight, 100);
        ask_and_leave(e, "{'op':'policy','name':'shares'}", at_once);
        assert_string_equal(e->m->policy, "priority");
        ask_and_leave(e, add, at_once);
        assert_int_equal(e->m->jobs[1].number, 0);
        ask_and_leave(e, "{'op':'set','target':'job','class':'none'}", true);
        assert_int_equal(e->m->jobs[0].number, 1);
    }
    /* One that only sends no more waits for the answer. */
    int fd = dial(e->path);
    static const char text[] = "{'op':'pause','target':'job'}";
    send_request(fd, text);
    shutdown(fd, SHUT_WR);
    assert_int_equal(code(reply(e, fd)), 0);
    assert_int_equal(job->paused, 1);
    ask_and_leave(e, "{'op':'resume','target':'job'}", true);
    assert_int_equal(job->paused, 1);
    assert_hung_up(e, fd);
    /* What it has yielded is something else. */
    e->m->jobs[0].job.paused = 0;
    e->m->jobs[0].job.yielded = YIELD_CLASS;
    ask_and_leave(e, text, true);
    assert_int_equal(job->paused, 0);
}

/* A process in no job stays in none when what was asked for it is refused. */
TEST_OF_SERVER(refused_and_no_job)
{
    char text[64];
    snprintf(text, sizeof(text), "{'op':'pause','target':%d}", (int)getpid());
    e->m->withheld = GPU_CAP_SUSPEND;
    int fd = dial(e->path);
    send_request(fd, "%s", text);
    assert_int_equal(code(reply(e, fd)), ENOTSUP);
    assert_int_equal(e->m->jobs[0].number, 0);
    close(fd);
}

/* A job that was made for its way out of memory is not forgotten on that way: it comes back. */
TEST_OF_SERVER(leaves_while_it_swaps)
{
    char text[96];
    snprintf(text, sizeof(text), "{'op':'swap-out','target':%d}", (int)getpid());
    ask_and_leave(e, text, false);
    assert_int_equal(e->m->jobs[0].number, 1);
    assert_string_equal(e->m->jobs[0].swap, "swapping-in");
}

/* What is taken back leaves a job out by the one who had swapped it out, or for a latency job. */
TEST_OF_SERVER(stays_out_by_the_same)
{
    static const char *const asked[] = {"{'op':'swap-in','target':'job'}",
                                        "{'op':'swap-out','target':'job'}",
                                        "{'op':'yield','target':'job','memory':true}"};
    fake_engine_put(e->m, 10, 0, CLASS_NORMAL, 100, "job");
    struct job_view *job = &e->m->jobs[0];
    for (unsigned i = 0; i < 2 * ARRAY_SIZE(asked); i++) {
        job->swap = "swapped";
        job->swap_by_user = i % 2;
        job->swap_uid = 7;
        ask_and_leave(e, asked[i / 2], false);
        assert_int_equal(job->swap_by_user, i % 2);
        assert_int_equal(job->swap_uid, 7);
        assert_int_equal(job->job.yielded, 0);
        assert_int_equal(job->job.class, CLASS_NORMAL);
    }
}

/* `cede run` asks again in the turn in which its first answer is lost: what the second says holds.
 * If that is lost too, nothing was done. */
TEST_OF_SERVER(asks_again)
{
    char add[96];
    snprintf(add, sizeof(add), "{'op':'add','pid':%d,'run':true}", (int)getpid());
    for (int lost = 1; lost <= 2; lost++) {
        asker = dial(e->path);
        int fd = dial(e->path);
        turns(e, 5);
        e->m->on_apply = asker_leaves;
        send_request(asker, "%s", add);
        send_request(fd, "%s", add);
        if (lost == 2) {
            both_leave = fd;
            turns(e, 5);
        } else {
            assert_int_equal(code(reply(e, fd)), 0);
        }
        e->m->on_apply = NULL;
        assert_int_equal(e->m->jobs[0].number != 0, lost == 1);
        if (lost == 1) {
            engine_release(e->m, 0);
            close(fd);
        }
    }
}

/* The journal cannot take what is asked for. */
TEST_OF_SERVER(cannot_be_recorded)
{
    int fd = dial(e->path);
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    e->m->unrecorded = -ENOSPC;
    assert_code(e, fd, ENOSPC, "{'op':'pause','target':'job'}");
    assert_code(e, fd, ENOSPC, "{'op':'swap-out','target':'job'}");
    assert_code(e, fd, ENOSPC, "{'op':'set','target':'job','weight':7}");
    assert_code(e, fd, ENOSPC, "{'op':'pause','target':%d}", (int)getpid());
    assert_int_equal(e->m->jobs[0].job.paused, 0);
    assert_int_equal(e->m->jobs[0].job.weight, 100);
    assert_int_equal(e->m->jobs[1].number, 0);
    assert_code(e, fd, 0, "{'op':'resume','target':'job'}");
    e->m->unrecorded = -EIO;
    e->m->jobs[0].job.paused = 1;
    assert_code(e, fd, EIO, "{'op':'resume','target':'job'}");
    assert_int_equal(e->m->jobs[0].job.paused, 1);

    /* A program that is about to start is a job all the same. */
    assert_reply(e, fd, 0, "{'warning':'made-up journal'}", "{'op':'add','pid':%d,'run':true}",
                 (int)getpid());
}

static void journal_fills(void *arg)
{
    ((struct env *)arg)->m->unrecorded = -ENOSPC;
}

/* There was room, and then the record could not be written. */
TEST_OF_CLIENT(not_on_record)
{
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    e->m->arg = e;
    e->m->on_apply = journal_fills;
    assert_code(e, fd, ENOSPC, "{'op':'pause','target':'job'}");
    assert_int_equal(e->m->jobs[0].job.paused, 0);
    assert_int_equal(e->m->recorded, 1);
}

/* The driver refuses to suspend what is to be paused. */
TEST_OF_CLIENT(paused_and_running)
{
    static const char pause[] = "{'op':'pause','target':'job'}";
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    struct job_view *job = &e->m->jobs[0];
    job->groups = job->runnable_groups = 2;
    e->m->status = -EIO;
    assert_code(e, fd, EIO, pause);
    assert_int_equal(job->job.paused, 0);
    job->runnable_groups = 0; /* as far as is known after a loss of records */
    e->m->status = -EPERM;
    assert_code(e, fd, EPERM, pause);
    assert_int_equal(job->job.paused, 0);
    job->runnable_groups = 1; /* it is paused as far as it can be, and a note says what is not */
    e->m->status = -EIO;
    assert_code(e, fd, 0, pause);
    assert_int_equal(job->job.paused, 1);
}
