/* Leases in virtual time: those that displace, what memory is free, kernels that are not known, the
 * GPU that a thread had; and occupancy. */
#include "lease_asks.h"
#include "libcede/pure/occupancy.h"

#define DUE(ns, ...) ASK(10, .deadline_ns = (ns), ##__VA_ARGS__)
#define NEEDS(bytes) ASK(10, .memory_bytes = (bytes))

/* One lease at a time, and up to two urgent ones beyond that. */
static uint64_t full(void)
{
    MAKE(.max_concurrent_streams = 1, .displace = 2);
    return started(ask(10), 0, 0);
}

TEST_LEASES(urgent_ones_displace_within_bounds)
{
    uint64_t a = full();
    uint64_t plain = waits(ask(10), 1, WAIT_COUNT);
    const struct lease_ask now = DUE(0, .until_ns = 0); /* a try */
    assert_false(cede_leases_displaced(leases, a));
    uint64_t b = started(now, 2, 0), c = started(now, 2, 0);
    assert_true(cede_leases_displaced(leases, a));
    assert_false(cede_leases_displaced(leases, b)); /* it is what displaces */
    assert_false(cede_leases_displaced(leases, plain));
    struct lease_event e;
    assert_int_equal(cede_leases_ask(leases, &now, 2, &e), -EAGAIN);
    HAS(view(0), (displacing, 2), (displaced, 2));
    uint64_t d = waits(DUE(0), 3, WAIT_COUNT);
    nothing_happens(3);
    released(b, 4);
    happens(4, d, WAIT_NONE); /* before the plain one, beyond the limit */
    released(c, 5);
    released(d, 5);
    assert_false(cede_leases_displaced(leases, a));
    nothing_happens(5);
    released(a, 6);
    happens(6, plain, WAIT_NONE);
    HAS(view(0), (displaced, 3), (displacing, 0));
}

TEST_LEASES(a_lease_displaces_once_its_slack_is_gone)
{
    full();
    uint64_t later = waits(DUE(50 * MS), 0, WAIT_COUNT);
    assert_int_equal(cede_leases_look_ns(leases, later, 0), 49 * MS + 1);
    nothing_happens(49 * MS);
    assert_int_equal(cede_leases_next_ns(leases), 49 * MS + 1);
    assert_true(happens(49 * MS + 1, later, WAIT_NONE).urgent);
    assert_int_equal(view(0).displacing, 1);
    assert_int_equal(cede_leases_look_ns(leases, later, 49 * MS + 1), TIME_NEVER);
    assert_int_equal(cede_leases_next_ns(leases), TIME_NEVER);
}

/* Beyond every limit but memory's; and not where that is switched off. */
TEST_LEASES(what_displacing_does_not_pass)
{
    MAKE(.displace = 2);
    cede_leases_set_memory(leases, 0, 1000, 1000);
    started(NEEDS(500), 0, 0);
    cede_leases_set_utilization(leases, 0, 100);
    uint64_t w = waits(DUE(0, .memory_bytes = 401), 1, WAIT_MEMORY); /* of 400 with the reserve */
    nothing_happens(1);
    /* occupancy, utilization; and it passes w */
    released(started(DUE(0, .occupancy = LEASE_WHOLE), 2, 0), 2);
    waits(DUE(0, .memory_bytes = 400), 3, WAIT_MEMORY); /* it would take what w waits for */
    OK(cede_leases_cancel(leases, w, 0, &(struct lease_event){0}));
    MAKE(.max_concurrent_streams = 1);
    started(ask(1), 0, 0);
    w = waits(DUE(0), 1, WAIT_COUNT);
    assert_int_equal(cede_leases_look_ns(leases, w, 1), 1000 * MS + 1);
}

/* A lease that does so says nothing about the limit that it is beyond. */
TEST_LEASES(displacing_leaves_the_adaptive_limit)
{
    MAKE(.max_slowdown = 1.5, .max_concurrent_streams = 4, .max_total_occupancy = 0.05,
         .displace = 2);
    const struct lease_ask a = DUE(0, .key = 7);
    started(ask(1), 0, 0);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t id = started(a, i * MS, 0);
        released(id, i * MS + (i ? MS / 2 : 10)); /* but for the first, far too long */
    }
    HAS(view(0), (limit, 4), (displaced, 40));
}

/* ---- what has waited long has its turn ------------------------------------------------------- */

