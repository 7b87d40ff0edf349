/* See interference.h. */
#include "sched/interference.h"

#include <math.h>
#include <stdbool.h>

#define ISSUE_MOST   0.98 /* of issue slots and pipes that two kernels get together */
#define ISSUE_LEAST  0.01 /* that one gets beside one that could use all */
#define GREED        3.0  /* who has an instruction ready more often gets that much more */
#define DRAM_SHARP   3.3  /* how late DRAM makes its users wait before it is full */
#define TOGETHER     4.0  /* several scarce resources cost more than the scarcest */
#define LATENCY_L1   35.0 /* cycles, of which only the ratios matter */
#define LATENCY_L2   270.0
#define LATENCY_DRAM 600.0
#define LEAST_USE    0.02 /* of DRAM: below that a kernel does not wait for memory */
#define WORTH_NAMING 1.01 /* slowdown */
#define GAP_ROUNDS   50

const char *resource_name(enum resource r)
{
    static const char *const names[] = {
#define X(name, text) text,
        RESOURCES(X)
#undef X
    };
    return r < RESOURCE_COUNT ? names[r] : "?";
}

/* What several causes make of a kernel. */
struct cost {
    double excess, largest; /* sum of slowdown^TOGETHER - 1 */
    enum resource limit;
};

static void cost_add(struct cost *c, enum resource r, double slowdown)
{
    c->excess += pow(slowdown, TOGETHER) - 1;
    if (slowdown > c->largest * (1 + 1e-9)) {
        c->largest = slowdown;
        c->limit = r;
    }
}

/* ---- room on SMs ---- */

/* The largest part that so many blocks take of anything that an SM has. */
static double room_taken(const struct gpu_shape *g, const struct kernel_profile *a, double na,
                         const struct kernel_profile *b, double nb)
{
    double threads = na * a->threads + nb * b->threads;
    double registers = na * a->threads * a->registers + nb * b->threads * b->registers;
    double shared = na * a->shared_bytes + nb * b->shared_bytes;
    double most = fmax(threads / g->sm_threads, (na + nb) / g->sm_blocks);
    most = g->sm_registers ? fmax(most, registers / g->sm_registers) : most;
    return g->sm_shared_bytes ? fmax(most, shared / g->sm_shared_bytes) : most;
}

/* Blocks of the kernel at a time on an SM in use. */
static double resident(const struct gpu_shape *g, const struct kernel_profile *k)
{
    double one = room_taken(g, k, 1, k, 0), most = one > 0 ? floor(1 / one + 1e-9) : 1;
    return fmin(fmax(most, 1), ceil((double)k->blocks / g->sms));
}

/* Blocks go where the fewest are: the part of the SMs in use that the other uses, too. */
static double overlap(const struct gpu_shape *g, const struct kernel_profile *k,
                      const struct kernel_profile *other)
{
    double in_use = fmin(k->blocks, g->sms), others = fmin(other->blocks, g->sms);
    double both = fmax(0, in_use + others - g->sms);
    if (k->sms && other->sms && k->sms + other->sms <= g->sms)
        return 0;
    if (both > 0 && k->blocks <= g->sms * resident(g, k))
        return 1; /* all blocks run at once: the slowest counts */
    return in_use > 0 ? both / in_use : 0;
}

/* Where both leave no room for each other they take turns, kernel by kernel; where some is left,
 * that part of it. */
static double wait_for_room(const struct gpu_shape *g, const struct kernel_profile *k,
                            const struct kernel_profile *other)
{
    double own = resident(g, k), others = resident(g, other);
    double over = room_taken(g, k, own, other, others) - 1;
    double least = fmin(room_taken(g, k, own, k, 0), room_taken(g, other, others, k, 0));
    double longer = k->us > 0 && other->us > 0 ? other->us / k->us : 1;
    return over > 0 && least > 0 ? 1 + longer * fmin(1, over / least) : 1;
}

