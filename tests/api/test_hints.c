/* From what programs write into their pages to what the manager is told of a job. */
#include <fcntl.h>
#include <sys/mman.h>

#include "../idle_child.h"
#include "../json_like.h"
#include "api/hints.h"
#include "base/hints_proto.h"
#include "fake_engine.h"

#define PAGES 4

struct rig {
    struct hints *h;
    struct engine *m; /* with one batch job, this process */
    struct hints_page *pages[PAGES];
    int fds[PAGES];
    unsigned n;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->h = hints_new();
    r->m = fake_engine_new();
    assert_int_equal(fake_engine_put(r->m, getpid(), getuid(), CLASS_BATCH, 100, "me"), 0);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    for (unsigned i = 0; i < r->n; i++) {
        munmap(r->pages[i], HINTS_PAGE);
        close(r->fds[i]);
    }
    hints_free(r->h);
    free(r->m);
    free(r);
    return 0;
}

#define TEST_OF_HINTS(name) TEST_IN(name, struct rig *r, set_up, tear_down)

/* This process by one of its connections. */
static struct caller me(uint64_t connection, bool admin)
{
    return (struct caller){.uid = getuid(),
                           .pid = getpid(),
                           .connection = connection,
                           .admin = admin,
                           .since_ticks = proc_ticks_now()};
}

static struct hints_page *page_of(struct rig *r, struct caller who)
{
    struct error err = {""};
    assert_true(r->n < PAGES);
    if (hints_open(r->h, &who, &r->fds[r->n], &err) < 0)
        fail_msg("%s", err.text);
    void *p = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, r->fds[r->n], 0);
    assert_true(p != MAP_FAILED);
    return r->pages[r->n++] = p;
}

/* Of all programs of a job: p is the page of this process, q an administrator's. */
static void report_both(struct rig *r, bool admin, uint64_t now)
{
    struct hints_page *p = page_of(r, me(1, admin)), *q = page_of(r, me(2, true));
    const struct report *t = &r->m->told[0];
    assert_true(hints_report(r->h, r->m, now) > now); /* nothing is due yet */
    assert_int_equal(t->now_ns, 0);
    p->ended = 7;
    p->earliest_ns = now + 5000;
    q->ended = 3;
    q->earliest_ns = now + 4000;
    q->deadline_us = 3000000;
    q->need_us = 2000000;
    q->priority = 5;
    r->m->report_again_ns = 2000000;
    assert_int_equal(hints_report(r->h, r->m, now), now + 2000000);
    assert_int_equal(t->priority, 5);
    assert_int_equal(t->ended, 10);
    assert_int_equal(t->deadline_ns, now + 4000);
    assert_int_equal(t->need_ns, 2000000000);
    assert_int_equal(t->root, admin); /* of all its programs */
    p->ended = UINT64_MAX;
    p->earliest_ns = UINT64_MAX;
    q->earliest_ns = UINT64_MAX - 1;
    q->need_us = UINT64_MAX;
    hints_report(r->h, r->m, now + 1);
    assert_true(t->now_ns == now + 1 && t->ended < 1ULL << 62 && t->deadline_ns <= 1ULL << 62);
    assert_true(t->need_ns <= 1ULL << 53);
    /* A user's own may lower it, not raise it. */
    p->earliest_ns = now + 3000;
    p->priority = 7;
    hints_report(r->h, r->m, now + 2);
    assert_int_equal(t->priority, admin ? 7 : 0);
    p->priority = -7;
    hints_report(r->h, r->m, now + 3);
    assert_int_equal(t->priority, -7);
}

TEST_OF_HINTS(deadlines_of_users)
{
    const uint64_t now = monotonic_ns();
    assert_int_equal(hints_report(r->h, r->m, now), TIME_NEVER);
    report_both(r, false, now);
}

TEST_OF_HINTS(deadlines_of_root)
{
    report_both(r, true, monotonic_ns());
}

/* What is due for a program that is stopped is not hurried up for. */
TEST_OF_HINTS(stopped_programs_are_not_late)
{
    uint64_t now = monotonic_ns();
    pid_t pid = idle_child();
    uint32_t job = fake_engine_put(r->m, pid, 0, CLASS_BATCH, 100, "it");
    struct caller who = me(1, true);
    who.pid = pid;
    who.since_ticks += 100;
    struct hints_page *p = page_of(r, who);
    for (int stopped = 0; stopped < 3; stopped++) {
        int status;
        kill(pid, stopped == 1 ? SIGSTOP : SIGCONT);
        if (stopped)
            assert_int_equal(waitpid(pid, &status, WUNTRACED | WCONTINUED), pid);
        now += NSEC_PER_SEC;
        p->earliest_ns = now + 5000;
        hints_report(r->h, r->m, now);
        assert_true(r->m->told[job].now_ns == now);
        assert_true(r->m->told[job].deadline_ns == (stopped == 1 ? 0 : now + 5000));
    }
    end_child(pid);
}

