/* The software GPU end to end, when things go wrong: killed clients and servers, others' programs,
 * messages that break the protocol, clients that do not read. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/soft/proto.h"
#include "softgpu/engine.h"
#include "softgpu/server.h"

#define NOBODY 65534

/* Its groups go with it, and so does its kernel of a second: mine does not wait for a slice. */
END_TO_END(client_killed)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *mine = client(f, 0);
    pid_t pid = start_client(f, NULL, geteuid(), 1);
    _cleanup_(group_list_free) struct group_list l = scan(d, pid);
    assert_int_equal(l.n, 4);
    end_client(d, pid);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), -ESRCH);
    const struct soft_completion c = run(mine, 1 * MS, 1);
    assert_true(c.end_ns - c.submit_ns < 1 * MS + 400 * US);
}

END_TO_END(server_killed)
{
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid()), none = {0};
    struct soft_completion out;
    struct error err = {""};
    submit(c, 1000 * MS, 3);
    kill(f->server, SIGKILL);
    waitpid(f->server, NULL, 0);

    assert_int_equal(soft_client_wait(c, PATIENCE * NSEC_PER_MSEC, &out), -EPIPE);
    struct soft_kernel k = {.duration_ns = US, .sm_fraction = 1};
    assert_int_equal(soft_client_submit(c, &k), -EPIPE);
    assert_int_equal(soft_client_open(f->path, 0, NULL, &(struct soft_client *){NULL}),
                     -ECONNREFUSED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, &err), -ENODEV);
    assert_non_null(strstr(err.text, f->path));
    assert_int_equal(switch_groups(d, &l, 4, true), -ENODEV);
    assert_int_equal(d->ops->scan(d, id_of(getpid()), &none, NULL), -ENODEV);

    /* A new server replaces the stale socket; the driver finds it by itself. What it held of the
     * old one means nothing there. */
    f->server = start_server(f->path, geteuid(), NULL);
    _cleanup_client_ struct soft_client *c2 = client(f, 0);
    _cleanup_(group_list_free) struct group_list l2 = scan(d, getpid());
    assert_int_equal(l2.n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(l2.v[i].key, l.v[i].key);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), -ESRCH);
    _cleanup_(usage_list_free) struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
}

/* Preempted at block ends, its block waits for a peer that never comes, and another program waits
 * for it: its channel is reset, and with it its context ends. 5 s of the device's time. */
END_TO_END(channel_reset)
{
    const struct soft_gang gang = {7, 2};
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *lost = NULL;
    struct soft_completion c;
    assert_int_equal(soft_client_open(f->path, 0, &gang, &lost), 0);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(d->ops->set_preempt(d, &l.v[0], true, NULL), 0);
    _cleanup_client_ struct soft_client *other = client(f, 0);
    submit(lost, 1 * MS, 1);
    usleep(10000);
    c = run(other, 1 * MS, 1);
    assert_true(c.end_ns - c.submit_ns > 4900ULL * MS);
    assert_int_equal(soft_client_wait(lost, 1000ULL * MS, &c), -EPIPE);
    assert_int_equal(d->ops->set_preempt(d, &l.v[0], false, NULL), -ESRCH);
}

END_TO_END(second_server)
{
    char path[96];
    int status = -1;
    assert_int_equal(start_server(f->path, geteuid(), &status), -1);
    assert_int_equal(status, 1);
    _cleanup_client_ struct soft_client *c = client(f, 0); /* the first one is unharmed */
    run(c, US, 1);

    /* What is no socket stays where it is. */
    snprintf(path, sizeof(path), "%s/file", f->dir);
    assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
    assert_int_equal(start_server(path, geteuid(), &status), -1);
    assert_int_equal(status, 1);
    assert_int_equal(unlink(path), 0);
}

END_TO_END(socket_mode)
{
    struct stat st;
    char made[80];
    snprintf(made, sizeof(made), "%s/made", f->dir);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(made, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
}

static int raw_connection(const struct fixture *f)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", f->path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static uint64_t rnd(uint64_t *s)
{
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return *s >> 33;
}

/* Noise, and messages that are nearly right, on fresh and on opened connections. */
END_TO_END(malformed)
{
    uint64_t s = 20261121;
    for (int i = 0; i < 3000; i++) {
        union {
            struct soft_msg m;
            unsigned char bytes[1024];
        } u;
        int fd = raw_connection(f);
        if (rnd(&s) % 2) {
            struct soft_msg m = {.type = rnd(&s) % 2 ? SOFT_OPEN_CONTEXT : SOFT_OPEN_CONTROL};
            m.u.open.mps_inode = rnd(&s) % 3; /* 0: nobody's client */
            assert_int_equal(soft_transact(fd, &m, SOFT_REPLY), 0);
            assert_int_equal(m.u.reply.result, 0);
        }
        for (int j = 0; j < 4; j++) {
            for (size_t b = 0; b < sizeof(u.bytes); b++)
                u.bytes[b] = (unsigned char)(rnd(&s) % 4 ? rnd(&s) : 0);
            size_t n = rnd(&s) % sizeof(u.bytes);
            if (rnd(&s) % 4) {
                u.m.version = SOFT_VERSION;
                u.m.type = (uint32_t)(rnd(&s) % 14);
                if (rnd(&s) % 4 && soft_msg_size(u.m.type))
                    n = soft_msg_size(u.m.type);
            }
            if (send(fd, &u, n, MSG_NOSIGNAL) < 0)
                break; /* closed already */
        }
        close(fd);
    }
    /* Alive, and nothing is left of them. */
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_client_ struct soft_client *c = client(f, 1);
    run(c, US, 1);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 4);
}

