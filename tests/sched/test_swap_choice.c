/* Who leaves a GPU's memory, who comes back and who of those that wait starts: tables of
 * situations, that a sequence of decisions comes to rest, and that nobody starves. */
#include "fixture.h"
#include "plan/memory_line.h"
#include "plan/swap_choice.h"

#define NOBODY SLOT_NONE

enum { OUT = 1, FIXED = 2, WAITS = 4 };

struct row {
    const char *what;
    uint64_t free;
    struct {
        enum job_class class;
        unsigned flags;
        uint64_t bytes, need, since;
    } jobs[5];
    uint32_t n, job;
    bool out;
};

/* clang-format off */
static const struct row rows[] = {
    {"nobody needs anything", 10, {{L, 0, 50, 0, 0}, {B, 0, 40, 0, 0}}, 2, NOBODY, false},
    {"there is room already", 10, {{L, 0, 0, 10, 0}, {B, 0, 90, 0, 0}}, 2, NOBODY, false},
    {"the batch job makes room", 10, {{L, 0, 0, 50, 0}, {B, 0, 90, 0, 0}}, 2, 1, true},
    {"batch before normal, though smaller", 0,
     {{L, 0, 0, 20, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}}, 3, 2, true},
    {"the largest first", 0, {{L, 0, 0, 50, 0}, {B, 0, 30, 0, 0}, {B, 0, 60, 0, 0}}, 3, 2, true},
    {"normal too, where batch is not enough; then batch may stay", 0,
     {{L, 0, 0, 60, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}}, 3, 1, true},
    {"both are needed: batch first", 0,
     {{L, 0, 0, 90, 0}, {N, 0, 70, 0, 0}, {B, 0, 30, 0, 0}}, 3, 2, true},
    {"no help even if all leave", 0,
     {{L, 0, 0, 99, 0}, {N, 0, 60, 0, 0}, {B, 0, 30, 0, 0}}, 3, NOBODY, true},
    {"latency jobs never leave", 0, {{L, 0, 0, 50, 0}, {L, 0, 90, 0, 0}}, 2, NOBODY, true},
    {"a refused job is left alone", 0,
     {{L, 0, 0, 50, 0}, {B, FIXED, 60, 0, 0}, {B, 0, 55, 0, 0}}, 3, 2, true},
    {"what batch jobs need pushes nobody out", 0,
     {{B, 0, 0, 50, 0}, {B, 0, 90, 0, 0}}, 2, NOBODY, false},
    {"comes back into free room", 50, {{L, 0, 50, 0, 0}, {B, OUT, 40, 0, 0}}, 2, 1, false},
    {"not where it does not fit", 50, {{L, 0, 50, 0, 0}, {B, OUT, 51, 0, 0}}, 2, NOBODY, false},
    {"not into what a latency job still needs", 50,
     {{L, 0, 10, 20, 0}, {B, OUT, 40, 0, 0}}, 2, NOBODY, false},
    {"not into what a batch job waits for", 50,
     {{B, 0, 10, 20, 0}, {B, OUT, 40, 0, 0}}, 2, NOBODY, false},
    {"normal comes back before batch", 50, {{B, OUT, 40, 0, 1}, {N, OUT, 40, 0, 2}}, 2, 1, false},
    {"whoever is out longest comes first", 50,
     {{B, OUT, 40, 0, 7}, {B, OUT, 45, 0, 3}}, 2, 1, false},
    {"a smaller one does not wait for one that does not fit", 50,
     {{B, OUT, 90, 0, 1}, {B, OUT, 20, 0, 2}}, 2, 1, false},
    {"what started jobs will still take is kept for them", 30,
     {{L, 0, 0, 20, 0}, {B, 0, 0, 15, 0}, {B, 0, 40, 0, 0}}, 3, 2, true},
    {"there is room for both", 35,
     {{L, 0, 0, 20, 0}, {B, 0, 0, 15, 0}, {B, 0, 40, 0, 0}}, 3, NOBODY, false},
    {"nobody leaves for one that waits to start after the latency job", 20,
     {{L, 0, 0, 20, 0}, {B, WAITS, 0, 15, 0}, {B, 0, 40, 0, 0}}, 3, NOBODY, false},
    {"nor for one that waits alone", 0,
     {{L, 0, 0, 0, 0}, {B, WAITS, 0, 15, 0}, {B, 0, 40, 0, 0}}, 3, NOBODY, false},
    {"who is out comes back before those of its class that wait to start", 40,
     {{L, 0, 0, 0, 0}, {B, WAITS, 0, 15, 0}, {B, OUT, 40, 0, 0}}, 3, 2, false},
    {"but after those of a higher class", 40,
     {{L, 0, 0, 0, 0}, {N, WAITS, 0, 15, 0}, {B, OUT, 40, 0, 0}}, 3, NOBODY, false},
    {"and after those that have started", 40,
     {{L, 0, 0, 0, 0}, {B, 0, 0, 15, 0}, {B, OUT, 40, 0, 0}}, 3, NOBODY, false},
    {"the largest first, of those that have still to take some", 20,
     {{L, 0, 0, 30, 0}, {B, 0, 10, 20, 0}, {B, 0, 30, 0, 0}}, 3, 2, true},
    {"one that leaves needs no more what it had still to take", 20,
     {{L, 0, 0, 30, 0}, {B, 0, 10, 20, 0}, {B, FIXED, 30, 0, 0}}, 3, 1, true},
    {"out because a person wants so", 50, {{B, OUT | FIXED, 20, 0, 0}}, 1, NOBODY, false},
};
/* clang-format on */

