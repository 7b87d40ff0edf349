/* Runs pairs of kernels at the same time, or takes what was measured of them, and predicts by
 * plan/interference.h: the part of the interference suite (suite.py) that is not Python.
 *
 * usage: bench_interference gpu | soft | again
 *
 * gpu: the first NVIDIA GPU (gpu.c). soft: a timing model (chip.c). again: nothing runs, and the
 * first line of standard input is the stage. Else the first line of the output is. Then each line
 * of standard input is a pair of launches, or of kernels as they were measured, and each line of
 * output what came of it:
 *
 *   {"gpu", "sms", "part_sms", "sm": {...}, "l2_bytes", "dram_gbps", "l2_gbps"}
 *   {"launches": [{"kernel", "blocks", "threads", "bytes", "driver_divides"}, ...], "apart"}
 *   {"kernels": [{"blocks", "threads", ...}, ...], "slowdown", "covered", "speedup",
 *    "predicted_slowdown", "predicted_speedup", "limits"} */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "suite.h"

/* Fields that are whole numbers, of a GPU's SM and of a kernel. */
#define SM(X) X(threads) X(blocks) X(registers) X(shared_bytes) X(l1_bytes)
#define KERNEL(X)                                                                                  \
    X(blocks) X(threads) X(registers) X(shared_bytes) X(division) X(sms) X(l1_bytes) X(l2_bytes)

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static uint32_t whole(const json_t *o, const char *key)
{
    return (uint32_t)number(o, key);
}

static void answer(json_t *o)
{
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(o);
}

static json_t *stage_json(const struct stage *s)
{
    json_t *sm = json_object();
#define X(field) json_object_set_new(sm, #field, json_integer(s->shape.sm_##field));
    SM(X)
#undef X
    return json_pack("{s:s,s:i,s:i,s:o,s:I,s:f,s:f}", "gpu", s->name, "sms", (int)s->shape.sms,
                     "part_sms", (int)s->part_sms, "sm", sm, "l2_bytes",
                     (json_int_t)s->shape.l2_bytes, "dram_gbps", s->dram_gbps, "l2_gbps",
                     s->l2_gbps);
}

static struct gpu_shape shape_from(const json_t *o)
{
    const json_t *sm = json_object_get(o, "sm");
    struct gpu_shape g = {.sms = whole(o, "sms"),
                          .l2_bytes = (uint64_t)number(o, "l2_bytes"),
                          .l2_by_dram = number(o, "l2_gbps") / number(o, "dram_gbps")};
#define X(field) g.sm_##field = whole(sm, #field);
    SM(X)
#undef X
    return g;
}

static json_t *kernel_json(const struct kernel_profile *k)
{
    json_t *use = json_object();
    for (int r = 1; r < RESOURCE_COUNT; r++) {
        if (k->use[r] > 0)
            json_object_set_new(use, resource_name((enum resource)r), json_real(k->use[r]));
    }
    json_t *o = json_pack("{s:f,s:f,s:f,s:o}", "us", k->us, "l1_hit", k->l1_hit, "l2_hit",
                          k->l2_hit, "use", use);
#define X(field) json_object_set_new(o, #field, json_integer((json_int_t)k->field));
    KERNEL(X)
#undef X
    return o;
}

static struct kernel_profile kernel_from(const json_t *o)
{
    struct kernel_profile k = {
        .us = number(o, "us"), .l1_hit = number(o, "l1_hit"), .l2_hit = number(o, "l2_hit")};
#define X(field) k.field = (__typeof__(k.field))number(o, #field);
    KERNEL(X)
#undef X
    for (int r = 1; r < RESOURCE_COUNT; r++)
        k.use[r] = number(json_object_get(o, "use"), resource_name((enum resource)r));
    return k;
}

static struct contender launch_from(const json_t *o)
{
    return (struct contender){.kernel = json_string_value(json_object_get(o, "kernel")),
                              .blocks = whole(o, "blocks"),
                              .threads = whole(o, "threads"),
                              .bytes = (uint64_t)number(o, "bytes"),
                              .driver_divides = json_is_true(json_object_get(o, "driver_divides"))};
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

/* A line of the input; false: it is none. */
static bool answer_line(const struct stage *s, const json_t *o)
{
    const json_t *launches = json_object_get(o, "launches"),
                 *kernels = json_object_get(o, "kernels");
    struct contender pair[2];
    struct met m = {.speedup = 0};
    if (json_array_size(s->meet ? launches : kernels) != 2)
        return false;
    for (size_t i = 0; i < 2; i++) {
        if (s->meet)
            pair[i] = launch_from(json_array_get(launches, i));
        else
            m.k[i] = kernel_from(json_array_get(kernels, i));
    }
    if (s->meet)
        s->meet(s, pair, json_is_true(json_object_get(o, "apart")), &m);
    struct interference p = predict(&s->shape, m.k);
    answer(json_pack("{s:[o,o],s:[f,f],s:[f,f],s:f,s:[f,f],s:f,s:[s,s]}", "kernels",
                     kernel_json(&m.k[0]), kernel_json(&m.k[1]), "slowdown", m.slowdown[0],
                     m.slowdown[1], "covered", m.covered[0], m.covered[1], "speedup", m.speedup,
                     "predicted_slowdown", p.slowdown[0], p.slowdown[1], "predicted_speedup",
                     p.speedup, "limits", resource_name(p.limit[0]), resource_name(p.limit[1])));
    return true;
}

int main(int argc, char **argv)
{
    const char *where = argc == 2 ? argv[1] : "";
    struct stage s = {.meet = NULL};
    bool again = strcmp(where, "again") == 0, ok = true;
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    if (strcmp(where, "gpu") == 0)
        stage_gpu(&s);
    else if (strcmp(where, "soft") == 0)
        stage_chip(&s);
    else if (!again)
        return 2;
    if (!again)
        answer(stage_json(&s));
    while (ok && getline(&line, &size, stdin) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        if (again)
            s.shape = shape_from(o);
        else
            ok = answer_line(&s, o);
        ok &= s.shape.sms > 0;
        again = false;
        json_decref(o);
    }
    return ok ? 0 : 2;
}
