/* See company.h. */
#include "sched/company.h"

#include <math.h>

#include "sched/sched_impl.h"

#define LIGHT         0.8 /* duty below which a context is light, */
#define HEAVY         0.9 /* and above which it is no more */
#define ROOM          2.0 /* duties of light jobs that run together: estimates are too high */
#define PART_LEAST    0.1 /* of a turn, that a job is charged which saturates the GPU */
#define KNOWN_S       0.008
#define KNOWN_RUNS    2U
#define KNOWN_SEEN_S  0.03        /* that is enough without runs */
#define HEAVY_KNOWN_S 0.1         /* a shorter time may have been one burst */
#define FED_NS        5000000000U /* a record in which nothing happened for so long is none */
#define TRY_FIRST_NS  40000000U
#define TRY_MOST      4U /* jobs at once, the first time */
#define TRY_NS        25000000U
#define TRY_PART      150 /* of the time of a device at most, so that p99 of latency jobs stays */
#define TRY_AGAIN_NS  4000000000U
#define TRY_SELDOM_NS 32000000000U
#define TRY_SLICE_US  200U
#define LIGHT_MOST_US 1000U
#define AHEAD_TURNS   2
#define CONTEXTS_MOST 64U /* of a job, to be told apart by their processes */

static bool is_fed(const struct policy_device *dev, uint64_t now_ns)
{
    return dev->runs.known && now_ns < dev->runs.since_ns + FED_NS;
}

static bool is_known(const struct context_use *u)
{
    return u->seen_s >= KNOWN_S && (u->runs >= KNOWN_RUNS || u->seen_s >= KNOWN_SEEN_S);
}

/* Of its mean run, rounded to one of few, since each change is a control call. */
static uint32_t light_slice(const struct context_use *u)
{
    static const uint32_t slices_us[] = {250, 350, 500, 700, LIGHT_MOST_US};
    double us = u->runs ? 1.1e6 * u->run_s / u->runs : 0;
    size_t i = 0;
    while (slices_us[i] < us && slices_us[i] < LIGHT_MOST_US)
        i++;
    return slices_us[i];
}

uint32_t company_first(const struct sched *c, uint32_t group)
{
    uint32_t first = group;
    for (uint32_t i = group; i != SLOT_NONE; i = c->groups[i].next) {
        if (c->groups[i].computes && c->groups[i].process == c->groups[group].process)
            first = i;
    }
    return first;
}

static const struct context_use nothing;

static void judge_group(struct group *g, const struct context_use *u)
{
    /* The bounds: when it did not certainly wait for its host, and when it ran. While it waited for
     * others neither counts for what it would want without them. */
    double most = is_known(u) ? 1 - u->idle_s / u->seen_s : 1;
    if (is_known(u) && u->run_s > 0)
        most = fmin(most, u->run_s / (u->run_s + u->idle_s));
    double least = is_known(u) ? fmin(u->run_s / u->seen_s, most) : 1;
    bool light = is_known(u) && most < (g->light ? HEAVY : LIGHT);
    uint32_t slice_us = light_slice(u);
    if (light && (!g->light || slice_us > g->light_us || 3 * slice_us <= g->light_us))
        g->light_us = slice_us;
    g->light = light;
    g->duty = light ? (2 * least + most) / 3 : 1;
}

static void judge_member(struct sched *c, uint32_t d, struct member *m, bool fed)
{
    m->company.duty = 0;
    m->company.unknown = false;
    m->company.heavy = !fed;
    for (uint32_t i = *sched_group_head(c, d, m->job); i != SLOT_NONE; i = c->groups[i].next) {
        struct group *g = &c->groups[i];
        if (!g->computes)
            continue;
        uint32_t first = m->ncompute > CONTEXTS_MOST ? i : company_first(c, i);
        const struct context_use *u = &c->groups[first].use;
        judge_group(g, fed ? u : &nothing);
        m->company.unknown |= !is_known(u) || (!g->light && u->seen_s < HEAVY_KNOWN_S);
        m->company.heavy |= !g->light;
        m->company.duty += first == i ? g->duty : 0;
    }
    m->company.duty = m->idle ? 0 : fmin(m->company.duty, 1);
    m->company.heavy &= !m->idle || !fed;
}

