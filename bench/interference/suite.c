/* Two kernels at the same time on one GPU, each of which uses one part of it, against what
 * sched/interference.h predicts: the experiments of "Measuring GPU utilization one level deeper",
 * sections 3 and 4. Prints a table, and with --json FILE writes all figures there.
 *
 * usage: bench_interference [--soft | --again FILE] [--json FILE] [--only NAME] [--within R]
 *
 * --soft: on a timing model (chip.c). --again: predicts anew what such a file has as measured.
 * --within: status 1 if a figure is off the reference's by a larger part than R, or if the
 * estimator tells less often than a simpler rule whether two fit.
 *
 * Sizes are parts of what the GPU has, so that the same experiments are made of any. */
#include <getopt.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util.h"
#include "suite.h"

#define STREAM 130.0 /* times L2: always from memory */
#define RIGHT  0.1   /* a prediction that is off by less is right (requirement N11) */

/* A kernel's launch, in parts of the GPU. */
struct part_of_gpu {
    const char *kernel;
    double blocks; /* for each SM */
    uint32_t threads;
    double l2, l1; /* copy: its arrays, both together, in L2s; or a block's, in L1s */
};

struct experiment {
    const char *name;
    double x; /* what varies */
    struct part_of_gpu pair[2];
    bool apart;                         /* half of the SMs for each */
    double told_slowdown, told_speedup; /* in the reference, of the second, on an H100; or 0 */
    bool unfamiliar; /* not in the reference, nor looked at when the estimator was made */
    bool driver_divides;
};

#define TWICE(...)                                                                                 \
    {                                                                                              \
        __VA_ARGS__, __VA_ARGS__                                                                   \
    }
#define COPY(n)                                                                                    \
    {                                                                                              \
        "copy", n, 1024, STREAM, 0                                                                 \
    }
#define MUL(ways, t)                                                                               \
    {                                                                                              \
        "mul" #ways, 1, t, 0, 0                                                                    \
    }
#define DOUBLE(ways)                                                                               \
    {                                                                                              \
        "double" #ways, 1, 128, 0, 0                                                               \
    }
#define PRODUCT                                                                                    \
    {                                                                                              \
        "product", 128.0 / 132, 128, 0, 0                                                          \
    }
#define L2_PAIR(size, told)                                                                        \
    {                                                                                              \
        "L2: array, of L2", size, TWICE({"copy", 0.5, 1024, 2 * (size), 0}), .told_slowdown = told \
    }
#define L1_PAIR(size)                                                                              \
    {                                                                                              \
        "L1: array, of L1", size, TWICE({"copy", 1, 64, 0, 2 * (size)}), .apart = false            \
    }
#define DRAM_PAIR(n, told)                                                                         \
    {                                                                                              \
        "DRAM: blocks an SM", n, TWICE(COPY(n)), .apart = true, .told_slowdown = told              \
    }

