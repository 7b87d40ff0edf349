/* See speed_floor.h. */
#include "plan/speed_floor.h"

#include <math.h>

#include "base/util.h"
#include "plan/sched.h"

#define S 1000000000ULL

/* Length of the record for each judgement: */
#define SHORTEST_S  0.4 /* at the shortest slice */
#define FEW_S       1.0 /* the same with few runs */
#define BURST_S     0.1 /* while lower jobs are throttled */
#define STAYS_S     0.5 /* of a slice that stays */
#define ARM_S       0.1 /* of one turn of a slice that is compared */
#define RATION_S    0.3 /* the same while lower jobs are rationed */
#define COMPARE_S   0.8 /* of each slice, in the first comparison */
#define ODD_S       0.4 /* in one because of a change */
#define REFERENCE_S 0.2 /* in a regular one */

#define SILENT_NS      (3 * S / 2) /* without a record for this time latency jobs are away */
#define REFERENCE_NS   (45 * S)    /* a comparison costs lower jobs 0.2 s, 0.5 % of this */
#define ODD_NS         (5 * S)     /* between comparisons because of changes, doubled each time */
#define BAR_NS         (4 * S)
#define BAR_MOST_NS    (64 * S)
#define PAUSES_LAST_NS (5 * S)
#define BURST_STEP     4 /* slice of throttled jobs */
#define THROTTLE_NS    (2 * S)
#define BLIND_NS       (S / 10) /* the same where latency jobs pause: it takes so much of a pause */
#define PAUSING_S      0.04     /* BURST_S there */
#define WORTH_NS       1000000.0 /* shortest throttling, as long as its two control calls */

#define RUNS_LEAST 10   /* number of runs for a judgement */
#define RUNS_HZ    20.0 /* with fewer gaps there is nothing to gain */
#define PAUSES     0.1  /* part of the time from which on latency jobs pause */
#define NOTHING    0.02 /* share of lower jobs that counts as none */
#define AT_WORK    0.5  /* load of latency jobs at work which have gaps between long runs only */
#define MOST       0.7  /* load of latency jobs below which lower jobs use the pauses */
#define FASTER     0.1  /* speed above that alone which shows that the load has changed */
#define ODD        2    /* number of odd looks in a row before a comparison */
#define NOISE      0.02 /* of the speed */
#define MIXED      0.5  /* weight of a new observation */
#define COSTS_MOST 0.5  /* the most that a slice may seem to cost, of the speed */
/* The cost of slices before observations, and the time for which it counts; then the time after
 * which earlier observations count half. */
#define COSTS_FIRST 65e-6
#define FIRST_S     0.5
#define COSTS_S     6.0
#define LOST        0.05 /* loss of speed by a slice from which on it has to be worth it */
#define WORTH       1.5  /* least gain of lower jobs, relative to that loss */
#define PART_LEAST  0.05 /* least part of the time of rationed jobs */
/* The longest slice is this times the part of the speed that may be lost. transformers' generate()
 * and a program of short kernels lost 0.13 with 1 ms, half of which the record showed (H100). */
#define LOSE_OF_US 7500
/* Cost of the shortest slice: a latency job waits for a switch, and for the least run of the lower
 * job. */
#define SWITCHES_AT_LEAST 1.65

static const uint32_t slices_us[SPEED_STEPS] = {0, 350, 500, 750, 1000, 1400, 2000};

static uint32_t slice_of(const struct sched_params *p, uint32_t step)
{
    uint32_t us = slices_us[step] < p->timeslice_max_us ? slices_us[step] : p->timeslice_max_us;
    return us > p->timeslice_min_us ? us : p->timeslice_min_us;
}

/* The longest slice by the speed that latency jobs may lose. */
static uint32_t longest_step(const struct speed_floor *s)
{
    uint32_t step = 1;
    while (step + 1 < SPEED_STEPS && slices_us[step + 1] <= LOSE_OF_US * s->may_lose * (1 + NOISE))
        step++;
    return step;
}

