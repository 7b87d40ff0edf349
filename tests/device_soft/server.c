/* The software GPU end to end: server, client library and driver over a real socket. Asserts on
 * results, orders and the GPU's own (virtual) times, never on how long anything took here. */
#include "device/soft/server.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/device.h"
#include "device/soft/client.h"
#include "device/soft/engine.h"
#include "device/soft/proto.h"

#define US       1000U
#define MS       1000000U
#define PATIENCE 20000 /* ms until a wait that has to succeed is given up */
#define NOBODY   65534

struct fixture {
    char dir[64], path[80];
    pid_t server;
};

/* ---- processes ---- */

/* The server in a process of its own; returns when it listens (or has ended: then *status says
 * how).
 */
static pid_t start_server(const char *path, uid_t uid, int *status)
{
    int p[2];
    char line[256] = "";
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char name[] = "cede-softgpu", socket_opt[] = "--socket", gpus_opt[] = "--gpus", two[] = "2";
        char *argv[] = {name, socket_opt, strdup(path), gpus_opt, two, NULL};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(p[1], STDOUT_FILENO);
        if (uid != geteuid() && setuid(uid) < 0)
            _exit(99);
        int null = open("/dev/null", O_WRONLY); /* complaints about clients are expected */
        dup2(null, STDERR_FILENO);
        int r = soft_server_main(5, argv);
        free(argv[2]);
        exit(r);
    }
    close(p[1]);
    FILE *f = fdopen(p[0], "r");
    assert_non_null(f);
    bool listens = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    if (!listens) {
        int st;
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_non_null(status);
        *status = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
        return -1;
    }
    assert_int_equal(strncmp(line, "listening on ", 13), 0);
    assert_int_equal(strncmp(line + 13, path, strlen(path)), 0);
    return pid;
}