/* ---- issue slots and pipes ---- */

/* A scheduler stays with who has an instruction ready; the others get what that leaves. */
static void contend(const double use[2], double slowdown[2])
{
    double most = fmax(ISSUE_MOST, fmax(use[0], use[1])), w[2], got[2];
    slowdown[0] = slowdown[1] = 1;
    if (use[0] + use[1] <= most)
        return;
    for (int i = 0; i < 2; i++)
        w[i] = pow(use[i], GREED);
    for (int i = 0; i < 2; i++)
        got[i] = fmin(use[i], most * w[i] / (w[0] + w[1]));
    for (int i = 0; i < 2; i++)
        got[i] = fmin(use[i], fmax(most - got[!i], ISSUE_LEAST));
    for (int i = 0; i < 2; i++)
        slowdown[i] = got[i] > 0 ? fmax(1, use[i] / got[i]) : 1;
}

/* ---- memory ---- */

/* Of a working set that is gone through again and again, where what is replaced is random. */
static double hit_rate(double bytes, double capacity)
{
    double ratio = capacity > 0 ? bytes / capacity : 0, hit = 1 / fmax(ratio, 1);
    if (ratio <= 1)
        return 1;
    for (int i = 0; i < 100; i++)
        hit = exp(-(1 - hit) * ratio);
    return hit;
}

/* The working set that has this hit rate alone. */
static double working_set(double bytes, double hit, double capacity)
{
    if (bytes > 0 || hit <= 0 || hit >= 1)
        return bytes;
    return -log(hit) / (1 - hit) * capacity;
}

static double hit_beside(double hit, double own, double other, double capacity)
{
    double alone = hit_rate(own, capacity);
    return own > 0 && alone > 0 ? hit * hit_rate(own + other, capacity) / alone : hit;
}

static double interference_latency(double l1, double l2)
{
    return l1 * LATENCY_L1 + (1 - l1) * (l2 * LATENCY_L2 + (1 - l2) * LATENCY_DRAM);
}

/* How much of its time a kernel waits for memory: the rest it computes. */
static double memory_bound(const struct kernel_profile *k)
{
    double busy = 0;
    bool reads = k->use[RESOURCE_DRAM] > LEAST_USE || k->l1_bytes || k->l2_bytes || k->l1_hit > 0 ||
                 k->l2_hit > 0;
    for (int r = RESOURCE_ISSUE; r <= RESOURCE_TENSOR; r++)
        busy = fmax(busy, k->use[r]);
    return reads ? fmax(0, 1 - busy) : 0;
}

struct caches {
    double l1, l2; /* hit rates */
};

static struct caches caches_beside(const struct gpu_shape *g, const struct kernel_profile *k,
                                   const struct kernel_profile *o, double shared)
{
    double own1 = working_set((double)k->l1_bytes, k->l1_hit, g->sm_l1_bytes / resident(g, k));
    double other1 = working_set((double)o->l1_bytes, o->l1_hit, g->sm_l1_bytes / resident(g, o));
    double own2 = working_set((double)k->l2_bytes, k->l2_hit, (double)g->l2_bytes);
    double other2 = working_set((double)o->l2_bytes, o->l2_hit, (double)g->l2_bytes);
    double l1 =
        hit_beside(k->l1_hit, own1 * resident(g, k), other1 * resident(g, o), g->sm_l1_bytes);
    return (struct caches){.l1 = k->l1_hit + shared * (l1 - k->l1_hit),
                           .l2 = hit_beside(k->l2_hit, own2, other2, (double)g->l2_bytes)};
}

/* Of DRAM's bandwidth, with these hit rates, if it went on as fast as alone. */
static double dram_use(const struct kernel_profile *k, struct caches now)
{
    double before = (1 - k->l1_hit) * (1 - k->l2_hit), l1 = (1 - now.l1) / (1 - k->l1_hit);
    if (k->use[RESOURCE_L2] > 0 && k->l1_hit < 1)
        return k->use[RESOURCE_L2] * l1 * (1 - now.l2);
    return k->use[RESOURCE_DRAM] * (before > 1e-3 ? l1 * (1 - now.l2) / (1 - k->l2_hit) : 1);
}