TEST(who_moves)
{
    for (const struct row *r = rows; r < rows + ARRAY_SIZE(rows); r++) {
        struct swap_job jobs[5];
        struct swap_device d = {.free_bytes = r->free};
        for (uint32_t i = 0; i < r->n; i++)
            jobs[i] = (struct swap_job){.class = r->jobs[i].class,
                                        .out = r->jobs[i].flags & OUT,
                                        .fixed = r->jobs[i].flags & FIXED,
                                        .waits = r->jobs[i].flags & WAITS,
                                        .bytes = r->jobs[i].bytes,
                                        .need_bytes = r->jobs[i].need,
                                        .since_ns = r->jobs[i].since};
        struct swap_move m = swap_decide(&d, jobs, r->n, 1000);
        if (m.job != r->job || (m.job != NOBODY && m.out != r->out))
            fail_msg("%s: job %d %s", r->what, (int)m.job, m.out ? "out" : "in");
    }
}

TEST(quiet_before_coming_back)
{
    struct swap_job job = {.class = B, .out = true, .bytes = 10};
    struct swap_device d = {.free_bytes = 20, .need_ns = 1000, .quiet_ns = 500};
    struct swap_move m = swap_decide(&d, &job, 1, 1499);
    assert_int_equal(m.job, NOBODY);
    m = swap_decide(&d, &job, 1, 1500);
    assert_int_equal(m.job, 0);
    assert_false(m.out);
}

/* ---- who starts ---- */

struct room_row {
    const char *what;
    uint64_t free;
    struct {
        enum job_class class;
        uint32_t account;
        bool waits;
        uint64_t need, back, line;
    } jobs[5];
    uint32_t n;
    unsigned started; /* a bit mask */
};

/* clang-format off */
static const struct room_row room_rows[] = {
    {"nobody waits", 90, {{B, 1, false, 10, 0, 0}}, 1, 0},
    {"there is room", 10, {{B, 1, true, 10, 0, 0}}, 1, 1},
    {"a byte too little", 9, {{B, 1, true, 10, 0, 0}}, 1, 0},
    {"no memory is given twice", 19, {{B, 1, true, 10, 0, 0}, {B, 2, true, 10, 0, 0}}, 2, 1},
    {"room for two", 20, {{B, 1, true, 10, 0, 0}, {B, 2, true, 10, 0, 0}}, 2, 3},
    {"what has started takes its own first", 20,
     {{B, 1, false, 11, 0, 0}, {N, 2, true, 10, 0, 0}}, 2, 0},
    {"of any class", 20, {{B, 1, false, 11, 0, 0}, {L, 2, true, 10, 0, 0}}, 2, 0},
    {"latency before normal before batch", 9,
     {{B, 1, true, 5, 0, 1}, {N, 2, true, 5, 0, 2}, {L, 3, true, 5, 0, 3}}, 3, 4},
    {"normal before batch", 9, {{B, 1, true, 5, 0, 1}, {N, 2, true, 5, 0, 2}}, 2, 2},
    {"first come, first served", 9, {{B, 1, true, 5, 0, 2}, {B, 2, true, 5, 0, 1}}, 2, 2},
    {"by number at the same time", 9, {{B, 1, true, 5, 0, 1}, {B, 1, true, 5, 0, 1}}, 2, 1},
    {"a smaller one does not overtake", 10, {{B, 1, true, 11, 0, 1}, {B, 2, true, 1, 0, 2}}, 2, 0},
    {"nor one of a lower class", 10, {{N, 1, true, 11, 0, 2}, {B, 2, true, 1, 0, 1}}, 2, 0},
    {"who was swapped out comes back first", 40,
     {{B, 1, false, 0, 35, 9}, {B, 2, true, 10, 0, 1}}, 2, 0},
    {"also of a higher class", 40, {{N, 1, false, 0, 35, 9}, {B, 2, true, 10, 0, 1}}, 2, 0},
    {"but not of a lower one", 40, {{B, 1, false, 0, 35, 9}, {N, 2, true, 10, 0, 1}}, 2, 2},
};
/* clang-format on */

