/* The software GPU end to end, when things go wrong: killed clients and servers, others' programs,
 * messages that break the protocol, clients that do not read. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/soft/engine.h"
#include "device/soft/proto.h"
#include "device/soft/server.h"

#define NOBODY 65534

static void test_client_killed(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct group_list l;
    struct soft_client *mine = client(f, 0);
    int p[2];
    char ok;
    assert_int_equal(pipe(p), 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct soft_client *c;
        struct soft_kernel k = {.duration_ns = 1000 * MS, .sm_fraction = 1};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (soft_client_open(f->path, 0, NULL, &c) < 0 || soft_client_submit(c, &k) < 0 ||
            write(p[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(p[0], &ok, 1), 1);
    struct proc_id id = id_of(pid);
    l = scan(d, pid);
    assert_int_equal(l.n, 4);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    /* Its groups go with it, and so does its kernel of a second: mine does not wait for a slice. */
    struct group_list gone = {0};
    int r;
    for (int i = 0; (r = d->ops->scan(d, id, &gone, NULL)) == 0 && i < PATIENCE / 10; i++)
        usleep(10000);
    group_list_free(&gone);
    assert_int_equal(r, -ESRCH);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), -ESRCH);
    submit(mine, 1 * MS, 1);
    struct soft_completion c = wait_for(mine);
    assert_true(c.end_ns - c.submit_ns < 1 * MS + 400 * US);
    group_list_free(&l);
    close(p[0]);
    close(p[1]);
    soft_client_close(mine);
    device_close(d);
}

static void test_server_killed(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 0);
    struct group_list l = scan(d, getpid()), none = {0};
    struct soft_completion out;
    struct error err = {""};
    int r;
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
    struct soft_client *c2 = client(f, 0);
    struct group_list l2 = scan(d, getpid());
    assert_int_equal(l2.n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_not_equal(l2.v[i].key, l.v[i].key);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), -ESRCH);
    struct usage_list u = {0};
    r = d->ops->usage(d, &u, NULL);
    assert_int_equal(r, 0);
    usage_list_free(&u);
    group_list_free(&l);
    group_list_free(&l2);
    soft_client_close(c);
    soft_client_close(c2);
    device_close(d);
}

/* Preempted at block ends, its block waits for a peer that never comes, and another program waits
 * for it: its channel is reset, and with it its context ends. 5 s of the device's time. */
static void test_channel_reset(void **state)
{
    struct fixture *f = *state;
    const struct soft_gang gang = {7, 2};
    struct device_driver *d = driver(f);
    struct soft_client *lost, *other;
    struct soft_completion c;
    assert_int_equal(soft_client_open(f->path, 0, &gang, &lost), 0);
    struct group_list l = scan(d, getpid());
    assert_int_equal(d->ops->set_preempt(d, &l.v[0], true, NULL), 0);
    other = client(f, 0);
    submit(lost, 1 * MS, 1);
    usleep(10000);
    submit(other, 1 * MS, 1);
    c = wait_for(other);
    assert_true(c.end_ns - c.submit_ns > 4900ULL * MS);
    assert_int_equal(soft_client_wait(lost, 1000ULL * MS, &c), -EPIPE);
    assert_int_equal(d->ops->set_preempt(d, &l.v[0], false, NULL), -ESRCH);
    group_list_free(&l);
    soft_client_close(lost);
    soft_client_close(other);
    device_close(d);
}

static void test_second_server(void **state)
{
    struct fixture *f = *state;
    char path[96];
    int status = -1;
    assert_int_equal(start_server(f->path, geteuid(), &status), -1);
    assert_int_equal(status, 1);
    struct soft_client *c = client(f, 0); /* the first one is unharmed */
    submit(c, US, 1);
    wait_for(c);
    soft_client_close(c);

    /* What is no socket stays where it is. */
    snprintf(path, sizeof(path), "%s/file", f->dir);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(start_server(path, geteuid(), &status), -1);
    assert_int_equal(status, 1);
    assert_int_equal(unlink(path), 0);
}

