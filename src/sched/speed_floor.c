/* See speed_floor.h. */
#include "sched/speed_floor.h"

#include <math.h>

#include "sched/sched.h"

#define S 1000000000ULL

#define SHORTEST_S     0.4 /* of the record, for each judgement: at the shortest slice, */
#define REFERENCE_S    0.2 /* once more, later, */
#define DOUBTED_S      1.0 /* before a step is refused, and with few runs, which tell nothing, */
#define BURST_S        0.1 /* while they are throttled, */
#define STEP_S         0.5 /* of a step, */
#define SURE_S         2.0 /* for a step to be refused, */
#define STAYS_S        0.5 /* and of a slice that stays */
#define SILENT_NS      (3 * S / 2) /* latency jobs that do nothing for so long are away */
#define REFERENCE_NS   (45 * S)    /* it takes some 0.2 s: 0.5 % of what lower jobs have */
#define AGAIN_NS       (5 * S)     /* between references because of a change */
#define BAR_NS         (4 * S)     /* one measurement may err by more than the floor leaves */
#define BAR_MOST_NS    (64 * S)
#define PAUSES_LAST_NS (5 * S)
#define BURST_STEP     4 /* with which throttled jobs run */
#define THROTTLE_NS    (2 * S)
#define WORTH_NS       1000000.0 /* of throttling: its two control calls take as long */

#define RUNS_LEAST 10   /* to judge by */
#define RUNS_HZ    20.0 /* fewer gaps are not worth the search */
#define PAUSES     0.1  /* of the time: with more, lower jobs have these */
#define NOTHING    0.02 /* of the time of lower jobs */
#define MOST       0.7 /* of the time: beside latency jobs that work less, lower jobs use the pauses */
#define FASTER     0.1  /* than alone: the load is another one */
#define ODD        2    /* times in a row that it is so, or slow, for a reference */
#define NOISE      0.02 /* of the speed */
#define MIXED      0.5  /* the part of a new reference in what is known of the speed */
#define CLEAR      0.25 /* of the speed: what is further from the floor is no matter of chance */
#define COSTS_MOST 0.5  /* of the speed, a step: more is not believed */
#define COSTS_KEPT 0.8  /* of what was seen of them, when a step is measured */
#define LOST       0.05 /* of the speed, to a step, so that it matters what lower jobs gain */
#define LOSE_OF_US 7000
#define WORTH      1.5 /* of what latency jobs lose, that lower ones gain at least */
/* With the shortest slice a latency job waits for a switch, and for what the lower job's run takes
 * at least. */
#define SWITCHES_AT_LEAST 1.65

static const uint32_t slices_us[SPEED_STEPS] = {0, 350, 500, 700, 1000, 1400, 2000};

static uint32_t slice_of(const struct sched_params *p, uint32_t step)
{
    uint32_t us = slices_us[step] < p->timeslice_max_us ? slices_us[step] : p->timeslice_max_us;
    return us > p->timeslice_min_us ? us : p->timeslice_min_us;
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
    s->doubted = false;
    s->changed_ns = s->told_ns = now_ns;
    s->told_s = 0;
    runs_count_anew(seen, now_ns);
}

/* A slice is no longer than what latency jobs may lose of LOSE_OF_US. transformers' generate() and
 * a program of short kernels lost 0.13 with 1 ms, of which the record showed a half (H100). */
static bool is_barred(const struct speed_floor *s, uint32_t step, uint64_t now_ns)
{
    return step >= SPEED_STEPS || now_ns < s->barred_ns[step] ||
           (step > 1 && slices_us[step] > LOSE_OF_US * s->may_lose * (1 + NOISE));
}

static void speed_bar(struct speed_floor *s, uint32_t step, uint64_t now_ns)
{
    uint64_t ns = s->bar_ns[step] ? 2 * s->bar_ns[step] : BAR_NS;
    s->bar_ns[step] = ns < BAR_MOST_NS ? ns : BAR_MOST_NS;
    s->barred_ns[step] = now_ns + s->bar_ns[step];
}

/* Of what the lower jobs had, without the part of each run in which their state is saved. */
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

/* What the latency jobs work alone: what they do at the shortest slice, and what that costs them.
 */
static double speed_alone(const struct sched_params *p, const struct speed_floor *s)
{
    return s->shortest / (1 - s->us_costs * SWITCHES_AT_LEAST * p->switch_us);
}

/* What a step costs, as seen when it is new: the line through what all of them did. */
static void take_costs(const struct sched_params *p, struct speed_floor *s)
{
    double us = slice_of(p, s->step), costs = s->shortest / fmax(s->rate, 1e-6) - 1;
    s->costs_us = s->costs_us * COSTS_KEPT + fmin(costs, COSTS_MOST) * us;
    s->squares_us = s->squares_us * COSTS_KEPT + us * us;
    s->us_costs = fmax(s->costs_us / s->squares_us, 0);
    s->alone = speed_alone(p, s);
}

