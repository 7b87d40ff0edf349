/* See account_shares.h. */
#include "plan/account_shares.h"

#include <string.h>

#include "plan/policy.h"

static bool member_works(const struct member *m)
{
    return m->present && !m->idle;
}

bool account_shared(const struct policy_device *dev, const struct member *m)
{
    for_each_member (dev, x) {
        if (member_works(x) && x->account != m->account && x->own_class != CLASS_LATENCY)
            return true;
    }
    return false;
}

/* Where a floor gives each class a part, accounts share each part separately, because otherwise an
 * account's normal jobs would use up the part of its batch jobs. */
static uint64_t account_vtime(const struct policy_device *dev, const struct member *m)
{
    const struct account_turns *a = &dev->turns[m->account];
    return dev->rotation.by_class ? a->by_class[m->class].vtime : a->all.vtime;
}

/* Whether the job is boosted, and not too far ahead of other working jobs of its account. */
static bool leads_its_own(const struct policy_device *dev, const struct member *m)
{
    double ahead = (double)m->vtime - (double)dev->turns[m->account].floor;
    bool alone = m->turn_weight <= m->weight;
    return dev->boost.job == m->job &&
           (alone || ahead * m->turn_weight <= (double)ACCOUNT_LEAD_NS * WEIGHT_DEFAULT);
}

bool account_may_lead(const struct policy_device *dev, const struct member *m)
{
    const struct rotation *r = &dev->rotation;
    double own = m->turn_weight * m->pace, whole = dev->turns[m->account].part;
    double lead =
        r->linked ? own * ((double)m->vtime - (double)r->vtime_floor)
                  : whole * ((double)dev->turns[m->account].all.vtime - (double)r->account_floor);
    return !dev->several ||
           (leads_its_own(dev, m) && lead <= (double)ACCOUNT_LEAD_NS * WEIGHT_DEFAULT);
}

bool account_before(const struct policy_device *dev, const struct member *a, const struct member *b)
{
    if (a->account != b->account) {
        uint64_t va = account_vtime(dev, a), vb = account_vtime(dev, b);
        return va != vb ? va < vb : a->account < b->account;
    }
    if (leads_its_own(dev, a) || leads_its_own(dev, b))
        return leads_its_own(dev, a);
    return a->vtime < b->vtime;
}

/* ---- shares ---- */

/* Sets the island of each device: the first of the devices that gangs tie to it. */
static void join_islands(const struct machine *mc)
{
    for (uint32_t d = 0; d < mc->n; d++)
        mc->devices[d].island = d;
    for (uint32_t d = 0; d < mc->n; d++) {
        struct policy_device *own = &mc->devices[d];
        if (!own->gangs)
            continue;
        for_each_member (own, m) {
            if (!m->gang || m->gang_first != d)
                continue;
            for_each_device_of (mc, own, m, dev) {
                uint32_t from = dev->island, to = own->island;
                for (uint32_t e = 0; e < mc->n && from != to; e++) {
                    if (mc->devices[e].island == from)
                        mc->devices[e].island = to;
                }
            }
        }
    }
}

#define for_each_of_island(mc, i, dev)                                                             \
    for (struct policy_device *dev = (mc)->devices; dev < (mc)->devices + (mc)->n; dev++)          \
        if (dev->island == (i))

static void account_add(struct account *a, const struct member *m, bool once)
{
    double w = m->weight;
    a->working[m->class].sum += once ? w : 0;
    a->working[m->class].most = w > a->working[m->class].most ? w : a->working[m->class].most;
}

/* Adds up the weights of the accounts' working jobs. Returns whether there are several accounts. */
static bool add_up(const struct machine *mc, uint32_t island)
{
    uint32_t first = SLOT_NONE;
    bool several = false;
    for_each_of_island (mc, island, dev) {
        for_each_member (dev, m) {
            struct account *a = &dev->accounts[m->account];
            memset(a->working, 0, sizeof(a->working));
            a->boosted = false;
            several |= first != SLOT_NONE && first != m->account;
            first = m->account;
        }
    }
    for_each_of_island (mc, island, dev) {
        for_each_member (dev, m) {
            struct account *a = &dev->accounts[m->account];
            a->boosted |= dev->boost.job == m->job;
            if (member_works(m))
                account_add(a, m, !m->gang || dev == mc->devices + m->gang_first);
        }
    }
    return several;
}

/* A boosted job takes deadline_share of its account's part, and nothing of other accounts'. */
static void set_share(const struct sched_params *p, const struct policy_device *dev,
                      struct member *m)
{
    const struct account *a = &dev->accounts[m->account];
    double w = m->weight, sum = a->working[m->class].sum, most = a->working[m->class].most;
    double of = member_works(m) ? sum : sum + w;
    double part = (most > w ? most : w) * a->weight / WEIGHT_DEFAULT, of_account = w / of;
    if (dev->boost.job == m->job)
        of_account = p->deadline_share + of_account * (1 - p->deadline_share);
    else if (a->boosted)
        of_account *= 1 - p->deadline_share;
    m->share = part * of_account;
    m->turn_weight =
        dev->boost.job == m->job && of > w ? (of - w) * of_account / (1 - of_account) : w;
}

/* Keeps a job's lead or lag in rounds, as GPU time, when its share changes. */
static void rescale(const struct rotation *r, struct member *m, double by)
{
    double vtime = (double)r->vtime_floor + ((double)m->vtime - (double)r->vtime_floor) * by;
    if (by != 1)
        m->vtime = vtime > 0 ? (uint64_t)vtime : 0;
}

/* The account's part of turns, which classes below the latency class take. */
static double part_of(const struct account *a)
{
    double normal = a->working[CLASS_NORMAL].most, batch = a->working[CLASS_BATCH].most;
    double most = normal > batch ? normal : batch;
    return (most > 0 ? most : WEIGHT_DEFAULT) * a->weight / WEIGHT_DEFAULT;
}

void account_shares(const struct machine *mc)
{
    if (!mc->several && !mc->had_several)
        return;
    join_islands(mc);
    for (uint32_t i = 0; i < mc->n; i++) {
        if (mc->devices[i].island != i)
            continue;
        bool several = add_up(mc, i);
        for_each_of_island (mc, i, dev) {
            dev->several = several;
            for_each_member (dev, m) {
                double was = m->share;
                m->share = m->turn_weight = m->weight;
                if (several)
                    set_share(mc->params, dev, m);
                if (dev->rotation.linked)
                    rescale(&dev->rotation, m, was / m->share);
                dev->turns[m->account].part =
                    several ? part_of(&dev->accounts[m->account]) : WEIGHT_DEFAULT;
            }
        }
    }
}