TEST(room_table)
{
    for (const struct room_row *r = room_rows; r < room_rows + ARRAY_SIZE(room_rows); r++) {
        struct room_job jobs[5];
        unsigned started = 0;
        for (uint32_t k = 0; k < r->n; k++)
            jobs[k] = (struct room_job){.class = r->jobs[k].class,
                                        .account = r->jobs[k].account,
                                        .waits = r->jobs[k].waits,
                                        .need_bytes = r->jobs[k].need,
                                        .back_bytes = r->jobs[k].back,
                                        .line_ns = r->jobs[k].line,
                                        .number = k + 1};
        room_decide(jobs, r->n, r->free, 1000);
        for (uint32_t k = 0; k < r->n; k++)
            started |= r->jobs[k].waits && !jobs[k].waits ? 1U << k : 0;
        if (started != r->started)
            fail_msg("%s: %x", r->what, started);
    }
}

static struct room_job waiter(uint32_t account, uint64_t need, uint64_t number)
{
    return (struct room_job){.class = B,
                             .account = account,
                             .waits = true,
                             .need_bytes = need,
                             .line_ns = number,
                             .number = number};
}

/* One that may start is counted from then on, by what it has still to take. */
TEST(room_is_kept)
{
    struct room_job jobs[] = {waiter(1, 6, 1), waiter(2, 6, 2)};
    room_decide(jobs, 2, 10, 5);
    assert_true(!jobs[0].waits && jobs[1].waits);
    jobs[0].need_bytes = 1; /* it has taken the rest */
    room_decide(jobs, 2, 5, 6);
    assert_true(jobs[1].waits);
    room_decide(jobs, 2, 7, 7);
    assert_false(jobs[1].waits);
}

/* An account with many jobs in line has no more turns than one with few, and in the line that is
 * shown each stands where it will start. */
TEST(accounts_in_turn)
{
    static const uint32_t accounts[] = {1, 1, 1, 2, 3, 2}, places[] = {0, 3, 5, 1, 2, 4};
    struct room_job jobs[6], *scratch[6];
    for (uint32_t i = 0; i < 6; i++)
        jobs[i] = waiter(accounts[i], 10, i + 1);
    room_line(jobs, 6, scratch);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(jobs[i].position, places[i]);
    for (uint32_t turn = 0; turn < 6; turn++) {
        room_decide(jobs, 6, 10, 100 + turn); /* room for one */
        for (uint32_t i = 0; i < 6; i++) {
            assert_int_equal(jobs[i].waits, places[i] > turn);
            jobs[i].need_bytes = jobs[i].waits ? 10 : 0; /* it has taken it, and is done */
        }
    }
}

/* Whatever others come, one that waits starts: accounts that always have another job in line, of
 * any size, while memory becomes free again. */
TEST(nobody_starves)
{
    unsigned seed = 7, turns = 0;
    struct room_job jobs[9];
    for (uint32_t i = 0; i < 9; i++)
        jobs[i] = waiter(i / 2, 51 + (uint64_t)rand_r(&seed) % 50, i + 1);
    jobs[7].need_bytes = 100; /* the second of its account, and the largest */
    for (uint64_t now = 10; jobs[7].waits; now++) {
        unsigned started = 0;
        room_decide(jobs, 9, 100, now);
        for (uint32_t i = 0; i < 9; i++) {
            if (jobs[i].waits)
                continue;
            started++;
            if (i != 7) /* it is done, and another one of that account comes */
                jobs[i] = waiter(i / 2, 51 + (uint64_t)rand_r(&seed) % 50, now);
        }
        assert_int_equal(started, 1);
        assert_true(++turns <= 10); /* twice each account */
    }
    assert_true(turns > 2);
}

