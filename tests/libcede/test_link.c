/* libcede and the real control socket. Behind it is a stand-in for the manager, in another process,
 * that is killed and started again. Waits for states, never for times. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "../api/fake_engine.h"
#include "../descriptors.h"
#include "api/hints.h"
#include "api/server.h"
#include "base/hints_proto.h"
#include "base/link_proto.h"
#include "base/shared_page.h"
#include "cede/cede.h"
#include "daemon/config.h"
#include "fixture.h"

#define NOBODY 65534

static char dir[64], path[80];
static pid_t daemon_pid;

/* Whether something comes true within 20 s. */
#define EVENTUALLY(what)                                                                           \
    ({                                                                                             \
        int i_ = 0;                                                                                \
        while (!(what) && ++i_ < 4000)                                                             \
            usleep(5000);                                                                          \
        i_ < 4000;                                                                                 \
    })

/* ---- the daemon ------------------------------------------------------------------------------ */

static int serve(pid_t who)
{
    uv_loop_t loop;
    struct server *s;
    struct engine *m = fake_engine_new();
    struct verbs v = {.engine = m, .hints = hints_new()};
    fake_engine_put(m, who, geteuid(), CLASS_NORMAL, WEIGHT_DEFAULT, "me");
    if (uv_loop_init(&loop) < 0 || server_start(&loop, path, &v, ADMIN_NO_GROUP, &s, NULL) < 0)
        return 1;
    m->room_class = CLASS_NORMAL;
    while (uv_run(&loop, UV_RUN_ONCE)) {
        fake_engine_tick(m);
        hints_tell_wanted(v.hints, m, monotonic_ns());
    }
    return 0;
}

/* One message and its answer; returns its bytes. *fd: a descriptor that came with it, or -1. */
static ssize_t exchange(int sock, const void *ask, size_t bytes, void *answer, size_t size, int *fd)
{
    struct iovec io = {answer, size};
    union {
        char b[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } c;
    struct msghdr h = {
        .msg_iov = &io, .msg_iovlen = 1, .msg_control = c.b, .msg_controllen = sizeof(c.b)};
    if (send(sock, ask, bytes, MSG_NOSIGNAL) < 0)
        return -1;
    ssize_t n = recvmsg(sock, &h, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&h) : NULL;
    *fd = -1;
    if (cm)
        memcpy(fd, CMSG_DATA(cm), sizeof(*fd));
    return n;
}

static json_t *ask_ps(int sock)
{
    static const char text[] = "{\"v\":1,\"op\":\"ps\"}";
    static char buf[PROTO_MESSAGE_MAX];
    int fd;
    ssize_t n = exchange(sock, text, sizeof(text) - 1, buf, sizeof(buf), &fd);
    return n > 0 ? json_loadb(buf, (size_t)n, 0, NULL) : NULL;
}

/* As libcede asks; what is answered, or -EPROTO. */
static int ask_link(int sock, struct link_ask ask, struct link_answer *answer, int *fd)
{
    ask.magic = LINK_MAGIC;
    ssize_t n = exchange(sock, &ask, sizeof(ask), answer, sizeof(*answer), fd);
    return n == sizeof(*answer) && answer->magic == LINK_MAGIC ? answer->code : -EPROTO;
}

#define HINTS ((struct link_ask){.op = LINK_HINTS})

static int dial(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = 10};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    close(fd);
    return -1;
}

static bool answers(void)
{
    int fd = dial();
    return fd >= 0 && close(fd) == 0;
}

static void daemon_start(void)
{
    pid_t me = getpid();
    daemon_pid = fork();
    if (daemon_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(serve(me));
    }
    assert_true(daemon_pid > 0);
    assert_true(EVENTUALLY(answers()));
}

static void daemon_kill(void)
{
    if (daemon_pid > 0 && kill(daemon_pid, SIGKILL) == 0)
        waitpid(daemon_pid, NULL, 0);
    daemon_pid = 0;
}

/* The job of this process in the daemon's answer to ps. */
static json_t *me(void)
{
    int fd = dial();
    assert_true(fd >= 0);
    json_t *all = ask_ps(fd);
    close(fd);
    assert_non_null(all);
    json_t *job = json_incref(json_array_get(json_object_get(all, "jobs"), 0));
    json_decref(all);
    assert_non_null(job);
    return job;
}

static long long requests(const char *key)
{
    json_t *job = me();
    const json_t *r = json_object_get(job, "requests");
    long long v = r ? (long long)json_integer_value(json_object_get(r, key)) : -1;
    json_decref(job);
    return v;
}