/* The process that connected is gone, and another has its pid: of somebody else, or younger. */
TEST_OF_HINTS(pid_of_another)
{
    struct error err = {""};
    struct proc_stat st;
    int fd = -1;
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    struct caller other = me(0, false), younger = me(0, false), guest;
    other.uid++;
    assert_int_equal(hints_open(r->h, &other, &fd, &err), -ESRCH);
    younger.since_ticks = st.id.start_ticks - 1;
    assert_int_equal(hints_open(r->h, &younger, &fd, &err), -ESRCH);
    younger.admin = true;
    assert_int_equal(hints_open(r->h, &younger, &fd, &err), -ESRCH);
    /* A guest's number may be that of a process outside of its container by now. */
    guest = me(0, false);
    guest.since_ticks = st.id.start_ticks;
    guest.guest = true;
    guest.ns = (struct pidns){.id = 1, .level = 2};
    assert_int_equal(hints_open(r->h, &guest, &fd, &err), -ESRCH);
    assert_int_equal(fd, -1);
    younger.since_ticks++;
    (void)page_of(r, younger);
}

/* All users together leave root a part, and one principal's uids count together. */
TEST_OF_HINTS(pages_of_users)
{
    struct error err = {""};
    struct caller who = me(0, false);
    unsigned given[5] = {0};
    for (unsigned i = 0; i < 5 * HINTS_PAGES_PER_USER; i++) {
        _cleanup_close_ int fd = -1;
        who.connection++;
        who.principal = 1000 + i / HINTS_PAGES_PER_USER;
        int code = hints_open(r->h, &who, &fd, &err);
        assert_true(code == 0 || code == -EUSERS);
        given[i / HINTS_PAGES_PER_USER] += code == 0;
    }
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(given[i], i < 3 ? HINTS_PAGES_PER_USER : 0);
    int fd = -1;
    who.connection++;
    who.principal = 1000;
    assert_int_equal(hints_open(r->h, &who, &fd, &err), -EUSERS);
    assert_non_null(strstr(err.text, "of yours"));
    who.admin = true;
    (void)page_of(r, who);
}

/* Programs that look are told of a higher class; what they write there themselves does not last,
 * and others' pages stay as they are. */
TEST_OF_HINTS(wanted)
{
    const uint64_t now = monotonic_ns();
    hints_tell_wanted(r->h, r->m, now);
    struct hints_page *blind = page_of(r, me(1, false)), *p = page_of(r, me(2, false));
    p->looks = UINT32_MAX;
    for (unsigned class = 0; class <= CLASS_COUNT; class ++) {
        r->m->room_class = (uint8_t) class;
        p->wanted = 77;
        hints_tell_wanted(r->h, r->m, now);
        assert_int_equal(blind->wanted, 0);
        assert_int_equal(p->wanted, class < CLASS_BATCH);
    }
    r->m->room_class = CLASS_LATENCY;
    r->m->jobs[0].number = 0; /* the job ends: nobody waits for it */
    hints_tell_wanted(r->h, r->m, now + NSEC_PER_SEC);
    assert_int_equal(p->wanted, 0);
    for (unsigned i = 0; i < r->n; i++) {
        /* Still no way to make the daemon fault. */
        assert_int_equal(ftruncate(r->fds[i], 0), -1);
        assert_int_equal(fcntl(r->fds[i], F_ADD_SEALS, F_SEAL_WRITE), -1);
    }
}

/* Programs that look have the share of their process about once a second; others' pages stay. */
TEST_OF_HINTS(shares)
{
    struct engine *m = r->m;
    const uint64_t now = monotonic_ns();
    m->share = 600;
    assert_int_equal(hints_tell_share(NULL, m, now), TIME_NEVER);
    assert_int_equal(hints_tell_share(r->h, m, now), TIME_NEVER);
    struct hints_page *blind = page_of(r, me(1, false)), *p = page_of(r, me(2, false));
    blind->looks = HINTS_LOOKS_WANTED;
    assert_true(hints_tell_share(r->h, m, now) > now);
    assert_int_equal(m->watched, 0); /* none looks: nothing is asked of the driver */
    p->looks = UINT32_MAX;
    uint64_t next = now + NSEC_PER_SEC;
    p->share = UINT64_MAX;
    assert_true(hints_tell_share(r->h, m, now + 1) == next);
    assert_true(p->share == UINT64_MAX); /* not yet */
    assert_true(hints_tell_share(r->h, m, next) == next + NSEC_PER_SEC);
    assert_int_equal(hints_share_of(p->share, next), 600);
    assert_int_equal(p->share & 0xffff, 600);
    assert_int_equal(blind->share, 0);
    assert_int_equal(m->watched, 1);
    m->share = 0; /* not known any more */
    hints_tell_share(r->h, m, next + NSEC_PER_SEC);
    assert_int_equal(p->share, 0);
}

