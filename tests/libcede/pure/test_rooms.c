/* Room in a GPU's memory, in virtual time: order, starvation, timeouts, the reserve, what the
 * driver says late; a random run whose sums are right. */
#include "../../random.h"
#include "../fixture.h"
#include "base/job_terms.h"
#include "base/util.h"
#include "cede/memory.h"
#include "libcede/pure/rooms.h"

#define NEVER TIME_NEVER

static struct rooms *rooms_of(uint64_t total, uint64_t reserve, uint32_t capacity)
{
    struct rooms *r;
    const struct cede_memory_config c = {.total_bytes = total,
                                         .reserve_bytes = reserve,
                                         .capacity = capacity,
                                         .high = 0.75,
                                         .critical = 0.9};
    OK(cede_rooms_new(&c, &r));
    return r;
}

/* What a table does and what has to come of it. id: of the n-th reservation asked for. */
enum act { ASK, RELEASE, DRAW, TOOK, UNDRAW, AGAIN, FREED, SAYS, STEP, FITS };
struct row {
    enum act act;
    unsigned id;
    uint64_t bytes, until;
    int result;
    uint64_t room; /* afterwards */
};

static void run_rows(const struct row *v, unsigned n)
{
    struct rooms *r = rooms_of(100, 10, 4);
    uint64_t ids[16] = {0};
    struct room_event e;
    for (unsigned i = 0; i < n; i++) {
        const uint64_t id = ids[v[i].id], bytes = v[i].bytes, until = v[i].until;
        const enum act act = v[i].act;
        int got = act == ASK       ? cede_rooms_ask(r, bytes, until, 50, &ids[v[i].id])
                  : act == RELEASE ? cede_rooms_release(r, id)
                  : act == DRAW    ? cede_rooms_draw(r, id, bytes)
                  : act == TOOK    ? (cede_rooms_took(r, bytes), 0)
                  : act == UNDRAW  ? (cede_rooms_undraw(r, id, bytes), 0)
                  : act == AGAIN   ? (cede_rooms_again(r, id, until), 0)
                  : act == FREED   ? (cede_rooms_freed(r, id, bytes), 0)
                  : act == SAYS    ? (cede_rooms_set_free(r, bytes, cede_rooms_allocated(r)), 0)
                  : act == FITS    ? cede_rooms_fits(r, bytes)
                  /* STEP: -1: nothing happens; 0: timed out; 1: granted */
                  : cede_rooms_step(r, until, &e) ? e.granted
                                                  : -1;
        if (act == STEP && got >= 0)
            assert_int_equal(e.id, id);
        if (got != v[i].result || cede_rooms_statistics(r)->available_bytes != v[i].room)
            fail_msg("row %u: %d, room %llu", i, got,
                     (unsigned long long)cede_rooms_statistics(r)->available_bytes);
    }
    cede_rooms_free(r);
}
#define ROWS(...)                                                                                  \
    do {                                                                                           \
        static const struct row rows[] = {__VA_ARGS__};                                            \
        run_rows(rows, ARRAY_SIZE(rows));                                                          \
    } while (0)

TEST(the_reserve_is_kept)
{
    ROWS({ASK, 0, 91, NEVER, -ENOMEM, 90}, {ASK, 0, 90, 0, 0, 0}, {ASK, 1, 1, 50, -ENOMEM, 0},
         {RELEASE, 0, 0, 0, 0, 90}, {RELEASE, 0, 0, 0, -ENOENT, 90}, {SAYS, 0, 40, 0, 0, 30},
         {FITS, 0, 30, 0, 1, 30}, {FITS, 0, 31, 0, 0, 30}, {SAYS, 0, 5, 0, 0, 0});
}

TEST(first_come_first_served)
{
    ROWS({ASK, 0, 60, 0, 0, 30}, {ASK, 1, 50, NEVER, -EINPROGRESS, 30},
         {FITS, 0, 5, 0, 0, 30}, /* it would overtake */
         {ASK, 2, 5, NEVER, -EINPROGRESS, 30}, {ASK, 3, 5, 50, -ENOMEM, 30},
         {STEP, 0, 0, 60, -1, 30}, {RELEASE, 0, 0, 0, 0, 90}, {STEP, 1, 0, 60, 1, 40},
         {STEP, 2, 0, 60, 1, 35}, {STEP, 0, 0, 60, -1, 35});
}