static void stop_server(pid_t pid)
{
    int st;
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st));
    assert_int_equal(WEXITSTATUS(st), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    strcpy(f->dir, "/tmp/cede-test-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    snprintf(f->path, sizeof(f->path), "%s/made/socket", f->dir);
    f->server = start_server(f->path, geteuid(), NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char made[80];
    struct stat st;
    if (f->server > 0)
        stop_server(f->server);
    snprintf(made, sizeof(made), "%s/made", f->dir);
    bool clean = lstat(f->path, &st) < 0 && errno == ENOENT;
    unlink(f->path);
    rmdir(made);
    rmdir(f->dir);
    free(f);
    return clean ? 0 : -1;
}

/* ---- shorthands ---- */

static struct soft_client *client(const struct fixture *f, unsigned gpu)
{
    struct soft_client *c = NULL;
    assert_int_equal(soft_client_open(f->path, gpu, &c), 0);
    return c;
}

static struct device_driver *driver(const struct fixture *f)
{
    struct device_driver *d = NULL;
    struct error err = {""};
    if (device_soft.open(f->path, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

static void submit(struct soft_client *c, uint32_t duration_ns, unsigned times)
{
    struct soft_kernel k = {.duration_ns = duration_ns, .sm_fraction = 1, .cookie = 42};
    while (times-- > 0)
        assert_int_equal(soft_client_submit(c, &k), 0);
}

static struct soft_completion wait_for(struct soft_client *c)
{
    struct soft_completion out;
    assert_int_equal(soft_client_wait(c, PATIENCE, &out), 0);
    assert_int_equal(out.cookie, 42);
    return out;
}

static struct proc_id id_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

/* Groups of this process, oldest first; the caller frees. */
static struct group_list scan(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    assert_int_equal(d->ops->scan(d, id_of(pid), &l, NULL), 0);
    return l;
}

/* The first n groups of the list, in one call: suspend or resume. */
static int switch_groups(struct device_driver *d, const struct group_list *l, size_t n,
                         bool suspend)
{
    const struct device_group *g[2 * SOFT_CONTEXT_GROUPS];
    for (size_t i = 0; i < n; i++)
        g[i] = &l->v[i];
    return (suspend ? d->ops->suspend : d->ops->resume)(d, g, n, NULL);
}

/* ---- clients ---- */

static void test_kernels(void **state)
{
    struct fixture *f = *state;
    struct soft_client *c = client(f, 0);
    struct soft_completion a, b;
    submit(c, 300 * US, 2);
    a = wait_for(c);
    b = wait_for(c);
    assert_true(a.submit_ns < a.start_ns);
    assert_int_equal(a.end_ns, a.start_ns + 300 * US);
    assert_true(b.start_ns >= a.end_ns);
    assert_int_equal(b.end_ns, b.start_ns + 300 * US);
    assert_int_equal(soft_client_wait(c, 0, &a), -ETIMEDOUT);
    soft_client_close(c);
}

static void test_client_limits(void **state)
{
    struct fixture *f = *state;
    struct soft_client *c = client(f, 0), *none;
    struct soft_completion out;
    static const struct soft_kernel bad[] = {
        {ENGINE_STREAMS, 1, 1, 0},     {0, 0, 1, 0}, {0, 1, 0, 0}, {0, 1, 1.5f, 0},
        {0, 1, __builtin_nanf(""), 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(soft_client_submit(c, &bad[i]), -EINVAL);
    submit(c, 2 * US, SOFT_OUTSTANDING_MAX);
    struct soft_kernel k = {.duration_ns = US, .sm_fraction = 1, .cookie = 42};
    assert_int_equal(soft_client_submit(c, &k), -EAGAIN);
    wait_for(c);
    assert_int_equal(soft_client_submit(c, &k), 0);
    for (unsigned i = 0; i < SOFT_OUTSTANDING_MAX; i++)
        wait_for(c);
    assert_int_equal(soft_client_wait(c, 0, &out), -ETIMEDOUT);
    assert_int_equal(soft_client_open(f->path, 2, &none), -ENODEV);
    soft_client_close(c);
}

static void test_no_server(void **state)
{
    struct fixture *f = *state;
    struct soft_client *c;
    struct device_driver *d;
    struct error err = {""};
    char path[96];
    snprintf(path, sizeof(path), "%s/none", f->dir);
    assert_int_equal(soft_client_open(path, 0, &c), -ENOENT);
    assert_int_equal(device_soft.open(path, &d, &err), -ENODEV);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "cede-softgpu"));
}

static void test_many_clients(void **state)
{
    enum { N = 100 };
    struct fixture *f = *state;
    struct soft_client *c[N];
    struct device_driver *d = driver(f);
    for (unsigned i = 0; i < N; i++) {
        c[i] = client(f, i % 2);
        submit(c[i], 50 * US, 3);
    }
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, N * SOFT_CONTEXT_GROUPS);
    for (size_t i = 1; i < l.n; i++)
        assert_true(l.v[i].key > l.v[i - 1].key);
    group_list_free(&l);
    for (unsigned i = 0; i < N; i++) {
        for (int j = 0; j < 3; j++)
            wait_for(c[i]);
        soft_client_close(c[i]);
    }
    device_close(d);
}

/* ---- driver ---- */

static void test_scan(void **state)
{
    struct fixture *f = *state;
    struct device_driver *d = driver(f);
    struct soft_client *a = client(f, 0), *b = client(f, 1);
    struct gpu_info info;
    struct pid_list pids = {0};

    assert_int_equal(d->ops->gpus(d), 2);
    assert_int_equal(d->ops->info(d, 1, &info), 0);
    assert_string_equal(info.uuid, "SOFT-1");
    assert_int_equal(info.timeslice_default_us, 2048);
    assert_int_equal(d->ops->info(d, 2, &info), -ENODEV);
    assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    assert_int_equal(pids.n, 1); /* once, for two contexts */
    assert_int_equal(pids.v[0], getpid());
    pid_list_free(&pids);

    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 8);
    for (size_t i = 0; i < l.n; i++) {
        assert_int_equal(l.v[i].kind, i % 4 == 0 ? GROUP_COMPUTE : GROUP_COPY);
        assert_int_equal(l.v[i].gpu, i / 4);
        assert_int_equal(l.v[i].timeslice_us, 2048);
        assert_int_equal(l.v[i].nchannels, i % 4 == 0 ? 8 : 4);
        assert_int_equal(l.v[i].proc.pid, getpid());
    }
    group_list_free(&l);
    soft_client_close(b);

    /* A process without a context: nothing, and no error. A pid that is another process by now. */
    struct proc_id parent = id_of(getppid()), reused = id_of(getpid());
    assert_int_equal(d->ops->scan(d, parent, &l, NULL), 0);
    assert_int_equal(l.n, 0);
    reused.start_ticks++;
    assert_int_equal(d->ops->scan(d, reused, &l, NULL), -ESRCH);
    soft_client_close(a);
    device_close(d);
}

static void test_set_timeslice(void **state)
{
    struct fixture *f = *state;
    struct soft_client *c = client(f, 0);
    struct device_driver *d = driver(f), *other;
    struct error err = {""};
    struct group_list l = scan(d, getpid()), again;
    assert_int_equal(l.n, 4);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 7, &err), 0);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 0, &err), -EINVAL);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 1ULL << 40, &err), -EINVAL);

    /* Who saw it before still knows what to restore; who comes later finds what was set, also when
     * the connection it was set through is closed. */
    again = scan(d, getpid());
    assert_int_equal(again.v[0].timeslice_us, 2048);
    group_list_free(&again);
    device_close(d);
    other = driver(f);
    again = scan(other, getpid());
    assert_int_equal(again.v[0].key, l.v[0].key);
    assert_int_equal(again.v[0].timeslice_us, 7);
    assert_int_equal(again.v[1].timeslice_us, 2048);
    group_list_free(&again);

    /* Forgetting is per process. */
    assert_int_equal(other->ops->set_timeslice(other, &l.v[0], 9, NULL), 0);
    other->ops->forget(other, getpid());
    again = scan(other, getpid());
    assert_int_equal(again.v[0].timeslice_us, 9);
    group_list_free(&again);

    l.v[0].key += 1000000;
    assert_int_equal(other->ops->set_timeslice(other, &l.v[0], 7, &err), -ESRCH);
    assert_true(err.text[0] != '\0');
    group_list_free(&l);
    device_close(other);
    soft_client_close(c);
}