static bool class_is(const char *class)
{
    json_t *job = me();
    bool is = strcmp(json_string_value(json_object_get(job, "class")), class) == 0;
    json_decref(job);
    return is;
}

static int begin_test(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/cede-test-link-XXXXXX");
    if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
        return -1;
    snprintf(path, sizeof(path), "%s/socket", dir);
    setenv("CEDE_DIR", dir, 1);
    return 0;
}

static int end_test(void **state)
{
    daemon_kill();
    unlink(path);
    return rmdir(dir);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static struct cede *new_handle(void)
{
    struct cede *c;
    OK(cede_connect(&c));
    return c;
}

static void daemon_listens(struct cede *c)
{
    assert_true(EVENTUALLY(cede_connected(c)));
}

static struct cede *connect_to_daemon(void)
{
    daemon_start();
    struct cede *c = new_handle();
    daemon_listens(c);
    return c;
}

/* Due in an hour. */
static void begin_request(struct cede *c, struct cede_request *r)
{
    OK(cede_request_begin(c, r, CEDE_JOB, 0, 3600000000ULL));
}

static void work(struct cede *c, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct cede_request r;
        begin_request(c, &r);
        OK(cede_request_end(c, &r));
    }
}

/* Runs f, which says what failed or 0, as a user without rights. */
static void as_nobody(int (*f)(void))
{
    if (geteuid() != 0)
        skip();
    daemon_start();
    pid_t child = fork();
    if (child == 0)
        _exit(setgid(NOBODY) < 0 || setuid(NOBODY) < 0 ? 1 : f());
    child_ends_well(child);
}

static uint64_t ended(struct cede *c)
{
    struct cede_statistics s;
    OK(cede_get_statistics(c, &s, sizeof(s)));
    assert_int_equal(s.deadlines_met, s.ended);
    return s.ended;
}

TEST_WITH(reports, begin_test, end_test)
{
    struct cede_request r;
    daemon_start();
    assert_int_equal(requests("ended"), -1); /* no program reports any */
    struct cede *c = new_handle();
    daemon_listens(c);
    work(c, 10);
    begin_request(c, &r);
    assert_int_equal(requests("programs"), 1);
    assert_int_equal(requests("begun"), 11);
    assert_int_equal(requests("ended"), 10);
    assert_int_equal(requests("met"), 10);
    assert_int_equal(requests("open"), 1);
    assert_in_range(requests("next_due_us"), 3000000000LL, 3600000000LL);
    OK(cede_set_class(c, CEDE_BATCH));
    assert_true(class_is("batch"));
    OK(cede_set_weight(c, 7));
    json_t *job = me();
    assert_int_equal(json_integer_value(json_object_get(job, "weight")), 7);
    assert_true(class_is("batch")); /* still */
    json_decref(job);
    cede_close(c);
    assert_true(EVENTUALLY(requests("programs") == -1));
}

/* The same results without a daemon, and when it is killed in the middle; what was set meanwhile
 * reaches the next one. */
TEST_WITH(dies, begin_test, end_test)
{
    struct cede *c = new_handle();
    struct cede_request r;
    OK(cede_connected(c));
    work(c, 5);
    daemon_start();
    daemon_listens(c);
    work(c, 5);
    assert_int_equal(requests("ended"), 10);
    begin_request(c, &r);
    daemon_kill();
    OK(cede_request_end(c, &r));
    work(c, 4);
    OK(cede_set_class(c, CEDE_BATCH));
    OK(cede_connected(c));
    daemon_start();
    daemon_listens(c);
    assert_true(EVENTUALLY(class_is("batch")));
    assert_int_equal(requests("ended"), 15);
    assert_int_equal(ended(c), 15);
    cede_close(c);
}

static bool is_wanted(struct cede *c)
{
    json_decref(me()); /* so that the daemon looks */
    return cede_wanted(c) == 1;
}

/* A job of class normal waits: for batch jobs, as long as there is a daemon. */
TEST_WITH(wanted, begin_test, end_test)
{
    struct cede *c = connect_to_daemon();
    OK(cede_wanted(NULL));
    for (int i = 0; i < 20; i++)
        assert_false(is_wanted(c));
    OK(cede_set_class(c, CEDE_BATCH));
    assert_true(EVENTUALLY(is_wanted(c)));
    pid_t child = fork();
    if (child == 0) /* begins without a page */
        _exit(cede_wanted(c));
    child_ends_well(child);
    daemon_kill();
    assert_true(EVENTUALLY(!cede_wanted(c)));
    cede_close(c);
}