struct taken {
    unsigned n, leases;
    uint64_t job;
    struct hints_request last;
    struct hints_wait lease;
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

static void take_lease(void *arg, uint64_t job, const struct hints_wait *w)
{
    struct taken *t = arg;
    t->leases++;
    t->lease = *w;
    assert_true(w->asked_ns && w->ended_ns >= w->asked_ns && w->ended_ns <= monotonic_ns());
}

static unsigned taken_from(struct hints *h, struct taken *t)
{
    hints_requests(h, &(struct hints_reader){take_request, take_lease, t});
    return t->n;
}

static void put_done(struct hints_page *p, uint64_t begun, uint64_t ended, uint64_t lead,
                     uint64_t lead_end)
{
    p->done[p->ndone++ % HINTS_DONE] = (struct hints_done){
        .begun_ns = begun, .ended_ns = ended, .lead_ns = lead, .lead_end_ns = lead_end};
}

/* Each once, those of before the first call never; nothing that makes no sense, and no more work
 * than the ring has places, whatever the program writes. */
TEST_OF_HINTS(requests_that_ended)
{
    struct hints *h = r->h;
    struct hints_page *p = page_of(r, me(0, true));
    hints_assign(h, r->m, monotonic_ns());
    struct taken t = {.n = 0};
    put_done(p, 100, 200, 0, 0);
    hints_requests(h, NULL);
    assert_int_equal(taken_from(h, &t), 0);
    put_done(p, 300, 400, 310, 350);
    assert_int_equal(taken_from(h, &t), 1);
    assert_int_equal(t.job, 1);
    assert_int_equal(t.last.lead_ns, 310);
    assert_int_equal(t.last.lead_end_ns, 350);
    assert_int_equal(taken_from(h, &t), 1);
    /* Leads outside of their requests are none; times that go backwards, or come, are no request.
     */
    put_done(p, 500, 600, 100, 550);
    assert_int_equal(taken_from(h, &t), 2);
    assert_int_equal(t.last.lead_ns, 0);
    put_done(p, 600, 500, 0, 0);
    put_done(p, 0, 500, 0, 0);
    put_done(p, 600, UINT64_MAX, 0, 0);
    assert_int_equal(taken_from(h, &t), 2);
    /* More than fit: the last are there. */
    for (unsigned i = 0; i < 3 * HINTS_DONE; i++)
        put_done(p, 1000, 1000 + i, 0, 0);
    t.n = 0;
    assert_in_range(taken_from(h, &t), HINTS_DONE - 1, HINTS_DONE);
    assert_int_equal(t.last.ended_ns, 1000 + 3 * HINTS_DONE - 1);
    /* A number that jumps, or goes back. */
    const uint64_t wild[] = {UINT64_MAX, 0, 1ULL << 62, 7, UINT64_MAX - HINTS_DONE};
    for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        p->ndone = wild[i];
        t.n = 0;
        assert_true(taken_from(h, &t) <= HINTS_DONE);
    }
}

/* What a program reported stays with its job when it disconnects, except for requests in progress;
 * the next job in that slot does not get it. */
TEST_OF_HINTS(closed_pages)
{
    struct hints *h = r->h;
    struct hints_page *p = page_of(r, me(1, false)), *q = page_of(r, me(2, false));
    const uint64_t job = r->m->jobs[0].number;
    hints_assign(h, r->m, monotonic_ns());
    p->begun = 5;
    p->ended = p->due = 3;
    q->begun = q->ended = 7;
    assert_int_equal(hints_sum(h, 0, job).open, 2);
    hints_close(h, 1);
    const struct hints_sums s = hints_sum(h, 0, job);
    assert_int_equal(s.begun, 12);
    assert_int_equal(s.ended, 10);
    assert_int_equal(s.due, 3);
    assert_int_equal(s.open, 0);
    assert_int_equal(hints_sum(h, 0, job + 1).begun, 0);
    assert_int_equal(hints_sum(NULL, 0, job).begun, 0);
}

