/* Tracing in ceded: who gets what, what is lost and counted, and that nothing is done, recorded or
 * waited for when nobody reads. Time is made up. */
#include <sys/mman.h>
#include <sys/socket.h>

#include "../test.h"
#include "api/trace.h"
#include "base/hints_proto.h"
#include "base/trace_proto.h"
#include "fake_engine.h"

#define MS NSEC_PER_MSEC

/* What a look at all jobs costs: a slow machine changes nothing here. */
static uint64_t cpu_ns, look_ns;

uint64_t __wrap_thread_cpu_ns(void);
uint64_t __wrap_thread_cpu_ns(void)
{
    return cpu_ns += look_ns;
}

struct rig {
    struct traces *t;
    struct engine *m;
    uint64_t now;
    int reader[TRACERS_MAX + 1], writer[TRACERS_MAX + 1];
    unsigned n;
};

static int set_up(void **state)
{
    struct rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->t = traces_new();
    r->m = fake_engine_new();
    assert_non_null(r->t);
    assert_non_null(r->m);
    r->now = 1000 * NSEC_PER_SEC;
    fake_recording = false;
    fake_switches_code = 0;
    look_ns = 0;
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *r = *state;
    for (unsigned i = 0; i < r->n; i++) {
        close(r->reader[i]);
        close(r->writer[i]);
    }
    traces_free(r->t);
    switch_list_free(&fake_switches);
    free(r->m);
    free(r);
    return 0;
}

static int open_as(struct rig *r, uid_t uid, bool admin)
{
    const struct caller who = {
        .uid = uid, .principal = uid, .admin = admin, .connection = r->n + 1};
    int fds[2], code = traces_open(r->t, &who, NULL);
    if (code < 0)
        return code;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    r->reader[r->n] = fds[0];
    r->writer[r->n] = fds[1];
    traces_begin(r->t, who.connection, fds[1], r->now);
    return (int)r->n++;
}

static uint64_t update(struct rig *r, uint64_t ms)
{
    r->now += ms * MS;
    return traces_update(r->t, r->m, NULL, r->now);
}

static const struct trace_event *next_event(struct rig *r, int i)
{
    static struct trace_event v[TRACE_BATCH];
    static size_t at, n;
    static int of = -1;
    if (of != i || at == n) {
        ssize_t got = recv(r->reader[i], v, sizeof(v), MSG_DONTWAIT);
        of = i;
        at = n = 0;
        if (got <= 0)
            return NULL;
        assert_int_equal((size_t)got % sizeof(v[0]), 0);
        n = (size_t)got / sizeof(v[0]);
    }
    return &v[at++];
}

/* The last event of that kind and job; the others are read with it. Its text is "-" if there was
 * none. */
static struct trace_event last_of(struct rig *r, int i, uint32_t kind, uint64_t job)
{
    struct trace_event found = {.text = "-"};
    const struct trace_event *ev;
    while ((ev = next_event(r, i))) {
        if (ev->kind == kind && ev->job == job)
            found = *ev;
    }
    return found;
}

#define TEST_OF_TRACES(name) TEST_IN(name, struct rig *r, set_up, tear_down)

TEST_OF_TRACES(nobody_traces_nothing_happens)
{
    fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    assert_int_equal(update(r, 0), TIME_NEVER);
    assert_false(fake_recording);
}

TEST_OF_TRACES(recorded_while_somebody_is_there)
{
    assert_int_equal(open_as(r, 0, true), 0);
    assert_int_equal(open_as(r, 0, true), 1);
    assert_in_range(update(r, 0), r->now, r->now + 1000 * MS);
    assert_true(fake_recording);
    traces_close(r->t, 1);
    update(r, 100);
    assert_true(fake_recording);
    traces_close(r->t, 2);
    assert_int_equal(update(r, 100), TIME_NEVER);
    assert_false(fake_recording);
}

/* A reader that was killed does not say so: the write fails, or the server closes. */
TEST_OF_TRACES(a_killed_reader_ends_it)
{
    int i = open_as(r, 0, true);
    fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    close(r->reader[i]);
    r->reader[i] = -1;
    update(r, 0);
    update(r, 1000);
    assert_false(fake_recording);
}