/* Urgent leases never cease: each runs for 3 ms, a new one begins every 1.5 ms. Two ordinary ones
 * of a higher priority, of 5 ms each, ask again within 2 ms. One of the lowest priority asks too.
 * Memory is 1000, of which 100 are the reserve. */
struct party {
    uint32_t percent; /* of occupancy; 0: there are none */
    uint64_t bytes;
};
static const struct patient {
    const char *what;
    struct party low, urgent, ordinary;
    uint32_t streams, limit, utilization; /* streams, limit: 0: 16 */
    bool late;                            /* urgent ones may have to wait, for memory */
} patients[] = {
    {"occupancy", {70, 0}, {30, 0}, {0, 0}, 0, 0, 0, false},
    {"larger than the limit", {100, 0}, {1, 0}, {0, 0}, 0, 0, 0, false},
    {"occupancy, and ordinary ones", {70, 0}, {30, 0}, {40, 0}, 0, 0, 0, false},
    {"count", {1, 0}, {1, 0}, {0, 0}, 0, 1, 0, false},
    {"count, and ordinary ones", {1, 0}, {1, 0}, {1, 0}, 0, 2, 0, false},
    {"streams", {1, 0}, {1, 0}, {0, 0}, 1, 0, 0, false},
    {"utilization", {1, 0}, {1, 0}, {0, 0}, 0, 0, 100, false},
    {"memory of urgent ones", {1, 700}, {1, 300}, {0, 0}, 0, 0, 0, true},
    {"memory, occupancy, and ordinary ones", {70, 700}, {30, 300}, {40, 0}, 0, 0, 0, true},
    {"memory for it alone", {1, 950}, {1, 0}, {1, 0}, 0, 0, 0, false},
    {"memory for it alone, of urgent ones", {1, 950}, {1, 100}, {1, 0}, 0, 0, 0, true},
    {"more memory than there is", {1, 1100}, {1, 0}, {1, 0}, 0, 0, 0, false},
};

enum { LOW, URGENT, ORDINARY = URGENT + 4, CROWD = ORDINARY + 2 };

/* When the low one starts; *late: urgent ones that had to wait. */
static uint64_t patient_starts(const struct patient *r, uint32_t *late)
{
    uint64_t id[CROWD] = {0}, end[CROWD] = {0}, next = 0, begun = TIME_NEVER;
    MAKE(.displace = 2, .streams = r->streams, .max_concurrent_streams = r->limit ? r->limit : 16);
    cede_leases_set_memory(leases, 0, 1000, 1000);
    cede_leases_set_utilization(leases, 0, r->utilization);
    for (uint64_t now = 0; begun == TIME_NEVER && now < 20000 * MS; now += MS / 2) {
        struct lease_event e;
        for (uint32_t i = 0; i < CROWD; i++) {
            if (id[i] && end[i] && end[i] <= now) {
                released(id[i], now);
                id[i] = 0;
            }
        }
        while (cede_leases_step(leases, now, &e)) {
            for (uint32_t i = 0; i < CROWD; i++)
                end[i] = id[i] == e.id ? now + (i < ORDINARY ? 3 : 5) * MS : end[i];
            begun = e.id == id[LOW] ? now : begun;
        }
        for (uint32_t i = 0; i < CROWD; i++) {
            const struct party *of = i == LOW ? &r->low : i < ORDINARY ? &r->urgent : &r->ordinary;
            const struct lease_ask a =
                ASK(of->percent, .memory_bytes = of->bytes, .priority = i == LOW ? -1 : 1,
                    .deadline_ns = i != LOW && i < ORDINARY ? now : TIME_NEVER);
            bool due = i == LOW       ? now == 10 * MS
                       : i < ORDINARY ? next <= now
                                      : of->percent && now % (2 * MS) == 0;
            if (id[i] || !due)
                continue;
            int w = cede_leases_ask(leases, &a, now, &e);
            assert_true(w == 0 || w == -EINPROGRESS);
            id[i] = e.id;
            end[i] = w ? 0 : now + (i < ORDINARY ? 3 : 5) * MS;
            next = i != LOW && i < ORDINARY ? now + 3 * MS / 2 : next;
            *late += w && i != LOW && i < ORDINARY;
            assert_true(i != LOW || w); /* that it has to wait is the point */
        }
    }
    return begun;
}

