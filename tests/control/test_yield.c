/* Yielding and acquiring over the control socket, with a made-up engine behind it. */
#include "server_env.h"

static int parse_text(const char *text, struct request *out, struct error *err)
{
    return proto_parse(text, strlen(text), out, err);
}

static void accepts_yields(void **state)
{
    struct request r;
    struct error err = {""};
    assert_int_equal(parse_text("{\"v\":1,\"op\":\"yield\"}", &r, &err), 0);
    assert_true(r.op == OP_YIELD && !r.pid && !r.number && !r.name[0]);
    assert_false(r.yields_pause || r.yields_memory || r.look);
    assert_int_equal(parse_text("{\"v\":1,\"op\":\"yield\",\"target\":\"#7\",\"pause\":true,"
                                "\"memory\":true,\"look\":true}",
                                &r, &err),
                     0);
    assert_true(r.number == 7 && r.yields_pause && r.yields_memory && r.look);
    assert_int_equal(parse_text("{\"v\":1,\"op\":\"acquire\"}", &r, &err), 0);
    assert_true(r.op == OP_ACQUIRE && !r.has_wait);
    assert_int_equal(
        parse_text("{\"v\":1,\"op\":\"acquire\",\"target\":3,\"wait_us\":0}", &r, &err), 0);
    assert_true(r.pid == 3 && r.has_wait && r.wait_us == 0);
    char *text = proto_format(&r);
    assert_string_equal(text, "{\"v\":1,\"op\":\"acquire\",\"target\":3,\"wait_us\":0}");
    free(text);
    r = (struct request){.op = OP_YIELD, .yields_memory = true};
    text = proto_format(&r);
    assert_string_equal(text, "{\"v\":1,\"op\":\"yield\",\"memory\":true}");
    free(text);
}

/* Of the job that the asking process is in, which it need not name. */
static void yields(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path), self = (int)getpid();
    struct job_view *job = &e->m->jobs[0];
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"acquire\"}")), ESRCH);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"look\":true}")), ESRCH);
    assert_int_equal(job->number, 0);
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"pause\":true}");
    json_t *yielded = json_object_get(json_object_get(o, "job"), "yielded");
    assert_true(job->job.root.pid == self && job->job.yielded == (YIELD_CLASS | YIELD_PAUSE));
    assert_string_equal(json_string_value(json_object_get(yielded, "class")), "normal");
    assert_true(json_is_true(json_object_get(yielded, "paused")));
    assert_true(json_is_false(json_object_get(yielded, "memory")));
    assert_null(json_object_get(o, "waits"));
    json_decref(o);
    e->m->status = -EBUSY;
    o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"memory\":true}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), "made-up trouble"));
    assert_int_equal(code(o), EBUSY);
    e->m->status = 0;

    o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"target\":\"#1\",\"memory\":true}");
    assert_true(json_is_true(json_object_get(o, "waits")));
    assert_int_equal(code(o), 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"memory\":true,\"look\":true}");
    assert_true(json_is_true(json_object_get(o, "waits")));
    assert_int_equal(code(o), 0);
    job->swap = "swapped";
    o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"memory\":true,\"look\":true}");
    assert_null(json_object_get(o, "waits"));
    assert_int_equal(code(o), 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"acquire\",\"wait_us\":7}");
    assert_true(json_is_true(json_object_get(o, "waits")) && e->m->wait_us == 7);
    assert_int_equal(code(o), 0);
    job->swap = "";
    o = ask(e, fd, "{\"v\":1,\"op\":\"yield\",\"memory\":true,\"look\":true}");
    assert_int_equal(code(o), EIO);

    /* What a person decides is acquired no more. */
    static const struct {
        const char *op, *more;
        uint32_t what;
    } others[] = {{"pause", "", YIELD_PAUSE},     {"resume", "", YIELD_PAUSE},
                  {"swap-out", "", YIELD_MEMORY}, {"swap-in", "", YIELD_MEMORY},
                  {"set", ",\"weight\":5", 0},    {"set", ",\"class\":\"batch\"", YIELD_CLASS}};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        job->job.yielded = YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY;
        assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"%s\",\"target\":\"#1\"%s}",
                                  others[i].op, others[i].more)),
                         0);
        assert_int_equal(job->job.yielded,
                         (YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY) & ~others[i].what);
        job->swap = "";
    }
    /* Only if it is done. */
    job->job.yielded = YIELD_PAUSE | YIELD_MEMORY;
    job->job.paused = false;
    e->m->withheld = GPU_CAP_SUSPEND;
    e->m->status = -EBUSY;
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"#1\"}")), ENOTSUP);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"#1\"}")), EBUSY);
    assert_int_equal(job->job.yielded, YIELD_PAUSE | YIELD_MEMORY);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_yields),
        cmocka_unit_test_setup_teardown(yields, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