/* What was seen with the shortest slice. */
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

/* What the latency jobs lose while lower ones run with the slice of a burst, of their speed. */
static double burst_loss(const struct sched_params *p, const struct speed_floor *s,
                         const struct tally *t, bool strict)
{
    if (strict)
        return t->returns / t->seconds * p->switch_us * 1e-6;
    return s->alone > 0 ? 1 - s->rate / s->alone : 0;
}

/* Whether latency jobs pause now and then: lower jobs have the pauses, which no record shows while
 * they wait. */
static bool has_pauses(struct speed_floor *s, const struct tally *t, uint64_t now_ns)
{
    if (t->pauses_s > PAUSES * t->seconds)
        s->pauses_until_ns = now_ns + PAUSES_LAST_NS;
    return now_ns < s->pauses_until_ns;
}

static bool throttles(const struct sched_params *p, const struct speed_floor *s, double may_lose,
                      bool strict, uint64_t now_ns)
{
    if (!s->launch_bound || now_ns < s->pauses_until_ns || (!strict && s->busy < MOST))
        return false;
    if (strict)
        return s->bursts_hz * p->switch_us * 1e-6 > may_lose;
    double lost = s->us_costs > 0 ? 1 - s->shortest / s->alone : 0;
    return lost > may_lose + NOISE || (lost > 2 * NOISE && s->lower < NOTHING);
}

static void step_down(struct speed_floor *s, struct runs *seen, uint64_t now_ns)
{
    speed_bar(s, s->step, now_ns);
    s->rate = s->rate_before;
    s->lower = s->lower_before;
    enter(s, seen, s->step > 1 ? SPEED_STAYS : SPEED_SHORTEST, s->step - 1, now_ns);
}

static void step_up(struct speed_floor *s, struct runs *seen, uint64_t now_ns)
{
    s->rate_before = s->rate;
    s->lower_before = s->lower;
    enter(s, seen, SPEED_STEP, s->step + 1, now_ns);
}

static void stay(struct speed_floor *s, struct runs *seen, uint64_t now_ns)
{
    if (now_ns > s->reference_ns)
        s->reference_ns = now_ns + REFERENCE_NS;
    enter(s, seen, SPEED_STAYS, s->step, now_ns);
}

/* How fast a program goes changes by itself, by tens of percent from one half second to the next.
 * So a step that does well is taken at once, for it is watched afterwards; one that does badly is
 * refused when that is sure, and not before the speed alone was looked at once more. */
static void judge_step(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                       double least, uint64_t now_ns)
{
    const bool sure = seen->tally.seconds >= SURE_S;
    const struct speed_floor before = *s;
    speed_measure(p, s, &seen->tally);
    take_costs(p, s);
    double speed = s->rate / s->alone, gained = s->lower - s->lower_before;
    double lost = (s->rate_before - s->rate) / s->alone;
    bool worthless = lost > LOST && gained < WORTH * lost;
    if (!sure && (worthless || (speed < least && speed > least - CLEAR))) {
        *s = before;
    } else if (worthless) {
        step_down(s, seen, now_ns);
    } else if (speed < least) {
        enter(s, seen, SPEED_REFERENCE, s->step, now_ns);
        s->doubted = true;
    } else if (!is_barred(s, s->step + 1, now_ns) && speed > least + NOISE) {
        step_up(s, seen, now_ns);
    } else {
        stay(s, seen, now_ns);
    }
}

static void judge_stay(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                       double least, uint64_t now_ns)
{
    speed_measure(p, s, &seen->tally);
    bool odd = s->rate < (least - NOISE) * s->alone || s->rate > (1 + FASTER) * s->alone;
    s->odd = odd ? s->odd + 1 : 0;
    bool again = s->odd >= ODD && now_ns + REFERENCE_NS >= s->reference_ns + AGAIN_NS;
    if (again || now_ns >= s->reference_ns) {
        s->reference_ns = now_ns + REFERENCE_NS;
        enter(s, seen, SPEED_REFERENCE, s->step, now_ns);
    } else if (!is_barred(s, s->step + 1, now_ns) && s->rate > (least + NOISE) * s->alone) {
        step_up(s, seen, now_ns);
    } else {
        enter(s, seen, SPEED_STAYS, s->step, now_ns);
    }
}