static const struct experiment experiments[] = {
    {"sleep: blocks an SM", 1, TWICE({"sleep", 1, 1024, 0, 0}), .told_speedup = 2},
    {"sleep: blocks an SM", 2, TWICE({"sleep", 2, 1024, 0, 0}), .told_speedup = 1},
    L2_PAIR(0.04, 0),
    L2_PAIR(0.1, 0),
    L2_PAIR(0.2, 0),
    L2_PAIR(0.25, 0),
    L2_PAIR(0.3, 0),
    L2_PAIR(0.35, 0),
    L2_PAIR(0.4, 0),
    L2_PAIR(0.45, 1.79),
    L2_PAIR(0.5, 0),
    L2_PAIR(0.75, 0),
    L2_PAIR(1, 0),
    L2_PAIR(1.5, 0),
    DRAM_PAIR(0.25, 1.06),
    DRAM_PAIR(0.5, 1.14),
    DRAM_PAIR(0.75, 1.23),
    DRAM_PAIR(1, 1.36),
    L1_PAIR(0.03125),
    L1_PAIR(0.0625),
    L1_PAIR(0.125),
    L1_PAIR(0.1875),
    L1_PAIR(0.25),
    L1_PAIR(0.375),
    L1_PAIR(0.4375),
    L1_PAIR(0.5),
    L1_PAIR(0.75),
    L1_PAIR(1),
    L1_PAIR(2),
    {"issue: ways, beside copy", 1, {MUL(1, 128), COPY(1)}, .told_speedup = 1.915},
    {"issue: ways, beside copy", 2, {MUL(2, 128), COPY(1)}, .told_speedup = 1.896},
    {"issue: ways, beside copy", 3, {MUL(3, 128), COPY(1)}, .told_speedup = 1.893},
    {"issue: ways, beside copy", 4, {MUL(4, 128), COPY(1)}, .told_speedup = 1.65},
    {"issue: 4 ways, 256 threads", 4, {MUL(4, 256), COPY(1)}, .told_speedup = 1.001},
    {"FP64: ways", 1, TWICE(DOUBLE(1)), .told_speedup = 1.988},
    {"FP64: ways", 2, TWICE(DOUBLE(2)), .told_speedup = 1.977},
    {"FP64: ways", 3, TWICE(DOUBLE(3)), .told_speedup = 1.356},
    {"FP64: ways", 4, TWICE(DOUBLE(4)), .told_speedup = 1.018},
    {"product of 4 MB", 0, TWICE(PRODUCT), .told_slowdown = 1.7, .driver_divides = true},
    {"intensity says yes", 0, {MUL(1, 1024), COPY(1)}, .told_speedup = 1},
    {"occupancy says yes", 0, TWICE(MUL(4, 128)), .told_slowdown = 1.85},
    {"FP32 beside FP64", 0, {MUL(4, 128), DOUBLE(4)}, .unfamiliar = true},
    {"FP32 beside FP64", 1, {MUL(2, 128), DOUBLE(2)}, .unfamiliar = true},
    {"copy beside FP64", 0, {COPY(1), {"double3", 1, 256, 0, 0}}, .unfamiliar = true},
    {"copy from L2 beside copy", 0, {{"copy", 0.5, 1024, 0.5, 0}, COPY(0.5)}, .unfamiliar = true},
    {"product beside copy", 0, {PRODUCT, COPY(1)}, .unfamiliar = true, .driver_divides = true},
    {"product beside FP32", 0, {PRODUCT, MUL(2, 128)}, .unfamiliar = true, .driver_divides = true},
    {"product beside sleep",
     0,
     {PRODUCT, {"sleep", 1, 1024, 0, 0}},
     .unfamiliar = true,
     .driver_divides = true},
    {"as the driver divides SMs",
     0,
     {MUL(1, 128), COPY(1)},
     .driver_divides = true,
     .unfamiliar = true},
    {"half of the SMs each", 0, TWICE(MUL(4, 128)), .apart = true, .unfamiliar = true},
};

static struct contender on(const struct stage *s, const struct experiment *e, int which)
{
    const struct part_of_gpu *p = &e->pair[which];
    double blocks = fmax(1, round(p->blocks * (e->apart ? 2 * s->part_sms : s->shape.sms)));
    double bytes = p->l2 * (double)s->shape.l2_bytes + p->l1 * s->shape.sm_l1_bytes * blocks;
    return (struct contender){.kernel = p->kernel,
                              .blocks = (uint32_t)blocks,
                              .threads = p->threads,
                              .bytes = (uint64_t)bytes,
                              .driver_divides = e->driver_divides};
}

static double fewer(const struct gpu_shape *g, const struct kernel_profile *k)
{
    return k->sms ? interference_of_fewer_sms(g, k, k->sms) : 1;
}

/* As measured: the slowdown of each beside one run of the other that is longer and began before,
 * relative to alone on the SMs that it may use. What is left when that has ended it does alone. */
static struct interference predict(const struct gpu_shape *g, const struct kernel_profile k[2])
{
    struct interference both, one;
    interference_estimate(g, k, &both);
    for (int i = 0; i < 2; i++) {
        struct kernel_profile pair[2] = {k[0], k[1]};
        pair[!i].us *= SUITE_LONGER - 0.5;
        interference_estimate(g, pair, &one);
        double own = one.slowdown[i] / fewer(g, &k[i]);
        double other = pair[!i].us / k[i].us * one.slowdown[!i] / fewer(g, &k[!i]);
        if (one.starves[i])
            own = 1 + pair[!i].us / k[i].us;
        else if (own > other && one.limit[i] != RESOURCE_BLOCKS)
            own = other + 1 - other / own;
        both.slowdown[i] = own;
        both.speedup *= i ? fewer(g, &k[i]) : 1;
        both.limit[i] = one.limit[i];
    }
    return both;
}

/* ---- simpler rules: may the two run together? ---- */

static bool fits(double speedup)
{
    return speedup >= 1.7;
}

/* One computes and the other moves data. */
static bool fits_by_intensity(const struct experiment *e)
{
    return (strcmp(e->pair[0].kernel, "copy") == 0) != (strcmp(e->pair[1].kernel, "copy") == 0);
}

/* There is room for the threads of both. */
static bool fits_by_occupancy(const struct experiment *e, const struct stage *s)
{
    double threads = 0, share = e->apart ? 0.5 : 1;
    for (int i = 0; i < 2; i++)
        threads += fmin(s->shape.sm_threads, ceil(e->pair[i].blocks) * e->pair[i].threads / share);
    return threads <= s->shape.sm_threads || e->apart;
}

/* ---- results ---- */

