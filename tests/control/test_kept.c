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
    assert_int_equal(send(asker, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    if (at_once)
        asker_leaves(NULL);
    turns(e, 5);
    e->m->on_apply = NULL;
}

/* Who has gone was told that nothing was done, and finds nothing done. */
static void asker_has_gone(void **state)
{
    struct env *e = *state;
    char add[96];
    snprintf(add, sizeof(add), "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"run\":true}", (int)getpid());
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    const struct journal_job *job = &e->m->jobs[0].job;
    for (int at_once = 0; at_once < 2; at_once++) {
        e->m->recorded = 0;
        ask_and_leave(e, "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}", at_once);
        assert_int_equal(job->paused, 0);
        assert_int_equal(e->m->recorded, !at_once); /* before it learns that */
        ask_and_leave(e, "{\"v\":1,\"op\":\"set\",\"target\":\"job\",\"weight\":7}", at_once);
        assert_int_equal(job->weight, 100);
        ask_and_leave(e, "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}", at_once);
        assert_string_equal(e->m->policy, "priority");
        ask_and_leave(e, add, at_once);
        assert_int_equal(e->m->jobs[1].number, 0);
        ask_and_leave(e, "{\"v\":1,\"op\":\"set\",\"target\":\"job\",\"class\":\"none\"}", true);
        assert_int_equal(e->m->jobs[0].number, 1);
    }
    /* One that only sends no more waits for the answer. */
    int fd = dial(e->path);
    static const char text[] = "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}";
    assert_int_equal(send(fd, text, sizeof(text) - 1, MSG_NOSIGNAL), sizeof(text) - 1);
    shutdown(fd, SHUT_WR);
    assert_int_equal(code(reply(e, fd)), 0);
    assert_int_equal(job->paused, 1);
    ask_and_leave(e, "{\"v\":1,\"op\":\"resume\",\"target\":\"job\"}", true);
    assert_int_equal(job->paused, 1);
    assert_hung_up(e, fd);
}

/* A job that was made for its way out of memory is not forgotten on that way: it comes back. */
static void leaves_while_it_swaps(void **state)
{
    struct env *e = *state;
    char text[96];
    snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"swap-out\",\"target\":%d}", (int)getpid());
    ask_and_leave(e, text, false);
    assert_int_equal(e->m->jobs[0].number, 1);
    assert_string_equal(e->m->jobs[0].swap, "swapping-in");
}

/* `cede run` asks again in the turn in which its first answer is lost: what the second says holds.
 * If that is lost too, nothing was done. */
static void asks_again(void **state)
{
    struct env *e = *state;
    char add[96];
    snprintf(add, sizeof(add), "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"run\":true}", (int)getpid());
    for (int lost = 1; lost <= 2; lost++) {
        asker = dial(e->path);
        int fd = dial(e->path);
        turns(e, 5);
        e->m->on_apply = asker_leaves;
        assert_int_equal(send(asker, add, strlen(add), MSG_NOSIGNAL), strlen(add));
        assert_int_equal(send(fd, add, strlen(add), MSG_NOSIGNAL), strlen(add));
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
static void cannot_be_recorded(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    e->m->unrecorded = -ENOSPC;
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}")), ENOSPC);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"job\"}")), ENOSPC);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"job\",\"weight\":7}")),
                     ENOSPC);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", (int)getpid())),
                     ENOSPC);
    assert_int_equal(e->m->jobs[0].job.paused, 0);
    assert_int_equal(e->m->jobs[0].job.weight, 100);
    assert_int_equal(e->m->jobs[1].number, 0);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"resume\",\"target\":\"job\"}")), 0);

    /* A program that is about to start is a job all the same. */
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"run\":true}", (int)getpid());
    assert_string_equal(json_string_value(json_object_get(o, "warning")), "made-up journal");
    assert_int_equal(code(o), 0);
    close(fd);
}

static void journal_fills(void *arg)
{
    ((struct env *)arg)->m->unrecorded = -ENOSPC;
}

/* There was room, and then the record could not be written. */
static void not_on_record(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    e->m->arg = e;
    e->m->on_apply = journal_fills;
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}")), ENOSPC);
    assert_int_equal(e->m->jobs[0].job.paused, 0);
    assert_int_equal(e->m->recorded, 1);
    close(fd);
}

/* The driver refuses to suspend what is to be paused. */
static void paused_and_running(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    static const char pause[] = "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}";
    fake_engine_put(e->m, 10, 0, CLASS_BATCH, 100, "job");
    struct job_view *job = &e->m->jobs[0];
    job->groups = job->runnable_groups = 2;
    e->m->status = -EIO;
    assert_int_equal(code(ask(e, fd, pause)), EIO);
    assert_int_equal(job->job.paused, 0);
    job->runnable_groups = 1; /* it is paused as far as it can be, and a note says what is not */
    assert_int_equal(code(ask(e, fd, pause)), 0);
    assert_int_equal(job->job.paused, 1);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(asker_has_gone),     TEST(asks_again),    TEST(leaves_while_it_swaps),
        TEST(cannot_be_recorded), TEST(not_on_record), TEST(paused_and_running),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
