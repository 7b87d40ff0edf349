/* See limit_parts.h. */
#include "plan/limit_parts.h"

#include <math.h>

#define LEAST 0.05 /* of all working jobs together, see floor_of() */

void limits_fill(struct claim *v, uint32_t n, double amount)
{
    double lo = 0, hi = 0, below = 0, above = 0;
    for (uint32_t i = 0; i < n; i++) {
        lo += v[i].lo;
        hi += v[i].hi;
        above = fmax(above, v[i].hi / v[i].weight);
    }
    bool cut = lo >= amount, all = hi <= amount;
    for (unsigned step = 0; step < 50 && !cut && !all; step++) {
        double by = (below + above) / 2, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += fmin(fmax(by * v[i].weight, v[i].lo), v[i].hi);
        *(sum < amount ? &below : &above) = by;
    }
    for (uint32_t i = 0; i < n; i++)
        v[i].got = cut   ? v[i].lo * (lo > 0 ? fmax(amount, 0) / lo : 0)
                   : all ? v[i].hi
                         : fmin(fmax(below * v[i].weight, v[i].lo), v[i].hi);
}

/* The accounts with working members on a device, each with a list of these members. */
struct parts {
    struct policy_device *dev;
    uint32_t first;       /* account */
    enum job_class top;   /* the highest class that works */
    double kept;          /* share kept for lower classes */
    double least;         /* see floor_of() */
    double cut;           /* factor of floors that together exceed the whole */
    struct claim *claims; /* scratch */
};

static struct parts list_accounts(const struct sched_params *p, struct policy_device *dev,
                                  struct claim *claims)
{
    struct parts all = {dev, SLOT_NONE, CLASS_BATCH, p->floor, 0, 1, claims};
    double n = 0;
    for_each_member (dev, m)
        dev->accounts[m->account].fill.first = SLOT_NONE;
    for_each_member (dev, m) {
        struct account *a = &dev->accounts[m->account];
        if (limits_class(m) != CLASS_LATENCY)
            m->limit.part = m->limit.most = 0;
        if (!limits_takes_part(m))
            continue;
        if (a->fill.first == SLOT_NONE) {
            a->fill.next = all.first;
            a->fill.lo = a->limits.min;
            a->fill.left = a->limits.max > 0 ? a->limits.max : INFINITY;
            a->fill.members = 0;
            all.first = m->account;
        }
        all.top = limits_class(m) < all.top ? limits_class(m) : all.top;
        m->limit.next = a->fill.first;
        a->fill.first = m->job;
        a->fill.members++;
        n++;
    }
    all.least = n > 0 ? LEAST / n : 0;
    return all;
}

/* A member's floor, or a little, because floors of others, which may exceed the whole, must not
 * leave it without time for ever. A class below the highest has that only if a share is kept for
 * it.
 */
static double floor_of(const struct parts *all, const struct member *m)
{
    bool least = limits_class(m) == all->top || all->kept > 0;
    return fmax(m->limit.own.min, least ? fmin(all->least, limits_ceiling(&m->limit.own)) : 0);
}

/* The claim of an account's members of one class; least: what is left of the account's floor. */
static struct claim account_claim(const struct parts *all, const struct account *a,
                                  enum job_class class, double least)
{
    struct claim sum = {0};
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = all->dev->members[j].limit.next) {
        const struct member *m = &all->dev->members[j];
        if (limits_class(m) != class)
            continue;
        sum.weight += m->share;
        sum.lo += floor_of(all, m);
        sum.hi += limits_ceiling(&m->limit.own);
    }
    sum.hi = fmin(sum.hi, a->fill.left);
    sum.lo = fmin(fmax(sum.lo, least), sum.hi);
    return sum;
}

/* Adds the floors of an account's members in that class and those below. */
static void account_floors(const struct parts *all, const struct account *a, enum job_class class,
                           double floors[static CLASS_COUNT])
{
    double least = a->fill.lo;
    for (unsigned c = class; c < CLASS_COUNT; c++) {
        double lo = account_claim(all, a, (enum job_class)c, least).lo;
        floors[c] += lo;
        least = fmax(least - lo, 0);
    }
}