bool speed_floor_has_slice(uint64_t us)
{
    for (uint32_t i = 1; i < SPEED_STEPS; i++) {
        if (us == slices_us[i])
            return true;
    }
    return false;
}

void speed_floor_reset(struct speed_floor *s)
{
    *s = (struct speed_floor){0};
}

static void enter(struct speed_floor *s, struct runs *seen, enum speed_phase phase, uint32_t step,
                  uint64_t now_ns)
{
    s->phase = phase;
    s->step = step;
    s->pausing = now_ns < s->pauses_until_ns;
    s->changed_ns = s->told_ns = now_ns;
    s->told_s = 0;
    runs_count_anew(seen, now_ns);
}

/* The share of lower jobs, without the part of each run in which their state is saved. */
static double lower_share(const struct sched_params *p, const struct tally *t)
{
    return fmax(t->lower_s - t->lower * 0.7e-6 * p->switch_us, 0) / t->seconds;
}

static void speed_measure(const struct sched_params *p, struct speed_floor *s,
                          const struct tally *t)
{
    s->rate = tally_rate(t);
    s->lower = lower_share(p, t);
}

/* The speed of latency jobs alone: that at the shortest slice, without the cost of it. */
static double speed_alone(const struct sched_params *p, const struct speed_floor *s)
{
    return s->shortest / (1 - s->us_costs * SWITCHES_AT_LEAST * p->switch_us);
}

static double arm_rate(const struct speed_arm *arm)
{
    return arm->work / arm->seconds;
}

/* Updates the cost per length of slice, a line through the observations of all slices. */
static void take_costs(const struct sched_params *p, struct speed_floor *s)
{
    const struct speed_arm *shortest = &s->arms[0], *longer = &s->arms[1];
    double us = slice_of(p, s->step), seconds = fmin(shortest->seconds, longer->seconds);
    double costs = fmin(arm_rate(shortest) / fmax(arm_rate(longer), 1e-6) - 1, COSTS_MOST);
    if (s->compared_s <= 0) {
        s->compared_s = FIRST_S;
        s->squares_us = FIRST_S * us * us;
        s->costs_us = COSTS_FIRST * s->squares_us;
    }
    double kept = s->compared_s > COSTS_S ? 0.5 : 1;
    s->compared_s = s->compared_s * kept + seconds;
    s->costs_us = s->costs_us * kept + seconds * costs * us;
    s->squares_us = s->squares_us * kept + seconds * us * us;
    s->us_costs = fmax(s->costs_us / s->squares_us, 0);
    s->alone = speed_alone(p, s);
}

/* The speed with a slice, relative to alone. */
static double speed_with(const struct speed_floor *s, uint32_t us)
{
    return s->shortest / s->alone / (1 + s->us_costs * us);
}

/* Takes an observation with the shortest slice. */
static void take_shortest(const struct sched_params *p, struct speed_floor *s,
                          const struct tally *t)
{
    speed_measure(p, s, t);
    bool like = s->shortest > 0 && fabs(s->rate - s->shortest) < 0.5 * s->shortest;
    s->shortest = like ? s->shortest + (s->rate - s->shortest) * MIXED : s->rate;
    s->bursts_hz = t->returns / t->seconds;
    s->launch_bound = t->returns >= RUNS_LEAST && tally_is_saturated(t) &&
                      s->bursts_hz >= RUNS_HZ && s->rate >= SPEED_BUSY;
    s->alone = speed_alone(p, s);
}

/* The part of their speed that latency jobs lose while lower ones run with the slice of a burst. */
static double burst_loss(const struct sched_params *p, const struct speed_floor *s,
                         const struct tally *t, bool strict)
{
    if (strict)
        return t->returns / t->seconds * p->switch_us * 1e-6;
    return s->alone > 0 ? 1 - s->rate / s->alone : 0;
}

/* Whether latency jobs pause now and then, so that lower jobs can use the pauses. While lower jobs
 * wait, the record does not show pauses. */