/* What it would ask of DRAM that never made it wait. */
static double dram_demand(double use)
{
    double u = pow(fmin(use, 0.99), DRAM_SHARP);
    return pow(u / (1 - u), 1 / DRAM_SHARP);
}

static double dram_wait(double demand)
{
    return pow(1 + pow(demand, DRAM_SHARP), 1 / DRAM_SHARP);
}

static void add_memory(const struct gpu_shape *g, const struct kernel_profile pair[2],
                       const double shared[2], struct cost cost[2])
{
    double demand[2], cached[2];
    for (int i = 0; i < 2; i++) {
        const struct kernel_profile *k = &pair[i];
        struct caches now = caches_beside(g, k, &pair[!i], shared[i]);
        double bound = memory_bound(k), alone = interference_latency(k->l1_hit, k->l2_hit);
        double l1 = 1 + bound * (interference_latency(now.l1, k->l2_hit) / alone - 1);
        double both = 1 + bound * (interference_latency(now.l1, now.l2) / alone - 1);
        cached[i] = both;
        demand[i] = dram_demand(dram_use(k, now) / both);
        cost_add(&cost[i], RESOURCE_L1, l1);
        cost_add(&cost[i], RESOURCE_L2, both / l1);
    }
    for (int i = 0; i < 2; i++) {
        double alone = dram_wait(dram_demand(pair[i].use[RESOURCE_DRAM]));
        double waits = dram_wait(demand[0] + demand[1]) / alone;
        if (pair[i].use[RESOURCE_DRAM] > LEAST_USE || cached[i] > 1)
            cost_add(&cost[i], RESOURCE_DRAM, fmax(1, waits));
    }
}

/* ---- together ---- */

/* One of each: when the first ends the other goes on alone. */
static double speedup_of(const double us[2], const double slowdown[2])
{
    int first = us[0] * slowdown[0] > us[1] * slowdown[1];
    double t = us[first] * slowdown[first];
    double left = us[!first] * fmax(0, 1 - t / (us[!first] * slowdown[!first]));
    return us[0] > 0 && us[1] > 0 ? (us[0] + us[1]) / (t + left) : 0;
}

void interference_estimate(const struct gpu_shape *g, const struct kernel_profile pair[2],
                           struct interference *out)
{
    const struct kernel_profile *a = &pair[0], *b = &pair[1];
    double shared[2] = {overlap(g, a, b), overlap(g, b, a)}, us[2] = {a->us, b->us};
    struct cost cost[2] = {{.largest = 1}, {.largest = 1}};
    for (int r = RESOURCE_ISSUE; r <= RESOURCE_TENSOR; r++) {
        double use[2] = {a->use[r], b->use[r]}, slowdown[2];
        contend(use, slowdown);
        for (int i = 0; i < 2; i++)
            cost_add(&cost[i], (enum resource)r, 1 + shared[i] * (slowdown[i] - 1));
    }
    add_memory(g, pair, shared, cost);
    for (int i = 0; i < 2; i++) {
        double fewer = pair[i].sms ? interference_of_fewer_sms(g, &pair[i], pair[i].sms) : 1;
        /* Blocks that wait for room ask for nothing else meanwhile. */
        double waits = 1 + shared[i] * (wait_for_room(g, &pair[i], &pair[!i]) - 1);
        double slower = pow(1 + cost[i].excess, 1 / TOGETHER);
        out->limit[i] = slower > WORTH_NAMING ? cost[i].limit : RESOURCE_NONE;
        if (fmax(waits, fewer) > slower)
            out->limit[i] = RESOURCE_BLOCKS;
        out->slowdown[i] = fmax(waits, slower) * fewer;
    }
    out->speedup = speedup_of(us, out->slowdown);
}