/* If what the first waits for does not end, the others start past it, ever more rarely. */
TEST(first_does_not_block_for_ever)
{
    struct room_job jobs[] = {waiter(1, 60, 1), waiter(2, 50, 2), waiter(3, 60, 3),
                              waiter(4, 5, 4)};
    jobs[3].class = L;
    uint64_t now = 1000;
    room_decide(jobs, 4, 50, now);
    assert_true(jobs[0].waits && jobs[1].waits && jobs[2].waits && !jobs[3].waits);
    jobs[3].need_bytes = 0;
    room_decide(jobs, 4, 50, now + ROOM_PASS_NS - 1);
    assert_true(jobs[1].waits);
    now += ROOM_PASS_NS;
    room_decide(jobs, 4, 50, now);
    assert_true(jobs[0].waits && !jobs[1].waits && jobs[2].waits); /* one fits */
    jobs[1] = waiter(2, 50, 5);
    room_decide(jobs, 4, 50, now + 2 * ROOM_PASS_NS - 1);
    assert_true(jobs[1].waits);
    now += 2 * ROOM_PASS_NS;
    room_decide(jobs, 4, 50, now);
    assert_true(jobs[0].waits && !jobs[1].waits);
    for (int i = 0; i < 12; i++)
        room_decide(jobs, 4, 50, now += ROOM_PASS_MAX_NS);
    assert_int_equal(jobs[0].pass_ns, ROOM_PASS_MAX_NS);
    jobs[1].need_bytes = 0;
    room_decide(jobs, 4, 60, now + 1); /* it is still the first */
    assert_true(!jobs[0].waits && jobs[2].waits);
}

/* One for which there never is enough, as things are, holds up nobody. */
TEST(test_infeasible)
{
    struct room_job jobs[] = {waiter(1, 60, 1), waiter(2, 50, 2)};
    jobs[0].infeasible = true;
    room_decide(jobs, 2, 50, 10);
    assert_true(jobs[0].waits && !jobs[1].waits);
}

/* Whatever the jobs, moves end: nobody is sent out and back for the same need, and what was moved
 * out for a latency job made it possible. */
TEST(comes_to_rest)
{
    unsigned seed = 20, helped = 0;
    for (int round = 0; round < 20000; round++) {
        struct swap_job jobs[6];
        struct swap_device d = {.free_bytes = (uint64_t)rand_r(&seed) % 50};
        for (uint32_t i = 0; i < 6; i++) {
            jobs[i] = (struct swap_job){.class = (enum job_class)((unsigned)rand_r(&seed) % 3),
                                        .fixed = rand_r(&seed) % 4 == 0,
                                        .bytes = (uint64_t)rand_r(&seed) % 40,
                                        .since_ns = i};
            jobs[i].out = jobs[i].class != L && rand_r(&seed) % 2;
            if (jobs[i].class == L)
                jobs[i].need_bytes = (uint64_t)rand_r(&seed) % 60;
        }
        bool left = false;
        unsigned moves = 0;
        for (;; moves++) {
            struct swap_move m = swap_decide(&d, jobs, 6, 1000);
            if (m.job == NOBODY)
                break;
            assert_true(moves < 6);
            assert_true(m.job < 6 && !jobs[m.job].fixed && jobs[m.job].class != L);
            assert_true(jobs[m.job].out != m.out);
            left |= m.out;
            assert_true(m.out || jobs[m.job].bytes <= d.free_bytes);
            d.free_bytes += m.out ? jobs[m.job].bytes : -jobs[m.job].bytes;
            jobs[m.job].out = m.out;
            if (m.out)
                jobs[m.job].fixed = true; /* as the manager does until the need is met */
        }
        uint64_t need = 0;
        for (uint32_t i = 0; i < 6; i++)
            need += jobs[i].need_bytes;
        if (left) {
            assert_true(need <= d.free_bytes);
            helped++;
        }
    }
    assert_true(helped > 1000); /* or the test shows nothing */
}