/* Hints never wait for a daemon that hangs. */
TEST_WITH(hangs, begin_test, end_test)
{
    struct cede *c = connect_to_daemon();
    OK(kill(daemon_pid, SIGSTOP));
    assert_int_equal(cede_set_class(c, CEDE_BATCH), -ETIMEDOUT);
    work(c, 100);
    alarm(45); /* a job that yields gives up after 5 s */
    assert_int_equal(cede_job_yield(c, 0), -ENOTCONN);
    alarm(0);
    OK(kill(daemon_pid, SIGCONT));
    OK(cede_set_weight(c, 9));       /* the late answer is not taken for this one's */
    assert_false(class_is("batch")); /* nor does it happen later */
    assert_int_equal(requests("ended"), 100);
    cede_close(c);
}

static int in_child(struct cede *c, struct cede_request *r)
{
    if (cede_request_end(c, r) != -ESTALE || ended(c) != 0)
        return 1;
    work(c, 3);
    if (!EVENTUALLY(cede_connected(c)))
        return 2;
    return ended(c) == 3 ? 0 : 3;
}

TEST_WITH(forks, begin_test, end_test)
{
    struct cede *c = connect_to_daemon();
    struct cede_request r;
    work(c, 2);
    begin_request(c, &r);
    pid_t child = fork();
    if (child == 0)
        _exit(in_child(c, &r));
    child_ends_well(child);
    OK(cede_request_end(c, &r));
    assert_int_equal(cede_connected(c), 1);
    assert_int_equal(requests("ended"), 3);
    cede_close(c);
}

/* A program that closes descriptors it did not open, and gets the number for something else. */
TEST_WITH(closed, begin_test, end_test)
{
    int pair[2], first = dup(0);
    close(first);
    struct cede *c = connect_to_daemon();
    close_range((unsigned)first, ~0U, 0);
    OK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    assert_int_equal(send(pair[1], "x", 1, 0), 1);
    char x;
    daemon_listens(c); /* anew */
    OK(cede_set_class(c, CEDE_BATCH));
    work(c, 3);
    assert_int_equal(requests("ended"), 3);
    assert_int_equal(recv(pair[0], &x, 1, MSG_DONTWAIT), 1);
    assert_int_equal(recv(pair[1], &x, 1, MSG_DONTWAIT), -1); /* nothing was sent there */
    close_range((unsigned)first, ~0U, 0);
    errno = EDOM;
    cede_close(c);
    assert_int_equal(errno, EDOM);
}

/* Its own process, in no job until then: it may lower, and not raise again. */
static int lowers_itself(void)
{
    struct cede *c = new_handle();
    if (!EVENTUALLY(cede_connected(c)))
        return 2;
    if (cede_set_class(c, CEDE_BATCH) != 0 || cede_set_class(c, CEDE_NORMAL) != -EPERM ||
        cede_set_weight(c, 200) != -EPERM)
        return 3;
    work(c, 1);
    return ended(c) == 1 ? 0 : 4;
}

TEST_WITH(rights, begin_test, end_test)
{
    as_nobody(lowers_itself);
    assert_true(class_is("normal"));
}

/* Whatever is on the page, the daemon shows possible numbers, and of that job alone. */
TEST_WITH(hostile, begin_test, end_test)
{
    static const uint64_t evil[] = {0, 1, UINT64_MAX, INT64_MAX, 1ULL << 53, 1ULL << 63};
    struct link_answer a;
    int fd, none;
    daemon_start();
    int sock = dial();
    assert_int_equal(ask_link(sock, HINTS, &a, &fd), 0);
    assert_true(fd >= 0 && a.page && !a.waits);
    assert_int_equal(ask_link(sock, HINTS, &a, &none), -EALREADY);
    assert_int_equal(none, -1);
    assert_int_equal(ftruncate(fd, 0), -1); /* it would be the daemon's SIGBUS */
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HINTS_PAGE));
    uint64_t *w = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(w != MAP_FAILED);
    uint64_t seed = 1;
    for (unsigned round = 0; round < 300; round++) {
        for (unsigned i = 0; i < HINTS_PAGE / sizeof(*w); i++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            w[i] = evil[(seed >> 33) % ARRAY_SIZE(evil)];
        }
        json_t *job = me(), *r = json_object_get(job, "requests"), *v;
        const char *key;
        json_object_foreach (r, key, v) {
            assert_true(json_is_null(v) || json_number_value(v) >= 0);
        }
#define R(key) json_integer_value(json_object_get(r, key))
        assert_true(R("met") <= R("due") && R("due") <= R("ended") && R("ended") <= R("begun"));
        assert_true(R("begun") <= 1LL << 53);
        assert_int_equal(R("open"), R("begun") - R("ended"));
        json_decref(job);
    }
    close(sock);
    close(fd);
    munmap(w, HINTS_PAGE);
    assert_true(class_is("normal"));
}

