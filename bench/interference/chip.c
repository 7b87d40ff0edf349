/* A small GPU as a timing model, for the suite where there is none: blocks, warps and what they
 * wait for, cycle by cycle. Built like an H100, with four SMs and caches and memory in proportion,
 * so that the suite ends in seconds. It knows nothing of model.py: what the kernels use is counted,
 * as a profiler would.
 *
 * Latencies and rates are those that are commonly measured on an H100; the order in which a
 * scheduler takes warps (the last again, else the oldest) is the one that explains the reference's
 * tables 3 and 4. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "suite.h"

#define SMS           8U
#define SCHEDULERS    4U /* of an SM */
#define WARPS_MAX     64U
#define CHAINS_MAX    8U
#define LINE          128U
#define L1_BYTES      (16U << 10)
#define L2_BYTES      (512U << 10)
#define WAYS          16U /* of a cache's sets */
#define CHANNELS      16U /* of the memory */
#define CHANNEL_COST  9   /* cycles a line, on average */
#define PORT_COST     3   /* of an SM to L2, a line */
#define LATENCY_L1    35
#define LATENCY_L2    270
#define LATENCY_DRAM  1250 /* under load */
#define BACKLOG       1500 /* cycles by which what is written may be late */
#define FP32_LATENCY  4
#define FP64_LATENCY  8
#define FP64_INTERVAL 2
#define MHZ           1750.0
#define ALONE_CYCLES  30000
#define PASSES_MIN    3  /* through arrays that a cache may hold */
#define STREAMING     64 /* an array of so many L2s is never in it */

/* ---- what kernels do ---- */

enum unit { UNIT_OTHER, UNIT_FP32, UNIT_FP64, UNIT_LOAD, UNIT_STORE, UNIT_STALL };

struct section {
    enum unit unit;
    uint16_t count; /* of instructions, or cycles to stall */
    uint8_t chains; /* of instructions that wait for the one before */
};

static const struct code {
    const char *kernel;
    struct section sections[4];
    uint32_t shared_bytes; /* of a block */
} codes[] = {
    {"sleep", {{UNIT_OTHER, 2, 1}, {UNIT_STALL, 1750, 0}}, 0},
    {"copy", {{UNIT_OTHER, 3, 1}, {UNIT_LOAD, 4, 1}, {UNIT_STORE, 4, 1}}, 0},
    {"mul1", {{UNIT_OTHER, 3, 1}, {UNIT_FP32, 32, 1}}, 0},
    {"mul2", {{UNIT_OTHER, 3, 1}, {UNIT_FP32, 64, 2}}, 0},
    {"mul3", {{UNIT_OTHER, 3, 1}, {UNIT_FP32, 96, 3}}, 0},
    {"mul4", {{UNIT_OTHER, 3, 1}, {UNIT_FP32, 128, 4}}, 0},
    {"double1", {{UNIT_OTHER, 3, 1}, {UNIT_FP64, 32, 1}}, 0},
    {"double2", {{UNIT_OTHER, 3, 1}, {UNIT_FP64, 64, 2}}, 0},
    {"double3", {{UNIT_OTHER, 3, 1}, {UNIT_FP64, 96, 3}}, 0},
    {"double4", {{UNIT_OTHER, 3, 1}, {UNIT_FP64, 128, 4}}, 0},
    {"product", {{UNIT_OTHER, 44, 2}, {UNIT_STALL, 100, 0}, {UNIT_FP32, 512, 8}}, 6 << 10},
    {"prefetch", {{UNIT_OTHER, 60, 4}, {UNIT_FP32, 512, 8}}, 12 << 10},
};

struct kernel {
    const struct code *code;
    struct contender c;
    uint64_t steps;       /* of each warp */
    uint64_t start;       /* cycle */
    uint64_t lines;       /* of one array, a block's; 0: reads nothing */
    uint64_t base;        /* number of its first line */
    uint32_t first, last; /* SMs that it may use */
    /* While it runs: */
    uint32_t placed, ended;
    uint64_t began, end;
    /* Counted: */
    uint64_t issued, fp32, fp64, l1_seen, l1_hits, l2_seen, l2_hits, dram, in_use;
};