static void test_socket_mode(void **state)
{
    struct fixture *f = *state;
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
    strcpy(addr.sun_path, f->path);
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
static void test_malformed(void **state)
{
    struct fixture *f = *state;
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
    struct device_driver *d = driver(f);
    struct soft_client *c = client(f, 1);
    submit(c, US, 1);
    wait_for(c);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 4);
    group_list_free(&l);
    soft_client_close(c);
    device_close(d);
}

/* A message that is wrong in one point closes that connection. */
static void test_strictness(void **state)
{
    struct fixture *f = *state;
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
    const struct {
        const struct soft_msg *m;
        size_t n;
    } bad[] = {
        {&ok, soft_msg_size(SOFT_SUBMIT) - 1},
        {&ok, soft_msg_size(SOFT_SUBMIT) + 1},
        {&ok, 1},
        {&version, soft_msg_size(SOFT_SUBMIT)},
        {&fault, soft_msg_size(SOFT_SUBMIT)},
        {&stream, soft_msg_size(SOFT_SUBMIT)},
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

static void test_never_reads(void **state)
{
    struct fixture *f = *state;
    struct soft_client *c = client(f, 0);
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
                submit(c, US, 1);
                wait_for(c);
            }
        }
        assert_true(errno == EPIPE || errno == ECONNRESET);
        close(fd);
    }
    soft_client_close(c);
}

/* Root's program is not for others to steer; root steers everybody's. */
static void test_permission(void **state)
{
    struct fixture f = {.dir = "/tmp/cede-test-XXXXXX"};
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(f.dir));
    assert_int_equal(chmod(f.dir, 0755), 0);
    snprintf(f.path, sizeof(f.path), "%s/socket", f.dir);
    f.server = start_server(f.path, 0, NULL);
    assert_int_equal(chmod(f.path, 0666), 0);
    struct soft_client *c = client(&f, 0);
    struct device_driver *d = driver(&f);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 4);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct device_driver *theirs;
        struct error err = {""};
        if (setuid(NOBODY) < 0 || device_soft.open(f.path, &theirs, &err) < 0)
            _exit(1);
        bool refused = theirs->ops->set_timeslice(theirs, &l.v[0], 5, &err) == -EPERM &&
                       strstr(err.text, "root") && switch_groups(theirs, &l, 4, true) == -EPERM;
        _exit(refused ? 0 : 2);
    }
    int st;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st));
    assert_int_equal(WEXITSTATUS(st), 0);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 5, NULL), 0);
    submit(c, US, 1);
    wait_for(c);
    group_list_free(&l);
    soft_client_close(c);
    device_close(d);
    stop_server(f.server);
    assert_int_equal(rmdir(f.dir), 0);
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
        for (;;)
            serve(accept4(fd, NULL, NULL, SOCK_CLOEXEC));
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

static void never_answers(int fd)
{
    (void)fd;
}

/* Another user's server is left alone: it is not even connected to, as that could wait for ever. */
static void test_impostor(void **state)
{
    char dir[] = "/tmp/cede-test-XXXXXX", path[64];
    struct device_driver *d;
    struct soft_client *c;
    struct error err = {""};
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0777), 0);
    snprintf(path, sizeof(path), "%s/socket", dir);
    pid_t pid = impostor(path, NOBODY, never_answers);
    assert_int_equal(device_soft.open(path, &d, &err), -EPERM);
    assert_non_null(strstr(err.text, "another user's"));
    assert_int_equal(soft_client_open(path, 0, NULL, &c), -EPERM);
    end_impostor(path, pid);
    assert_int_equal(rmdir(dir), 0);
}

static uint64_t step; /* from one key of an endless list to the next */

