/* Random operation of the software GPU's engine, against what must hold always: with groups of one
 * owner, and with some that have several. */
#include "engine_rig.h"

#define GROUPS 70

static uint64_t rnd(uint64_t *s)
{
    *s = *s * 6364136223846793005ULL + 1442695040888963407ULL;
    return *s >> 33;
}

struct account {
    uint64_t submitted, completed, work_ns;
    bool present;
    uint64_t next_cookie[SOFTGPU_STREAMS], seen_cookie[SOFTGPU_STREAMS];
};

static void collect(struct softgpu *e, struct account *acc)
{
    struct softgpu_completion c;
    while (softgpu_pop_completion(e, &c)) {
        struct account *a = &acc[c.group];
        assert_true(a->present);
        /* In order within a stream, each once. */
        assert_int_equal(c.cookie, a->seen_cookie[c.stream]++);
        assert_true(c.submit_ns <= c.start_ns && c.start_ns < c.end_ns);
        assert_true(c.end_ns <= softgpu_now_ns(e));
        a->completed++;
    }
}

/* With everybody runnable all of it completes, and in the end the GPU is idle. */
static uint64_t random_run_end(struct softgpu *e, struct account *acc, uint64_t now,
                               uint64_t busy_gone, bool joins)
{
    uint64_t done, busy = busy_gone, digest = 0;
    struct softgpu_group_info info;
    for (uint32_t g = 0; g < GROUPS; g++) {
        for (; softgpu_group_info(e, g, &info) == 0 && info.suspended; now = done) {
            softgpu_control(e, g, SOFTGPU_RESUME, 0, now, &done);
            softgpu_advance(e, done);
        }
    }
    while (softgpu_next_event_ns(e) != SOFTGPU_NEVER) {
        softgpu_advance(e, softgpu_next_event_ns(e));
        collect(e, acc);
    }
    for (uint32_t g = 0; g < GROUPS; g++) {
        if (!acc[g].present)
            continue;
        assert_int_equal(acc[g].submitted, acc[g].completed);
        assert_int_equal(info_of(e, g).kernels, 0);
        assert_true(info_of(e, g).busy_ns <= acc[g].work_ns);
        busy += info_of(e, g).busy_ns;
        digest = digest * 31 + info_of(e, g).busy_ns;
    }
    assert_true(busy > 0 && (joins || busy <= softgpu_now_ns(e))); /* one group at a time */
    digest = digest * 31 + softgpu_now_ns(e);
    softgpu_free(e);
    return digest;
}

static uint64_t random_run(uint64_t seed, bool joins)
{
    static struct account acc[GROUPS];
    struct softgpu *e;
    struct softgpu_params p;
    uint64_t s = seed, now = 0, done, busy_gone = 0;
    uint32_t g;
    for (size_t i = 0; i < GROUPS; i++)
        acc[i] = (struct account){0};
    softgpu_params_h200(&p);
    p.seed = seed;
    assert_int_equal(softgpu_new(&p, GROUPS, 20000, &e), 0);

    for (int i = 0; i < 5000; i++) {
        now += rnd(&s) % (300 * US);
        g = (uint32_t)(rnd(&s) % GROUPS);
        switch (rnd(&s) % 16) {
        case 0:
            if ((joins && rnd(&s) % 4 ? softgpu_group_join(e, g, now, &g)
                                      : softgpu_group_add(e, now, &g)) == 0) {
                assert_false(acc[g].present);
                acc[g] = (struct account){.present = true};
            }
            break;
        case 1:
            if (rnd(&s) % 4 == 0 && acc[g].present) {
                softgpu_advance(e, now);
                collect(e, acc);
                busy_gone += info_of(e, g).busy_ns;
                assert_int_equal(softgpu_group_remove(e, g, now), 0);
                acc[g].present = false;
            }
            break;
        case 2:
            softgpu_control(e, g, SOFTGPU_SUSPEND, 0, now, &done);
            break;
        case 3:
        case 4:
            softgpu_control(e, g, SOFTGPU_RESUME, 0, now, &done);
            break;
        case 5:
            softgpu_control(e, g, SOFTGPU_TIMESLICE, (uint32_t)(1 + rnd(&s) % 3000), now, &done);
            break;
        default:
            if (acc[g].present) {
                uint32_t st = (uint32_t)(rnd(&s) % 4);
                struct softgpu_kernel k = {.stream = st,
                                           .duration_ns = 1 + rnd(&s) % (400 * US),
                                           .sm_fraction = (float)(1 + rnd(&s) % 100) / 100,
                                           .cookie = acc[g].next_cookie[st]};
                if (softgpu_submit(e, g, &k, now) == 0) {
                    acc[g].next_cookie[st]++;
                    acc[g].submitted++;
                    acc[g].work_ns += k.duration_ns;
                }
            }
        }
        collect(e, acc);
    }
    return random_run_end(e, acc, now, busy_gone, joins);
}

TEST(test_random)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        assert_int_equal(random_run(seed, false), random_run(seed, false));
        assert_int_equal(random_run(seed, true), random_run(seed, true));
    }
    assert_int_not_equal(random_run(1, false), random_run(2, false));
}