static bool has_pauses(struct speed_floor *s, const struct tally *t, uint64_t now_ns)
{
    if (t->pauses_s > PAUSES * t->seconds)
        s->pauses_until_ns = now_ns + PAUSES_LAST_NS;
    return now_ns < s->pauses_until_ns;
}

/* The part of their speed that latency jobs with pauses lose at the shortest slice while they work,
 * with this rate and so many gaps: they would work all the time, but for half a switch of each. */
static double loss_at_work(const struct sched_params *p, double rate, double gaps_hz)
{
    return rate < AT_WORK ? 0 : fmax(1 - rate / (1 - gaps_hz * 0.5e-6 * p->switch_us), 0);
}

static bool throttles(const struct sched_params *p, const struct speed_floor *s, bool strict,
                      uint64_t now_ns)
{
    bool pausing = now_ns < s->pauses_until_ns;
    if (!s->launch_bound || (!strict && !pausing && s->busy < MOST))
        return false;
    if (pausing)
        return loss_at_work(p, s->shortest, s->bursts_hz) > s->may_lose;
    if (strict)
        return s->bursts_hz * p->switch_us * 1e-6 > s->may_lose;
    double lost = s->us_costs > 0 ? 1 - s->shortest / s->alone : 0;
    return lost > s->may_lose + NOISE || (lost > 2 * NOISE && s->lower < NOTHING);
}

static void arm_add(struct speed_floor *s, const struct tally *t)
{
    struct speed_arm *arm = &s->arms[s->longer];
    arm->seconds += t->seconds;
    arm->work += s->rate * t->seconds;
    arm->lower += s->lower * t->seconds;
}

static void speed_compare(struct speed_floor *s, struct runs *seen, uint32_t step, double seconds,
                          uint64_t now_ns)
{
    s->arms[0] = s->arms[1] = (struct speed_arm){0};
    s->compare_s = seconds;
    s->odd = 0;
    s->longer = false;
    if (s->phase == SPEED_SHORTEST) { /* there is an observation of that already */
        arm_add(s, &seen->tally);
        s->longer = true;
    }
    enter(s, seen, SPEED_COMPARE, step, now_ns);
}

/* The longest slice that keeps the floor; the present one may be below it by NOISE. */
static uint32_t best_step(const struct sched_params *p, const struct speed_floor *s, double least)
{
    uint32_t best = 1;
    for (uint32_t k = 2; k <= longest_step(s); k++) {
        if (speed_with(s, slice_of(p, k)) >= least - (k == s->step ? NOISE : 0))
            best = k;
    }
    return best;
}

/* The part of the time for which lower jobs may have the first step so that the floor is kept. */
static double speed_part(const struct sched_params *p, const struct speed_floor *s, double least)
{
    double with = speed_with(s, slice_of(p, 1)), without = s->shortest / s->alone;
    if (with >= least - NOISE)
        return 1;
    return fmax((without - least) / (without - with), PART_LEAST);
}

static void judge_arms(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                       double least, uint64_t now_ns)
{
    const struct speed_arm *shortest = &s->arms[0], *longer = &s->arms[1];
    const uint32_t step = s->step;
    take_costs(p, s);
    double lost = 1 - arm_rate(longer) / s->shortest;
    double gained = longer->lower / longer->seconds - shortest->lower / shortest->seconds;
    s->lower = shortest->lower / shortest->seconds;
    s->reference_ns = now_ns + REFERENCE_NS;
    if (throttles(p, s, false, now_ns)) {
        enter(s, seen, SPEED_BURST, 0, now_ns);
    } else if (lost > LOST && gained < WORTH * lost) {
        s->bar_ns = clamp_u64(2 * s->bar_ns, BAR_NS, BAR_MOST_NS);
        s->barred_ns = now_ns + s->bar_ns;
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
    } else {
        s->step = best_step(p, s, least);
        s->part = s->step > 1 ? 1 : speed_part(p, s, least);
        /* If the comparison has changed nothing, the speed varies by itself. */
        bool vain = s->compare_s <= ODD_S && s->compare_s > REFERENCE_S && s->step == step;
        s->odd_ns = clamp_u64(vain ? 2 * s->odd_ns : s->odd_ns / 2, ODD_NS, REFERENCE_NS);
        s->again_ns = now_ns + s->odd_ns;
        s->odd = 0;
        s->rate =
            s->part * speed_with(s, slice_of(p, s->step)) * s->alone + (1 - s->part) * s->shortest;
        if (s->part < 1)
            speed_compare(s, seen, s->step, COMPARE_S, now_ns);
        else
            enter(s, seen, SPEED_STAYS, s->step, now_ns);
    }
}