struct score {
    unsigned n, within, right, by_intensity, by_occupancy;
    double off_told; /* the largest part by which a measured figure is off the reference's */
};

static void count(struct score *score, const struct experiment *e, const struct stage *s,
                  const struct met *m, const struct interference *p)
{
    bool truth = fits(m->speedup), close = true;
    for (int i = 0; i < 2; i++)
        close &= fabs(p->slowdown[i] / m->slowdown[i] - 1) <= RIGHT;
    if (e->told_slowdown > 0)
        score->off_told = fmax(score->off_told, fabs(m->slowdown[1] / e->told_slowdown - 1));
    if (e->told_speedup > 0)
        score->off_told = fmax(score->off_told, fabs(m->speedup / e->told_speedup - 1));
    score->n++;
    score->within += close;
    score->right += fits(p->speedup) == truth;
    score->by_intensity += fits_by_intensity(e) == truth;
    score->by_occupancy += fits_by_occupancy(e, s) == truth;
}

static json_t *kernel_json(const char *name, const struct kernel_profile *k)
{
    json_t *use = json_object();
    for (int r = 1; r < RESOURCE_COUNT; r++) {
        if (k->use[r] > 0)
            json_object_set_new(use, resource_name((enum resource)r), json_real(k->use[r]));
    }
    return json_pack("{s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:f,s:o,s:f,s:f,s:I,s:I}", "kernel", name,
                     "blocks", (int)k->blocks, "threads", (int)k->threads, "registers",
                     (int)k->registers, "shared_bytes", (int)k->shared_bytes, "division",
                     (int)k->division, "sms", (int)k->sms, "us", k->us, "use", use, "l1_hit",
                     k->l1_hit, "l2_hit", k->l2_hit, "l1_bytes", (json_int_t)k->l1_bytes,
                     "l2_bytes", (json_int_t)k->l2_bytes);
}

static json_t *experiment_json(const struct experiment *e, const struct met *m,
                               const struct interference *p)
{
    return json_pack("{s:s,s:f,s:b,s:b,s:f,s:f,s:[o,o],s:[f,f],s:[f,f],s:f,s:[f,f],s:f,s:[s,s]}",
                     "experiment", e->name, "x", e->x, "apart", e->apart, "unfamiliar",
                     e->unfamiliar, "told_slowdown", e->told_slowdown, "told_speedup",
                     e->told_speedup, "kernels", kernel_json(e->pair[0].kernel, &m->k[0]),
                     kernel_json(e->pair[1].kernel, &m->k[1]), "slowdown", m->slowdown[0],
                     m->slowdown[1], "covered", m->covered[0], m->covered[1], "speedup", m->speedup,
                     "predicted_slowdown", p->slowdown[0], p->slowdown[1], "predicted_speedup",
                     p->speedup, "limits", resource_name(p->limit[0]), resource_name(p->limit[1]));
}

static json_t *score_json(const struct score *s)
{
    return json_pack("{s:i,s:i,s:i,s:i,s:i}", "pairs", (int)s->n, "within_a_tenth", (int)s->within,
                     "fits_right", (int)s->right, "by_intensity", (int)s->by_intensity,
                     "by_occupancy", (int)s->by_occupancy);
}

static void print_score(const char *which, const struct score *s)
{
    printf("%s: %u pairs, both within a tenth in %u; whether they fit: right %u, by arithmetic "
           "intensity %u, by occupancy %u\n",
           which, s->n, s->within, s->right, s->by_intensity, s->by_occupancy);
}

static void told(char buf[16], double value)
{
    snprintf(buf, 16, value > 0 ? "%5.2f" : "     ", value);
}

static void print_row(const struct experiment *e, const struct met *m, const struct interference *p)
{
    char slowdown[16], speedup[16];
    told(slowdown, e->told_slowdown);
    told(speedup, e->told_speedup);
    printf("%-26s %7.4g %5.2f %5.2f | %5.2f %5.2f | %5.2f %5.2f %s | %5.2f %5.2f %s  %s\n", e->name,
           e->x, m->k[0].use[RESOURCE_ISSUE] * 4, m->k[1].use[RESOURCE_ISSUE] * 4, m->slowdown[0],
           p->slowdown[0], m->slowdown[1], p->slowdown[1], slowdown, m->speedup, p->speedup,
           speedup, resource_name(p->limit[1]));
    fflush(stdout);
}