struct warp {
    struct kernel *k;
    uint32_t block, number; /* of the block in the kernel, of the warp in the block */
    uint32_t section, count;
    uint64_t step, ready, born;
    uint64_t done[CHAINS_MAX];
    uint64_t position;
};

struct sm {
    struct warp warps[WARPS_MAX]; /* scheduler by scheduler; k: NULL: free */
    int last[SCHEDULERS];
    uint64_t wake[SCHEDULERS], fp64_free[SCHEDULERS], port_free;
    uint32_t blocks, threads, shared, next;
    uint32_t of_kernel[2];
    uint32_t *l1;
};

struct chip {
    struct sm sm[SMS];
    uint32_t *l2;
    double channel_free[CHANNELS];
    struct kernel *k[2];
    uint64_t random;
};

static const struct gpu_shape shape = {.sms = SMS,
                                       .sm_threads = 2048,
                                       .sm_blocks = 32,
                                       .sm_registers = 65536,
                                       .sm_shared_bytes = 228 << 10,
                                       .sm_l1_bytes = L1_BYTES,
                                       .l2_bytes = L2_BYTES};

static uint64_t chip_random(struct chip *c)
{
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

/* ---- memory ---- */

/* Whether a cache has the line; it has it afterwards. */
static bool cached(struct chip *c, uint32_t *cache, uint32_t bytes, uint64_t line)
{
    uint64_t mixed = line * 0x9e3779b97f4a7c15ULL;
    uint32_t sets = bytes / LINE / WAYS, *set = cache + (mixed >> 40) % sets * WAYS;
    uint32_t tag = (uint32_t)line + 1, *place = NULL;
    for (uint32_t i = 0; i < WAYS; i++) {
        if (set[i] == tag)
            return true;
        if (set[i] == 0)
            place = &set[i];
    }
    place = place ? place : &set[chip_random(c) % WAYS];
    *place = tag;
    return false;
}

/* When it has come, or has been written. */
static uint64_t access_line(struct chip *c, struct sm *sm, struct kernel *k, uint64_t line,
                            bool writes, uint64_t now)
{
    bool has = cached(c, sm->l1, L1_BYTES, line);
    k->l1_seen += !writes;
    k->l1_hits += has && !writes;
    if (has && !writes)
        return now + LATENCY_L1;
    sm->port_free = max_u64(sm->port_free, now) + PORT_COST;
    k->l2_seen++;
    if (cached(c, c->l2, L2_BYTES, line)) {
        k->l2_hits++;
        return sm->port_free + LATENCY_L2;
    }
    k->dram++;
    double *channel = &c->channel_free[chip_random(c) % CHANNELS];
    double cost = -log((double)(chip_random(c) % 65536 + 1) / 65537) * CHANNEL_COST;
    *channel = fmax(*channel, (double)sm->port_free) + cost;
    return (uint64_t)*channel + LATENCY_DRAM;
}

/* ---- blocks ---- */

static bool fits(const struct sm *sm, const struct kernel *k)
{
    return sm->threads + k->c.threads <= shape.sm_threads && sm->blocks < shape.sm_blocks &&
           sm->shared + k->code->shared_bytes <= shape.sm_shared_bytes;
}

static void place_block(struct sm *sm, struct kernel *k, int which, uint64_t now)
{
    uint32_t warps = k->c.threads / 32;
    for (uint32_t w = 0; w < warps; w++) {
        uint32_t scheduler = sm->next++ % SCHEDULERS, slot = scheduler * (WARPS_MAX / SCHEDULERS);
        while (sm->warps[slot].k)
            slot++;
        sm->warps[slot] =
            (struct warp){.k = k, .block = k->placed, .number = w, .ready = now + 1, .born = now};
        sm->wake[scheduler] = 0;
    }
    sm->blocks++;
    sm->of_kernel[which]++;
    sm->threads += k->c.threads;
    sm->shared += k->code->shared_bytes;
    k->began = k->placed ? k->began : now;
    k->placed++;
}

/* Where the fewest threads are; a kernel's blocks all before those of a later one. */
static void place_blocks(struct chip *c, uint64_t now)
{
    for (int i = 0; i < 2; i++) {
        struct kernel *k = c->k[i];
        while (k && now >= k->start && k->placed < k->c.blocks) {
            struct sm *best = NULL;
            for (uint32_t s = k->first; s <= k->last; s++) {
                if (fits(&c->sm[s], k) && (!best || c->sm[s].threads < best->threads))
                    best = &c->sm[s];
            }
            if (!best)
                break;
            place_block(best, k, i, now);
        }
    }
}

static void end_warp(struct chip *c, struct sm *sm, struct warp *w, uint64_t now)
{
    struct kernel *k = w->k;
    uint32_t block = w->block;
    w->k = NULL;
    for (uint32_t i = 0; i < WARPS_MAX; i++) {
        if (sm->warps[i].k == k && sm->warps[i].block == block)
            return;
    }
    sm->blocks--;
    sm->of_kernel[k == c->k[1]]--;
    sm->threads -= k->c.threads;
    sm->shared -= k->code->shared_bytes;
    if (++k->ended == k->c.blocks)
        k->end = now;
    place_blocks(c, now);
}

/* ---- warps ---- */

/* The line of the next access: each block has its own part of both arrays. */
static uint64_t next_line(struct warp *w, bool writes)
{
    const struct kernel *k = w->k;
    uint64_t warps = k->c.threads / 32, i = w->position + w->count % 4;
    uint64_t at = (i * warps + w->number) % k->lines;
    return k->base + ((uint64_t)w->block * 2 + writes) * k->lines + at;
}

static void next_section(struct chip *c, struct sm *sm, struct warp *w, uint64_t now)
{
    const struct section *s = w->k->code->sections;
    uint64_t last = 0;
    for (uint32_t i = 0; i < CHAINS_MAX; i++)
        last = max_u64(last, w->done[i]);
    w->ready = max_u64(w->ready, last);
    w->count = 0;
    if (++w->section < ARRAY_SIZE(w->k->code->sections) && s[w->section].count)
        return;
    w->section = 0;
    w->position += 4;
    if (++w->step >= w->k->steps)
        end_warp(c, sm, w, now);
}

static void issue(struct chip *c, struct sm *sm, uint32_t scheduler, struct warp *w, uint64_t now)
{
    struct kernel *k = w->k;
    const struct section *s = &k->code->sections[w->section];
    uint64_t *done = &w->done[s->chains ? w->count % s->chains : 0];
    w->ready = now + 1;
    k->issued++;
    switch (s->unit) {
    case UNIT_OTHER:
        *done = now + 2;
        break;
    case UNIT_FP32:
        k->fp32++;
        *done = now + FP32_LATENCY;
        break;
    case UNIT_FP64:
        k->fp64++;
        sm->fp64_free[scheduler] = now + FP64_INTERVAL;
        *done = now + FP64_LATENCY;
        break;
    case UNIT_LOAD:
        *done = max_u64(*done, access_line(c, sm, k, next_line(w, false), false, now));
        break;
    case UNIT_STORE: {
        uint64_t written = access_line(c, sm, k, next_line(w, true), true, now);
        w->ready = max_u64(w->ready, written > BACKLOG ? written - BACKLOG : 0);
        break;
    }
    case UNIT_STALL:
        w->ready = now + s->count;
        w->count = s->count - 1U;
        break;
    }
    if (++w->count >= s->count)
        next_section(c, sm, w, now);
    else if (s->unit <= UNIT_FP64 && s->chains > 0)
        w->ready = max_u64(w->ready, w->done[w->count % s->chains]);
}

/* One instruction, if a warp can go on. When to look again. */
static uint64_t schedule(struct chip *c, struct sm *sm, uint32_t scheduler, uint64_t now)
{
    uint32_t from = scheduler * (WARPS_MAX / SCHEDULERS), to = from + WARPS_MAX / SCHEDULERS;
    struct warp *best = NULL;
    uint64_t wake = UINT64_MAX;
    for (uint32_t i = from; i < to; i++) {
        struct warp *w = &sm->warps[i];
        if (!w->k)
            continue;
        bool fp64 = w->k->code->sections[w->section].unit == UNIT_FP64;
        uint64_t ready = fp64 ? max_u64(w->ready, sm->fp64_free[scheduler]) : w->ready;
        if (ready > now)
            wake = min_u64(wake, ready);
        else if (!best || sm->last[scheduler] == (int)i ||
                 (sm->last[scheduler] != (int)(best - sm->warps) && w->born < best->born))
            best = w;
    }
    if (!best)
        return wake;
    sm->last[scheduler] = (int)(best - sm->warps);
    issue(c, sm, scheduler, best, now);
    return now + 1;
}

/* ---- runs ---- */

static void fill_caches(struct chip *c, struct kernel *k)
{
    uint64_t all = k->lines * 2 * k->c.blocks;
    for (uint64_t i = 0; all <= 4ULL * L2_BYTES / LINE && i < 2 * all; i++)
        cached(c, c->l2, L2_BYTES, k->base + i % all);
}

static void count_in_use(struct chip *c, uint64_t cycles)
{
    for (uint32_t s = 0; s < SMS; s++) {
        for (int k = 0; k < 2; k++) {
            if (c->sm[s].of_kernel[k])
                c->k[k]->in_use += cycles;
        }
    }
}

/* Until both have ended. second: may be NULL. */
static void run(struct kernel *first, struct kernel *second)
{
    struct chip *c = calloc(1, sizeof(*c));
    uint32_t *caches = calloc((L2_BYTES + SMS * L1_BYTES) / LINE, sizeof(*caches));
    if (!c || !caches)
        abort();
    c->random = 88172645463325252ULL;
    c->l2 = caches;
    for (uint32_t s = 0; s < SMS; s++)
        c->sm[s].l1 = caches + (L2_BYTES + s * L1_BYTES) / LINE;
    c->k[0] = first;
    c->k[1] = second;
    for (int i = 0; i < 2; i++) {
        if (c->k[i])
            fill_caches(c, c->k[i]);
    }
    for (uint64_t now = 0;
         first->ended < first->c.blocks || (second && second->ended < second->c.blocks);) {
        uint64_t wake = UINT64_MAX;
        place_blocks(c, now);
        for (uint32_t s = 0; s < SMS; s++) {
            for (uint32_t q = 0; q < SCHEDULERS; q++) {
                struct sm *sm = &c->sm[s];
                if (sm->wake[q] <= now)
                    sm->wake[q] = schedule(c, sm, q, now);
                wake = min_u64(wake, sm->wake[q]);
            }
        }
        for (int i = 0; i < 2; i++) {
            if (c->k[i] && c->k[i]->start > now)
                wake = min_u64(wake, c->k[i]->start);
        }
        wake = max_u64(wake, now + 1);
        count_in_use(c, wake - now);
        now = wake;
    }
    free(caches);
    free(c);
}

static struct kernel of(const struct contender *c, int which, bool apart)
{
    struct kernel k = {.c = *c, .last = SMS - 1, .base = (uint64_t)which << 30};
    for (k.code = codes; strcmp(k.code->kernel, c->kernel) != 0;)
        k.code++;
    k.lines = c->bytes / 2 / c->blocks / LINE;
    if (apart) {
        k.first = which ? SMS / 2 : 0;
        k.last = which ? SMS - 1 : SMS / 2 - 1;
    }
    return k;
}

static uint64_t cycles_of(const struct kernel *k)
{
    return k->end - k->began;
}

/* Its steps, so that it takes ALONE_CYCLES or some passes through its arrays; and its run. */
static struct kernel run_alone(const struct contender *c, int which, bool apart)
{
    struct kernel k = of(c, which, apart);
    uint64_t warps = c->threads / 32;
    bool streams = c->bytes > (uint64_t)STREAMING * L2_BYTES;
    k.steps = 4;
    run(&k, NULL);
    uint64_t steps = k.steps * ALONE_CYCLES / max_u64(cycles_of(&k), 1) + 1;
    if (k.lines && !streams)
        steps = max_u64(steps, PASSES_MIN * k.lines / warps / 4);
    k = of(c, which, apart);
    k.steps = steps;
    run(&k, NULL);
    return k;
}

static struct kernel_profile counted(const struct stage *s, const struct kernel *k, bool apart)
{
    double cycles = (double)cycles_of(k), slots = (double)k->in_use * SCHEDULERS;
    double lines = cycles * CHANNELS / CHANNEL_COST;
    struct kernel_profile p = {.blocks = k->c.blocks,
                               .threads = k->c.threads,
                               .shared_bytes = k->code->shared_bytes,
                               .sms = apart ? s->part_sms : 0,
                               .us = cycles / MHZ};
    p.use[USE_ISSUE] = (double)k->issued / slots;
    p.use[USE_FP32] = (double)k->fp32 / slots;
    p.use[USE_FP64] = (double)k->fp64 * FP64_INTERVAL / slots;
    p.use[USE_L2] = (double)k->l2_seen / lines;
    p.use[USE_DRAM] = (double)k->dram / lines;
    if (k->l1_seen) {
        p.l1_hit = (double)k->l1_hits / (double)k->l1_seen;
        p.l2_hit = (double)k->l2_hits / (double)max_u64(k->l2_seen, 1);
        p.l1_bytes = 2 * k->lines * LINE;
        p.l2_bytes = p.l1_bytes * k->c.blocks;
    }
    return p;
}

static void meet(const struct stage *s, const struct contender pair[2], bool apart, struct met *out)
{
    struct kernel alone[2], k[2];
    for (int i = 0; i < 2; i++) {
        alone[i] = run_alone(&pair[i], i, apart);
        out->k[i] = counted(s, &alone[i], apart);
    }
    for (int i = 0; i < 2; i++) {
        for (int w = 0; w < 2; w++) {
            k[w] = of(&pair[w], w, apart);
            k[w].steps = alone[w].steps * (w == i ? 1 : SUITE_LONGER);
        }
        k[i].start = cycles_of(&alone[!i]) / 2;
        run(&k[!i], &k[i]);
        double waited = (double)(k[i].end - k[i].start);
        out->slowdown[i] = waited / (double)cycles_of(&alone[i]);
        out->covered[i] = ((double)min_u64(k[i].end, k[!i].end) - (double)k[i].start) / waited;
    }
    for (int w = 0; w < 2; w++) {
        k[w] = of(&pair[w], w, apart);
        k[w].steps = alone[w].steps;
    }
    run(&k[0], &k[1]);
    out->speedup =
        (double)(cycles_of(&alone[0]) + cycles_of(&alone[1])) / (double)max_u64(k[0].end, k[1].end);
}

void stage_chip(struct stage *s)
{
    *s = (struct stage){.shape = shape, .part_sms = SMS / 2, .meet = meet};
    snprintf(s->name, sizeof(s->name), "timing model");
    s->dram_gbps = CHANNELS / (double)CHANNEL_COST * LINE * MHZ / 1e3;
    s->l2_gbps = 100 * s->dram_gbps; /* each SM has a port, and nothing behind it is ever full */
}