/* The same of leases that waited, and the sums of all. */
TEST_OF_HINTS(leases)
{
    struct hints *h = r->h;
    struct hints_page *p = page_of(r, me(1, false)), *other = page_of(r, me(2, false));
    struct taken t = {.n = 0};
    hints_assign(h, r->m, monotonic_ns());
    struct hints_sums sum = hints_sum(h, 0, 1);
    assert_null(hints_leases_json(&sum));
    p->waits[4].leases = 2;
    p->waits[4].total_us = 1500000;
    other->waits[4].leases = other->waits[0].leases = UINT64_MAX;
    json_decref(hints_of(h, 1, monotonic_ns(), &sum));
    json_t *all = hints_leases_json(&sum);
    assert_like(all, "{'waited_s':{'memory':1.5,'class':0.0},'count':{'stream':0}}");
    assert_int_equal(json_get_int(json_object_get(all, "count"), "memory"), 2 + (1LL << 53));
    json_decref(all);
    assert_null(hints_of(h, 2, monotonic_ns(), &sum));
    assert_null(hints_leases_json(&sum));
    p->leases[p->nleases++] = (struct hints_lease){5, 7, 9, {1, 2, 3, 4, UINT64_MAX}};
    taken_from(h, &t);
    assert_int_equal(t.leases, 1);
    assert_int_equal(t.lease.what, 9);
    assert_int_equal(t.lease.kernel[4], UINT64_MAX);
    const uint64_t wild[] = {UINT64_MAX, 0, 1ULL << 62, 7, UINT64_MAX - HINTS_LEASES};
    for (unsigned i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        p->nleases = wild[i];
        p->leases[i] = (struct hints_lease){wild[i], wild[4 - i], UINT64_MAX, {0}};
        t.leases = 0;
        taken_from(h, &t);
        assert_true(t.leases <= HINTS_LEASES);
    }
}

/* A program waits for memory: who may, what its programs want together, and when that is over. */
TEST_OF_HINTS(room)
{
    struct error err = {""};
    struct engine *m = r->m;
    struct hints *h = r->h;
    const uint32_t job = 0;
    struct caller a = me(1, false), b = me(2, false);
    assert_int_equal(hints_room(h, m, &a, a.connection, "GPU-1", 100, &err), -ENOTCONN);
    (void)page_of(r, a);
    (void)page_of(r, b);
    assert_int_equal(hints_room(h, m, &a, a.connection, "GPU-1", 100, &err), -EPERM);
    assert_non_null(strstr(err.text, "is in class batch: others make room for latency jobs only"));
    assert_int_equal(m->room[job][1], 0);
    m->jobs[job].job.class = CLASS_LATENCY;
    assert_int_equal(hints_room(h, m, &a, a.connection, "GPU-2", 100, &err), -EINVAL);
    assert_int_equal(hints_room(h, m, &a, a.connection, "", 100, &err),
                     -EINVAL); /* which of two? */
    uint64_t now = monotonic_ns();
    assert_int_equal(hints_room(h, m, &a, a.connection, "gpu-1", 100, &err), 0);
    assert_int_equal(hints_room(h, m, &b, b.connection, "GPU-1", 200, &err), 0);
    assert_int_equal(m->room[job][1], 300);
    assert_in_range(m->room_until[job][1], now + NSEC_PER_SEC, now + 10 * NSEC_PER_SEC);
    assert_int_equal(hints_room(h, m, &a, a.connection, "GPU-0", 50, &err),
                     0); /* another GPU now */
    assert_int_equal(m->room[job][1], 200);
    assert_int_equal(m->room[job][0], 50);
    assert_int_equal(hints_room(h, m, &a, a.connection, "", 0, &err), 0);
    assert_int_equal(m->room[job][0], 0);
    fake_gates = 1; /* the only GPU beside a slot of a gate need not be named */
    assert_int_equal(hints_room(h, m, &a, a.connection, "", 100, &err), 0);
    assert_int_equal(m->room[job][1], 300);
    assert_int_equal(hints_room(h, m, &a, a.connection, "", 0, &err), 0);
    fake_gates = 0;
    struct caller other = a, before = a;
    other.pid = 1;
    before.since_ticks = 0; /* a process that has ended, with the same pid */
    assert_int_equal(hints_room(h, m, &other, a.connection, "", 100, &err), -ENOTCONN);
    assert_int_equal(hints_room(h, m, &before, a.connection, "", 100, &err), -ENOTCONN);
    hints_close(h, 2);
    assert_int_equal(m->room[job][1], 0);
}