/* A message that is wrong in one point closes that connection. */
END_TO_END(strictness)
{
    struct soft_msg ok = {.version = SOFT_VERSION,
                          .type = SOFT_SUBMIT,
                          .u.submit = {.duration_ns = US, .sm_fraction = 1}};
    struct soft_msg again = {.version = SOFT_VERSION, .type = SOFT_OPEN_CONTEXT};
    struct soft_msg version = ok, fault = ok, stream = ok,
                    control = {
                        .version = SOFT_VERSION, .type = SOFT_CONTROL, .u.control = {.n = 1}};
    version.version++;
    fault.u.submit.fault = 2;
    stream.u.submit.stream = SOFTGPU_STREAMS;
    const size_t size = soft_msg_size(SOFT_SUBMIT);
    const struct {
        const struct soft_msg *m;
        size_t n;
    } bad[] = {
        {&ok, size - 1},
        {&ok, size + 1},
        {&ok, 1},
        {&version, size},
        {&fault, size},
        {&stream, size},
        {&control, soft_msg_size(SOFT_CONTROL)},
        {&again, soft_msg_size(SOFT_OPEN_CONTEXT)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct soft_msg m = {.type = SOFT_OPEN_CONTEXT};
        int fd = -1;
        assert_int_equal(soft_connect(f->path, &m, &fd, NULL), 0);
        assert_true(send(fd, &ok, soft_msg_size(SOFT_SUBMIT), 0) > 0);
        assert_true(recv(fd, &m, sizeof(m), 0) > 0); /* a right one works */
        assert_true(send(fd, bad[i].m, bad[i].n, 0) > 0);
        assert_true(recv(fd, &m, sizeof(m), 0) <= 0);
        close(fd);
    }
}

END_TO_END(never_reads)
{
    _cleanup_client_ struct soft_client *c = client(f, 0);
    static const struct soft_msg hello[] = {
        {.version = SOFT_VERSION, .type = SOFT_OPEN_CONTEXT},
        {.version = SOFT_VERSION, .type = SOFT_OPEN_CONTROL},
    };
    static const struct soft_msg then[] = {
        {.version = SOFT_VERSION,
         .type = SOFT_SUBMIT,
         .u.submit = {.duration_ns = 1, .sm_fraction = 1}},
        {.version = SOFT_VERSION, .type = SOFT_LIST},
    };
    for (int i = 0; i < 2; i++) {
        int fd = raw_connection(f), n = 0;
        assert_true(send(fd, &hello[i], soft_msg_size(hello[i].type), 0) > 0);
        while (send(fd, &then[i], soft_msg_size(then[i].type), MSG_NOSIGNAL) > 0) {
            assert_true(n++ < 100000);
            if (n % 100 == 0) { /* meanwhile everybody else is served */
                run(c, US, 1);
            }
        }
        assert_true(errno == EPIPE || errno == ECONNRESET);
        close(fd);
    }
}

/* Root's program is not for others to steer; root steers everybody's. */
END_TO_END(permission)
{
    int status = -1;
    if (geteuid() != 0)
        skip();
    open_to_all(f);
    _cleanup_client_ struct soft_client *c = client(f, 0);
    _cleanup_driver_ struct device_driver *d = driver(f);
    _cleanup_(group_list_free) struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 4);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct device_driver *theirs;
        struct error err = {""};
        if (setuid(NOBODY) < 0 || device_soft.open(f->path, &theirs, &err) < 0)
            _exit(1);
        bool refused = theirs->ops->set_timeslice(theirs, &l.v[0], 5, &err) == -EPERM &&
                       strstr(err.text, "root") && switch_groups(theirs, &l, 4, true) == -EPERM;
        _exit(refused ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), 0);
    run(c, US, 1);
}

/* ---- servers that lie ---- */