TEST(timeouts)
{
    ROWS({ASK, 0, 90, 0, 0, 0}, {ASK, 1, 50, 70, -EINPROGRESS, 0},
         {ASK, 2, 40, 60, -EINPROGRESS, 0}, {STEP, 0, 0, 59, -1, 0}, {STEP, 2, 0, 60, 0, 0},
         {STEP, 0, 0, 69, -1, 0}, {RELEASE, 0, 0, 0, 0, 90},
         {STEP, 1, 0, 70, 1, 40}, /* fits at the very moment */
         {ASK, 2, 41, 80, -EINPROGRESS, 40}, {STEP, 2, 0, 81, 0, 40});
}

TEST(capacity)
{
    ROWS({ASK, 0, 1, 0, 0, 89}, {ASK, 1, 1, 0, 0, 88}, {ASK, 2, 1, 0, 0, 87}, {ASK, 3, 1, 0, 0, 86},
         {ASK, 4, 1, NEVER, -ENOSPC, 86}, {RELEASE, 2, 0, 0, 0, 87}, {ASK, 4, 0, 0, 0, 87},
         {RELEASE, 2, 0, 0, -ENOENT, 87} /* the slot is another's now */);
}

TEST(allocations_leave_the_reservation)
{
    ROWS({ASK, 0, 40, 0, 0, 50}, {DRAW, 0, 30, 0, 0, 50}, {TOOK, 0, 30, 0, 0, 50},
         {SAYS, 0, 70, 0, 0, 50},                                /* the same from the driver */
         {DRAW, 0, 70, 0, -ENOMEM, 50}, {DRAW, 0, 20, 0, 0, 40}, /* 10 more than it reserved */
         {TOOK, 0, 20, 0, 0, 40}, {SAYS, 0, 50, 0, 0, 40}, {FREED, 0, 30, 0, 0, 20},
         {SAYS, 0, 80, 0, 0, 50}, {RELEASE, 0, 0, 0, 0, 70}, {FREED, 0, 20, 0, 0, 70},
         {SAYS, 0, 100, 0, 0, 90});
}

/* The driver refused what it had said was free: the reservation waits as the first again. */
TEST(again)
{
    ROWS({ASK, 0, 40, 0, 0, 50}, {DRAW, 0, 40, 0, 0, 50}, {ASK, 1, 60, NEVER, -EINPROGRESS, 50},
         {UNDRAW, 0, 40, 0, 0, 50}, {SAYS, 0, 0, 0, 0, 0}, {AGAIN, 0, 0, 90, 0, 0},
         {STEP, 0, 0, 60, -1, 0}, {SAYS, 0, 70, 0, 0, 60}, {STEP, 0, 0, 60, 1, 20},
         {STEP, 0, 0, 60, -1, 20}, {AGAIN, 0, 0, 65, 0, 60}, {SAYS, 0, 0, 0, 0, 0},
         {STEP, 0, 0, 66, 0, 0}, {SAYS, 0, 70, 0, 0, 60}, {STEP, 1, 0, 66, 1, 0});
}

/* An allocation that was made while the driver was asked is not in what it said. */
TEST(a_late_word)
{
    struct rooms *r = rooms_of(100, 10, 4);
    uint64_t id, before = cede_rooms_allocated(r), need;
    OK(cede_rooms_ask(r, 40, 0, 0, &id));
    OK(cede_rooms_draw(r, id, 40));
    cede_rooms_took(r, 40);
    cede_rooms_set_free(r, 100, before);
    assert_int_equal(cede_rooms_statistics(r)->available_bytes, 50);
    assert_int_equal(cede_rooms_peak(r, id), 40);
    OK(cede_rooms_release(r, id));
    OK(cede_rooms_peak(r, id));
    OK(cede_rooms_first(r, &need));
    OK(cede_rooms_ask(r, 20, 0, 0, &id));
    assert_int_equal(cede_rooms_ask(r, 60, NEVER, 0, &id), -EINPROGRESS);
    assert_int_equal(cede_rooms_first(r, &need), id);
    assert_int_equal(need, 60 + 20 + 10);
    cede_rooms_free(r);
}

