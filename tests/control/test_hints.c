/* From what programs write into their pages to what the manager is told of a job. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/hints.h"
#include "fake_engine.h"
#include "lib/hints_proto.h"

static void deadlines(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine *m = fake_engine_new();
    uint32_t job = fake_engine_put(m, getpid(), 0, CLASS_BATCH, 100, "me");
    int page, fd;
    for (int admin = 0; admin < 2; admin++) {
        uint64_t now = monotonic_ns();
        struct hints *h = hints_new();
        assert_int_equal(hints_report(h, m, now), TIME_NEVER);
        struct caller user = {
            .uid = getuid(), .pid = getpid(), .admin = admin, .since_ticks = proc_ticks_now()};
        struct caller root = user;
        user.connection = 1;
        root.connection = 2;
        root.admin = true;
        assert_int_equal(hints_open(h, &user, &page, &err), 0);
        assert_int_equal(hints_open(h, &root, &fd, &err), 0);
        struct hints_page *p = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
        struct hints_page *q = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(p != MAP_FAILED && q != MAP_FAILED);
        memset(&m->told[job], 0, sizeof(m->told[job]));
        assert_true(hints_report(h, m, now) > now); /* nothing is due yet */
        assert_int_equal(m->told[job].now_ns, 0);
        p->ended = 7;
        p->earliest_ns = now + 5000;
        q->ended = 3;
        q->earliest_ns = now + 4000;
        q->deadline_us = 3000000;
        q->need_us = 2000000;
        q->priority = 5;
        m->report_again_ns = 2000000;
        assert_int_equal(hints_report(h, m, now), now + 2000000);
        const struct report *t = &m->told[job];
        assert_int_equal(t->priority, 5);
        assert_int_equal(t->ended, 10);
        assert_int_equal(t->deadline_ns, now + 4000);
        assert_int_equal(t->need_ns, 2000000000);
        assert_int_equal(t->root, admin); /* of all its programs */
        p->ended = UINT64_MAX;
        p->earliest_ns = UINT64_MAX;
        q->earliest_ns = UINT64_MAX - 1;
        q->need_us = UINT64_MAX;
        hints_report(h, m, now + 1);
        assert_true(t->now_ns == now + 1 && t->ended < 1ULL << 62 && t->deadline_ns <= 1ULL << 62);
        assert_true(t->need_ns <= 1ULL << 53);
        /* A user's own may lower it, not raise it. */
        p->earliest_ns = now + 3000;
        p->priority = 7;
        hints_report(h, m, now + 2);
        assert_int_equal(t->priority, admin ? 7 : 0);
        p->priority = -7;
        hints_report(h, m, now + 3);
        assert_int_equal(t->priority, -7);
        munmap(p, HINTS_PAGE);
        munmap(q, HINTS_PAGE);
        close(page);
        close(fd);
        hints_free(h);
    }
    free(m);
}