void company_judge(struct sched *c, uint64_t now_ns)
{
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct policy_device *dev = &c->devices[d];
        bool fed = is_fed(dev, now_ns);
        for_each_member (dev, m) {
            if (m->class != CLASS_LATENCY)
                judge_member(c, d, m, fed);
        }
    }
}

static bool is_light(const struct member *m)
{
    return !m->company.heavy;
}

/* It had so much more than the holder that the holder is to have what there is. */
static bool is_ahead(const struct sched_params *p, const struct policy_device *dev,
                     const struct member *m, const struct member *holder)
{
    double turns = AHEAD_TURNS * p->rotation_us * 1e3 * WEIGHT_DEFAULT;
    if (m->account == holder->account)
        return (double)m->vtime > (double)holder->vtime + turns / m->turn_weight;
    return (double)dev->turns[m->account].all.vtime >
           (double)dev->turns[holder->account].all.vtime + turns / dev->turns[m->account].part;
}

static bool may_join(const struct policy_device *dev, const struct member *m,
                     const struct member *holder)
{
    return rotation_takes_part(dev, m) && !m->gang && m->job != holder->job && !m->company.beside;
}

/* The best class first, and in a class the order of turns. heavy: a job that saturates the GPU is
 * wanted, not a light one; than: that, which light ones must not be ahead of. */
static struct member *next_beside(const struct sched_params *p, struct policy_device *dev,
                                  const struct member *holder, bool heavy,
                                  const struct member *than, double duty)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (!may_join(dev, m, holder) || is_light(m) == heavy ||
            (!heavy && !m->idle &&
             (duty + m->company.duty > ROOM ||
              (than && (m->class > than->class || is_ahead(p, dev, m, than))))))
            continue;
        if (!best || m->class < best->class ||
            (m->class == best->class && account_before(dev, m, best)))
            best = m;
    }
    return best;
}

/* Whether it is to be tried, with the next in turn or with contexts of its own. */
static bool is_due(const struct member *m, uint64_t now_ns)
{
    return !m->idle && now_ns >= m->company.tried_ns + m->company.try_ns;
}

static void tried(struct member *m, uint64_t now_ns)
{
    uint64_t ns = m->company.try_ns && !m->company.unknown ? 2 * m->company.try_ns : TRY_AGAIN_NS;
    m->company.tried_ns = now_ns;
    m->company.try_ns = ns < TRY_SELDOM_NS ? ns : TRY_SELDOM_NS;
}

/* Of the holder's class if there is one, for others wait until all of that one are light. */
static struct member *next_tried(struct policy_device *dev, const struct member *holder)
{
    struct member *best = NULL;
    for_each_member (dev, m) {
        if (m != holder && rotation_takes_part(dev, m) && !m->gang && !m->idle &&
            !m->company.beside && !m->company.trying &&
            (!best || m->class < best->class ||
             (m->class == best->class && account_before(dev, m, best))))
            best = m;
    }
    return best;
}

static void begin_try(struct policy_device *dev, struct member *holder, uint64_t now_ns)
{
    struct member *m = next_tried(dev, holder);
    bool unknown = holder->company.unknown || (m && m->company.unknown);
    bool alone = !m && member_width(holder) < 2;
    if (holder->gang || holder->idle || alone || !is_fed(dev, now_ns) ||
        now_ns < dev->try_next_ns || !(is_due(holder, now_ns) || (m && is_due(m, now_ns))))
        return;
    const uint64_t ns = unknown ? TRY_FIRST_NS : TRY_NS;
    /* Several make a short wait for the host invisible: it is over when each had its slice. */
    const uint32_t most = holder->company.tried_ns ? 2 : TRY_MOST;
    dev->try_until_ns = now_ns + ns;
    dev->try_next_ns = now_ns + TRY_PART * ns;
    tried(holder, now_ns);
    holder->company.trying = true;
    for_each_member (dev, x) {
        if (x->company.beside && !is_light(x))
            tried(x, now_ns);
    }
    for (uint32_t i = 1; m && i < most; i++) {
        enum job_class class = m->class;
        m->company.trying = true;
        tried(m, now_ns);
        m = next_tried(dev, holder);
        m = m && m->company.unknown && m->class == class ? m : NULL;
    }
}