TEST_OF_TRACES(names_are_for_those_they_belong_to)
{
    fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "mine");
    fake_engine_put(r->m, 11, 1001, CLASS_BATCH, 100, "theirs");
    int user = open_as(r, 1000, false), root = open_as(r, 0, true);
    update(r, 0);
    unsigned seen = 0;
    const struct trace_event *ev;
    while ((ev = next_event(r, user))) {
        seen += ev->kind == TRACE_JOB;
        if (ev->kind == TRACE_JOB)
            assert_string_equal(ev->text, ev->job == 1 ? "mine" : "");
        for (size_t i = 0; ev->job == 2 && ev->kind == TRACE_JOB && i < sizeof(ev->text); i++)
            assert_int_equal(ev->text[i], 0); /* nor what is behind the end of the string */
    }
    assert_int_equal(seen, 2);
    assert_string_equal(last_of(r, root, TRACE_JOB, 2).text, "theirs");
}

TEST_OF_TRACES(states_and_ends_are_reported)
{
    int i = open_as(r, 0, true);
    uint32_t slot = fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    update(r, 0);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "starting");
    update(r, 100);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "-"); /* nothing is new */
    r->m->jobs[slot].job.paused = true;
    update(r, 100);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "paused");
    r->m->jobs[slot].why[1] = (struct job_why){.why = WHY_NEXT, .other = 7, .for_ns = TIME_NEVER};
    update(r, 100);
    struct trace_event why = last_of(r, i, TRACE_WHY, 1);
    assert_string_equal(why.text, sched_why_text(WHY_NEXT));
    assert_int_equal(why.gpu, 1);
    assert_int_equal(why.v[0], 7);
    r->m->jobs[slot].number = 0;
    update(r, 100);
    assert_string_equal(last_of(r, i, TRACE_JOB_END, 1).text, "");
}

/* They take a 20th of the time. */
TEST_OF_TRACES(looks_that_cost_much_are_rare)
{
    int i = open_as(r, 0, true);
    uint32_t slot = fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    look_ns = 10 * MS;
    update(r, 0);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "starting");
    r->m->jobs[slot].job.paused = true;
    update(r, 189);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "-");
    update(r, 1);
    assert_string_equal(last_of(r, i, TRACE_STATE, 1).text, "paused");
}

/* Also when the process has ended since: it is known for a while. */
TEST_OF_TRACES(switches_name_jobs)
{
    int i = open_as(r, 0, true);
    uint32_t slot = fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    update(r, 0);
    last_of(r, i, TRACE_KINDS, 0);
    switch_list_push(&fake_switches, &(struct gpu_switch){500, 10, 1});
    update(r, 100);
    struct trace_event ev = last_of(r, i, TRACE_SWITCH, 1);
    assert_int_equal(ev.at_ns, 500);
    assert_int_equal(ev.gpu, 1);
    r->m->jobs[slot].number = 0;
    switch_list_push(&fake_switches, &(struct gpu_switch){600, 10, 1});
    update(r, 100);
    assert_int_equal(last_of(r, i, TRACE_SWITCH, 1).at_ns, 600);
    switch_list_push(&fake_switches, &(struct gpu_switch){700, 99, 0});
    switch_list_push(&fake_switches, &(struct gpu_switch){800, GPU_NOBODY, 1});
    update(r, 100);
    assert_int_equal(last_of(r, i, TRACE_SWITCH, 0).v[0], TRACE_NOBODY);
}

static void flood(struct rig *r, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        switch_list_push(&fake_switches,
                         &(struct gpu_switch){r->now + i, i % 2 ? GPU_NOBODY : 5, 0});
}

/* What a reader got and what it is told to have lost are together what there was. */
TEST_OF_TRACES(what_is_lost_is_counted)
{
    const unsigned all = 40000;
    int i = open_as(r, 0, true);
    uint64_t got = 0, lost = 0;
    update(r, 0);
    last_of(r, i, TRACE_KINDS, 0);
    flood(r, all);
    update(r, 100);
    for (int round = 0; round < 200; round++) {
        const struct trace_event *ev;
        while ((ev = next_event(r, i))) {
            got += ev->kind == TRACE_SWITCH;
            lost += ev->kind == TRACE_LOST ? ev->v[0] : 0;
            assert_int_equal(ev->v[1], 0);
        }
        if (round == 100) /* the count comes before the next event */
            flood(r, 1);
        update(r, 100);
    }
    assert_true(lost > 0);
    assert_int_equal(got + lost, all + 1);
}