/* The first program beside the second, kernel by kernel: whose is slowed down more is met more
 * often. */
static void beside(const struct gpu_shape *g, const struct program_kernels *own,
                   const struct program_kernels *other, const uint32_t sms[2], double *slowdown,
                   enum resource *limit)
{
    double cost[RESOURCE_COUNT] = {0};
    *slowdown = 0;
    for (uint32_t i = 0; i < own->n; i++) {
        double speed = 0, often = 0, of_kernel[RESOURCE_COUNT] = {0};
        for (uint32_t k = 0; k < other->n; k++) {
            struct kernel_profile two[2] = {own->v[i], other->v[k]};
            struct interference met;
            two[0].sms = sms[0];
            two[1].sms = sms[1];
            interference_estimate(g, two, &met);
            double weight = two[1].share * met.slowdown[1];
            often += weight;
            speed += weight / met.slowdown[0];
            of_kernel[met.limit[0]] += weight * (1 - 1 / met.slowdown[0]);
        }
        *slowdown += own->v[i].share * (speed > 0 ? often / speed : 1);
        for (int r = 0; r < RESOURCE_COUNT && often > 0; r++)
            cost[r] += own->v[i].share * of_kernel[r] / often;
    }
    *limit = RESOURCE_NONE;
    for (int r = 1; r < RESOURCE_COUNT; r++) {
        if (cost[r] > cost[*limit])
            *limit = (enum resource)r;
    }
}

void interference_of_programs(const struct gpu_shape *g, const struct program_kernels pair[2],
                              uint32_t sms_of_first, struct interference *out)
{
    uint32_t sms[2] = {sms_of_first, sms_of_first ? g->sms - sms_of_first : 0};
    uint32_t reversed[2] = {sms[1], sms[0]};
    beside(g, &pair[0], &pair[1], sms, &out->slowdown[0], &out->limit[0]);
    beside(g, &pair[1], &pair[0], reversed, &out->slowdown[1], &out->limit[1]);
    out->speedup = 0;
    if (!sms_of_first)
        interference_with_gaps((double[2]){pair[0].busy, pair[1].busy},
                               (double[2]){out->slowdown[0], out->slowdown[1]}, out->slowdown);
    for (int i = 0; i < 2 && sms_of_first && pair[i].busy > 0; i++)
        out->slowdown[i] = 1 + pair[i].busy * (out->slowdown[i] - 1); /* fewer SMs at any time */
}

void interference_with_gaps(const double busy[2], const double both[2], double slowdown[2])
{
    double part[2];
    for (int i = 0; i < 2; i++) {
        part[i] = busy[i] > 0 ? fmin(busy[i], 1) : 1;
        slowdown[i] = both[i];
    }
    /* Who is slowed down is there for longer; the other has its gaps for as long as before. */
    for (int round = 0; round < GAP_ROUNDS; round++) {
        double there[2];
        for (int i = 0; i < 2; i++)
            there[i] = 1 - (1 - part[i]) / slowdown[i];
        for (int i = 0; i < 2; i++)
            slowdown[i] = 1 - part[i] + part[i] / (1 - there[!i] + there[!i] / both[i]);
    }
}

double interference_of_fewer_sms(const struct gpu_shape *g, const struct kernel_profile *k,
                                 uint32_t sms)
{
    double busy = 0, one = room_taken(g, k, 1, k, 0), most = one > 0 ? floor(1 / one + 1e-9) : 1;
    double before = ceil((double)k->blocks / g->sms), now = ceil((double)k->blocks / sms);
    for (int r = RESOURCE_ISSUE; r <= RESOURCE_TENSOR; r++)
        busy = fmax(busy, k->use[r] / ISSUE_MOST);
    double waves = ceil(now / fmax(most, 1)) / ceil(before / fmax(most, 1));
    return fmax(fmax(1, waves), busy * now / before);
}