static void judge_compare(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                          double least, uint64_t now_ns)
{
    const struct speed_arm *shortest = &s->arms[0], *longer = &s->arms[1];
    const double rate = s->rate;
    if (s->longer) {
        speed_measure(p, s, &seen->tally);
    } else {
        take_shortest(p, s, &seen->tally);
        has_pauses(s, &seen->tally, now_ns);
        s->odd = s->launch_bound ? 0 : s->odd + 1;
        if (s->odd >= ODD || (s->odd && seen->tally.returns < RUNS_LEAST)) {
            enter(s, seen, SPEED_SHORTEST, 0, now_ns);
            return;
        }
        s->launch_bound = true; /* one short observation may err */
    }
    arm_add(s, &seen->tally);
    s->rate = rate;
    const double ratio = s->part < 1 ? s->part / (1 - s->part) : 1;
    if (fmin(shortest->seconds, longer->seconds) >= s->compare_s) {
        s->shortest = arm_rate(shortest);
        judge_arms(p, s, seen, least, now_ns);
        return;
    }
    s->longer = longer->seconds < ratio * shortest->seconds;
    enter(s, seen, SPEED_COMPARE, s->step, now_ns);
}

static void judge_stay(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                       double least, uint64_t now_ns)
{
    speed_measure(p, s, &seen->tally);
    bool odd = s->rate < (least - NOISE) * s->alone || s->rate > (1 + FASTER) * s->alone;
    s->odd = odd ? s->odd + 1 : 0;
    if (now_ns >= s->reference_ns)
        speed_compare(s, seen, s->step, REFERENCE_S, now_ns);
    else if (s->odd >= ODD && now_ns >= s->again_ns)
        speed_compare(s, seen, s->step, ODD_S, now_ns);
    else
        enter(s, seen, SPEED_STAYS, s->step, now_ns);
}

static void judge_shortest(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                           bool strict, uint64_t now_ns)
{
    const bool was = s->launch_bound;
    take_shortest(p, s, &seen->tally);
    has_pauses(s, &seen->tally, now_ns);
    /* The second time in a row counts, when no light jobs run together any more. */
    if (was && s->launch_bound && !strict && now_ns >= s->barred_ns) {
        s->part = 1;
        speed_compare(s, seen, longest_step(s), s->compared_s > 0 ? REFERENCE_S : COMPARE_S,
                      now_ns);
    } else if (was && throttles(p, s, strict, now_ns)) {
        s->reference_ns = now_ns + REFERENCE_NS;
        enter(s, seen, SPEED_BURST, 0, now_ns);
    } else {
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
    }
}

static void throttle_ends(struct speed_floor *s, struct runs *seen, uint64_t now_ns)
{
    enter(s, seen, now_ns >= s->reference_ns ? SPEED_SHORTEST : SPEED_BURST, 0, now_ns);
}