TEST(pressure)
{
    static const struct {
        double share;
        int was, now;
    } rows[] = {
        {0.1, 0, 0},   {0.75, 0, 1}, {0.74, 1, 1}, {0.72, 1, 0}, {0.9, 0, 2},
        {0.895, 1, 1}, {0.89, 2, 2}, {0.87, 2, 1}, {0.1, 2, 0},  {0.74, 2, 1},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        assert_int_equal(cede_rooms_pressure(rows[i].share, 0.75, 0.9, rows[i].was), rows[i].now);
}

/* Small reservations come without end; the large one still gets its turn, after those before it. */
TEST(nobody_starves)
{
    struct rooms *r = rooms_of(100, 0, 64);
    uint64_t held[3], id, large;
    struct room_event e;
    unsigned rounds = 0;
    for (int i = 0; i < 3; i++)
        OK(cede_rooms_ask(r, 30, NEVER, 0, &held[i]));
    assert_int_equal(cede_rooms_ask(r, 80, NEVER, 0, &large), -EINPROGRESS);
    for (bool got = false; !got; rounds++) {
        assert_true(rounds < 4);
        if (rounds < 3)
            OK(cede_rooms_release(r, held[rounds]));
        assert_int_equal(cede_rooms_ask(r, 10, NEVER, rounds, &id), -EINPROGRESS);
        while (cede_rooms_step(r, rounds, &e))
            got |= e.id == large && e.granted;
    }
    assert_int_equal(cede_rooms_statistics(r)->promised_bytes, 80 + 20);
    cede_rooms_free(r);
}

TEST(needs_are_learnt)
{
    static struct needs n;
    const uint64_t shape[] = {4, 128, 0}, other[] = {8, 128, 0};
    uint64_t key = cede_needs_key("gemm", shape, 3);
    assert_true(key != cede_needs_key("gemm", other, 3));
    assert_true(key != cede_needs_key("conv", shape, 3));
    assert_true(cede_needs_key(NULL, NULL, 0) != 0);
    OK(cede_needs_get(&n, key));
    cede_needs_learn(&n, key, 800);
    cede_needs_learn(&n, key, 900);
    assert_int_equal(cede_needs_get(&n, key), 900);
    cede_needs_learn(&n, key, 100);
    assert_int_equal(cede_needs_get(&n, key), 800);
    for (int i = 0; i < 100; i++)
        cede_needs_learn(&n, key, 100);
    assert_in_range(cede_needs_get(&n, key), 100, 107);
}

/* Reservations, allocations and others' at random: what is promised and allocated is the sum of
 * what is held, and nothing is given out twice. */
TEST(sums_are_right)
{
    enum { N = 32, TOTAL = 1000, RESERVE = 100 };
    struct {
        uint64_t id, bytes, live;
        bool waits;
    } v[N] = {{0}};
    struct rooms *r = rooms_of(TOTAL, RESERVE, N);
    uint64_t others = 0, now = 0;
    struct room_event e;
    for (unsigned step = 0; step < 200000; step++) {
        unsigned i = (unsigned)rnd(N);
        uint64_t promised = 0, live = 0, bytes = 1 + rnd(200);
        now++;
        if (!v[i].id) {
            int c = cede_rooms_ask(r, bytes, now + rnd(50), now, &v[i].id);
            assert_true(c == 0 || c == -EINPROGRESS || c == -ENOMEM);
            v[i].id = c == -ENOMEM ? 0 : v[i].id;
            v[i].bytes = bytes;
            v[i].waits = c == -EINPROGRESS;
        } else if (!v[i].waits && !v[i].live && rnd(2)) {
            bytes = 1 + rnd(v[i].bytes);
            OK(cede_rooms_draw(r, v[i].id, bytes));
            cede_rooms_took(r, bytes);
            v[i].live = bytes;
        } else {
            if (v[i].live)
                cede_rooms_freed(r, v[i].id, v[i].live);
            v[i].live = 0;
            OK(cede_rooms_release(r, v[i].id));
            v[i].id = 0;
        }
        for (unsigned k = 0; k < N; k++)
            live += v[k].live;
        others = rnd(8) ? others : rnd(300);
        cede_rooms_set_free(r, TOTAL - live > others ? TOTAL - live - others : 0,
                            cede_rooms_allocated(r));
        while (cede_rooms_step(r, now, &e)) {
            for (unsigned k = 0; k < N; k++) {
                if (v[k].id != e.id)
                    continue;
                assert_true(v[k].waits);
                v[k].waits = false;
                v[k].id = e.granted ? e.id : 0;
            }
        }
        for (unsigned k = 0; k < N; k++)
            promised += v[k].id && !v[k].waits ? v[k].bytes - v[k].live : 0;
        assert_int_equal(cede_rooms_statistics(r)->promised_bytes, promised);
        assert_int_equal(cede_rooms_statistics(r)->allocated_bytes, live);
        assert_true(promised + live <= TOTAL - RESERVE);
    }
    cede_rooms_free(r);
}
