/* The real control socket and other users: what they may not, and how much of the daemon's time
 * they get. They are children of the test, which takes turns with them. */
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>

#include "../lingering.h"
#include "server_env.h"

/* In a child of another user: blocking, and no cmocka. */

static int child_ask(int fd, const char *fmt, ...) PRINTF_LIKE(2, 3);
static int child_ask(int fd, const char *fmt, ...)
{
    char buf[8192];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    if (send(fd, buf, (size_t)n, MSG_NOSIGNAL) != n)
        return -1;
    ssize_t got = recv(fd, buf, sizeof(buf), 0);
    json_t *o = got > 0 ? json_loadb(buf, (size_t)got, 0, NULL) : NULL;
    int c = json_is_true(json_object_get(o, "ok"))
                ? 0
                : (int)json_integer_value(json_object_get(o, "errno"));
    json_decref(o);
    return got > 0 ? c : -1;
}

/* The number of the first step that went wrong. */
#define STEP(cond)                                                                                 \
    do {                                                                                           \
        step++;                                                                                    \
        if (!(cond))                                                                               \
            return step;                                                                           \
    } while (0)

static int as_a_user(const char *path, pid_t parent)
{
    int step = 0, self = (int)getpid(), fd = dial(path);
    STEP(fd >= 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"ps\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"policy\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"policy\",\"params\":{\"floor\":0.1}}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", (int)parent) == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"roots\"}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"0/both\"}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"both\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"latency\"}", self) ==
         EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"weight\":50}", self) == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"weight\":51}", self) == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"batch\"}", self) == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"normal\"}", self) ==
         EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"none\"}", self) == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":\"held\",\"deadline_us\":2000000}") ==
         0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":\"roots\",\"deadline_us\":2000000}") ==
         EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", self) == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"resume\",\"target\":%d}", self) == 0);
    /* Root's pause stays root's, also when the user pauses on top of it. */
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"held\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"resume\",\"target\":\"held\"}") == EPERM);
    /* So does what root has swapped out. */
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"roots\"}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"held\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"swap-in\",\"target\":\"held\"}") == EPERM);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":%d}", self) == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"swap-in\",\"target\":%d}", self) == 0);

    /* One user cannot take every connection. */
    int fds[SERVER_CLIENTS_PER_USER];
    for (int i = 0; i < SERVER_CLIENTS_PER_USER - 1; i++) {
        fds[i] = dial(path);
        STEP(child_ask(fds[i], "{\"v\":1,\"op\":\"policy\"}") == 0);
    }
    int more = dial(path);
    STEP(more >= 0);
    char buf[256];
    ssize_t n = recv(more, buf, sizeof(buf), 0);
    STEP(n > 0 && memmem(buf, (size_t)n, "too many connections already", 28));
    return 0;
}

static int as_an_administrator(const char *path, pid_t parent)
{
    int step = 0, fd = dial(path);
    STEP(fd >= 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}") == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"latency\"}",
                   (int)parent) == 0);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"resume\",\"target\":\"held\"}") == 0);
    return 0;
}