static void judge_burst(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                        bool strict, uint64_t now_ns)
{
    speed_measure(p, s, &seen->tally);
    if (has_pauses(s, &seen->tally, now_ns) != s->pausing) {
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
        return;
    }
    double ran = (double)(now_ns - s->changed_ns) - seen->tally.pauses_s * 1e9;
    double hz = seen->tally.returns / seen->tally.seconds;
    double loss =
        s->pausing ? loss_at_work(p, s->rate, hz) : burst_loss(p, s, &seen->tally, strict);
    double ns = fmax(ran, 0) * (loss / s->may_lose - 1);
    if (ns < WORTH_NS) {
        throttle_ends(s, seen, now_ns);
        return;
    }
    s->phase = SPEED_THROTTLED;
    s->until_ns = now_ns + (uint64_t)fmin(ns, (double)(s->pausing ? BLIND_NS : THROTTLE_NS));
}

double speed_floor_lost(const struct sched_params *p, const struct speed_floor *s, double duty,
                        uint32_t slice_us)
{
    return s->launch_bound ? 0 : s->bursts_hz * 1e-6 * duty * (slice_us / 2.0 + p->switch_us);
}

static bool is_shortest(const struct speed_floor *s)
{
    return s->phase == SPEED_SHORTEST || (s->phase == SPEED_COMPARE && !s->longer);
}

uint32_t speed_floor_beside_us(const struct sched_params *p, const struct speed_floor *s)
{
    if (!s->launch_bound)
        return UINT32_MAX;
    return s->step && !is_shortest(s) ? slice_of(p, s->step) : 0;
}

static bool is_enough(const struct speed_floor *s, const struct tally *t)
{
    static const double seconds[] = {[SPEED_SHORTEST] = SHORTEST_S,
                                     [SPEED_STAYS] = STAYS_S,
                                     [SPEED_BURST] = BURST_S,
                                     [SPEED_THROTTLED] = INFINITY};
    if (is_shortest(s) && t->returns < RUNS_LEAST)
        return t->seconds >= FEW_S;
    if (s->phase == SPEED_COMPARE)
        return t->seconds >= (s->part < 1                   ? RATION_S
                              : s->compare_s <= REFERENCE_S ? REFERENCE_S
                                                            : ARM_S);
    return t->seconds >= (s->phase == SPEED_BURST && s->pausing ? PAUSING_S : seconds[s->phase]);
}

struct speed_slice speed_floor_decide(const struct sched_params *p, struct speed_floor *s,
                                      struct runs *seen, double least, uint64_t now_ns)
{
    s->may_lose = fmax(1 - least, p->top_loss);
    bool strict = 1 - least < p->top_loss;
    if (s->phase == SPEED_THROTTLED && now_ns >= s->until_ns)
        throttle_ends(s, seen, now_ns);
    if (strict && s->step)
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
    if (seen->tally.seconds > s->told_s || seen->tally.seconds < s->told_s) {
        s->told_s = seen->tally.seconds;
        s->told_ns = now_ns;
    }
    if (s->phase != SPEED_THROTTLED && s->phase != SPEED_SHORTEST &&
        now_ns >= s->told_ns + SILENT_NS) {
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
    } else if (is_enough(s, &seen->tally)) {
        switch (s->phase) {
        case SPEED_SHORTEST:
            judge_shortest(p, s, seen, strict, now_ns);
            break;
        case SPEED_COMPARE:
            judge_compare(p, s, seen, least, now_ns);
            break;
        case SPEED_STAYS:
            judge_stay(p, s, seen, least, now_ns);
            break;
        case SPEED_BURST:
            judge_burst(p, s, seen, strict, now_ns);
            break;
        case SPEED_THROTTLED:
            break;
        }
    }
    /* Throttled jobs keep the slice of bursts, because each change is a control call. */
    bool burst = (s->phase == SPEED_BURST || s->phase == SPEED_THROTTLED) && !strict && !s->pausing;
    return (struct speed_slice){
        .slice_us = slice_of(p, is_shortest(s) ? 0
                                : burst        ? BURST_STEP
                                               : s->step),
        .blocked = s->phase == SPEED_THROTTLED,
        .wake_ns = s->phase == SPEED_THROTTLED  ? s->until_ns
                   : s->phase == SPEED_SHORTEST ? TIME_NEVER
                                                : s->told_ns + SILENT_NS,
    };
}
