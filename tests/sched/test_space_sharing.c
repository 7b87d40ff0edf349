/* Together or in turns (plan/space_sharing.h): what jobs with given speeds get. */
#include "../test.h"
#include "plan/space_sharing.h"

#include <math.h>

#define STEP_NS   100000000ULL
#define WINDOW_NS 1000000000ULL

struct scenario {
    const char *name;
    double seconds;
    uint32_t weight[3];        /* 0: no more jobs */
    double together[3], error; /* above 1: that of the sum, too */
    double lo[3], hi[3];       /* expected: speed, on average */
};

/* clang-format off */
static const struct scenario table[] = {
    {"who gains stays together", 60, {100, 100}, {0.7, 0.6}, 0.01, {0.7, 0.6}, {0.7, 0.6}},
    {"two that do less than in turns", 300, {100, 100}, {0.5, 0.3}, 0.01, {0.45, 0.45}, {0.52, 0.52}},
    {"one that is left with nearly nothing", 300, {100, 100}, {0.98, 0.08}, 0.01, {0.45, 0.45}, {0.55, 0.52}},
    {"turns are by weight", 600, {300, 100}, {0.5, 0.2}, 0.01, {0.7, 0.23}, {0.77, 0.27}},
    {"nor is little much for a small weight", 60, {900, 100}, {0.9, 0.1}, 0.01, {0.9, 0.1}, {0.9, 0.1}},
    {"three", 300, {100, 100, 100}, {0.3, 0.3, 0.2}, 0.01, {0.31, 0.31, 0.31}, {0.35, 0.35, 0.35}},
    {"of whom nothing is known stay together", 60, {100, 100}, {0.2, 0.2}, 5, {0.2, 0.2}, {0.2, 0.2}},
    {"of those who are alike the sum is", 300, {100, 100}, {0.4, 0.4}, 0.5, {0.45, 0.45}, {0.52, 0.52}},
    {"and who has too little is not", 60, {100, 100}, {0.9, 0.1}, 0.5, {0.9, 0.1}, {0.9, 0.1}},
};
/* clang-format on */

static void run(const struct scenario *s, double *got)
{
    struct space x = {0};
    struct space_job v[3] = {{0}};
    uint32_t n = 0;
    uint64_t window = 0, wake, end = (uint64_t)(s->seconds * 1e9);
    for (; n < 3 && s->weight[n]; n++)
        v[n] = (struct space_job){s->weight[n], 0, false, {s->together[n], s->error}};
    for (uint64_t now = 0; now < end; now += STEP_NS) {
        uint32_t held = space_decide(&x, v, n, now, &wake), running = 0;
        assert_true(wake > now);
        for (uint32_t i = 0; i < n; i++)
            running += !(held >> i & 1);
        assert_true(running == n || running == 1);
        for (uint32_t i = 0; i < n; i++) {
            double speed = held >> i & 1 ? 0 : running == 1 ? 1 : s->together[i];
            got[i] += speed * (double)STEP_NS / (double)end;
        }
        window = held ? 0 : window + STEP_NS;
        if (window >= WINDOW_NS) {
            struct speed all = {0, s->error > 1 ? 1 : 0.01};
            for (uint32_t i = 0; i < n; i++)
                all.value += s->together[i];
            space_told(&x, v, n, all, now + STEP_NS);
            window = 0;
        }
    }
}

TEST(test_table)
{
    int bad = 0;
    for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++) {
        const struct scenario *s = &table[k];
        double got[3] = {0};
        bool ok = true;
        run(s, got);
        for (int i = 0; i < 3; i++)
            ok &= got[i] > s->lo[i] - 1e-9 && got[i] < s->hi[i] + 1e-9;
        printf("%-42s %.3f %.3f %.3f%s\n", s->name, got[0], got[1], got[2],
               ok ? "" : "  <-- WRONG");
        bad += !ok;
    }
    assert_int_equal(bad, 0);
}

/* It is tried again, more and more rarely. */
TEST(retries)
{
    struct space x = {0};
    const struct space_job v[2] = {{100, 0, false, {0.3, 0.01}}, {100, 0, false, {0.3, 0.01}}};
    uint64_t now = 0, wake, last = 0;
    double apart_s[4] = {0};
    for (int k = 0; k < 4; k++) {
        while (space_decide(&x, v, 2, now, &wake))
            now = wake;
        apart_s[k] = (double)(now - last) / 1e9;
        for (int i = 0; i < 5; i++)
            space_told(&x, v, 2, (struct speed){0.6, 0.01}, now += WINDOW_NS);
        last = now;
    }
    assert_true(apart_s[1] > 59 && apart_s[1] < 61);
    assert_true(apart_s[2] > 119 && apart_s[2] < 121);
    assert_true(apart_s[3] > 239 && apart_s[3] < 241);
}

/* One keeps its part whatever the other does to it, and the other has what that leaves. Speeds err
 * by two points. */