static int takes_all_pages(void)
{
    struct link_answer a;
    int fd;
    for (unsigned i = 0; i <= HINTS_PAGES_PER_USER; i++) {
        bool last = i == HINTS_PAGES_PER_USER;
        if (ask_link(dial(), HINTS, &a, &fd) != (last ? -EUSERS : 0) || (fd >= 0) == last)
            return 2;
    }
    return json_is_true(json_object_get(ask_ps(dial()), "ok")) ? 0 : 3;
}

/* Pages have limits of their own: a user who has all of them can still use the verbs. */
TEST_WITH(limits, begin_test, end_test)
{
    as_nobody(takes_all_pages);
}

/* ---- a daemon that lies ---------------------------------------------------------------------- */

static int listener;

static int lied_to(void)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char buf[256];
    assert_true(fd >= 0);
    assert_true(recv(fd, buf, sizeof(buf), 0) > 0);
    return fd;
}

static void welcome(int fd, int page, unsigned npages)
{
    const struct link_answer a = {.magic = LINK_MAGIC, .page = 1};
    OK(send_with_fds(fd, &a, sizeof(a), (int[]){page, page}, npages));
}

struct lie {
    unsigned npages;
    bool shrinks; /* the page, after it was taken */
    bool floods;  /* sends answers to nothing */
};

static atomic_bool done, hung_up;

static void *liar(void *arg)
{
    const struct lie *lie = arg;
    const struct timeval patience = {.tv_sec = 10};
    int fd = lied_to(), page = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char x;
    OK(ftruncate(page, HINTS_PAGE));
    if (lie->floods)
        OK(fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK));
    welcome(fd, page, lie->npages);
    for (int i = 0; lie->floods && i < 20000 && send(fd, "{}", 2, MSG_NOSIGNAL) == 2; i++)
        ;
    if (lie->shrinks) {
        usleep(5000);
        OK(ftruncate(page, 0));
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    atomic_store(&hung_up, recv(fd, &x, 1, 0) == 0 || errno != EAGAIN);
    atomic_store(&done, true);
    close(page);
    close(fd);
    return NULL;
}

TEST_WITH(lies, begin_test, end_test)
{
    static struct lie what[] = {
        {.npages = 2}, {.npages = 1, .shrinks = true}, {.npages = 1, .floods = true}};
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    for (size_t i = 0; i < ARRAY_SIZE(what); i++) {
        size_t before = descriptors(getpid());
        listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        OK(bind(listener, (struct sockaddr *)&a, sizeof(a)));
        OK(listen(listener, 8));
        atomic_store(&done, false);
        const pthread_t t = start(liar, &what[i]);
        struct cede *c = new_handle();
        for (int k = 0; k < 20 || (what[i].floods && !atomic_load(&done)); k++) {
            cede_connected(c);
            work(c, 1);
            usleep(1000);
        }
        assert_true(!what[i].floods || atomic_load(&hung_up));
        OK(cede_connected(c));
        cede_close(c);
        OK(result_of(t));
        close(listener);
        unlink(path);
        assert_int_equal(descriptors(getpid()), before);
    }
}

#define THREADS  4
#define REQUESTS 3000

static void *many(void *c)
{
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct cede_request r;
        cede_request_begin(c, &r, i % 3, 1, 3600000000ULL);
        cede_request_end(c, &r);
    }
    return NULL;
}

static void *says(void *c)
{
    for (int i = 0; i < 100; i++) {
        cede_set_weight(c, 1 + (unsigned)i);
        cede_set_priority(c, (cede_stream)i % 5, i);
        cede_connected(c);
    }
    return NULL;
}

TEST_WITH(threads, begin_test, end_test)
{
    pthread_t t[THREADS + 1];
    daemon_start();
    struct cede *c = new_handle();
    for (unsigned i = 0; i <= THREADS; i++)
        t[i] = start(i < THREADS ? many : says, c);
    for (int i = 0; i < 5; i++) {
        int status = -1;
        pid_t child = fork(); /* in the middle of all that */
        if (child == 0)
            raise(ended(c) == 0 ? SIGKILL : SIGTERM); /* ThreadSanitizer dislikes _exit() here */
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, SIGKILL);
    }
    daemon_kill();
    join_threads(t, THREADS + 1, 0);
    assert_int_equal(ended(c), THREADS * REQUESTS);
    cede_close(c);
}
