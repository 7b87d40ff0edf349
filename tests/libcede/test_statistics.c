/* Requests and statistics of libcede in virtual time; no daemon, no connection. */
#include "fixture.h"
#include "libcede/clock.h"
#include "libcede/handle.h"

static uint64_t now;
static struct hints_page page;

uint64_t cede_clock_now_ns(void)
{
    return now;
}

int cede_link_add(struct cede *c)
{
    cede_hints_set_page(&c->hints, &page);
    return 0;
}

void cede_link_remove(struct cede *c)
{
}

void cede_link_check(struct cede *c, bool wait)
{
}

int cede_link_set(struct cede *c, unsigned class, unsigned weight)
{
    return -EPERM;
}

#define US 1000ULL
#define MS (1000 * US)

static int begin_test(void **state)
{
    now = 1000 * MS;
    memset(&page, 0, sizeof(page));
    return cede_connect((struct cede **)state);
}

static int end_test(void **state)
{
    cede_close(*state);
    return 0;
}

static struct cede_statistics stats(struct cede *c)
{
    struct cede_statistics s;
    OK(cede_get_statistics(c, &s, sizeof(s)));
    return s;
}

#define request(c, ...) request_in(c, CEDE_JOB, __VA_ARGS__)
static void request_in(struct cede *c, cede_stream stream, uint64_t took_us, uint64_t deadline_us)
{
    struct cede_request r;
    OK(cede_request_begin(c, &r, stream, 0, deadline_us));
    now += took_us * US;
    OK(cede_request_end(c, &r));
}

/* Over ten orders of magnitude: never below the true value, at most 1/16 + 1 us above. */
TEST_IN(quantiles, struct cede *c, begin_test, end_test)
{
    for (uint64_t us = 1; us < 500000000; us = us * 5 / 3 + 1) {
        struct cede *one;
        OK(cede_connect(&one));
        request(one, us, 0);
        request(one, 600000000, 0); /* so that the first one's bucket is not cut at the maximum */
        assert_in_range(stats(one).p50_us, us, us + us / 16 + 1);
        cede_close(one);
    }
    for (unsigned i = 1; i <= 1000; i++)
        request(c, i, 0);
    HAS(stats(c), (ended, 1000), (max_us, 1000));
    assert_in_range(stats(c).p50_us, 500, 500 + 500 / 16 + 1);
    assert_in_range(stats(c).p99_us, 990, 1000);
}

TEST_IN(deadlines, struct cede *c, begin_test, end_test)
{
    request(c, 100, 100);
    request(c, 101, 100);
    request(c, 100, 0); /* has none */
    OK(cede_set_deadline(c, CEDE_JOB, 50));
    OK(cede_set_deadline(c, 7, 200));
    request_in(c, 7, 150, 0); /* the stream's holds */
    request(c, 60, 0);        /* the job's does not */
    HAS(stats(c), (ended, 5), (with_deadline, 4), (deadlines_met, 2));
    HAS(page, (due, 4), (met, 2), (deadline_us, 50));
}

/* The page has the request with the earliest deadline: its stream's settings, or else the job's. */
TEST_IN(due_first, struct cede *c, begin_test, end_test)
{
    struct cede_request r[3];
    OK(cede_set_deadline(c, CEDE_JOB, 500));
    OK(cede_set_laxity(c, CEDE_JOB, 400));
    OK(cede_set_priority(c, CEDE_JOB, 3));
    OK(cede_set_laxity(c, 7, 150));
    OK(cede_set_priority(c, 8, 0));
    static const struct {
        cede_stream stream;
        uint64_t deadline_us, need_us;
        int priority;
    } table[] = {{CEDE_JOB, 0, 100, 3}, {7, 200, 50, 3}, {8, 100, 0, 0}};
    for (unsigned i = 0; i < 3; i++) { /* each is due before the last */
        OK(cede_request_begin(c, &r[i], table[i].stream, 0, table[i].deadline_us));
        HAS(page, (need_us, table[i].need_us), (priority, table[i].priority));
    }
    OK(cede_request_end(c, &r[2]));
    HAS(page, (earliest_ns, now + 200 * US), (need_us, 50));
    OK(cede_request_end(c, &r[0]));
    OK(cede_request_end(c, &r[1]));
    HAS(page, (earliest_ns, 0), (priority, 0));
}

