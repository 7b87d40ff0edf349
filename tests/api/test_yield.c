/* Yielding, acquiring and what else libcede asks over the control socket, with a made-up engine
 * behind it. */
#include "base/link_proto.h"
#include "server_env.h"

/* Of the job that the asking process is in, which it need not name. */
TEST_OF_CLIENT(yields)
{
    int self = (int)getpid();
    struct job_view *job = &e->m->jobs[0];
    assert_code(e, fd, ESRCH, "{'op':'acquire'}");
    assert_code(e, fd, ESRCH, "{'op':'yield','look':true}");
    assert_int_equal(job->number, 0);
    assert_reply(e, fd, 0,
                 "{'job':{'yielded':{'class':'normal','paused':true,'memory':false}},'waits':null}",
                 "{'op':'yield','pause':true}");
    assert_true(job->job.root.pid == self && job->job.yielded == (YIELD_CLASS | YIELD_PAUSE));
    e->m->status = -EBUSY;
    assert_reply(e, fd, EBUSY, "{'error':'*made-up trouble*'}", "{'op':'yield','memory':true}");
    e->m->status = 0;

    static const char look[] = "{'op':'yield','memory':true,'look':true}";
    assert_reply(e, fd, 0, "{'waits':true}", "{'op':'yield','target':'#1','memory':true}");
    assert_reply(e, fd, 0, "{'waits':true}", look);
    job->swap = "swapped";
    assert_reply(e, fd, 0, "{'waits':null}", look);
    assert_reply(e, fd, 0, "{'waits':true}", "{'op':'acquire','wait_us':7}");
    assert_int_equal(e->m->wait_us, 7);
    job->job.yielded = 0; /* it is out by hand, which acquiring does not change */
    assert_reply(e, fd, 0, "{'vain':true,'note':'it had yielded nothing','waits':null}",
                 "{'op':'acquire'}");
    job->swap = "";
    assert_code(e, fd, EIO, look);

    /* What a person decides is acquired no more. */
    static const struct {
        const char *op, *more;
        uint32_t what;
    } others[] = {{"pause", "", YIELD_PAUSE},     {"resume", "", YIELD_PAUSE},
                  {"swap-out", "", YIELD_MEMORY}, {"swap-in", "", YIELD_MEMORY},
                  {"set", ",'weight':5", 0},      {"set", ",'class':'batch'", YIELD_CLASS}};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        job->job.yielded = YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY;
        assert_code(e, fd, 0, "{'op':'%s','target':'#1'%s}", others[i].op, others[i].more);
        assert_int_equal(job->job.yielded,
                         (YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY) & ~others[i].what);
        job->swap = "";
    }
    /* Only if it is done. */
    job->job.yielded = YIELD_PAUSE | YIELD_MEMORY;
    job->job.paused = false;
    e->m->withheld = GPU_CAP_SUSPEND;
    e->m->status = -EBUSY;
    assert_code(e, fd, ENOTSUP, "{'op':'pause','target':'#1'}");
    assert_code(e, fd, EBUSY, "{'op':'swap-out','target':'#1'}");
    assert_int_equal(job->job.yielded, YIELD_PAUSE | YIELD_MEMORY);
}

static struct link_answer ask_link(struct env *e, int fd, struct link_ask ask)
{
    struct link_answer a;
    ask.magic = LINK_MAGIC;
    assert_int_equal(send(fd, &ask, sizeof(ask), MSG_NOSIGNAL), sizeof(ask));
    assert_int_equal(take(e, fd, (char *)&a, sizeof(a)), sizeof(a));
    assert_int_equal(a.magic, LINK_MAGIC);
    return a;
}
#define LINK(fd, ...) ask_link(e, fd, (struct link_ask){__VA_ARGS__})

/* The page has a connection, and what is asked another one. */
TEST_OF_CLIENT(serves_libcede)
{
    const struct job_view *job = &e->m->jobs[0];
    const uint64_t *room = &e->m->room[0][0];
    const uint64_t page = LINK(fd, .op = LINK_HINTS).page;
    _cleanup_close_ int own = dial(e->path);
    assert_int_equal(LINK(own, .op = LINK_ACQUIRE).code, -ESRCH);
    assert_int_equal(LINK(own, .op = LINK_SET, .class = 1 + CLASS_BATCH, .weight = 7).code, 0);
    assert_true(job->job.root.pid == getpid() && job->job.class == CLASS_BATCH);
    assert_int_equal(job->job.weight, 7);
    assert_int_equal(LINK(own, .op = LINK_SET, .class = 1 + CLASS_COUNT).code, -EINVAL);
    assert_int_equal(LINK(own, .op = LINK_ROOM, .page = page, .bytes = 5).code, -EPERM);
    assert_int_equal(LINK(own, .op = LINK_SET, .class = 1 + CLASS_LATENCY).code, 0);
    assert_int_equal(LINK(own, .op = LINK_ROOM, .page = page + 1, .bytes = 5).code, -ENOTCONN);
    assert_int_equal(LINK(own, .op = LINK_ROOM, .page = page, .bytes = 5, .gpu = "GPU-0").code, 0);
    assert_int_equal(*room, 5);

    /* What nobody waits for any more does not happen. */
    const struct link_ask more = {
        .magic = LINK_MAGIC, .op = LINK_ROOM, .page = page, .bytes = 9, .gpu = "GPU-0"};
    int gone = dial(e->path);
    assert_int_equal(send(gone, &more, sizeof(more), 0), sizeof(more));
    close(gone);
    turns(e, TURNS);
    assert_int_equal(*room, 5);

    assert_int_equal(LINK(own, .op = LINK_YIELD, .flags = LINK_MEMORY).waits, 1);
    assert_int_equal(job->job.yielded, YIELD_CLASS | YIELD_MEMORY);
    assert_int_equal(LINK(own, .op = LINK_YIELD, .flags = LINK_MEMORY | LINK_LOOK).waits, 1);
    assert_int_equal(LINK(own, .op = LINK_ACQUIRE, .wait_us = 7).waits, 1);
    assert_int_equal(e->m->wait_us, 7);
    assert_code(e, own, 0, "{'op':'ps'}"); /* the same connection */
}