static void test_suspend(void **state)
{
    struct fixture *f = *state;
    struct soft_client *a = client(f, 0), *b = client(f, 0);
    struct device_driver *d = driver(f);
    struct group_list l = scan(d, getpid());
    struct soft_completion last = {0}, next;
    submit(a, 10 * MS, 1000);
    assert_int_equal(switch_groups(d, &l, 4, true), 0);
    /* What had ended by then is here; while it is suspended there is no more, though the GPU does
     * far more for the other than all of that is. */
    while (soft_client_wait(a, 0, &next) == 0)
        ;
    submit(b, 4 * MS, 50);
    for (int i = 0; i < 50; i++)
        last = wait_for(b);
    assert_int_equal(soft_client_wait(a, 0, &next), -ETIMEDOUT);
    assert_int_equal(switch_groups(d, &l, 4, true), 0); /* again: no harm */
    /* It stays so when nobody is connected for controls. */
    device_close(d);
    submit(b, 1 * MS, 1);
    last = wait_for(b);
    assert_int_equal(soft_client_wait(a, 0, &next), -ETIMEDOUT);

    d = driver(f);
    assert_int_equal(switch_groups(d, &l, 4, false), 0);
    assert_true(wait_for(a).end_ns > last.end_ns);

    /* One unknown group: an error, and the others are done all the same. */
    uint64_t key = l.v[3].key;
    l.v[3].key = 1;
    assert_int_equal(switch_groups(d, &l, 4, true), -ESRCH);
    while (soft_client_wait(a, 0, &next) == 0)
        ;
    submit(b, 4 * MS, 2);
    wait_for(b);
    wait_for(b);
    assert_int_equal(soft_client_wait(a, 0, &next), -ETIMEDOUT);
    l.v[3].key = key;
    assert_int_equal(switch_groups(d, &l, 4, false), 0);
    wait_for(a);
    group_list_free(&l);
    device_close(d);
    soft_client_close(a);
    soft_client_close(b);
}

static void test_shares(void **state)
{
    struct fixture *f = *state;
    struct soft_client *a = client(f, 0), *b = client(f, 0);
    struct device_driver *d = driver(f);
    struct group_list l = scan(d, getpid());
    struct soft_completion last = {0};
    unsigned n = 0;
    assert_int_equal(d->ops->set_timeslice(d, &l.v[0], 6000, NULL), 0);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[4], 2000, NULL), 0);
    assert_int_equal(switch_groups(d, &l, 8, true), 0);
    submit(a, 900 * US, 100);
    submit(b, 900 * US, 100);
    assert_int_equal(switch_groups(d, &l, 8, false), 0);
    for (int i = 0; i < 90; i++)
        last = wait_for(a);
    while (wait_for(b).end_ns <= last.end_ns)
        n++;
    /* 90 : 30, a turn more or less. */
    assert_in_range(n, 27, 33);
    group_list_free(&l);
    device_close(d);
    soft_client_close(a);
    soft_client_close(b);
}

/* The point of it all: a batch program's timeslice, set from outside, decides on the latency. */
static void test_latency(void **state)
{
    struct fixture *f = *state;
    struct soft_client *lat = client(f, 0), *batch = client(f, 0);
    struct device_driver *d = driver(f);
    struct group_list l = scan(d, getpid());
    assert_int_equal(l.n, 8);
    assert_int_equal(d->ops->set_timeslice(d, &l.v[4], 1, NULL), 0);
    submit(batch, 10 * MS, 1000);
    for (int i = 0; i < 30; i++) {
        usleep(2000); /* until the GPU has gone back to the batch program for sure */
        submit(lat, 100 * US, 1);
        struct soft_completion c = wait_for(lat);
        /* alone 125-134, switch in 175, slice 1 */
        assert_in_range(c.end_ns - c.submit_ns, 280 * US, 311 * US);
    }
    group_list_free(&l);
    device_close(d);
    soft_client_close(lat);
    soft_client_close(batch);
}