TEST(min_speed)
{
    static const struct {
        double together, other, keep;
    } cases[] = {
        {0.7, 0.6, 0.9}, {0.5, 0.5, 0.8}, {0.2, 0.9, 0.9}, {0.95, 0.3, 0.9}, {0.7, 0.6, 0.7}};
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        struct space x = {0};
        struct space_job v[2] = {{100, cases[k].keep, false, {0, 0.01}},
                                 {100, 0, false, {0, 0.01}}};
        double had[2] = {0}, window[2] = {0};
        uint64_t wake, seed = k + 1;
        unsigned n = 0;
        for (uint64_t now = 0; now < 60 * WINDOW_NS; now += STEP_NS / 10) {
            bool alone = space_decide(&x, v, 2, now, &wake) == 2;
            double speed[2] = {alone ? 1 : cases[k].together, alone ? 0 : cases[k].other};
            assert_true(wake > now);
            for (int i = 0; i < 2; i++) {
                window[i] += speed[i] / 100;
                had[i] += now >= 10 * WINDOW_NS ? speed[i] : 0;
            }
            n += now >= 10 * WINDOW_NS;
            if ((now + STEP_NS / 10) % WINDOW_NS)
                continue;
            for (int i = 0; i < 2; i++) {
                seed = seed * 6364136223846793005U + 1442695040888963407U;
                v[i].speed.value = window[i] + ((double)(seed >> 40) / (1 << 24) - 0.5) * 0.04;
                window[i] = 0;
            }
            struct speed all = {v[0].speed.value + v[1].speed.value, 0.01};
            space_told(&x, v, 2, all, now);
        }
        double kept = had[0] / n, other = had[1] / n;
        double most = fmin(1, (1 - cases[k].keep) / (1 - cases[k].together)) * cases[k].other;
        printf("%.2f + %.2f, to keep %.2f: %.3f + %.3f\n", cases[k].together, cases[k].other,
               cases[k].keep, kept, other);
        assert_true(kept >= cases[k].keep - 0.01 &&
                    kept <= fmax(cases[k].keep + 0.03, cases[k].together));
        assert_true(other >= 0.75 * most && other >= 0.04 * cases[k].other);
    }
}

static bool tell(struct space *x, struct space_job *v, uint64_t *now, double a, double b)
{
    v[0].speed.value = a;
    v[1].speed.value = b;
    *now += WINDOW_NS;
    space_told(x, v, 2, (struct speed){a + b, 0.01}, *now);
    uint64_t wake;
    return space_decide(x, v, 2, *now, &wake) != 0;
}

/* One that does nothing in its turn has none; when it works again it is looked at as if new. */
TEST(idle)
{
    struct space x = {0};
    struct space_job v[2] = {{100, 0, false, {0, 0.01}}, {100, 0, false, {0, 0.01}}};
    uint64_t now = 0;
    for (int i = 0; i < 4; i++)
        assert_false(tell(&x, v, &now, 0.5, 0));
    assert_true(tell(&x, v, &now, 0.5, 0)); /* together it may only have lost */
    assert_true(x.turns);
    while (x.current != 1)
        assert_true(tell(&x, v, &now, 1, 0));
    for (int i = 0; i < 20; i++)
        assert_false(tell(&x, v, &now, i ? 1 : 0, 0));
    assert_false(tell(&x, v, &now, 0.4, 0.3));
    for (int i = 0; i < 4; i++)
        tell(&x, v, &now, 0.4, 0.3);
    assert_true(x.turns);
    v[1].unknown = true;
    for (int i = 0; i < 100; i++)
        tell(&x, v, &now, 0.4, 0);
    assert_false(x.turns);
}

/* Nobody waits for the sake of one that does nothing. */
TEST(min_speed_of_idle)
{
    struct space x = {0};
    struct space_job v[2] = {{100, 0.9, false, {0, 0.01}}, {100, 0, false, {0, 0.01}}};
    uint64_t now = 0;
    for (int i = 0; i < 10; i++)
        tell(&x, v, &now, 0.6, 0.5);
    assert_true(x.less > 0.5);
    for (int i = 0; i < 10; i++)
        tell(&x, v, &now, 0, 1);
    assert_true(x.less == 0);
    for (int i = 0; i < 10; i++)
        tell(&x, v, &now, 0.6, 0.5);
    assert_true(x.less > 0.5);
}

/* Jobs within a unit have their share of the time, in turns of a second at least. */
TEST(outside_turn)
{
    static const double shares[] = {0, 0.01, 0.1, 0.25, 0.5, 0.9, 1};
    for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
        const uint64_t end = 400ULL * 1000000000;
        uint64_t until, within = 0, shortest = end;
        for (uint64_t now = 0; now < end; now = until) {
            bool held = space_outside_turn(shares[i], now, &until);
            until = until < end ? until : end;
            assert_true(until > now);
            within += held ? 0 : until - now;
            shortest = until - now < shortest ? until - now : shortest;
        }
        assert_true(fabs((double)within / (double)end - shares[i]) < 0.001);
        assert_true(shares[i] == 0.01 || shortest > 999000000);
    }
}
