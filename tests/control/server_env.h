/* What tests of the control socket begin with: the real server with a made-up manager behind it.
 * Server and client take turns in one thread. Each helper is a copy in the test that uses it. */
#ifndef CEDE_TESTS_CONTROL_SERVER_ENV_H
#define CEDE_TESTS_CONTROL_SERVER_ENV_H

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/config.h"
#include "control/server.h"
#include "fake_engine.h"

#define HELPER static __attribute__((unused))

#define NOBODY 65534
/* Turns of the loop: the first follow each other at once, which is enough for a server that
 * listens. One that rests does so for some ms of real time; the others give it 20 s. */
#define TURNS      200
#define TURNS_MORE 20000

struct env {
    char dir[64], path[80];
    uv_loop_t loop;
    struct engine *m;
    struct verbs v;
    struct server *s;
};

HELPER int set_up(void **state)
{
    struct env *e = calloc(1, sizeof(*e));
    struct error err = {""};
    assert_non_null(e);
    snprintf(e->dir, sizeof(e->dir), "/tmp/cede-test-server-XXXXXX");
    assert_non_null(mkdtemp(e->dir));
    assert_int_equal(chmod(e->dir, 0755), 0);
    snprintf(e->path, sizeof(e->path), "%s/socket", e->dir);
    e->m = fake_engine_new();
    assert_non_null(e->m);
    e->v = (struct verbs){.engine = e->m, .hints = hints_new()};
    assert_non_null(e->v.hints);
    assert_int_equal(uv_loop_init(&e->loop), 0);
    if (server_start(&e->loop, e->path, &e->v, ADMIN_NO_GROUP, &e->s, &err) < 0)
        fail_msg("%s", err.text);
    *state = e;
    return 0;
}

HELPER void stop_server(void *arg)
{
    struct env *e = arg;
    if (e->s)
        server_stop(e->s);
    e->s = NULL;
}

HELPER int tear_down(void **state)
{
    struct env *e = *state;
    stop_server(e);
    uv_run(&e->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&e->loop);
    int gone = access(e->path, F_OK);
    rmdir(e->dir);
    hints_free(e->v.hints);
    free(e->m);
    free(e);
    return left == 0 && gone < 0 ? 0 : -1;
}

HELPER void turns(struct env *e, int n)
{
    while (n--) {
        uv_run(&e->loop, UV_RUN_NOWAIT);
        fake_engine_tick(e->m);
    }
}

HELPER int dial(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Bytes, 0 at the end, -1 if nothing came. */
HELPER ssize_t take(struct env *e, int fd, char *buf, size_t size)
{
    ssize_t n = -1;
    for (int i = 0; i < TURNS + TURNS_MORE && n < 0; i++) {
        if (i >= TURNS)
            usleep(1000);
        turns(e, 1);
        n = recv(fd, buf, size, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN)
            return 0;
    }
    return n;
}

HELPER json_t *reply(struct env *e, int fd)
{
    static char buf[PROTO_MESSAGE_MAX + 1];
    ssize_t n = take(e, fd, buf, sizeof(buf));
    assert_true(n > 0 && n <= PROTO_MESSAGE_MAX);
    json_t *o = json_loadb(buf, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(o);
    assert_int_equal(json_integer_value(json_object_get(o, "v")), 1);
    assert_true(json_is_boolean(json_object_get(o, "ok")));
    return o;
}

HELPER json_t *ask(struct env *e, int fd, const char *fmt, ...) PRINTF_LIKE(3, 4);
HELPER json_t *ask(struct env *e, int fd, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    assert_int_equal(send(fd, text, (size_t)n, MSG_NOSIGNAL), n);
    return reply(e, fd);
}

/* The errno of the reply, 0 for ok; drops the reply. */
HELPER int code(json_t *o)
{
    int c = json_is_true(json_object_get(o, "ok"))
                ? 0
                : (int)json_integer_value(json_object_get(o, "errno"));
    if (c)
        assert_true(json_string_length(json_object_get(o, "error")) > 0);
    json_decref(o);
    return c;
}

HELPER void assert_served(struct env *e)
{
    int fd = dial(e->path);
    assert_true(fd >= 0);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"ps\"}")), 0);
    close(fd);
}

HELPER void assert_hung_up(struct env *e, int fd)
{
    char c;
    assert_int_equal(take(e, fd, &c, 1), 0);
    close(fd);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