/* One account with a range of uids: it is one user all the same. */
static int with_many_uids(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0, ready[2], mapped[2], n = SERVER_CLIENTS_PER_USER;
    char c;
    STEP(pipe(ready) == 0 && pipe(mapped) == 0);
    pid_t helper = fork();
    if (helper == 0) {
        char command[160];
        const pid_t self = getppid();
        snprintf(command, sizeof(command),
                 "echo 0 0 10 >/proc/%d/gid_map; printf '0 %d 1\\n1 300001 9\\n' >/proc/%d/uid_map",
                 (int)self, NOBODY, (int)self);
        _exit(read(ready[0], &c, 1) == 1 && system(command) == 0 && write(mapped[1], "x", 1) == 1
                  ? 0
                  : 1);
    }
    alarm(10);
    STEP(setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    STEP(unshare(CLONE_NEWUSER) == 0 && write(ready[1], "x", 1) == 1);
    STEP(read(mapped[0], &c, 1) == 1);
    for (int i = 0; i < n; i++) {
        STEP(seteuid((uid_t)(1 + i % 9)) == 0);
        int fd = dial(path);
        STEP(seteuid(0) == 0 && child_ask(fd, "{\"v\":1,\"op\":\"policy\"}") == 0);
    }
    STEP(seteuid(7) == 0);
    char text[256];
    ssize_t got = recv(dial(path), text, sizeof(text), 0);
    STEP(got > 0 && memmem(text, (size_t)got, "too many connections already", 28));
    return 0;
}

#define KEEP_ROOT ((gid_t)-1)

static int as_nobody(struct env *e, gid_t extra_group, int (*what)(const char *path, pid_t parent))
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

static void uids_of_one_account(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(as_nobody(e, KEEP_ROOT, with_many_uids), 0);
    assert_served(e);
}

static int as_one_too_many(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0, fd = dial(path);
    STEP(child_ask(fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", (int)getpid()) == ENOSPC);
    return 0;
}

/* However many users there are: root finds room. */
static void users_together(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    for (unsigned i = 0; i < USERS_JOBS_MAX; i++)
        fake_engine_put(e->m, 100000 + (pid_t)i, 1000 + i % 5, CLASS_BATCH, 100, "one of many");
    assert_int_equal(as_nobody(e, NOBODY, as_one_too_many), 0);
    int fd = dial(e->path);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", (int)getpid())), 0);
    close(fd);
}

#define ADD_SELF(more) "{\"v\":1,\"op\":\"add\",\"run\":true,\"pid\":%d" more "}"
#define GIB1           ",\"memory_bytes\":1073741824"

static int as_one_that_waits(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0, self = (int)getpid(), fd = dial(path);
    STEP(child_ask(fd, ADD_SELF(",\"class\":\"latency\"" GIB1), self) == EPERM);
    STEP(child_ask(fd, ADD_SELF(GIB1), self) == 0);
    STEP(child_ask(fd, ADD_SELF(",\"memory_bytes\":5"), self) == 0); /* asks again */
    return 0;
}

static int as_one_waiter_too_many(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0, self = (int)getpid(), fd = dial(path);
    STEP(child_ask(fd, ADD_SELF(GIB1), self) == EDQUOT);
    STEP(child_ask(fd, ADD_SELF(""), self) == 0);
    return 0;
}

static void made_latency(void *arg)
{
    struct engine *m = arg;
    for (uint32_t i = 0; i < m->end; i++)
        m->jobs[i].job.class = CLASS_LATENCY;
}

/* By an administrator, after which its user says what it takes. */
static int as_one_that_was_raised(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0, self = (int)getpid(), fd = dial(path);
    STEP(child_ask(fd, ADD_SELF(""), self) == 0);
    STEP(child_ask(fd, ADD_SELF(GIB1), self) == 0);
    return 0;
}

/* Users wait for memory in line, as many as are allowed; others are swapped out for nobody but
 * those whom an administrator has it done for. */
static void memory_of_users(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(as_nobody(e, NOBODY, as_one_that_waits), 0);
    assert_int_equal(e->m->end, 1);
    assert_int_equal(e->m->jobs[0].job.memory_bytes, 1 << 30);
    e->m->jobs[0].number = 0;
    e->m->on_apply = made_latency;
    e->m->arg = e->m;
    assert_int_equal(as_nobody(e, NOBODY, as_one_that_was_raised), 0);
    assert_int_equal(e->m->jobs[0].job.memory_bytes, 0);
    e->m->jobs[0].number = 0;
    e->m->on_apply = NULL;
    e->m->waits_full = true;
    assert_int_equal(as_nobody(e, NOBODY, as_one_waiter_too_many), 0);
    int fd = dial(e->path);
    assert_int_equal(code(ask(e, fd, ADD_SELF(GIB1), (int)getpid())), 0);
    close(fd);
}

/* Connects and says nothing, again and again: served at first, then told that there are too many,
 * and then that it connects too often. */
static int as_a_flood(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0;
    for (int i = 0; i < SERVER_CLIENTS_PER_USER; i++)
        STEP(dial(path) >= 0);
    int many = 0, often = 0;
    for (uint64_t end = monotonic_ns() + 60 * NSEC_PER_SEC; often < 50 && monotonic_ns() < end;) {
        int fd[100];
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
            fd[i] = dial(path);
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
            char buf[256];
            ssize_t n = recv(fd[i], buf, sizeof(buf), 0);
            many += n > 0 && memmem(buf, (size_t)n, "too many connections", 20);
            often += n > 0 && memmem(buf, (size_t)n, "connect so often", 16);
            close(fd[i]);
        }
    }
    step = 100;
    STEP(many > 0);
    STEP(often >= 50);
    return 0;
}

/* Connects and closes, and never has more than one connection. */
static int as_a_visitor(const char *path, pid_t parent)
{
    (void)parent;
    int step = 0;
    bool often = false;
    for (uint64_t end = monotonic_ns() + 60 * NSEC_PER_SEC; !often && monotonic_ns() < end;) {
        for (int i = 0; i < 500; i++)
            close(dial(path));
        int fd = dial(path);
        char buf[512];
        ssize_t n = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 400) == 1
                        ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT)
                        : 0;
        often = n > 0 && memmem(buf, (size_t)n, "connect so often", 16);
        close(fd);
    }
    STEP(often);
    return 0;
}