/* What is due for a program that is stopped is not hurried up for. */
static void stopped_programs_are_not_late(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine *m = fake_engine_new();
    uint64_t now = monotonic_ns();
    struct hints *h = hints_new();
    int page;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    uint32_t job = fake_engine_put(m, pid, 0, CLASS_BATCH, 100, "it");
    struct caller who = {.uid = getuid(),
                         .pid = pid,
                         .connection = 1,
                         .admin = true,
                         .since_ticks = proc_ticks_now() + 100};
    assert_int_equal(hints_open(h, &who, &page, &err), 0);
    struct hints_page *p = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    assert_true(p != MAP_FAILED);
    for (int stopped = 0; stopped < 3; stopped++) {
        int status;
        kill(pid, stopped == 1 ? SIGSTOP : SIGCONT);
        if (stopped)
            assert_int_equal(waitpid(pid, &status, WUNTRACED | WCONTINUED), pid);
        now += NSEC_PER_SEC;
        p->earliest_ns = now + 5000;
        hints_report(h, m, now);
        assert_true(m->told[job].now_ns == now);
        assert_true(m->told[job].deadline_ns == (stopped == 1 ? 0 : now + 5000));
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    munmap(p, HINTS_PAGE);
    close(page);
    hints_free(h);
    free(m);
}

/* Who connected is gone, and another has its pid: of somebody else, or younger. */
static void pid_of_another(void **state)
{
    (void)state;
    struct error err = {""};
    struct hints *h = hints_new();
    struct proc_stat st;
    int fd = -1;
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    struct caller who = {.uid = getuid() + 1, .pid = getpid(), .since_ticks = proc_ticks_now()};
    assert_int_equal(hints_open(h, &who, &fd, &err), -ESRCH);
    who.uid = getuid();
    who.since_ticks = st.id.start_ticks - 1;
    assert_int_equal(hints_open(h, &who, &fd, &err), -ESRCH);
    who.admin = true;
    assert_int_equal(hints_open(h, &who, &fd, &err), -ESRCH);
    assert_int_equal(fd, -1);
    who.since_ticks++;
    /* A guest's number may be that of a process outside of its container by now. */
    struct caller guest = who;
    guest.admin = false;
    guest.guest = true;
    guest.ns = (struct pidns){.id = 1, .level = 2};
    assert_int_equal(hints_open(h, &guest, &fd, &err), -ESRCH);
    assert_int_equal(hints_open(h, &who, &fd, &err), 0);
    close(fd);
    hints_free(h);
}

/* All users together leave root a part, and one account's uids are one user's. */
static void pages_of_users(void **state)
{
    (void)state;
    struct error err = {""};
    struct hints *h = hints_new();
    struct caller who = {.uid = getuid(), .pid = getpid(), .since_ticks = proc_ticks_now()};
    unsigned given[5] = {0};
    for (unsigned i = 0; i < 5 * HINTS_PAGES_PER_USER; i++) {
        int fd = -1;
        who.connection++;
        who.account = 1000 + i / HINTS_PAGES_PER_USER;
        int r = hints_open(h, &who, &fd, &err);
        given[i / HINTS_PAGES_PER_USER] += r == 0;
        if (r < 0)
            assert_int_equal(r, -EUSERS);
        if (r == 0)
            close(fd);
    }
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(given[i], i < 3 ? HINTS_PAGES_PER_USER : 0);
    int fd = -1;
    who.connection++;
    who.account = 1000;
    assert_int_equal(hints_open(h, &who, &fd, &err), -EUSERS);
    assert_non_null(strstr(err.text, "of yours"));
    who.admin = true;
    assert_int_equal(hints_open(h, &who, &fd, &err), 0);
    close(fd);
    hints_free(h);
}

/* Programs that look are told of a higher class; what they write there themselves does not last,
 * and others' pages stay as they are. */
static void wanted(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine *m = fake_engine_new();
    struct hints *h = hints_new();
    uint64_t now = monotonic_ns();
    int fds[2];
    struct hints_page *p[2];
    fake_engine_put(m, getpid(), 0, CLASS_BATCH, 100, "me");
    hints_tell_wanted(h, m, now);
    for (unsigned i = 0; i < 2; i++) {
        struct caller who = {
            .uid = getuid(), .pid = getpid(), .connection = i + 1, .since_ticks = proc_ticks_now()};
        assert_int_equal(hints_open(h, &who, &fds[i], &err), 0);
        p[i] = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        assert_true(p[i] != MAP_FAILED);
    }
    p[1]->looks = UINT32_MAX;
    for (unsigned class = 0; class <= CLASS_COUNT; class ++) {
        m->room_class = (uint8_t) class;
        p[1]->wanted = 77;
        hints_tell_wanted(h, m, now);
        assert_int_equal(p[0]->wanted, 0);
        assert_int_equal(p[1]->wanted, class < CLASS_BATCH);
    }
    m->room_class = CLASS_LATENCY;
    m->jobs[0].number = 0; /* the job ends: nobody waits for it */
    hints_tell_wanted(h, m, now + NSEC_PER_SEC);
    assert_int_equal(p[1]->wanted, 0);
    for (unsigned i = 0; i < 2; i++) {
        /* Still no way to make the daemon fault. */
        assert_int_equal(ftruncate(fds[i], 0), -1);
        assert_int_equal(fcntl(fds[i], F_ADD_SEALS, F_SEAL_WRITE), -1);
        munmap(p[i], HINTS_PAGE);
        close(fds[i]);
    }
    hints_free(h);
    free(m);
}

/* Programs that look have the share of their process about once a second; others' pages stay. */
static void shares(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine *m = fake_engine_new();
    struct hints *h = hints_new();
    uint64_t now = monotonic_ns();
    int fd[2];
    struct hints_page *p[2];
    fake_engine_put(m, getpid(), 0, CLASS_BATCH, 100, "me");
    m->share = 600;
    assert_int_equal(hints_tell_share(NULL, m, now), TIME_NEVER);
    assert_int_equal(hints_tell_share(h, m, now), TIME_NEVER);
    for (unsigned i = 0; i < 2; i++) {
        struct caller who = {
            .uid = getuid(), .pid = getpid(), .connection = i + 1, .since_ticks = proc_ticks_now()};
        assert_int_equal(hints_open(h, &who, &fd[i], &err), 0);
        p[i] = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
        assert_true(p[i] != MAP_FAILED);
    }
    p[0]->looks = HINTS_LOOKS_WANTED;
    assert_true(hints_tell_share(h, m, now) > now);
    assert_int_equal(m->watched, 0); /* none looks: nothing is asked of the driver */
    p[1]->looks = UINT32_MAX;
    uint64_t next = now + NSEC_PER_SEC;
    p[1]->share = UINT64_MAX;
    assert_true(hints_tell_share(h, m, now + 1) == next);
    assert_true(p[1]->share == UINT64_MAX); /* not yet */
    assert_true(hints_tell_share(h, m, next) == next + NSEC_PER_SEC);
    assert_int_equal(hints_share_of(p[1]->share, next), 600);
    assert_int_equal(p[1]->share & 0xffff, 600);
    assert_int_equal(p[0]->share, 0);
    assert_int_equal(m->watched, 1);
    m->share = 0; /* not known any more */
    hints_tell_share(h, m, next + NSEC_PER_SEC);
    assert_int_equal(p[1]->share, 0);
    for (unsigned i = 0; i < 2; i++) {
        munmap(p[i], HINTS_PAGE);
        close(fd[i]);
    }
    hints_free(h);
    free(m);
}

struct taken {
    unsigned n;
    uint64_t job;
    struct hints_request last;
};

static void take_request(void *arg, uint64_t job, const struct hints_request *q)
{
    struct taken *t = arg;
    t->n++;
    t->job = job;
    t->last = *q;
    assert_true(q->begun_ns && q->ended_ns >= q->begun_ns && q->ended_ns <= monotonic_ns());
    assert_true(!q->lead_ns || (q->lead_ns >= q->begun_ns && q->lead_end_ns >= q->lead_ns &&
                                q->lead_end_ns <= q->ended_ns));
}

static void put_done(struct hints_page *p, uint64_t begun, uint64_t ended, uint64_t lead,
                     uint64_t lead_end)
{
    struct hints_done *d = &p->done[p->ndone % HINTS_DONE];
    d->begun_ns = begun;
    d->ended_ns = ended;
    d->lead_ns = lead;
    d->lead_end_ns = lead_end;
    p->ndone++;
}

/* Each once, those of before the first call never; nothing that makes no sense, and no more work
 * than the ring has places, whatever the program writes. */
static void requests_that_ended(void **state)
{
    (void)state;
    struct engine *m = fake_engine_new();
    fake_engine_put(m, getpid(), 0, CLASS_BATCH, 100, "me");
    struct hints *h = hints_new();
    const struct caller user = {
        .uid = getuid(), .pid = getpid(), .admin = true, .since_ticks = proc_ticks_now()};
    int fd;
    assert_int_equal(hints_open(h, &user, &fd, NULL), 0);
    struct hints_page *p = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    hints_assign(h, m, monotonic_ns());
    struct taken t = {.n = 0};
    put_done(p, 100, 200, 0, 0);
    hints_requests(h, NULL, NULL);
    hints_requests(h, take_request, &t);
    assert_int_equal(t.n, 0);
    put_done(p, 300, 400, 310, 350);
    hints_requests(h, take_request, &t);
    assert_int_equal(t.n, 1);
    assert_int_equal(t.job, 1);
    assert_int_equal(t.last.lead_ns, 310);
    assert_int_equal(t.last.lead_end_ns, 350);
    hints_requests(h, take_request, &t);
    assert_int_equal(t.n, 1);
    /* Leads outside of their requests are none; times that go backwards, or come, are no request.
     */
    put_done(p, 500, 600, 100, 550);
    hints_requests(h, take_request, &t);
    assert_int_equal(t.n, 2);
    assert_int_equal(t.last.lead_ns, 0);
    put_done(p, 600, 500, 0, 0);
    put_done(p, 0, 500, 0, 0);
    put_done(p, 600, UINT64_MAX, 0, 0);
    hints_requests(h, take_request, &t);
    assert_int_equal(t.n, 2);
    /* More than fit: the last are there. */
    for (unsigned i = 0; i < 3 * HINTS_DONE; i++)
        put_done(p, 1000, 1000 + i, 0, 0);
    t.n = 0;
    hints_requests(h, take_request, &t);
    assert_in_range(t.n, HINTS_DONE - 1, HINTS_DONE);
    assert_int_equal(t.last.ended_ns, 1000 + 3 * HINTS_DONE - 1);
    /* A number that jumps, or goes back. */
    const uint64_t wild[] = {UINT64_MAX, 0, 1ULL << 62, 7, UINT64_MAX - HINTS_DONE};
    for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        p->ndone = wild[i];
        t.n = 0;
        hints_requests(h, take_request, &t);
        assert_true(t.n <= HINTS_DONE);
    }
    munmap(p, HINTS_PAGE);
    close(fd);
    hints_free(h);
    free(m);
}