static void judge_shortest(const struct sched_params *p, struct speed_floor *s, struct runs *seen,
                           double may_lose, bool strict, uint64_t now_ns)
{
    bool reference = s->phase == SPEED_REFERENCE, was = s->launch_bound;
    const double rate = s->rate, lower = s->lower;
    take_shortest(p, s, &seen->tally);
    has_pauses(s, &seen->tally, now_ns);
    if (s->doubted && s->launch_bound) {
        s->rate = rate;
        s->lower = lower;
        if (rate < (1 - may_lose) * s->alone)
            step_down(s, seen, now_ns);
        else
            stay(s, seen, now_ns);
        return;
    }
    if (!was && s->launch_bound) { /* once more, without light jobs beside others */
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
        return;
    }
    if (s->launch_bound && !strict && (reference || !is_barred(s, 1, now_ns))) {
        /* After a reference the same step is measured again, against its own cost alone. */
        s->rate_before = reference && s->step > 1 ? 0 : s->shortest;
        s->lower_before = reference && s->step > 1 ? 0 : s->lower;
        enter(s, seen, SPEED_STEP, reference ? s->step : 1, now_ns);
    } else if (throttles(p, s, may_lose, strict, now_ns)) {
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
                        double may_lose, bool strict, uint64_t now_ns)
{
    speed_measure(p, s, &seen->tally);
    if (has_pauses(s, &seen->tally, now_ns)) {
        enter(s, seen, SPEED_SHORTEST, 0, now_ns);
        return;
    }
    double ran = (double)(now_ns - s->changed_ns) - seen->tally.pauses_s * 1e9;
    double ns = fmax(ran, 0) * (burst_loss(p, s, &seen->tally, strict) / may_lose - 1);
    if (ns < WORTH_NS) {
        throttle_ends(s, seen, now_ns);
        return;
    }
    s->phase = SPEED_THROTTLED;
    s->until_ns = now_ns + (ns < (double)THROTTLE_NS ? (uint64_t)ns : THROTTLE_NS);
}

double speed_floor_lost(const struct sched_params *p, const struct speed_floor *s, double duty,
                        uint32_t slice_us)
{
    return s->launch_bound ? 0 : s->bursts_hz * 1e-6 * duty * (slice_us / 2.0 + p->switch_us);
}

uint32_t speed_floor_beside_us(const struct sched_params *p, const struct speed_floor *s)
{
    if (!s->launch_bound)
        return UINT32_MAX;
    return s->phase == SPEED_STEP || s->phase == SPEED_STAYS ? slice_of(p, s->step) : 0;
}

static bool is_enough(const struct speed_floor *s, const struct tally *t)
{
    static const double seconds[] = {
        [SPEED_SHORTEST] = SHORTEST_S,   [SPEED_STEP] = STEP_S,   [SPEED_STAYS] = STAYS_S,
        [SPEED_REFERENCE] = REFERENCE_S, [SPEED_BURST] = BURST_S, [SPEED_THROTTLED] = INFINITY};
    const bool shortest = s->phase == SPEED_SHORTEST || s->phase == SPEED_REFERENCE;
    if (shortest && (s->doubted || t->returns < RUNS_LEAST))
        return t->seconds >= DOUBTED_S;
    return t->seconds >= seconds[s->phase];
}

struct speed_slice speed_floor_decide(const struct sched_params *p, struct speed_floor *s,
                                      struct runs *seen, double least, uint64_t now_ns)
{
    double may_lose = s->may_lose = fmax(1 - least, p->top_loss);
    bool strict = 1 - least < p->top_loss;
    if (s->phase == SPEED_THROTTLED && now_ns >= s->until_ns)
        throttle_ends(s, seen, now_ns);
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
        case SPEED_REFERENCE:
            judge_shortest(p, s, seen, may_lose, strict, now_ns);
            break;
        case SPEED_STEP:
            judge_step(p, s, seen, least, now_ns);
            break;
        case SPEED_STAYS:
            judge_stay(p, s, seen, least, now_ns);
            break;
        case SPEED_BURST:
            judge_burst(p, s, seen, may_lose, strict, now_ns);
            break;
        case SPEED_THROTTLED:
            break;
        }
    }
    bool shortest = s->phase == SPEED_SHORTEST || s->phase == SPEED_REFERENCE;
    /* While they are throttled their slice stays what it is: each change is a control call. */
    bool burst = (s->phase == SPEED_BURST || s->phase == SPEED_THROTTLED) && !strict;
    return (struct speed_slice){
        .slice_us = slice_of(p, shortest ? 0
                                : burst  ? BURST_STEP
                                         : s->step),
        .blocked = s->phase == SPEED_THROTTLED,
        .wake_ns = s->phase == SPEED_THROTTLED  ? s->until_ns
                   : s->phase == SPEED_SHORTEST ? TIME_NEVER
                                                : s->told_ns + SILENT_NS,
    };
}