void company_pick(const struct sched_params *p, struct policy_device *dev, uint64_t now_ns)
{
    struct rotation *r = &dev->rotation;
    for_each_member (dev, m)
        m->company.beside = false;
    if (r->from == CLASS_COUNT || r->blocked || r->holder == SLOT_NONE || r->by_class ||
        dev->window != SLOT_NONE || dev->boost.job != SLOT_NONE) {
        dev->try_until_ns = 0;
        return;
    }
    struct member *holder = &dev->members[r->holder], *m;
    struct member *heavy = is_light(holder) ? next_beside(p, dev, holder, true, NULL, 0) : holder;
    double duty = is_light(holder) ? holder->company.duty : 0;
    if (heavy)
        heavy->company.beside = heavy != holder;
    while ((m = next_beside(p, dev, holder, false, heavy, duty))) {
        m->company.beside = true;
        duty += m->company.duty;
    }
    if (r->turn_ns == now_ns)
        begin_try(dev, holder, now_ns);
    for_each_member (dev, x) {
        x->company.trying &= now_ns < dev->try_until_ns;
        x->company.beside |= x->company.trying && x != holder && rotation_takes_part(dev, x);
    }
    if (now_ns < dev->try_until_ns)
        policy_wake(dev, dev->try_until_ns);
}

double company_part(const struct policy_device *dev, const struct member *m)
{
    double light = 0;
    for_each_member (dev, x) {
        if (is_light(x) && (x->company.beside || x->job == dev->rotation.holder))
            light += x->company.duty;
    }
    return is_light(m) ? m->company.duty : fmax(1 - light, PART_LEAST);
}

uint32_t company_slice(const struct sched *c, const struct group *g, uint64_t now_ns)
{
    const struct policy_device *dev = &c->devices[g->device];
    if (now_ns < dev->try_until_ns)
        return TRY_SLICE_US;
    return g->light ? g->light_us : 0;
}

/* A context with the shortest slice keeps the engine whether it has work or not, where others want
 * it seldom: that says nothing of it. */
static bool can_tell(const struct sched *c, uint32_t group, uint64_t now_ns)
{
    const struct group *g = &c->groups[group];
    return g->light || now_ns < c->devices[g->device].try_until_ns;
}

static bool is_runnable(const struct sched *c, uint32_t group)
{
    return c->groups[group].computes && c->groups[group].runs;
}

void company_count(struct sched *c, uint64_t now_ns)
{
    for (uint32_t d = 0; d < c->limits.devices; d++) {
        struct policy_device *dev = &c->devices[d];
        uint32_t n = 0;
        for_each_member (dev, m) {
            for (uint32_t i = *sched_group_head(c, d, m->job);
                 m->class != CLASS_LATENCY && i != SLOT_NONE; i = c->groups[i].next)
                n += is_runnable(c, i);
        }
        for_each_member (dev, m) {
            for (uint32_t i = *sched_group_head(c, d, m->job); i != SLOT_NONE;
                 i = c->groups[i].next) {
                struct context_use *use = &c->groups[i].use;
                runs_company(use,
                             n > 1 && m->class != CLASS_LATENCY && is_runnable(c, i) &&
                                 can_tell(c, i, now_ns),
                             now_ns);
                if (use->until_ns < dev->runs.close_ns && use->begun_ns)
                    dev->runs.close_ns = use->until_ns;
            }
        }
    }
}
