/* What one program, or all of a user's, can take from others through the gate's driver:
 * descriptors, the daemon's time, places for devices, and turns. Virtual time where time counts. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/gate/gate.h"

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
static void no_descriptors_left(void **state)
{
    (void)state;
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

/* A crowd that is refused again and again gets its refusals slowly. */
static void refusals_are_slow(void **state)
{
    (void)state;
    enum { CROWD = 60 };
    struct gate_driver *g = (struct gate_driver *)(void *)d;
    int crowd[GATE_PROGRAMS_OF_USER], more[CROWD], refused = 0;
    for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++) {
        crowd[i] = connect_raw();
        processes();
    }
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
    for (unsigned i = 0; i < CROWD; i++)
        close(more[i]);
    for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++)
        close(crowd[i]);
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
    ((struct gate_driver *)(void *)d)->now_ns = virtual_now;
    return 0;
}

enum liar { WANTS, TOGGLES, RECONNECTS, LIARS };

static void program_open(struct pages *p, bool open)
{
    struct group_list l = scan(getpid());
    for (size_t i = 0; i < l.n; i++) {
        const struct device_group *g = &l.v[i];
        assert_int_equal(d->ops->set_running(d, &g, 1, open, NULL), 0);
        assert_int_equal(d->ops->set_timeslice(d, g, 1000, NULL), 0);
    }
    (void)p;
    group_list_free(&l);
}

static struct pages program(bool open)
{
    struct pages p = welcomed();
    say_device(&p, 0, "one");
    program_open(&p, open);
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
        struct demand_list l = {0};
        static bool believed;
        if (how == TOGGLES)
            atomic_store(&p[0].slot->device[0].wants, s % 20 > 0);
        if (how == RECONNECTS && s % 20 == 19) {
            leave(&p[0]);
            p[0] = program(true);
        }
        assert_int_equal(d->ops->demand(d, &l, NULL), 0);
        for (size_t i = 0; i < l.n; i++)
            believed = l.v[i].wants;
        demand_list_free(&l);
        n += believed;
        now += NSEC_PER_SEC / 4;
    }
    for (unsigned i = 0; i < programs; i++)
        leave(&p[i]);
    return n / 4;
}

static void fruitless_wants_lose(void **state)
{
    static const struct {
        enum liar how;
        unsigned programs;
    } rows[] = {{WANTS, 1}, {TOGGLES, 1}, {RECONNECTS, 1}, {WANTS, 8}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        begin_virtual(state);
        unsigned first = believed_s(rows[i].how, rows[i].programs, 40);
        unsigned later = believed_s(rows[i].how, rows[i].programs, 2000);
        if (first > 15 || later > 2000 / 8)
            fail_msg("row %zu: believed for %u of 40 s, and for %u of 2000 s", i, first, later);
        if (first < 1)
            fail_msg("row %zu: never believed", i);
        end(state);
    }
}

