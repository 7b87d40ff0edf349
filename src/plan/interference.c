/* See interference.h. */
#include "plan/interference.h"

#include <math.h>
#include <stdbool.h>

#define ISSUE_MOST   0.98 /* of issue slots and pipes that two kernels get together */
#define BLOCK_SHARED 1024 /* bytes of shared memory that the system takes for a block */
#define ISSUE_LEAST  0.01 /* that one gets beside one that could use all */
#define SATURATED    0.96 /* who uses that much leaves the other nothing */
#define GREED        4.0  /* who has an instruction ready more often gets that much more */
#define SHARP        3.3  /* how late a bandwidth makes its users wait before it is full */
#define SHARPER      16.0 /* of two bandwidths in a row the scarcer counts */
#define TOGETHER     4.0  /* several scarce resources cost more than the scarcest */
#define L1_FULL      0.6  /* parts of a cache: the largest set that has hits only, */
#define L1_EMPTY     1.6  /* and the smallest that has none */
#define L2_FULL      1.0
#define L2_EMPTY     1.25
#define LATENCY_L1   35.0 /* cycles, of which only the ratios matter */
#define LATENCY_L2   270.0
#define LATENCY_DRAM 500.0
#define LEAST_USE    0.02 /* of a bandwidth: below that a kernel does not wait for it */
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

/* Blocks of the kernel that an SM has room for. */
static double most_resident(const struct gpu_shape *g, const struct kernel_profile *k)
{
    double one = room_taken(g, k, 1, k, 0);
    return one > 0 ? fmax(1, floor(1 / one + 1e-9)) : 1;
}

/* At a time on an SM in use. */
static double resident(const struct gpu_shape *g, const struct kernel_profile *k)
{
    return fmin(most_resident(g, k), ceil((double)k->blocks / g->sms));
}

