/* Yielding and acquiring over the control socket, with a made-up engine behind it. */
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