static void test_usage(void **state)
{
    struct fixture *f = *state;
    struct soft_client *a = client(f, 0), *b = client(f, 1);
    struct device_driver *d = driver(f);
    struct usage_list u = {0};
    submit(a, 5 * MS, 1);
    wait_for(a);
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    assert_int_equal(u.n, 2);
    assert_int_equal(u.v[0].pid, getpid());
    assert_int_equal(u.v[0].gpu, 0);
    assert_true(u.v[0].busy > 0 && u.v[0].busy <= 1);
    assert_int_equal(u.v[1].gpu, 1);
    assert_true(u.v[1].busy == 0);
    usage_list_free(&u);

    /* Since the last call: now the other one worked. Two contexts of one process are one entry. */
    struct soft_client *c = client(f, 1);
    submit(c, 5 * MS, 1);
    wait_for(c);
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    assert_int_equal(u.n, 2);
    assert_true(u.v[0].busy == 0);
    assert_true(u.v[1].busy > 0 && u.v[1].busy <= 1);
    usage_list_free(&u);
    soft_client_close(a);
    soft_client_close(b);
    soft_client_close(c);
    device_close(d);
}

/* ---- faults ---- */

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
        if (soft_client_open(f->path, 0, &c) < 0 || soft_client_submit(c, &k) < 0 ||
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

    assert_int_equal(soft_client_wait(c, PATIENCE, &out), -EPIPE);
    struct soft_kernel k = {.duration_ns = US, .sm_fraction = 1};
    assert_int_equal(soft_client_submit(c, &k), -EPIPE);
    assert_int_equal(soft_client_open(f->path, 0, &(struct soft_client *){NULL}), -ECONNREFUSED);
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
            assert_int_equal(soft_transact(fd, &m, SOFT_REPLY), 0);
            assert_int_equal(m.u.reply.result, 0);
        }
        for (int j = 0; j < 4; j++) {
            for (size_t b = 0; b < sizeof(u.bytes); b++)
                u.bytes[b] = (unsigned char)(rnd(&s) % 4 ? rnd(&s) : 0);
            size_t n = rnd(&s) % sizeof(u.bytes);
            if (rnd(&s) % 4) {
                u.m.version = SOFT_VERSION;
                u.m.type = (uint32_t)(rnd(&s) % 12);
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
    struct soft_msg version = ok, zero = ok, stream = ok,
                    control = {
                        .version = SOFT_VERSION, .type = SOFT_SUSPEND, .u.control = {.n = 1}};
    version.version++;
    zero.u.submit.zero = 1;
    stream.u.submit.stream = ENGINE_STREAMS;
    const struct {
        const struct soft_msg *m;
        size_t n;
    } bad[] = {
        {&ok, soft_msg_size(SOFT_SUBMIT) - 1},
        {&ok, soft_msg_size(SOFT_SUBMIT) + 1},
        {&ok, 1},
        {&version, soft_msg_size(SOFT_SUBMIT)},
        {&zero, soft_msg_size(SOFT_SUBMIT)},
        {&stream, soft_msg_size(SOFT_SUBMIT)},
        {&control, soft_msg_size(SOFT_SUSPEND)},
        {&again, soft_msg_size(SOFT_OPEN_CONTEXT)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct soft_msg m = {.type = SOFT_OPEN_CONTEXT};
        int fd = -1;
        assert_int_equal(soft_connect(f->path, &m, &fd), 0);
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
    assert_int_equal(chown(f.dir, NOBODY, NOBODY), 0);
    snprintf(f.path, sizeof(f.path), "%s/socket", f.dir);
    f.server = start_server(f.path, NOBODY, NULL);
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

#define end_to_end(t) cmocka_unit_test_setup_teardown(t, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        end_to_end(test_kernels),
        end_to_end(test_client_limits),
        end_to_end(test_no_server),
        end_to_end(test_many_clients),
        end_to_end(test_scan),
        end_to_end(test_set_timeslice),
        end_to_end(test_suspend),
        end_to_end(test_shares),
        end_to_end(test_latency),
        end_to_end(test_usage),
        end_to_end(test_client_killed),
        end_to_end(test_server_killed),
        end_to_end(test_second_server),
        end_to_end(test_socket_mode),
        end_to_end(test_malformed),
        end_to_end(test_strictness),
        end_to_end(test_never_reads),
        cmocka_unit_test(test_permission),
        cmocka_unit_test(test_arguments),
    };
    signal(SIGPIPE, SIG_DFL); /* the client library must not raise it */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
