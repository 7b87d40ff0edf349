/* See placement_choice.h. */
#include "plan/placement_choice.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Load of a job for which it is not known: a latency job leaves gaps; others may always compute. */
#define BUSY_LATENCY 0.3
#define BUSY_NORMAL  1.0
/* Share of the time that higher classes are assumed to leave, so that weights count too. */
#define LEFT_MIN 0.1

#define USED_STEP_S 10  /* shorter differences do not count */
#define USED_KEEP_S 300 /* the same for GPUs on which a job of the name ran last */

static uint32_t place_width(uint32_t gpus)
{
    uint32_t n = 0;
    for (; gpus; gpus &= gpus - 1)
        n++;
    return n;
}

void place_add(struct place *p, const struct place_job *j)
{
    const uint32_t width = place_width(j->gpus);
    for (uint32_t g = 0; g < PLACE_GPUS; g++) {
        struct place_gpu *x = &p->gpus[g];
        if (!(j->gpus >> g & 1))
            continue;
        x->weight[j->class] += (double)j->weight / width;
        x->busy[j->class] += j->busy[g] >= 0             ? fmin(j->busy[g], 1)
                             : j->class == CLASS_LATENCY ? BUSY_LATENCY
                                                         : BUSY_NORMAL;
        x->jobs++;
    }
    uint32_t i = 0;
    while (i < p->ngangs && p->gangs[i] != j->gpus)
        i++;
    if (width > 1 && i == p->ngangs && i < PLACE_GANGS)
        p->gangs[p->ngangs++] = j->gpus;
}

/* Less is better, from the first member to the last. */
struct place_cost {
    uint32_t lacking, chains;
    double worst, load, all;
    int lost; /* thousandths, by what is known of pools there; < 0: gained */
    uint32_t jobs;
    uint64_t used_s;
};

/* The job's weight divided by the share of time that it can expect: the time that is left now, or
 * its part among jobs of its class. */
static double place_load(const struct place_gpu *x, const struct place_need *need)
{
    const double own = (double)need->weight / need->ngpus;
    double better = 0;
    for (int c = 0; c < (int)need->class; c++)
        better += x->busy[c];
    /* Measured loads are rounded, because they vary a little. */
    const double left = 1 - round(fmin(better, 1) * 10) / 10;
    const double idle = 1 - round(fmin(better + x->busy[need->class], 1) * 10) / 10;
    const double part = fmax(left, LEFT_MIN) * own / (x->weight[need->class] + own);
    return own / fmax(idle, part) / (x->speed > 0 ? x->speed : 1);
}

/* load: place_load() of each GPU, which is the same in all of the thousands of sets. */
static struct place_cost place_cost(const struct place *p, const struct place_need *need,
                                    const double load[PLACE_GPUS], uint32_t set)
{
    struct place_cost c = {.chains = 0};
    const uint64_t bytes = need->memory_bytes ? need->memory_bytes : PLACE_NEED;
    for (uint32_t g = 0; g < PLACE_GPUS; g++) {
        const struct place_gpu *x = &p->gpus[g];
        if (!(set >> g & 1))
            continue;
        c.lacking += x->free_bytes < bytes || x->free_bytes - bytes < x->promised_bytes;
        c.worst = fmax(c.worst, load[g]);
        c.load += load[g];
        c.lost += x->together ? 1000 - (int)x->together : 0;
        for (int k = 0; k < CLASS_COUNT; k++)
            c.all += x->weight[k];
        c.jobs += x->jobs;
        c.used_s += x->used_s;
    }
    for (uint32_t i = 0; need->ngpus > 1 && i < p->ngangs; i++)
        c.chains += (p->gangs[i] & set) && (p->gangs[i] & ~set);
    return c;
}

static bool place_less(const struct place_cost *a, const struct place_cost *b)
{
    if (a->lacking != b->lacking)
        return a->lacking < b->lacking;
    if (a->chains != b->chains)
        return a->chains < b->chains;
    if (a->worst < b->worst || a->worst > b->worst)
        return a->worst < b->worst;
    if (a->load < b->load || a->load > b->load)
        return a->load < b->load;
    if (a->lost != b->lost)
        return a->lost < b->lost;
    if (a->all < b->all || a->all > b->all)
        return a->all < b->all;
    if (a->jobs != b->jobs)
        return a->jobs < b->jobs;
    return a->used_s / USED_STEP_S < b->used_s / USED_STEP_S;
}