TEST_LEASES(an_aged_lease_starts_while_urgent_ones_never_cease)
{
    for (size_t i = 0; i < sizeof(patients) / sizeof(patients[0]); i++) {
        const struct patient *r = &patients[i];
        uint32_t late = 0;
        uint64_t begun = patient_starts(r, &late);
        if (begun < 1010 * MS || begun > 1020 * MS || (late && !r->late))
            fail_msg("%s: starts after %.1f ms, %u urgent ones waited", r->what,
                     (double)begun / (double)MS, late);
    }
}

/* Nothing else happens then: the caller has to look when it is time. */
TEST_LEASES(a_lease_is_looked_at_when_it_is_aged)
{
    uint64_t a = full();
    started(DUE(0), 1, 0); /* displaces */
    uint64_t low = waits(ask(10), 2, WAIT_COUNT);
    released(a, 3);
    nothing_happens(3);
    assert_int_equal(cede_leases_next_ns(leases), 1000 * MS + 2);
    nothing_happens(1000 * MS + 1);
    happens(1000 * MS + 2, low, WAIT_NONE);
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST_LEASES(memory_is_what_is_free_now)
{
    MAKE();
    cede_leases_set_memory(leases, 0, 300, 1000); /* others have 700; the reserve is 100 */
    uint64_t a = started(NEEDS(100), 0, 0);
    uint64_t b = waits(NEEDS(101), 1, WAIT_MEMORY);
    cede_leases_set_memory(leases, 0, 200, 1000); /* a has allocated: that counts once */
    nothing_happens(2);
    cede_leases_set_memory(leases, 0, 201, 1000); /* others gave back: with a's, 301 */
    nothing_happens(3);
    cede_leases_set_memory(leases, 0, 302, 1000);
    happens(4, b, WAIT_NONE);
    released(b, 5);
    cede_leases_set_memory(leases, 0, 150, 1000); /* others took more than a can have */
    uint64_t c = waits(NEEDS(51), 6, WAIT_MEMORY);
    cede_leases_set_memory(leases, 0, 251, 1000);
    happens(7, c, WAIT_NONE);
    released(c, 8);
    released(a, 8);
    /* alone: without the reserve, but not more than is there */
    uint64_t d = waits(NEEDS(400), 9, WAIT_MEMORY);
    nothing_happens(9);
    cede_leases_set_memory(leases, 0, 400, 1000);
    happens(10, d, WAIT_NONE);
    released(d, 11);
    released(started(NEEDS(1001), 12, 0), 13); /* larger than the GPU: the driver's to refuse */
}

TEST_LEASES(leases_without_memory_pass_one_that_lacks_it)
{
    MAKE(.max_concurrent_streams = 2);
    cede_leases_set_memory(leases, 0, 100, 1000);
    uint64_t a = waits(NEEDS(500), 0, WAIT_MEMORY);
    uint64_t b = started(ask(10), 1, 0), c = started(ask(10), 2, 0);
    uint64_t d = waits(ask(10), 3, WAIT_COUNT);
    waits(NEEDS(1), 3, WAIT_MEMORY); /* not one that would take what it waits for */
    released(b, 4);
    happens(4, d, WAIT_NONE);
    nothing_happens(4);
    cede_leases_set_memory(leases, 0, 1000, 1000);
    nothing_happens(5);
    uint64_t e = waits(ask(10), 5, WAIT_COUNT); /* it lacks no memory any more */
    released(c, 6);
    happens(6, a, WAIT_NONE);
    OK(cede_leases_cancel(leases, e, 0, &(struct lease_event){0}));
}

/* ---- occupancy ------------------------------------------------------------------------------- */

TEST_LEASES(kernels_that_are_not_known_count_the_mean)
{
    MAKE(.max_total_occupancy = 64, .unknown_occupancy = 0.25);
    const struct lease_ask a = ASK(0, .occupancy = LEASE_UNKNOWN);
    started(a, 0, 0);
    assert_int_equal(view(0).occupancy, LEASE_WHOLE / 4);
    started(ask(60), 0, 0);
    started(ask(20), 0, 0);
    started(a, 0, 0);
    assert_int_equal(view(0).occupancy, LEASE_WHOLE / 100 * (25 + 60 + 20 + 40));
    for (int i = 0; i < 5000; i++) /* what is known follows */
        released(started(ask(100), 0, 0), 0);
    uint32_t before = view(0).occupancy;
    started(a, 0, 0);
    assert_true(view(0).occupancy - before > LEASE_WHOLE / 100 * 99);
    MAKE(.max_total_occupancy = 64); /* switched off */
    started(ask(60), 0, 0);
    started(a, 0, 0);
    assert_int_equal(view(0).occupancy, LEASE_WHOLE / 100 * 60);
}

/* Two GPUs' worth: one lease that fills it runs, one is queued behind. */
TEST_LEASES(occupancy_may_be_more_than_one_gpu)
{
    MAKE(.max_total_occupancy = 2);
    uint64_t a = started(ask(100), 0, 0);
    started(ask(100), 0, 0);
    uint64_t c = waits(ask(1), 0, WAIT_OCCUPANCY);
    released(a, 1);
    happens(1, c, WAIT_NONE);
}

TEST_LEASES(a_thread_has_its_gpu_again_when_loads_are_equal)
{
    MAKE(.devices = 3, .max_concurrent_streams = 1);
    uint64_t first = started(ASK(10, .last = 2), 0, 2);
    started(ASK(10, .last = 1), 0, 1);
    started(ASK(10, .last = 2), 0, 0); /* not equal: the idle one */
    waits(ASK(10, .last = 1), 1, WAIT_COUNT);
    assert_int_equal(view(1).waiting, 1);
    uint64_t any = waits(ASK(10, .last = 7), 1, WAIT_COUNT); /* of another pool's time */
    released(first, 2);
    struct lease_event e;
    assert_true(cede_leases_step(leases, 2, &e));
    assert_int_equal(e.device, 2);
    assert_int_equal(view(2).stolen, 1);
    assert_true(e.id != any);
}

/* What NVIDIA's calculator (cuda_occupancy.h of CUDA 12) says for such SMs. */
TEST_LEASES(blocks_of_an_sm)
{
    const struct sm_limits hopper = {2048, 32, 65536, 65536, 233472, 1024, 9};
    const struct sm_limits turing = {1024, 16, 65536, 65536, 65536, 0, 7};
    static const struct {
        uint32_t threads, registers, shared, hopper, turing;
        enum cede_limit limit; /* on hopper */
    } rows[] = {
        {256, 32, 0, 8, 4, CEDE_LIMIT_THREADS},        {32, 16, 0, 32, 16, CEDE_LIMIT_BLOCKS},
        {1024, 64, 0, 1, 1, CEDE_LIMIT_REGISTERS},     {1024, 65, 0, 0, 0, CEDE_LIMIT_REGISTERS},
        {128, 167, 16384, 3, 3, CEDE_LIMIT_REGISTERS}, {256, 64, 8192, 4, 4, CEDE_LIMIT_REGISTERS},
        {128, 32, 100000, 2, 0, CEDE_LIMIT_SHARED},    {96, 255, 0, 2, 2, CEDE_LIMIT_REGISTERS},
        {64, 24, 1, 32, 16, CEDE_LIMIT_THREADS},       {128, 20, 40000, 5, 1, CEDE_LIMIT_SHARED},
    };
    enum cede_limit limit;
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(cede_occupancy_blocks(&turing, rows[i].threads, rows[i].registers,
                                               rows[i].shared, &limit),
                         rows[i].turing);
        assert_int_equal(cede_occupancy_blocks(&hopper, rows[i].threads, rows[i].registers,
                                               rows[i].shared, &limit),
                         rows[i].hopper);
        assert_int_equal(limit, rows[i].limit);
    }
    OK(cede_occupancy_blocks(&hopper, 0, 32, 0, &limit));
}

/* The scarcest: warps, registers, shared memory. */
TEST_LEASES(the_share_is_that_of_what_is_scarcest)
{
    const struct sm_limits sm = {2048, 32, 65536, 65536, 233472, 1024, 9};
    assert_int_equal(cede_occupancy_share(&sm, 100, 400, 256, 16, 0), 500000);
    assert_int_equal(cede_occupancy_share(&sm, 100, 100, 256, 128, 0), 500000);
    assert_int_equal(cede_occupancy_share(&sm, 100, 100, 128, 32, 232448), 1000000);
    assert_int_equal(cede_occupancy_share(&sm, 100, 50, 128, 32, 115712), 250000);
    assert_int_equal(cede_occupancy_share(&sm, 100, 100000, 256, 16, 0), LEASE_WHOLE);
    assert_int_equal(cede_occupancy_share(&sm, 100, 1, 20, 1, 0), 156); /* a whole warp */
}