TEST_OF_TRACES(who_does_not_read_is_cut_off)
{
    int hung = open_as(r, 0, true), good = open_as(r, 0, true);
    uint64_t got = 0, lost = 0, all = 0;
    bool cut = false;
    const struct trace_event *ev;
    update(r, 0);
    for (int i = 0; i < 80; i++) { /* 8 s; the other reads on */
        flood(r, 1000);
        all += 1000;
        update(r, 100);
        while ((ev = next_event(r, good)))
            got += ev->kind == TRACE_SWITCH;
    }
    assert_int_equal(got, all);
    traces_close(r->t, (uint64_t)good + 1);
    update(r, 100);
    assert_false(fake_recording); /* it does not count as one who traces */
    got = 0;
    for (int i = 0; i < 1000; i++) {
        while ((ev = next_event(r, hung))) {
            got += ev->kind == TRACE_SWITCH;
            lost += ev->kind == TRACE_LOST ? ev->v[0] : 0;
            cut |= ev->kind == TRACE_LOST && ev->v[1] == 1;
        }
        update(r, 1000);
    }
    assert_true(cut);
    assert_true(got > 0 && lost > 0 && got + lost <= all + 100);
    assert_int_equal(recv(r->reader[hung], &cut, 1, MSG_DONTWAIT), 0); /* closed */
}

/* What cannot be recorded is said; the rest is there. */
TEST_OF_TRACES(a_driver_that_refuses)
{
    fake_switches_code = -ENOTSUP;
    int i = open_as(r, 0, true);
    fake_engine_put(r->m, 10, 1000, CLASS_BATCH, 100, "train");
    update(r, 0);
    assert_non_null(strstr(last_of(r, i, TRACE_NOTE, 0).text, "no record"));
    fake_switches_code = 0;
    int other = open_as(r, 0, true);
    update(r, 100);
    assert_string_equal(last_of(r, other, TRACE_NOTE, 0).text, "-");
}

TEST_OF_TRACES(not_more_than_there_is_room_for)
{
    for (int i = 0; i < TRACERS_PER_USER; i++)
        assert_int_equal(open_as(r, 1000, false), i);
    assert_int_equal(open_as(r, 1000, false), -EUSERS);
    for (uid_t u = 2000; r->n < USERS_PART(TRACERS_MAX); u++)
        assert_true(open_as(r, u, false) >= 0);
    assert_int_equal(open_as(r, 3000, false), -EUSERS);
    while (r->n < TRACERS_MAX)
        assert_true(open_as(r, 0, true) >= 0);
    assert_int_equal(open_as(r, 0, true), -EUSERS);
    traces_close(r->t, 1);
    assert_int_equal(open_as(r, 0, true), TRACERS_MAX);
}

TEST_OF_TRACES(one_a_connection)
{
    const struct caller who = {.admin = true, .connection = 9};
    assert_int_equal(traces_open(r->t, &who, NULL), 0);
    assert_int_equal(traces_open(r->t, &who, NULL), -EALREADY);
    /* Its answer is not sent yet: nothing is done for it. */
    update(r, 0);
    assert_false(fake_recording);
}

/* A look-up goes through all jobs, and any user may fill its pages between two looks. */
TEST_OF_TRACES(a_full_page_takes_one_lookup)
{
    struct hints *h = hints_new();
    const struct caller user = {
        .uid = getuid(), .pid = getpid(), .admin = true, .since_ticks = proc_ticks_now()};
    int fd, i = open_as(r, 0, true);
    unsigned seen = 0;
    const struct trace_event *ev;
    fake_engine_put(r->m, getpid(), 0, CLASS_BATCH, 100, "me");
    assert_int_equal(hints_open(h, &user, &fd, NULL), 0);
    struct hints_page *p = mmap(NULL, HINTS_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(p != MAP_FAILED);
    r->now += 100 * MS;
    traces_update(r->t, r->m, h, r->now);
    for (unsigned k = 0; k < HINTS_DONE; k++) {
        p->done[k].begun_ns = 1;
        p->done[k].ended_ns = 2;
    }
    p->ndone = HINTS_DONE;
    fake_lookups = 0;
    r->now += 1000 * MS;
    traces_update(r->t, r->m, h, r->now);
    while ((ev = next_event(r, i)))
        seen += ev->kind == TRACE_REQUEST;
    assert_in_range(seen, HINTS_DONE / 2, HINTS_DONE);
    assert_int_equal(fake_lookups, 1);
    munmap(p, HINTS_PAGE);
    close(fd);
    hints_free(h);
}
