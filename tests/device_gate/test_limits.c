/* What one program, or all of a user's, can take from others through the gate's driver:
 * descriptors, the daemon's time, devices, and turns. Virtual time where time counts. */
#include "fixture.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gate/gate.h"

static struct gate_driver *gate(void)
{
    return (struct gate_driver *)(void *)d;
}

/* ---- other processes ---- */

/* As fork(), into a process of this user; 0: of ours. */
static pid_t fork_as(uid_t uid)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    /* Changing the user would clear the signal. */
    if (pid == 0 &&
        ((uid && (setgid(uid) < 0 || setuid(uid) < 0)) || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0))
        _exit(1);
    return pid;
}

static void stay(void)
{
    for (;;)
        pause();
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* In such a process: waits until there is room in the backlog. */
static int connect_patiently(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        _exit(1);
    return fd;
}

/* ---- descriptors ---- */

static unsigned first_free(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
    return (unsigned)fd;
}

/* A connection that cannot be taken must not keep the loop awake: it is refused with the descriptor
 * in reserve, or waits until there are descriptors again. */
TEST_WITH(no_descriptors_left, begin, end)
{
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    for (int reserve = 0; reserve < 2; reserve++) {
        loop_begin();
        int fd = connect_raw();
        struct rlimit now = {reserve ? first_free() : 3, old.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
        unsigned turns = 0;
        while (turns < 100 && loop_turn() > 0)
            turns++;
        bool refused = closed(fd);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
        assert_true(turns < 100);
        assert_int_equal(refused, reserve);
        assert_true(reserve || d->ops->due_ns(d) < UINT64_MAX);
        while (d->ops->due_ns(d) < UINT64_MAX) {
            usleep(1000);
            demand();
        }
        assert_int_equal(loop_turn(), !reserve); /* it is accepted now */
        close(fd);
        loop_turn();
        struct pages p = welcomed();
        leave(&p);
        loop_end();
    }
}

/* As many programs as a user may have. */
static void fill(int crowd[GATE_PROGRAMS_OF_USER])
{
    for (unsigned i = 0; i < GATE_PROGRAMS_OF_USER; i++) {
        crowd[i] = connect_raw();
        processes();
    }
}

static void close_all(const int *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* A crowd that is refused again and again gets its refusals slowly. */
TEST_WITH(refusals_are_slow, begin, end)
{
    enum { CROWD = 60 };
    struct gate_driver *g = gate();
    int crowd[GATE_PROGRAMS_OF_USER], more[CROWD], refused = 0;
    fill(crowd);
    g->unmuted_ns = monotonic_ns() + NSEC_PER_SEC; /* what follows is within one span of time */
    loop_begin();
    for (unsigned i = 0; i < CROWD; i++)
        more[i] = connect_raw();
    while (loop_turn() > 0)
        ;
    for (unsigned i = 0; i < CROWD; i++)
        refused += closed(more[i]);
    assert_in_range(refused, 1, CROWD / 2);
    assert_true(d->ops->due_ns(d) < UINT64_MAX);
    g->unmuted_ns = 0;
    demand();
    assert_int_equal(loop_turn(), 1);
    loop_end();
    close_all(more, CROWD);
    close_all(crowd, ARRAY_SIZE(crowd));
    for (int i = 0; i < 100 && d->ops->due_ns(d) < UINT64_MAX; i++)
        processes();
    g->unmuted_ns = 0;
    processes();
    processes();
}

/* ---- wants ---- */

static uint64_t now;

static uint64_t virtual_now(void)
{
    return now;
}

static int begin_virtual(void **state)
{
    begin(state);
    now = monotonic_ns();
    gate()->now_ns = virtual_now;
    return 0;
}

enum liar { WANTS, TOGGLES, RECONNECTS, LIARS };

static void open_all(bool open)
{
    _cleanup_(group_list_free) struct group_list l = scan(getpid());
    for (size_t i = 0; i < l.n; i++) {
        const struct device_group *g = &l.v[i];
        assert_int_equal(d->ops->set_running(d, &g, 1, open, NULL), 0);
        assert_int_equal(d->ops->set_timeslice(d, g, 1000, NULL), 0);
    }
}

static struct pages program(bool open)
{
    struct pages p = welcomed();
    say_device(&p, 0, "one");
    open_all(open);
    atomic_store(&p.slot->device[0].wants, 1);
    return p;
}

/* For how many of so many seconds programs that never work are believed to want the device. */
static unsigned believed_s(enum liar how, unsigned programs, unsigned seconds)
{
    struct pages p[8];
    unsigned n = 0;
    for (unsigned i = 0; i < programs; i++)
        p[i] = program(true);
    for (unsigned s = 0; s < seconds * 4; s++) {
        static bool believed;
        if (how == TOGGLES)
            atomic_store(&p[0].slot->device[0].wants, s % 20 > 0);
        if (how == RECONNECTS && s % 20 == 19) {
            leave(&p[0]);
            p[0] = program(true);
        }
        int reported = demand();
        believed = reported < 0 ? believed : reported;
        n += believed;
        now += NSEC_PER_SEC / 4;
    }
    for (unsigned i = 0; i < programs; i++)
        leave(&p[i]);
    return n / 4;
}

TEST(fruitless_wants_lose)
{
    static const struct {
        enum liar how;
        unsigned programs;
    } rows[] = {{WANTS, 1}, {TOGGLES, 1}, {RECONNECTS, 1}, {WANTS, 8}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        begin_virtual(NULL);
        unsigned first = believed_s(rows[i].how, rows[i].programs, 40);
        unsigned later = believed_s(rows[i].how, rows[i].programs, 2000);
        if (first > 15 || later > 2000 / 8)
            fail_msg("row %zu: believed for %u of 40 s, and for %u of 2000 s", i, first, later);
        if (first < 1)
            fail_msg("row %zu: never believed", i);
        end(NULL);
    }
}

/* Neither long commands, nor waiting for the turn, nor another program that lies. */
TEST_WITH(honest_wants_are_believed, begin_virtual, end)
{
    struct pages works = program(true), lies = program(true);
    unsigned lost = 0;
    for (unsigned s = 0; s < 400; s++) {
        now += NSEC_PER_SEC / 2;
        atomic_fetch_add(&works.slot->device[0].ended, 1);
        demand();
        lost += !gate()->programs[0].v[0].wants;
    }
    assert_int_equal(lost, 0);
    leave(&lies);
    for (unsigned i = 0; i < 20000; i++) { /* the account falls to nothing */
        now += NSEC_PER_SEC;
        atomic_fetch_add(&works.slot->device[0].ended, 1);
        demand();
    }
    /* Commands of 9 s. */
    for (unsigned s = 0; s < 400; s++) {
        now += NSEC_PER_SEC;
        if (s % 9 == 8)
            atomic_fetch_add(&works.slot->device[0].ended, 1);
        assert_int_equal(demand(), -1); /* nothing new: it wants */
    }
    atomic_fetch_add(&works.slot->device[0].ended, 1);
    demand();
    open_all(false);
    demand();
    for (unsigned s = 0; s < 400; s++) {
        now += NSEC_PER_SEC;
        assert_int_equal(demand(), -1);
    }
    leave(&works);
}

static unsigned wants_that_count(void)
{
    unsigned v = 0;
    for (int i = 0; i < 3; i++) { /* looks */
        assert_true(d->ops->due_ns(d) <= now + NSEC_PER_SEC);
        now = max_u64(now, d->ops->due_ns(d));
        demand();
    }
    for (unsigned i = 0; i < 2; i++)
        v |= (unsigned)gate()->programs[i].v[0].wants << i;
    return v;
}

static void await_state(pid_t pid, bool stopped)
{
    struct proc_stat st;
    do
        assert_int_equal(proc_stat_read(pid, &st), 0);
    while ((st.state == 'T') != stopped);
}

/* A program that is stopped while it wants the device does not keep others from it. */
TEST_WITH(stopped_programs_want_nothing, begin_virtual, end)
{
    struct gate_driver *g = gate();
    struct pages stops = program(true), waits = program(false);
    struct proc_stat st;
    pid_t pid = fork_as(0);
    if (pid == 0)
        stay();
    assert_int_equal(proc_stat_read(pid, &st), 0);
    g->programs[0].proc = st.id;
    demand();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(wants_that_count(), 3);
        kill(pid, SIGSTOP);
        await_state(pid, true);
        assert_int_equal(wants_that_count(), 2);
        /* Still so when the other begins again. */
        atomic_store(&waits.slot->device[0].wants, 0);
        demand();
        atomic_store(&waits.slot->device[0].wants, 1);
        demand();
        assert_false(g->programs[0].v[0].wants);
        kill(pid, SIGCONT);
        await_state(pid, false);
    }
    assert_int_equal(wants_that_count(), 3);
    /* Of one that nobody waits for nothing is asked. */
    atomic_store(&waits.slot->device[0].wants, 0);
    demand();
    assert_true(d->ops->due_ns(d) == UINT64_MAX);
    end_process(pid);
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    g->programs[0].proc = st.id;
    leave(&stops);
    leave(&waits);
}

/* ---- numbers of devices ---- */

/* As processes(), where there are others than this one. */
static void look(void)
{
    _cleanup_(pid_list_free) struct pid_list l = {0};
    assert_int_equal(d->ops->processes(d, &l, NULL), 0);
}

/* A process of this user that names so many devices: PREFIX 0, PREFIX 1, ... */
static pid_t user_names(uid_t uid, const char *prefix, unsigned n)
{
    pid_t pid = fork_as(uid);
    if (pid == 0) {
        struct gate_msg m = {.type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
        int fd = connect_patiently();
        send(fd, &m, sizeof(m), 0);
        for (unsigned i = 0; i < n; i++) {
            m = (struct gate_msg){.type = GATE_DEVICE, .device = i, .level = 1};
            snprintf(m.name, sizeof(m.name), "%s %u", prefix, i);
            send(fd, &m, sizeof(m), 0);
        }
        stay();
    }
    for (unsigned i = 0; i < 5000; i++) {
        look();
        _cleanup_(group_list_free) struct group_list l = scan(pid);
        if (l.n == n)
            return pid;
        usleep(1000);
    }
    fail_msg("%s: not heard of", prefix);
    return -1;
}

static void user_leaves(pid_t pid)
{
    end_process(pid);
    look();
    look();
}

/* Bit for each device that the process has. */
static unsigned gpus_of(pid_t pid)
{
    unsigned v = 0;
    _cleanup_(group_list_free) struct group_list l = scan(pid);
    for (size_t i = 0; i < l.n; i++)
        v |= 1U << l.v[i].gpu;
    return v;
}

TEST_WITH(invented_devices_leave_room, begin, end)
{
    if (geteuid() != 0)
        skip();
    pid_t liar = user_names(60001, "invented", GATE_DEVICES);
    pid_t twin = user_names(60001, "more", GATE_DEVICES);
    pid_t honest = user_names(60002, "real", 1), peer = user_names(60003, "real", 1);
    assert_int_equal(gpus_of(honest), gpus_of(peer)); /* the same device */
    assert_int_equal(gpus_of(honest) & (gpus_of(liar) | gpus_of(twin)), 0);
    pid_t second = user_names(60002, "other", 1);
    assert_int_equal(gpus_of(second) & (gpus_of(liar) | gpus_of(twin) | gpus_of(honest)), 0);
    /* What nobody uses any more is free. */
    unsigned freed = gpus_of(liar) | gpus_of(twin);
    user_leaves(liar);
    user_leaves(twin);
    pid_t next = user_names(60004, "next", 2);
    assert_int_equal(gpus_of(next), freed);
    user_leaves(next);
    user_leaves(honest);
    user_leaves(peer);
    user_leaves(second);
}

static uint64_t passing_now(void)
{
    return now += NSEC_PER_USEC;
}

/* Connecting and closing, and no more than one connection at a time: refused, for a while. */
TEST_WITH(connecting_is_paid_for, begin, end)
{
    if (geteuid() != 0)
        skip();
    now = monotonic_ns();
    gate()->now_ns = passing_now;
    pid_t pid = fork_as(60001);
    if (pid == 0) {
        alarm(20);
        for (unsigned i = 1;; i++) {
            int fd = connect_patiently();
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (i % 1000 == 0 && poll(&p, 1, 300) == 1)
                _exit(0);
            close(fd);
        }
    }
    int status = -1;
    while (waitpid(pid, &status, WNOHANG) == 0)
        processes();
    assert_int_equal(status, 0);
    for (unsigned i = 0; i < 50; i++) { /* what it left in the backlog */
        now += 20 * NSEC_PER_MSEC;
        processes();
    }
    _cleanup_(leave) struct pages p = welcomed();
}

/* How many programs there are after `looks` looks, or as soon as there are `enough`. */
static unsigned programs_after(unsigned looks, unsigned enough)
{
    struct gate_driver *g = gate();
    unsigned n = 0;
    for (unsigned i = 0; i < looks && n < enough; i++) {
        usleep(1000);
        g->unmuted_ns = 0;
        processes();
        n = 0;
        for (unsigned k = 0; k < g->end; k++)
            n += g->programs[k].fd >= 0;
    }
    return n;
}

/* All users together leave root a part. */
TEST_WITH(users_leave_root_room, begin, end)
{
    pid_t pids[4];
    if (geteuid() != 0)
        skip();
    for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = fork_as(60001 + i);
        if (pids[i] == 0) {
            for (unsigned k = 0; k < GATE_PROGRAMS_OF_USER; k++)
                connect_patiently();
            stay();
        }
    }
    programs_after(20000, USERS_PART(GATE_PROGRAMS));
    assert_int_equal(programs_after(100, UINT_MAX), USERS_PART(GATE_PROGRAMS));
    struct pages p = welcomed();
    leave(&p);
    for (unsigned i = 0; i < ARRAY_SIZE(pids); i++)
        end_process(pids[i]);
}

/* What a program is told that had no room, in ps. */
static int refusal_of(pid_t pid, struct error *err)
{
    _cleanup_(pid_list_free) struct pid_list all = {0};
    _cleanup_(group_list_free) struct group_list l = {0};
    struct proc_stat st;
    bool listed = false;
    assert_int_equal(d->ops->processes(d, &all, NULL), 0);
    for (size_t i = 0; i < all.n; i++)
        listed |= all.v[i] == pid;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return listed ? d->ops->scan(d, st.id, &l, err) : 0;
}

TEST_WITH(refusals_are_told, begin, end)
{
    int crowd[GATE_PROGRAMS_OF_USER], ends[2];
    struct error err = {""};
    fill(crowd);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork_as(0);
    if (pid == 0) {
        char c;
        close_all(crowd, ARRAY_SIZE(crowd));
        close(ends[1]);
        close(connect_raw());
        if (read(ends[0], &c, 1) == 0)
            connect_raw();
        pause();
    }
    close(ends[0]);
    for (int i = 0; i < 2000 && refusal_of(pid, &err) == 0; i++)
        usleep(5000);
    assert_int_equal(refusal_of(pid, &err), -EUSERS);
    assert_non_null(strstr(err.text, "a user may have 128 programs"));

    close_all(crowd, ARRAY_SIZE(crowd));
    close(ends[1]); /* it tries again */
    for (int i = 0; i < 2000 && refusal_of(pid, &err) != 0; i++)
        usleep(5000);
    assert_int_equal(refusal_of(pid, &err), 0);
    end_process(pid);
}