static uint64_t slow_clock(void)
{
    static uint64_t now;
    return now += 200 * NSEC_PER_USEC;
}

static void connections_are_paid_for(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    e->v.cpu_ns = slow_clock;
    assert_int_equal(as_nobody(e, NOBODY, as_a_visitor), 0);
    assert_served(e);
}

static void flood_of_connections(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    e->v.cpu_ns = monotonic_ns; /* a busy machine leaves the server too little for a flood */
    assert_int_equal(as_nobody(e, NOBODY, as_a_flood), 0);
    assert_served(e); /* an administrator */
}

static void other_users(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    fake_engine_put(e->m, 1, 0, CLASS_BATCH, 100, "roots");
    fake_engine_put(e->m, 3, 0, CLASS_BATCH, 100, "both");
    fake_engine_put(e->m, 4, NOBODY, CLASS_BATCH, 100, "both");
    uint32_t held = fake_engine_put(e->m, 2, NOBODY, CLASS_BATCH, 100, "held");
    e->m->jobs[held].job.paused = 1;
    e->m->jobs[held].swap = "swapped";
    e->m->jobs[held].swap_by_user = true;
    assert_int_equal(as_nobody(e, NOBODY, as_a_user), 0);
    assert_string_equal(e->m->policy, "priority");
    assert_int_equal(e->m->jobs[held].job.deadline_us, 2000000);
    assert_false(e->m->jobs[held].job.may_promote);
    assert_int_equal(e->m->jobs[held].job.paused, 1);
    assert_int_equal(e->m->jobs[held].job.paused_by, 0);

    server_set_group(e->s, 12345);
    assert_int_equal(as_nobody(e, 12344, as_an_administrator), 2);
    assert_int_equal(as_nobody(e, 12345, as_an_administrator), 0);
    assert_string_equal(e->m->policy, "shares");
    assert_int_equal(e->m->jobs[held].job.paused, 0);
}

#define ASKED 6

static int asks_at_once(const char *path, pid_t parent)
{
    int step = 0, fd = dial(path), self = (int)getpid();
    char text[80];
    int n = snprintf(text, sizeof(text), "{\"v\":1,\"op\":\"pause\",\"target\":%d}", self);
    for (int i = 0; i < ASKED; i++)
        STEP(send(fd, text, (size_t)n, MSG_NOSIGNAL) == n);
    for (int i = 0; i < ASKED; i++) {
        char buf[1024];
        STEP(recv(fd, buf, sizeof(buf), 0) > 0);
    }
    return 0;
}

static uint64_t slow_ns;

static void apply_slowly(void *arg)
{
    uint64_t started = thread_cpu_ns(), took;
    do
        took = thread_cpu_ns() - started;
    while (took < 20 * NSEC_PER_MSEC);
    slow_ns += took;
}

/* Nobody keeps the daemon busy: who makes it work waits for four times as long, and others do not.
 */