/* Any order of ends, and more open ones than there are places. */
TEST_IN(earliest, struct cede *c, begin_test, end_test)
{
    static struct cede_request r[HINTS_OPEN_MAX + 20];
    unsigned n = HINTS_OPEN_MAX + 20;
    for (unsigned i = 0; i < n; i++)
        OK(cede_request_begin(c, &r[i], CEDE_JOB, 0, 1000 + (i * 37) % HINTS_OPEN_MAX));
    for (unsigned k = 0; k < n; k++) {
        uint64_t least = 0;
        for (unsigned i = 0; i < HINTS_OPEN_MAX; i++) {
            uint64_t due = now + (1000 + (i * 37) % HINTS_OPEN_MAX) * US;
            if (r[i].opaque[0] && (!least || due < least))
                least = due;
        }
        assert_int_equal(page.earliest_ns, least);
        OK(cede_request_end(c, &r[(k * 101) % n]));
    }
    assert_int_equal(page.earliest_ns, 0);
    HAS(stats(c), (ended, n), (deadlines_met, n));
}

TEST_IN(far_deadlines_and_a_daemon_that_refuses, struct cede *c, begin_test, end_test)
{
    struct cede_request r;
    OK(cede_request_begin(c, &r, CEDE_JOB, UINT64_MAX, UINT64_MAX));
    OK(cede_request_end(c, &r));
    assert_int_equal(stats(c).with_deadline, 0);         /* as far off as that is never */
    assert_int_equal(cede_set_weight(c, 10000), -EPERM); /* as the daemon said */
}

/* What `cede trace` shows of requests: each that ended, the last ones if there are many; and the
 * lead of one. */
TEST_IN(requests_for_a_trace, struct cede *c, begin_test, end_test)
{
    struct cede_request r;
    for (uint64_t i = 0; i < HINTS_DONE + 10; i++) {
        uint64_t began = now;
        cede_request_begin(c, &r, 0, 0, 0);
        assert_int_equal(page.ndone, i);
        now += i * US;
        OK(cede_request_end(c, &r));
        assert_int_equal(page.ndone, i + 1);
        HAS(page.done[i % HINTS_DONE], (begun_ns, began), (ended_ns, now), (lead_ns, 0));
    }
    struct hint_request h;
    cede_hints_begin(&c->hints, 0, now, 0, &h);
    cede_hints_led(&h, now + 100 * US, now + 400 * US);
    assert_true(cede_hints_end(&c->hints, &h, true, now + 900 * US));
    const struct hints_done *d = &page.done[(page.ndone - 1) % HINTS_DONE];
    HAS(*d, (lead_ns, now + 100 * US), (lead_end_ns, now + 400 * US));
    /* Nowhere without a page. */
    cede_hints_set_page(&c->hints, NULL);
    uint64_t n = page.ndone;
    cede_request_begin(c, &r, 0, 0, 0);
    OK(cede_request_end(c, &r));
    assert_int_equal(page.ndone, n);
}

/* The daemon's word counts while it is fresh and makes sense; the program only says that it looks.
 */
TEST_IN(share, struct cede *c, begin_test, end_test)
{
    assert_true(cede_share(NULL) == 1);
    assert_true(cede_share(c) == 1);
    HAS(page, (looks, HINTS_LOOKS_SHARE), (share, 0));
    cede_wanted(c);
    assert_int_equal(page.looks, HINTS_LOOKS_SHARE | HINTS_LOOKS_WANTED);
    for (uint32_t s = 1; s <= HINTS_SHARE_WHOLE; s += 333) {
        page.share = hints_share_word(now, s);
        assert_true(cede_share(c) == s / 1000.0);
    }
    page.share = hints_share_word(now, 250);
    now += HINTS_SHARE_NS;
    assert_true(cede_share(c) == 0.25);
    now += MS;
    assert_true(cede_share(c) == 1);
    const uint64_t nonsense[] = {hints_share_word(now, 0), hints_share_word(now, 1001), UINT64_MAX,
                                 hints_share_word(now + 10 * MS, 250), 250};
    for (unsigned i = 0; i < ARRAY_SIZE(nonsense); i++) {
        page.share = nonsense[i];
        assert_true(cede_share(c) == 1);
    }
    page.share = hints_share_word(now, 250);
    cede_hints_set_page(&c->hints, NULL);
    assert_true(cede_share(c) == 1);
}