/* Whether the previous GPUs are kept: if they are worse by less than half a job, because with a
 * whole one jobs of one name would not spread. */
static bool place_keeps(const struct place_cost *before, const struct place_cost *best,
                        const struct place_need *need)
{
    const double half = 0.5 * need->weight / need->ngpus;
    return before->lacking == best->lacking && before->chains == best->chains &&
           before->worst < best->worst + half && before->load < best->load + half &&
           before->all < best->all + half && before->used_s < best->used_s + USED_KEEP_S;
}

uint32_t place_choose(const struct place *p, const struct place_need *need, enum place_reason *why)
{
    const uint32_t candidates = need->candidates & ((1U << PLACE_GPUS) - 1);
    uint32_t found = 0;
    struct place_cost best = {.lacking = 0};
    bool lacking = false;
    double load[PLACE_GPUS];
    if (!need->ngpus || place_width(candidates) < need->ngpus)
        return 0;
    for (uint32_t g = 0; g < PLACE_GPUS; g++)
        load[g] = place_load(&p->gpus[g], need);
    for (uint32_t set = 1; set <= candidates; set++) {
        if ((set & ~candidates) || place_width(set) != need->ngpus)
            continue;
        const struct place_cost c = place_cost(p, need, load, set);
        lacking |= c.lacking > 0;
        if (!found || place_less(&c, &best)) {
            found = set;
            best = c;
        }
    }
    *why = found == candidates ? PLACE_ONLY
           : !best.jobs        ? PLACE_IDLE
           : lacking           ? PLACE_MEMORY
                               : PLACE_LEAST;
    if (need->before && !(need->before & ~candidates) && place_width(need->before) == need->ngpus &&
        found != candidates) {
        const struct place_cost c = place_cost(p, need, load, need->before);
        if (place_keeps(&c, &best, need)) {
            *why = PLACE_SAME_NAME;
            return need->before;
        }
    }
    return found;
}

const char *place_reason_text(enum place_reason r)
{
    static const char *const text[] = {
        [PLACE_BEFORE] = "chosen before this ceded began",
        [PLACE_ONLY] = "there is no other choice",
        [PLACE_SAME_NAME] = "a job of this name ran there last",
        [PLACE_IDLE] = "no job is there",
        [PLACE_MEMORY] = "the least loaded with enough free memory",
        [PLACE_LEAST] = "the least loaded",
    };
    return text[r];
}

/* ---- names ---- */

static struct place_name *place_find(struct place_names *n, uid_t uid, const char *name)
{
    for (struct place_name *x = n->v; x < n->v + PLACE_NAMES; x++) {
        if (x->used && x->uid == uid && strcmp(x->name, name) == 0)
            return x;
    }
    return NULL;
}

uint32_t place_recall(struct place_names *n, uid_t uid, const char *name)
{
    const struct place_name *x = place_find(n, uid, name);
    return x ? x->gpus : 0;
}

static uint32_t place_count(const struct place_names *n, uid_t uid)
{
    uint32_t count = 0;
    for (const struct place_name *x = n->v; x < n->v + PLACE_NAMES; x++)
        count += x->used && x->uid == uid;
    return count;
}

static struct place_name *place_room(struct place_names *n)
{
    struct place_name *oldest = n->v;
    uint32_t most = 0;
    for (struct place_name *x = n->v; x < n->v + PLACE_NAMES; x++) {
        if (!x->used)
            return x;
        const uint32_t count = place_count(n, x->uid);
        if (count > most || (count == most && x->used < oldest->used)) {
            oldest = x;
            most = count;
        }
    }
    return oldest;
}

void place_remember(struct place_names *n, uid_t uid, const char *name, uint32_t gpus)
{
    struct place_name *x = place_find(n, uid, name);
    if (!x) {
        x = place_room(n);
        *x = (struct place_name){.uid = uid};
        snprintf(x->name, sizeof(x->name), "%s", name);
    }
    x->used = ++n->clock;
    x->gpus = gpus;
}
