/* Runs kernels, in pairs or one again and again: the part of the interference suite (suite.py) that
 * is not Python.
 *
 * usage: bench_interference gpu | soft
 *
 * gpu: the first NVIDIA GPU (gpu.c). soft: a timing model (chip.c). The first line of the output is
 * the stage. Then each line of standard input is a request, and each line of output its answer:
 *
 *   {"gpu", "sms", "part_sms", "sm": {...}, "l2_bytes", "dram_gbps", "l2_gbps"}
 *   {"launches": [{"kernel", "blocks", "threads", "bytes", "driver_divides"}, ...], "apart"}
 *   {"kernels": [{"blocks", "threads", ...}, ...], "slowdown", "covered", "speedup"}
 *   {"laps": {"kernel", "blocks", ...}, "steps", "seconds"}
 *   {"kernel": {...}, "steps", "start_ns": [...], "end_ns": [...], "sms": [[sm, blocks, ms], ...]}
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"
#include "suite.h"

/* Fields that are whole numbers, of a GPU's SM and of a kernel. */
#define SM(X) X(threads) X(blocks) X(registers) X(shared_bytes) X(l1_bytes)
#define KERNEL(X)                                                                                  \
    X(blocks) X(threads) X(registers) X(shared_bytes) X(division) X(sms) X(l1_bytes) X(l2_bytes)

static uint64_t whole(const json_t *o, const char *key)
{
    return (uint64_t)json_number_value(json_object_get(o, key));
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

static json_t *kernel_json(const struct kernel_profile *k)
{
    static const char *const names[] = {
#define X(name, text) text,
        USES(X)
#undef X
    };
    json_t *use = json_object();
    for (int u = 0; u < USE_COUNT; u++) {
        if (k->use[u] > 0)
            json_object_set_new(use, names[u], json_real(k->use[u]));
    }
    json_t *o = json_pack("{s:f,s:f,s:f,s:o}", "us", k->us, "l1_hit", k->l1_hit, "l2_hit",
                          k->l2_hit, "use", use);
#define X(field) json_object_set_new(o, #field, json_integer((json_int_t)k->field));
    KERNEL(X)
#undef X
    return o;
}

static struct contender launch_from(const json_t *o)
{
    return (struct contender){.kernel = json_string_value(json_object_get(o, "kernel")),
                              .blocks = (uint32_t)whole(o, "blocks"),
                              .threads = (uint32_t)whole(o, "threads"),
                              .bytes = whole(o, "bytes"),
                              .driver_divides = json_is_true(json_object_get(o, "driver_divides"))};
}

static json_t *met_json(const struct stage *s, const json_t *launches, bool apart)
{
    struct met m = {.speedup = 0};
    struct contender pair[2];
    for (size_t i = 0; i < 2; i++)
        pair[i] = launch_from(json_array_get(launches, i));
    s->meet(s, pair, apart, &m);
    return json_pack("{s:[o,o],s:[f,f],s:[f,f],s:f}", "kernels", kernel_json(&m.k[0]),
                     kernel_json(&m.k[1]), "slowdown", m.slowdown[0], m.slowdown[1], "covered",
                     m.covered[0], m.covered[1], "speedup", m.speedup);
}

static json_t *laps_json(const struct stage *s, const json_t *o)
{
    static struct laps l; /* too large for a stack */
    struct contender c = launch_from(json_object_get(o, "laps"));
    uint64_t steps = whole(o, "steps");
    json_t *starts = json_array(), *ends = json_array(), *sms = json_array();
    memset(&l, 0, sizeof(l));
    s->run_laps(s, &c, &steps, json_number_value(json_object_get(o, "seconds")), &l);
    for (uint32_t i = 0; i < l.n; i++) {
        json_array_append_new(starts, json_integer((json_int_t)l.start_ns[i]));
        json_array_append_new(ends, json_integer((json_int_t)l.end_ns[i]));
    }
    for (int i = 0; i < (int)SM_NUMBERS; i++) {
        if (l.sm_blocks[i])
            json_array_append_new(sms,
                                  json_pack("[i,i,f]", i, (int)l.sm_blocks[i], l.sm_busy_ms[i]));
    }
    return json_pack("{s:o,s:I,s:o,s:o,s:o}", "kernel", kernel_json(&l.k), "steps",
                     (json_int_t)steps, "start_ns", starts, "end_ns", ends, "sms", sms);
}

/* A line of the input; false: it is no request that can be met here. */
static bool answer_line(const struct stage *s, const json_t *o)
{
    const json_t *launches = json_object_get(o, "launches");
    if (json_array_size(launches) == 2)
        answer(met_json(s, launches, json_is_true(json_object_get(o, "apart"))));
    else if (json_is_object(json_object_get(o, "laps")) && s->run_laps)
        answer(laps_json(s, o));
    else
        return false;
    return true;
}

int main(int argc, char **argv)
{
    const char *where = argc == 2 ? argv[1] : "";
    struct stage s;
    bool ok = true;
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    if (strcmp(where, "gpu") == 0)
        stage_gpu(&s);
    else if (strcmp(where, "soft") == 0)
        stage_chip(&s);
    else
        return 2;
    answer(stage_json(&s));
    while (ok && getline(&line, &size, stdin) > 0) {
        json_t *o = json_loads(line, 0, NULL);
        ok = answer_line(&s, o);
        json_decref(o);
    }
    return ok ? 0 : 2;
}