/* Somebody's program that listens there and does as told; ends with the test. */
static pid_t impostor(const char *path, uid_t uid, void (*serve)(int fd))
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s.new", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(fd >= 0 && pid >= 0);
    if (pid == 0) {
        if (uid != geteuid() && setuid(uid) < 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 0) < 0 ||
            rename(addr.sun_path, path) < 0)
            _exit(1);
        for (;;) {
            int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
            serve(client);
            close(client);
        }
    }
    close(fd);
    for (int i = 0; i < PATIENCE && access(path, F_OK) != 0; i++)
        usleep(1000);
    return pid;
}

static void end_impostor(const char *path, pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(path);
}

/* A test at the path of the fixture's socket, at which there is no server any more. */
static int without_server(void **state)
{
    int r = setup(state);
    struct fixture *f = *state;
    if (r == 0)
        stop_server(f->server);
    f->server = 0;
    return r;
}
#define IMPOSTOR_TEST(name) TEST_IN(name, struct fixture *f, without_server, teardown)

static void never_answers(int fd)
{
    for (;;)
        pause();
}

/* Another user's server is left alone: it is not even connected to, as that could wait for ever. */
IMPOSTOR_TEST(impostor_of_another_user)
{
    struct device_driver *d;
    struct soft_client *c;
    struct error err = {""};
    char path[80];
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(f->dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/socket", f->dir);
    pid_t pid = impostor(path, NOBODY, never_answers);
    assert_int_equal(device_soft.open(path, &d, &err), -EPERM);
    assert_non_null(strstr(err.text, "another user's"));
    assert_int_equal(soft_client_open(path, 0, NULL, &c), -EPERM);
    end_impostor(path, pid);
}

/* Answers all that it is asked with what answer() makes of it; i: the how manieth question. */
static void answers(int fd, struct soft_msg (*answer)(uint32_t asked, int i))
{
    struct soft_msg m;
    for (int i = 0; recv(fd, &m, sizeof(m), 0) > 0; i++) {
        m = answer(m.type, i);
        m.version = SOFT_VERSION;
        if (send(fd, &m, soft_msg_size(m.type), MSG_NOSIGNAL) < 0)
            break;
    }
}

static uint64_t step, key; /* from one key of an endless list to the next; the last */

static struct soft_msg list_without_end(uint32_t asked, int i)
{
    if (asked != SOFT_LIST)
        return (struct soft_msg){.type = SOFT_REPLY, .u.reply = {.gpus = 1}};
    struct soft_msg m = {.type = SOFT_GROUPS, .u.groups = {.n = 8, .more = 1}};
    for (int k = 0; k < 8; k++)
        m.u.groups.v[k] = (struct soft_group){.key = key += step, .pid = 1};
    return m;
}

static void lists_without_end(int fd)
{
    key = 1;
    answers(fd, list_without_end);
}

IMPOSTOR_TEST(endless_list)
{
    for (step = 0; step < 2; step++) {
        pid_t pid = impostor(f->path, geteuid(), lists_without_end);
        struct device_driver *d;
        struct error err = {""};
        assert_int_equal(device_soft.open(f->path, &d, &err), -ENODEV); /* it looks at once */
        assert_non_null(strstr(err.text, f->path));
        end_impostor(f->path, pid);
    }
}

static int32_t results[2]; /* to whoever connects; to what is asked then */

static struct soft_msg any_result(uint32_t asked, int i)
{
    return (struct soft_msg){.type = SOFT_REPLY, .u.reply = {results[i > 0], .gpus = 1}};
}

static void answers_anything(int fd)
{
    answers(fd, any_result);
}

/* Numbers that are no result: some cannot even be negated. */
IMPOSTOR_TEST(mad_results)
{
    static const int32_t cases[][2] = {{INT32_MIN, 0}, {7, 0},         {INT32_MAX, 0},
                                       {1, 0},         {0, INT32_MIN}, {0, INT32_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memcpy(results, cases[i], sizeof(results));
        pid_t pid = impostor(f->path, geteuid(), answers_anything);
        _cleanup_client_ struct soft_client *c = NULL;
        int r = soft_client_open(f->path, 0, NULL, &c);
        assert_int_equal(r, results[0] ? -EPROTO : 0);
        if (r == 0)
            assert_int_equal(soft_client_alloc(c, 1), -EPROTO);
        end_impostor(f->path, pid);
    }
}

/* What a server with this argument would return; its texts go nowhere. */
static int status_with(const char *argument)
{
    int status = -1;
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char name[] = "cede-softgpu", *argv[] = {name, strdup(argument), NULL};
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        int r = soft_server_main(2, argv);
        free(argv[1]);
        exit(r);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(arguments)
{
    assert_int_equal(status_with("--help"), 0);
    assert_int_equal(status_with("--what"), 2);
    assert_int_equal(status_with("--gpus=17"), 2);
    assert_int_equal(status_with("extra"), 2);
}