/* The most of the issue slots and of a pipe that it uses. */
static double busiest_use(const struct kernel_profile *k)
{
    double busy = 0;
    for (int r = RESOURCE_ISSUE; r <= RESOURCE_TENSOR; r++)
        busy = fmax(busy, k->use[r]);
    return busy;
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

/* Where both leave no room for each other they take turns, kernel by kernel (1); where some is
 * left, for that part of it. */
static double without_room(const struct gpu_shape *g, const struct kernel_profile *k,
                           const struct kernel_profile *other)
{
    double own = resident(g, k), others = resident(g, other);
    double over = room_taken(g, k, own, other, others) - 1;
    double least = fmin(room_taken(g, k, own, k, 0), room_taken(g, other, others, k, 0));
    return over > 0 && least > 0 ? fmin(1, over / least) : 0;
}

/* An SM that is in use is not divided anew into shared memory and L1. A kernel begins there only if
 * the shared memory is enough for as many of its blocks as could be on an SM at a time. Else it
 * waits for the other's end, and then all its blocks go to the SMs that are free first. */
static double wait_for_division(const struct gpu_shape *g, const struct kernel_profile *k,
                                const struct kernel_profile *other)
{
    double most = most_resident(g, k), longer = other->us / fmax(k->us, 1e-9);
    if (!k->division || !other->division ||
        most * (k->shared_bytes + BLOCK_SHARED) <= other->division)
        return 1;
    return longer + fmax(1, most / resident(g, k) * busiest_use(k) / ISSUE_MOST);
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

/* What has only hits up to a part of its size, and none above another. */
struct cache {
    double bytes, full, empty;
};

static struct cache l1_of(const struct gpu_shape *g)
{
    return (struct cache){(double)g->sm_l1_bytes, L1_FULL, L1_EMPTY};
}

static struct cache l2_of(const struct gpu_shape *g)
{
    return (struct cache){(double)g->l2_bytes, L2_FULL, L2_EMPTY};
}

/* Of a working set that is gone through again and again. What is needed next is what was replaced
 * last, so a set that is a little larger than the cache has no hits at all; smaller caches have
 * fewer slots for a line, and lose some earlier. */
static double hit_rate(struct cache c, double bytes)
{
    double ratio = c.bytes > 0 ? bytes / c.bytes : 0;
    return fmin(1, fmax(0, (c.empty - ratio) / (c.empty - c.full)));
}

/* The working set that has this hit rate alone. */
static double working_set(struct cache c, double bytes, double hit)
{
    if (bytes > 0 || hit <= 0 || hit >= 1)
        return bytes;
    return c.bytes * (c.empty - hit * (c.empty - c.full));
}

/* Of the other's set, what comes between two uses of the same line. */
static double brought(double own, double other, double own_rate, double other_rate)
{
    return own_rate > 0 && other_rate > 0 ? fmin(other, own * other_rate / own_rate) : other;
}

static double hit_beside(struct cache c, double hit, double own, double other)
{
    double alone = hit_rate(c, own);
    return own > 0 && alone > 0 ? hit * hit_rate(c, own + other) / alone : hit;
}

static double interference_latency(double l1, double l2)
{
    return l1 * LATENCY_L1 + (1 - l1) * (l2 * LATENCY_L2 + (1 - l2) * LATENCY_DRAM);
}

/* How much of its time a kernel waits for memory: the rest it computes. */
static double memory_bound(const struct kernel_profile *k)
{
    bool reads = k->use[RESOURCE_DRAM] > LEAST_USE || k->l1_bytes || k->l2_bytes || k->l1_hit > 0 ||
                 k->l2_hit > 0;
    return reads ? fmax(0, 1 - busiest_use(k)) : 0;
}

struct caches {
    double l1, l2; /* hit rates */
};

static struct caches caches_beside(const struct gpu_shape *g, const struct kernel_profile *k,
                                   const struct kernel_profile *o, double shared)
{
    struct cache l1 = l1_of(g), l2 = l2_of(g), of_block = l1, of_other = l1;
    of_block.bytes /= resident(g, k);
    of_other.bytes /= resident(g, o);
    double own1 = working_set(of_block, (double)k->l1_bytes, k->l1_hit) * resident(g, k);
    double other1 = working_set(of_other, (double)o->l1_bytes, o->l1_hit) * resident(g, o);
    double own2 = working_set(l2, (double)k->l2_bytes, k->l2_hit);
    double other2 = working_set(l2, (double)o->l2_bytes, o->l2_hit);
    double hit1 = hit_beside(l1, k->l1_hit, own1, other1);
    other2 = brought(own2, other2, k->use[RESOURCE_L2], o->use[RESOURCE_L2]);
    return (struct caches){.l1 = k->l1_hit + shared * (hit1 - k->l1_hit),
                           .l2 = hit_beside(l2, k->l2_hit, own2, other2)};
}

/* What it would ask of a bandwidth that never made it wait, if it has so much of it alone. */
static double demand_of(double use)
{
    double u = pow(fmin(use, 0.99), SHARP);
    return pow(u / (1 - u), 1 / SHARP);
}

static double wait_for(double demand)
{
    return pow(1 + pow(demand, SHARP), 1 / SHARP);
}

/* A bandwidth: what a kernel has of it alone, and would ask for beside the other. */
struct demand {
    double alone, now;
};

static struct demand demand_beside(double alone, double now, double later)
{
    return (struct demand){alone, (demand_of(alone) + fmax(0, now - alone)) / later};
}

/* With fewer SMs than alone (least: 0) it may wait less than alone. */
static double waits(const struct demand pair[2], int i, double least)
{
    double slowdown = wait_for(pair[0].now + pair[1].now) / wait_for(demand_of(pair[i].alone));
    return pair[i].alone > LEAST_USE || pair[i].now > LEAST_USE ? fmax(least, slowdown) : 1;
}

/* Misses cost time, and bandwidth of what is behind. The traffic of L2 is counted as if half of
 * what L1 sees were read: what is written goes on to L2 in any case. */
static void add_memory(const struct gpu_shape *g, const struct kernel_profile pair[2],
                       const double shared[2], const double fewer[2], struct cost cost[2])
{
    struct demand dram[2], l2[2];
    double l1_later[2], later[2];
    bool lost[2];
    const double ratio = g->l2_by_dram > 0 ? g->l2_by_dram : GPU_L2_BY_DRAM;
    for (int i = 0; i < 2; i++) {
        const struct kernel_profile *k = &pair[i];
        struct caches now = caches_beside(g, k, &pair[!i], shared[i]);
        double bound = memory_bound(k), alone = interference_latency(k->l1_hit, k->l2_hit);
        lost[i] = k->l2_hit > now.l2 + LEAST_USE;
        double more = (2 - now.l1) / (2 - k->l1_hit), traffic = k->use[RESOURCE_L2];
        double from_dram = k->use[RESOURCE_DRAM] * more;
        l1_later[i] = 1 + bound * (interference_latency(now.l1, k->l2_hit) / alone - 1);
        later[i] = 1 + bound * (interference_latency(now.l1, now.l2) / alone - 1);
        if (traffic > 0)
            from_dram += more * traffic * (k->l2_hit - now.l2);
        else if (k->l2_hit < 1)
            from_dram *= (1 - now.l2) / (1 - k->l2_hit);
        dram[i] = demand_beside(k->use[RESOURCE_DRAM], from_dram, later[i] * fewer[i]);
        /* What comes from DRAM is written to L2 first. */
        l2[i] = demand_beside((traffic + k->use[RESOURCE_DRAM]) / ratio,
                              (more * traffic + from_dram) / ratio, later[i] * fewer[i]);
    }
    for (int i = 0; i < 2; i++) {
        double least = fewer[i] > 1 ? 0 : 1, of_dram = waits(dram, i, least),
               of_l2 = waits(l2, i, least);
        double both = least > 0 ? pow(pow(of_dram, SHARPER) + pow(of_l2, SHARPER) - 1, 1 / SHARPER)
                                : fmin(of_dram, of_l2);
        enum resource limit = of_dram > of_l2 && !lost[i] ? RESOURCE_DRAM : RESOURCE_L2;
        if (l1_later[i] > both && l1_later[i] * l1_later[i] > later[i])
            limit = RESOURCE_L1;
        cost_add(&cost[i], limit, later[i] * both);
    }
}

/* ---- together ---- */

/* One of each, with such slowdowns while both run: when the first ends the other goes on alone. */
static double speedup_of(const double us[2], const double slowdown[2])
{
    int first = us[0] * slowdown[0] > us[1] * slowdown[1];
    double t = us[first] * slowdown[first];
    double left = us[!first] * fmax(0, 1 - t / (us[!first] * slowdown[!first]));
    return us[0] > 0 && us[1] > 0 ? (us[0] + us[1]) / (t + left) : 0;
}

/* Beside one that leaves nothing who comes second gets nothing. Of two such each is the second half
 * of the time. */
static void add_pipes(const struct kernel_profile pair[2], const double shared[2],
                      struct cost cost[2], bool starves[2])
{
    for (int r = RESOURCE_ISSUE; r <= RESOURCE_TENSOR; r++) {
        double use[2] = {pair[0].use[r], pair[1].use[r]}, slowdown[2];
        contend(use, slowdown);
        for (int i = 0; i < 2; i++) {
            bool nothing = use[!i] >= SATURATED && slowdown[i] > 1 + LEAST_USE && shared[i] >= 1;
            if (nothing && use[i] < SATURATED)
                slowdown[i] = 1 / ISSUE_LEAST;
            starves[i] |= nothing;
            cost_add(&cost[i], (enum resource)r, 1 + shared[i] * (slowdown[i] - 1));
        }
    }
}

void interference_estimate(const struct gpu_shape *g, const struct kernel_profile pair[2],
                           struct interference *out)
{
    const struct kernel_profile *a = &pair[0], *b = &pair[1];
    double shared[2] = {overlap(g, a, b), overlap(g, b, a)}, us[2] = {a->us, b->us}, pace[2];
    double fewer[2] = {1, 1};
    struct cost cost[2] = {{.largest = 1}, {.largest = 1}};
    out->starves[0] = out->starves[1] = false;
    add_pipes(pair, shared, cost, out->starves);
    for (int i = 0; i < 2; i++)
        fewer[i] = pair[i].sms ? interference_of_fewer_sms(g, &pair[i], pair[i].sms) : 1;
    add_memory(g, pair, shared, fewer, cost);
    for (int i = 0; i < 2; i++) {
        double apart = shared[i] * without_room(g, &pair[i], &pair[!i]);
        double waits = 1 + apart * (us[i] > 0 && us[!i] > 0 ? us[!i] / us[i] : 1);
        double divided = shared[i] > 0 ? wait_for_division(g, &pair[i], &pair[!i]) : 1;
        /* Blocks that wait for room ask for nothing else meanwhile. */
        double slower = 1 + (1 - apart) * (pow(1 + cost[i].excess, 1 / TOGETHER) - 1);
        out->limit[i] = slower > WORTH_NAMING ? cost[i].limit : RESOURCE_NONE;
        if (fmax(fmax(waits, divided), fewer[i]) > slower)
            out->limit[i] = RESOURCE_BLOCKS;
        if (waits <= 1 && divided <= 1)
            waits = divided = 0;
        /* Started together, the first is there before the second. */
        pace[i] = fmax(fmax(waits, i ? divided : 0), slower) * fewer[i];
        out->slowdown[i] = fmax(fmax(waits, divided), slower) * fewer[i];
    }
    out->speedup = speedup_of(us, pace);
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
    double most = most_resident(g, k);
    double before = ceil((double)k->blocks / g->sms), now = ceil((double)k->blocks / sms);
    double waves = ceil(now / most) / ceil(before / most);
    return fmax(fmax(1, waves), busiest_use(k) / ISSUE_MOST * now / before);
}