static void print_head(const struct stage *s)
{
    printf("%s: %u SMs, L2 %.4g MB; a copy has %.0f GB/s from DRAM, %.0f from L2%s\n", s->name,
           s->shape.sms, (double)s->shape.l2_bytes / (1 << 20), s->dram_gbps, s->l2_gbps,
           s->part_sms ? "" : "; no parts of the SMs");
    printf("%-26s %7s %-11s | %-11s | %-17s | %-17s\n", "", "", "IPC of each", "slowdown of",
           "of the other", "both at once:");
    printf("%-26s %7s %-11s | %-11s | %-17s | %-17s\n", "", "", "", "the first", "",
           "times as fast");
    printf("%-26s %7s %-11s | %5s %5s | %5s %5s %5s | %5s %5s %5s  %s\n", "experiment", "x", "",
           "is", "pred.", "is", "pred.", "H100", "is", "pred.", "H100", "predicted limit");
}

/* Whether the figures are what they should be. */
static bool good(const struct score *s, double within)
{
    if (s->off_told <= within && s->right >= s->by_intensity && s->right >= s->by_occupancy)
        return true;
    fprintf(stderr,
            "bench_interference: a figure is off the reference's by %.0f %%, or a simpler rule "
            "does better\n",
            s->off_told * 100);
    return false;
}

static bool chosen(const struct stage *stage, const struct experiment *e, const char *only)
{
    return strncmp(e->name, only, strlen(only)) == 0 && (!e->apart || stage->part_sms);
}

static bool any_chosen(const struct stage *stage, const char *only)
{
    for (size_t i = 0; i < ARRAY_SIZE(experiments); i++)
        if (chosen(stage, &experiments[i], only))
            return true;
    fprintf(
        stderr,
        "bench_interference: --only %s: no experiment here has a name that begins so; use one of\n",
        only);
    for (size_t i = 0; i < ARRAY_SIZE(experiments); i++)
        if (chosen(stage, &experiments[i], "") &&
            (i == 0 || strcmp(experiments[i - 1].name, experiments[i].name) != 0))
            fprintf(stderr, "  %s\n", experiments[i].name);
    return false;
}

static void run_all(const struct stage *stage, const char *only, json_t *all,
                    struct score scores[2])
{
    for (size_t i = 0; i < ARRAY_SIZE(experiments); i++) {
        const struct experiment *e = &experiments[i];
        const struct contender pair[2] = {on(stage, e, 0), on(stage, e, 1)};
        struct met m;
        if (!chosen(stage, e, only))
            continue;
        stage->meet(stage, pair, e->apart, &m);
        struct interference p = predict(&stage->shape, m.k);
        print_row(e, &m, &p);
        count(&scores[e->unfamiliar], e, stage, &m, &p);
        json_array_append_new(all, experiment_json(e, &m, &p));
    }
}

static int save(const char *path, const struct stage *s, json_t *all, const struct score scores[2])
{
    json_t *file = json_pack(
        "{s:s,s:i,s:i,s:{s:i,s:i,s:i,s:i,s:i},s:I,s:f,s:f,s:o,s:o,s:O}", "gpu", s->name, "sms",
        (int)s->shape.sms, "part_sms", (int)s->part_sms, "sm", "threads", (int)s->shape.sm_threads,
        "blocks", (int)s->shape.sm_blocks, "registers", (int)s->shape.sm_registers, "shared_bytes",
        (int)s->shape.sm_shared_bytes, "l1_bytes", (int)s->shape.sm_l1_bytes, "l2_bytes",
        (json_int_t)s->shape.l2_bytes, "dram_gbps", s->dram_gbps, "l2_gbps", s->l2_gbps,
        "reference", score_json(&scores[0]), "others", score_json(&scores[1]), "experiments", all);
    int r = json_dump_file(file, path, JSON_INDENT(1));
    json_decref(file);
    if (r)
        fprintf(stderr, "bench_interference: cannot write %s\n", path);
    return r;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"again", required_argument, NULL, 'a'},  {"json", required_argument, NULL, 'j'},
        {"only", required_argument, NULL, 'o'},   {"soft", no_argument, NULL, 's'},
        {"within", required_argument, NULL, 'w'}, {NULL, 0, NULL, 0},
    };
    const char *path = NULL, *only = "", *record = NULL;
    struct score scores[2] = {{0}, {0}};
    struct stage stage;
    double within = INFINITY;
    bool soft = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 's')
            soft = true;
        else if (c == 'w')
            within = strtod(optarg, NULL);
        else if (c == '?')
            return 2;
        else
            *(c == 'a' ? &record : c == 'j' ? &path : &only) = optarg;
    }
    if (record)
        stage_record(&stage, record);
    else
        (soft ? stage_chip : stage_gpu)(&stage);
    if (!any_chosen(&stage, only))
        return 2;
    print_head(&stage);
    json_t *all = json_array();
    run_all(&stage, only, all, scores);
    print_score("of the reference", &scores[0]);
    print_score("others", &scores[1]);
    int r = path ? save(path, &stage, all, scores) : 0;
    json_decref(all);
    return r || !good(&scores[0], within) || !good(&scores[1], within);
}