/* A program waits for memory: who may, what its programs want together, and when that is over. */
static void room(void **state)
{
    (void)state;
    struct error err = {""};
    struct engine *m = fake_engine_new();
    struct hints *h = hints_new();
    uint32_t job = fake_engine_put(m, getpid(), getuid(), CLASS_BATCH, 100, "me");
    struct caller a = {.uid = getuid(), .pid = getpid(), .since_ticks = proc_ticks_now()}, b = a;
    int fd;
    a.connection = 1;
    b.connection = 2;
    assert_int_equal(hints_room(h, m, &a, "GPU-1", 100, &err), -ENOTCONN);
    assert_int_equal(hints_open(h, &a, &fd, &err), 0);
    close(fd);
    assert_int_equal(hints_open(h, &b, &fd, &err), 0);
    close(fd);
    assert_int_equal(hints_room(h, m, &a, "GPU-1", 100, &err), -EPERM);
    assert_non_null(strstr(err.text, "is in class batch: others make room for latency jobs only"));
    assert_int_equal(m->room[job][1], 0);
    m->jobs[job].job.class = CLASS_LATENCY;
    assert_int_equal(hints_room(h, m, &a, "GPU-2", 100, &err), -EINVAL);
    assert_int_equal(hints_room(h, m, &a, "", 100, &err), -EINVAL); /* which of two? */
    uint64_t now = monotonic_ns();
    assert_int_equal(hints_room(h, m, &a, "gpu-1", 100, &err), 0);
    assert_int_equal(hints_room(h, m, &b, "GPU-1", 200, &err), 0);
    assert_int_equal(m->room[job][1], 300);
    assert_in_range(m->room_until[job][1], now + NSEC_PER_SEC, now + 10 * NSEC_PER_SEC);
    assert_int_equal(hints_room(h, m, &a, "GPU-0", 50, &err), 0); /* another GPU now */
    assert_int_equal(m->room[job][1], 200);
    assert_int_equal(m->room[job][0], 50);
    assert_int_equal(hints_room(h, m, &a, "", 0, &err), 0);
    assert_int_equal(m->room[job][0], 0);
    fake_gates = 1; /* the only GPU beside a slot of a gate need not be named */
    assert_int_equal(hints_room(h, m, &a, "", 100, &err), 0);
    assert_int_equal(m->room[job][1], 300);
    assert_int_equal(hints_room(h, m, &a, "", 0, &err), 0);
    fake_gates = 0;
    hints_close(h, 2);
    assert_int_equal(m->room[job][1], 0);
    hints_free(h);
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(deadlines),
                                       cmocka_unit_test(wanted),
                                       cmocka_unit_test(shares),
                                       cmocka_unit_test(stopped_programs_are_not_late),
                                       cmocka_unit_test(pid_of_another),
                                       cmocka_unit_test(pages_of_users),
                                       cmocka_unit_test(requests_that_ended),
                                       cmocka_unit_test(room)};
    return cmocka_run_group_tests_name("hints", tests, NULL, NULL);
}
