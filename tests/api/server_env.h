/* What tests of the control socket begin with: the real server with a made-up manager behind it.
 * Server and client take turns in one thread. Each helper is a copy in the test that uses it. */
#ifndef CEDE_TESTS_API_SERVER_ENV_H
#define CEDE_TESTS_API_SERVER_ENV_H

#include <fcntl.h>
#include <grp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../json_like.h"
#include "api/server.h"
#include "daemon/config.h"
#include "fake_engine.h"

#define NOBODY 65534
/* Turns of the loop: the first follow each other at once, which is enough for a server that
 * listens. One that rests does so for some ms of real time; the others give it 20 s. */
#define TURNS      200
#define TURNS_MORE 20000

struct env {
    char dir[64], path[80], guests[80];
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

HELPER void needs_root(void)
{
    if (geteuid() != 0)
        skip();
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

HELPER struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    return a;
}

HELPER mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 0777;
}

HELPER int dial(const char *path)
{
    const struct sockaddr_un a = address_of(path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Bytes, 0 at the end, -1 if nothing came. ECONNRESET comes once, before the server's last message,
 * where the server closed with a message unread. */
HELPER ssize_t take(struct env *e, int fd, char *buf, size_t size)
{
    ssize_t n = -1;
    for (int i = 0; i < TURNS + TURNS_MORE && n < 0; i++) {
        if (i >= TURNS)
            usleep(1000);
        turns(e, 1);
        n = recv(fd, buf, size, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != ECONNRESET)
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
    assert_like(o, "{'v':1}");
    assert_true(json_is_boolean(json_object_get(o, "ok")));
    return o;
}

HELPER bool tell(int fd, const char *fmt, va_list ap)
{
    char text[512], request[512];
    vsnprintf(text, sizeof(text), fmt, ap);
    size_t n = json_request(request, sizeof(request), text);
    return send(fd, request, n, MSG_NOSIGNAL) == (ssize_t)n;
}

HELPER void send_request(int fd, const char *fmt, ...) PRINTF_LIKE(2, 3);
HELPER void send_request(int fd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    assert_true(tell(fd, fmt, ap));
    va_end(ap);
}

HELPER json_t *ask(struct env *e, int fd, const char *fmt, ...) PRINTF_LIKE(3, 4);
HELPER json_t *ask(struct env *e, int fd, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    assert_true(tell(fd, fmt, ap));
    va_end(ap);
    return reply(e, fd);
}

/* The errno of the reply, 0 for ok; drops the reply. */
HELPER int code(json_t *o)
{
    int c = json_get_true(o, "ok") ? 0 : (int)json_get_int(o, "errno");
    if (c)
        assert_true(json_string_length(json_object_get(o, "error")) > 0);
    json_decref(o);
    return c;
}

/* The reply has that errno, 0 for ok, and is like `want`, if it is not NULL. */
HELPER void check_reply(json_t *o, int want_code, const char *want, const char *file, int line)
{
    if (want)
        check_like(o, want, false, file, line);
    char *text = json_dumps(o, JSON_COMPACT);
    int got = code(o);
    if (got != want_code) {
        print_error("errno %d, not %d: %s\n", got, want_code, text);
        _fail(file, line);
    }
    free(text);
}
#define assert_reply(e, fd, code, want, ...)                                                       \
    check_reply(ask(e, fd, __VA_ARGS__), code, want, __FILE__, __LINE__)
#define assert_code(e, fd, code, ...) assert_reply(e, fd, code, NULL, __VA_ARGS__)

/* The errno of the reply, 0 for ok, -1 for none: in a child, which may wait for it. */
HELPER int child_ask(int fd, const char *fmt, ...) PRINTF_LIKE(2, 3);
HELPER int child_ask(int fd, const char *fmt, ...)
{
    char buf[8192];
    va_list ap;
    va_start(ap, fmt);
    bool sent = tell(fd, fmt, ap);
    va_end(ap);
    ssize_t got = sent ? recv(fd, buf, sizeof(buf), 0) : -1;
    json_t *o = got > 0 ? json_loadb(buf, (size_t)got, 0, NULL) : NULL;
    int c = json_get_true(o, "ok") ? 0 : (int)json_get_int(o, "errno");
    json_decref(o);
    return got > 0 ? c : -1;
}

#define KEEP_ROOT ((gid_t)-1)

/* What a child of another user returns, which takes turns with the server and uses no cmocka. */
HELPER int as_nobody(struct env *e, gid_t extra_group, int (*what)(const char *path, pid_t parent))
{
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (extra_group == KEEP_ROOT)
            _exit(what(e->path, parent));
        if (setgroups(1, &extra_group) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(99);
        _exit(what(e->path, parent));
    }
    int status;
    pid_t ended;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0) {
        turns(e, 1);
        usleep(200);
    }
    assert_int_equal(ended, pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Makes the socket for containers. */
HELPER void listen_guests(struct env *e)
{
    struct error err = {""};
    snprintf(e->guests, sizeof(e->guests), "%s/guests", e->dir);
    assert_int_equal(server_listen_guests(e->s, e->guests, &err), 0);
}

HELPER void assert_served(struct env *e)
{
    _cleanup_close_ int fd = dial(e->path);
    assert_true(fd >= 0);
    assert_code(e, fd, 0, "{'op':'ps'}");
}

HELPER void assert_hung_up(struct env *e, int fd)
{
    char c;
    assert_int_equal(take(e, fd, &c, 1), 0);
    close(fd);
}

/* A test with the environment `e`, and one with a connection `fd` besides. */
#define TEST_OF_SERVER(name) TEST_IN(name, struct env *e, set_up, tear_down)
#define TEST_OF_CLIENT(name)                                                                       \
    static void name##_by(struct env *e, int fd);                                                  \
    TEST_OF_SERVER(name)                                                                           \
    {                                                                                              \
        _cleanup_close_ int fd = dial(e->path);                                                    \
        name##_by(e, fd);                                                                          \
    }                                                                                              \
    static void name##_by(struct env *e, int fd)

#endif