static void flood(void **state)
{
    struct env *e = *state;
    if (geteuid() != 0)
        skip();
    e->m->on_apply = apply_slowly;
    slow_ns = 0;
    uint64_t started = monotonic_ns();
    assert_int_equal(as_nobody(e, NOBODY, asks_at_once), 0);
    /* The last one is not waited for. */
    assert_true(monotonic_ns() - started > slow_ns * 5 * (ASKED - 1) / ASKED / 2);
    slow_ns = 0;
    int fd = dial(e->path);
    for (int i = 0; i < ASKED; i++)
        assert_int_equal(
            code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", (int)getpid())), 0);
    close(fd);
    assert_true(slow_ns >= ASKED * 20 * NSEC_PER_MSEC);
}

static void apply_without_processor(void *arg)
{
    usleep(50000);
}

static void verb_is_done(struct verb *v, char *reply)
{
    free(reply);
}

/* A tick in which another program has the processor costs the user nothing, work does. */
static void charges_processor_time(void **state)
{
    struct env *e = *state;
    const struct caller who = {.uid = geteuid(), .pid = getpid(), .admin = true};
    static const struct {
        void (*apply)(void *arg);
        uint64_t least_ns, most_ns;
    } rows[] = {{apply_without_processor, 0, 25 * NSEC_PER_MSEC},
                {apply_slowly, 20 * NSEC_PER_MSEC, UINT64_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct verb v;
        verb_init(&v, &e->v, &who, &(struct request){.op = OP_PAUSE, .pid = getpid()});
        v.done = verb_is_done;
        e->m->on_apply = rows[i].apply;
        engine_submit(e->m, &v.command);
        fake_engine_tick(e->m);
        assert_int_equal(v.command.code, 0);
        assert_in_range(v.took_ns, rows[i].least_ns, rows[i].most_ns);
    }
}

/* By the socket for containers even the daemon's own user is an ordinary one. That a guest reaches
 * its pid namespace alone is in tests/containers. */
static void guests(void **state)
{
    struct env *e = *state;
    struct error err = {""};
    char path[96];
    snprintf(path, sizeof(path), "%s/guests", e->dir);
    assert_int_equal(server_listen_guests(e->s, path, &err), 0);
    fake_engine_put(e->m, getpid(), geteuid(), CLASS_BATCH, 50, "train");
    int fd = dial(path), outside = dial(e->path);
    assert_true(fd >= 0 && outside >= 0);
#define VERB(op, rest) "{\"v\":1,\"op\":\"" op "\",\"target\":\"train\"" rest "}"
    assert_int_equal(code(ask(e, fd, VERB("set", ",\"class\":\"latency\""))), EPERM);
    assert_int_equal(code(ask(e, fd, VERB("set", ",\"weight\":60"))), EPERM);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}")), EPERM);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"trace\"}")), EPERM);
    assert_int_equal(code(ask(e, fd, VERB("set", ",\"weight\":40"))), 0);
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"ps\"}");
    assert_true(json_is_true(json_object_get(o, "guest")));
    json_decref(o);
    /* Its own pauses it ends, and its user outside; those from outside it does not. */
    assert_int_equal(code(ask(e, fd, VERB("pause", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("resume", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("pause", ""))), 0);
    assert_int_equal(code(ask(e, outside, VERB("resume", ""))), 0);
    assert_int_equal(code(ask(e, outside, VERB("pause", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("resume", ""))), EPERM);
    assert_int_equal(code(ask(e, outside, VERB("set", ",\"class\":\"latency\""))), 0);
    assert_int_equal(code(ask(e, outside, VERB("resume", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("yield", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("acquire", ""))), 0);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"yield\"}")), 0); /* its own */
    assert_int_equal(code(ask(e, outside, VERB("acquire", ""))), 0);
    assert_int_equal(code(ask(e, outside, VERB("yield", ""))), 0);
    assert_int_equal(code(ask(e, fd, VERB("acquire", ""))), EPERM);
    assert_int_equal(e->m->jobs[0].job.class, CLASS_BATCH);
#undef VERB
    /* One that has ended has no namespace any more, and its number may be another's. */
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int left = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(connect(left, (struct sockaddr *)&a, sizeof(a)) < 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(code(reply(e, left)), EUSERS);
    assert_hung_up(e, left);
    close(fd);
    close(outside);
    stop_server(e);
    assert_int_equal(access(path, F_OK), -1);
}

/* What comes along and is not wanted takes its time to go: in a request, in one behind others on a
 * connection that ends, and on one that is not accepted when the server stops. */
static void descriptors_unasked(void **state)
{
    static const char text[] = "{\"v\":1,\"op\":\"ps\"}";
    struct env *e = *state;
    struct lingering l = lingering_new();
    int fd = dial(e->path);
    lingering_send(&l, fd, text, strlen(text));
    json_t *o = reply(e, fd);
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), "descriptors"));
    assert_int_equal(code(o), EBADMSG);
    assert_hung_up(e, fd);
    assert_served(e);
    lingering_end(&l);

    l = lingering_new();
    fd = dial(e->path);
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
    lingering_send(&l, fd, text, strlen(text));
    close(fd);
    assert_served(e);
    lingering_end(&l);

    l = lingering_new();
    fd = dial(e->path);
    lingering_send(&l, fd, text, strlen(text));
    stop_server(e);
    close(fd);
    lingering_end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(guests),
        TEST(other_users),
        TEST(flood),
        TEST(charges_processor_time),
        TEST(flood_of_connections),
        TEST(users_together),
        TEST(memory_of_users),
        TEST(uids_of_one_account),
        TEST(connections_are_paid_for),
        TEST(descriptors_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