/* Neither long commands, nor waiting for the turn, nor another program that lies. */
static void honest_wants_are_believed(void **state)
{
    (void)state;
    struct pages works = program(true), lies = program(true);
    unsigned lost = 0;
    for (unsigned s = 0; s < 400; s++) {
        now += NSEC_PER_SEC / 2;
        atomic_fetch_add(&works.slot->device[0].ended, 1);
        struct demand_list l = {0};
        assert_int_equal(d->ops->demand(d, &l, NULL), 0);
        demand_list_free(&l);
        const struct gate_driver *g = (const struct gate_driver *)(const void *)d;
        lost += !g->programs[0].v[0].wants;
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
    program_open(&works, false);
    demand();
    for (unsigned s = 0; s < 400; s++) {
        now += NSEC_PER_SEC;
        assert_int_equal(demand(), -1);
    }
    leave(&works);
}

static unsigned wants_that_count(void)
{
    const struct gate_driver *g = (const struct gate_driver *)(const void *)d;
    unsigned v = 0;
    for (int i = 0; i < 3; i++) { /* looks */
        assert_true(d->ops->due_ns(d) <= now + NSEC_PER_SEC);
        now = max_u64(now, d->ops->due_ns(d));
        demand();
    }
    for (unsigned i = 0; i < 2; i++)
        v |= (unsigned)g->programs[i].v[0].wants << i;
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
static void stopped_programs_want_nothing(void **state)
{
    (void)state;
    struct gate_driver *g = (struct gate_driver *)(void *)d;
    struct pages stops = program(true), waits = program(false);
    struct proc_stat st;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
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
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    g->programs[0].proc = st.id;
    leave(&stops);
    leave(&waits);
}

/* ---- places ---- */

/* A process of this user that names so many devices: PREFIX 0, PREFIX 1, ... */
static pid_t user_names(uid_t uid, const char *prefix, unsigned n)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct gate_msg m = {.type = GATE_HELLO, .magic = GATE_MAGIC, .version = GATE_VERSION};
        /* After setuid(), which would clear it. */
        if (setgid(uid) < 0 || setuid(uid) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            _exit(1);
        int fd = connect_raw();
        send(fd, &m, sizeof(m), 0);
        for (unsigned i = 0; i < n; i++) {
            m = (struct gate_msg){.type = GATE_DEVICE, .device = i, .level = 1};
            snprintf(m.name, sizeof(m.name), "%s %u", prefix, i);
            send(fd, &m, sizeof(m), 0);
        }
        for (;;)
            pause();
    }
    for (unsigned i = 0; i < 5000; i++) {
        struct pid_list pids = {0};
        assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
        pid_list_free(&pids);
        struct group_list l = scan(pid);
        size_t has = l.n;
        group_list_free(&l);
        if (has == n)
            return pid;
        usleep(1000);
    }
    fail_msg("%s: not heard of", prefix);
    return -1;
}

static void user_leaves(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    struct pid_list l = {0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(d->ops->processes(d, &l, NULL), 0);
    pid_list_free(&l);
}

/* Bit for each place that the process has. */
static unsigned places(pid_t pid)
{
    unsigned v = 0;
    struct group_list l = scan(pid);
    for (size_t i = 0; i < l.n; i++)
        v |= 1U << l.v[i].gpu;
    group_list_free(&l);
    return v;
}

static void invented_devices_leave_room(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    pid_t liar = user_names(60001, "invented", GATE_DEVICES);
    pid_t twin = user_names(60001, "more", GATE_DEVICES);
    pid_t honest = user_names(60002, "real", 1), peer = user_names(60003, "real", 1);
    assert_int_equal(places(honest), places(peer)); /* the same device */
    assert_int_equal(places(honest) & (places(liar) | places(twin)), 0);
    pid_t second = user_names(60002, "other", 1);
    assert_int_equal(places(second) & (places(liar) | places(twin) | places(honest)), 0);
    /* What nobody uses any more is free. */
    unsigned freed = places(liar) | places(twin);
    user_leaves(liar);
    user_leaves(twin);
    pid_t next = user_names(60004, "next", 2);
    assert_int_equal(places(next), freed);
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
static void connecting_is_paid_for(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    now = monotonic_ns();
    ((struct gate_driver *)(void *)d)->now_ns = passing_now;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        if (setgid(60001) < 0 || setuid(60001) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            _exit(1);
        alarm(20);
        for (unsigned i = 1;; i++) {
            int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
            struct pollfd p = {.fd = fd, .events = POLLIN};
            if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
                _exit(1);
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
    struct pages p = welcomed();
    leave(&p);
}

/* All users together leave root a part. */
static void users_leave_root_room(void **state)
{
    (void)state;
    pid_t pids[4];
    if (geteuid() != 0)
        skip();
    for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0) {
            if (setgid(60001 + i) < 0 || setuid(60001 + i) < 0 ||
                prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                _exit(1);
            for (unsigned k = 0; k < GATE_PROGRAMS_OF_USER; k++) {
                struct sockaddr_un a = {.sun_family = AF_UNIX};
                snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
                int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
                if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
                    _exit(1);
            }
            for (;;)
                pause();
        }
    }
    struct gate_driver *g = (struct gate_driver *)(void *)d;
    unsigned taken = 0;
    for (unsigned i = 0; i < 20000 && taken < USERS_PART(GATE_PROGRAMS); i++) {
        usleep(1000);
        g->unmuted_ns = 0;
        processes();
        taken = 0;
        for (unsigned k = 0; k < g->end; k++)
            taken += g->programs[k].fd >= 0;
    }
    for (unsigned i = 0; i < 100; i++) {
        usleep(1000);
        g->unmuted_ns = 0;
        processes();
    }
    taken = 0;
    for (unsigned k = 0; k < g->end; k++)
        taken += g->programs[k].fd >= 0;
    assert_int_equal(taken, USERS_PART(GATE_PROGRAMS));
    struct pages p = welcomed();
    leave(&p);
    for (unsigned i = 0; i < ARRAY_SIZE(pids); i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

/* What a program is told that had no room, in ps. */
static int refusal_of(pid_t pid, struct error *err)
{
    struct pid_list all = {0};
    struct group_list l = {0};
    struct proc_stat st;
    bool listed = false;
    int r = 0;
    assert_int_equal(d->ops->processes(d, &all, NULL), 0);
    for (size_t i = 0; i < all.n; i++)
        listed |= all.v[i] == pid;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    if (listed)
        r = d->ops->scan(d, st.id, &l, err);
    group_list_free(&l);
    pid_list_free(&all);
    return r;
}

static void refusals_are_told(void **state)
{
    (void)state;
    int crowd[GATE_PROGRAMS_OF_USER], ends[2];
    struct error err = {""};
    for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++) {
        crowd[i] = connect_raw();
        processes();
    }
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++)
            close(crowd[i]);
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

    for (unsigned i = 0; i < ARRAY_SIZE(crowd); i++)
        close(crowd[i]);
    close(ends[1]); /* it tries again */
    for (int i = 0; i < 2000 && refusal_of(pid, &err) != 0; i++)
        usleep(5000);
    assert_int_equal(refusal_of(pid, &err), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#define B(name) cmocka_unit_test_setup_teardown(name, begin, end)
#define V(name) cmocka_unit_test_setup_teardown(name, begin_virtual, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        B(no_descriptors_left),
        B(refusals_are_slow),
        B(invented_devices_leave_room),
        B(users_leave_root_room),
        B(refusals_are_told),
        B(connecting_is_paid_for),
        V(honest_wants_are_believed),
        V(stopped_programs_want_nothing),
        cmocka_unit_test(fruitless_wants_lose),
    };
    return cmocka_run_group_tests_name("device_gate_limits", tests, NULL, NULL);
}