static void lists_without_end(int fd)
{
    struct soft_msg m;
    uint64_t key = 1;
    while (fd >= 0 && recv(fd, &m, sizeof(m), 0) > 0) {
        uint32_t asked = m.type;
        m = (struct soft_msg){.version = SOFT_VERSION, .type = SOFT_REPLY, .u.reply = {.gpus = 1}};
        if (asked == SOFT_LIST) {
            m = (struct soft_msg){
                .version = SOFT_VERSION, .type = SOFT_GROUPS, .u.groups = {.n = 8, .more = 1}};
            for (int i = 0; i < 8; i++)
                m.u.groups.v[i] = (struct soft_group){.key = key += step, .pid = 1};
        }
        if (send(fd, &m, soft_msg_size(m.type), MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
}

static void test_endless_list(void **state)
{
    struct fixture f = {.dir = "/tmp/cede-test-XXXXXX"};
    assert_non_null(mkdtemp(f.dir));
    snprintf(f.path, sizeof(f.path), "%s/socket", f.dir);
    for (step = 0; step < 2; step++) {
        pid_t pid = impostor(f.path, geteuid(), lists_without_end);
        struct device_driver *d;
        struct error err = {""};
        assert_int_equal(device_soft.open(f.path, &d, &err), -ENODEV); /* it looks at once */
        assert_non_null(strstr(err.text, f.path));
        end_impostor(f.path, pid);
    }
    assert_int_equal(rmdir(f.dir), 0);
}

static int32_t results[2]; /* to whoever connects; to what is asked then */

static void answers_anything(int fd)
{
    struct soft_msg m;
    for (int i = 0; fd >= 0 && recv(fd, &m, sizeof(m), 0) > 0; i = 1) {
        m = (struct soft_msg){
            .version = SOFT_VERSION, .type = SOFT_REPLY, .u.reply = {results[i], .gpus = 1}};
        if (send(fd, &m, soft_msg_size(m.type), MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
}

/* Numbers that are no result: some cannot even be negated. */
static void test_mad_results(void **state)
{
    static const int32_t cases[][2] = {{INT32_MIN, 0}, {7, 0},         {INT32_MAX, 0},
                                       {1, 0},         {0, INT32_MIN}, {0, INT32_MAX}};
    struct fixture f = {.dir = "/tmp/cede-test-XXXXXX"};
    (void)state;
    assert_non_null(mkdtemp(f.dir));
    snprintf(f.path, sizeof(f.path), "%s/socket", f.dir);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        memcpy(results, cases[i], sizeof(results));
        pid_t pid = impostor(f.path, geteuid(), answers_anything);
        struct soft_client *c = NULL;
        int r = soft_client_open(f.path, 0, NULL, &c);
        assert_int_equal(r, results[0] ? -EPROTO : 0);
        if (r == 0)
            assert_int_equal(soft_client_alloc(c, 1), -EPROTO);
        soft_client_close(c);
        end_impostor(f.path, pid);
    }
    assert_int_equal(rmdir(f.dir), 0);
}

static void test_arguments(void **state)
{
    char name[] = "cede-softgpu", help[] = "--help", bad[] = "--what", gpus[] = "--gpus",
         many[] = "17", extra[] = "extra";
    int out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO), null = open("/dev/null", O_WRONLY);
    fflush(NULL);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    int r[4] = {
        soft_server_main(2, (char *[]){name, help, NULL}),
        soft_server_main(2, (char *[]){name, bad, NULL}),
        soft_server_main(3, (char *[]){name, gpus, many, NULL}),
        soft_server_main(2, (char *[]){name, extra, NULL}),
    };
    fflush(NULL);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close(out);
    close(err);
    close(null);
    assert_int_equal(r[0], 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(r[i], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        end_to_end(test_client_killed),      end_to_end(test_server_killed),
        end_to_end(test_channel_reset),      end_to_end(test_second_server),
        end_to_end(test_socket_mode),        end_to_end(test_malformed),
        end_to_end(test_strictness),         end_to_end(test_never_reads),
        cmocka_unit_test(test_permission),   cmocka_unit_test(test_impostor),
        cmocka_unit_test(test_endless_list), cmocka_unit_test(test_mad_results),
        cmocka_unit_test(test_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