/* The most that a class may have of the rest of an account's ceiling, of which the classes below
 * have their floors and the share that is kept for them. */
static double account_room(const struct parts *all, const struct account *a, enum job_class class)
{
    double floors[CLASS_COUNT] = {0}, below = 0, left = a->fill.left;
    bool any = false;
    if (!isfinite(left))
        return left;
    account_floors(all, a, class, floors);
    for (unsigned c = class + 1U; c < CLASS_COUNT; c++) {
        below += floors[c];
        any |= account_claim(all, a, (enum job_class)c, 0).weight > 0;
    }
    double sum = below + floors[class], cut = sum > left ? left / sum : 1;
    return any ? left - below * cut - all->kept * (left - sum * cut) : left;
}

/* Divides an account's part of a class among its members. */
static void fill_account(const struct parts *all, struct account *a, enum job_class class)
{
    struct member *members = all->dev->members;
    struct claim *v = all->claims;
    uint32_t n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = members[j].limit.next) {
        const struct member *m = &members[j];
        if (limits_class(m) == class)
            v[n++] = (struct claim){m->share, floor_of(all, m), limits_ceiling(&m->limit.own), 0};
    }
    limits_fill(v, n, a->fill.got);
    n = 0;
    for (uint32_t j = a->fill.first; j != SLOT_NONE; j = members[j].limit.next) {
        if (limits_class(&members[j]) == class)
            members[j].limit.part = v[n++].got;
    }
    a->fill.left = fmax(a->fill.left - a->fill.got, 0);
    a->fill.lo = fmax(a->fill.lo - a->fill.got, 0);
}

/* The least part of the rest for the classes below: their floors, and of the time that no floor
 * takes the share that is kept for lower classes. */
static double floors_below(const struct parts *all, enum job_class class, double left)
{
    double floors[CLASS_COUNT] = {0}, below = 0;
    bool any = false;
    for (uint32_t i = all->first; i != SLOT_NONE; i = all->dev->accounts[i].fill.next)
        account_floors(all, &all->dev->accounts[i], class, floors);
    for_each_member (all->dev, m)
        any |= limits_takes_part(m) && limits_class(m) > class;
    for (unsigned c = class + 1U; c < CLASS_COUNT; c++)
        below += floors[c];
    double free = fmax(left - (below + floors[class]) * all->cut, 0);
    return any ? below * all->cut + all->kept * free : 0;
}

void limit_parts_set(const struct sched_params *p, struct policy_device *dev, struct claim *v,
                     double left)
{
    struct parts all = list_accounts(p, dev, v);
    double floors[CLASS_COUNT] = {0};
    for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next)
        account_floors(&all, &dev->accounts[i], CLASS_NORMAL, floors);
    double sum = floors[CLASS_NORMAL] + floors[CLASS_BATCH];
    all.cut = sum > left ? left / sum : 1;
    for (unsigned c = CLASS_NORMAL; c < CLASS_COUNT; c++) {
        uint32_t n = 0;
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            const struct account *a = &dev->accounts[i];
            struct claim of = account_claim(&all, a, (enum job_class)c, a->fill.lo);
            of.hi = fmin(of.hi, account_room(&all, a, (enum job_class)c));
            of.lo = fmin(of.lo, of.hi);
            if (of.weight > 0)
                v[n++] = of;
        }
        limits_fill(v, n, left - floors_below(&all, (enum job_class)c, left));
        n = 0;
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next) {
            struct account *a = &dev->accounts[i];
            bool any = account_claim(&all, a, (enum job_class)c, 0).weight > 0;
            a->fill.got = any ? v[n++].got : 0;
            left -= a->fill.got;
        }
        for (uint32_t i = all.first; i != SLOT_NONE; i = dev->accounts[i].fill.next)
            fill_account(&all, &dev->accounts[i], (enum job_class)c);
    }
    for_each_member (dev, m) {
        const struct account *a = &dev->accounts[m->account];
        if (limits_takes_part(m))
            m->limit.most =
                fmin(limits_ceiling(&m->limit.own), m->limit.part + a->fill.left / a->fill.members);
    }
}
