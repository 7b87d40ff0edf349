/* The suite as it was measured: the file that --json wrote. So predictions can be made anew without
 * a GPU. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite.h"

static json_t *file, *experiments; /* which is in it */
static size_t next;

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static uint32_t whole(const json_t *o, const char *key)
{
    return (uint32_t)json_integer_value(json_object_get(o, key));
}

static struct kernel_profile kernel(const json_t *o)
{
    struct kernel_profile k = {.blocks = whole(o, "blocks"),
                               .threads = whole(o, "threads"),
                               .registers = whole(o, "registers"),
                               .shared_bytes = whole(o, "shared_bytes"),
                               .division = whole(o, "division"),
                               .sms = whole(o, "sms"),
                               .us = number(o, "us"),
                               .l1_hit = number(o, "l1_hit"),
                               .l2_hit = number(o, "l2_hit"),
                               .l1_bytes = (uint64_t)number(o, "l1_bytes"),
                               .l2_bytes = (uint64_t)number(o, "l2_bytes")};
    for (int r = 1; r < RESOURCE_COUNT; r++)
        k.use[r] = number(json_object_get(o, "use"), resource_name((enum resource)r));
    return k;
}

/* They come in the order in which they are in the file. */
static void meet(const struct stage *s, const struct contender pair[2], bool apart, struct met *out)
{
    const json_t *e = json_array_get(experiments, next++), *k = json_object_get(e, "kernels");
    (void)s, (void)apart;
    *out = (struct met){.speedup = number(e, "speedup")};
    for (size_t i = 0; i < 2; i++) {
        const json_t *is = json_array_get(k, i);
        const char *name = json_string_value(json_object_get(is, "kernel"));
        if (!name || strcmp(name, pair[i].kernel) != 0) {
            fprintf(stderr, "bench_interference: experiment %zu there is another one\n", next);
            exit(1);
        }
        out->k[i] = kernel(is);
        out->slowdown[i] = json_number_value(json_array_get(json_object_get(e, "slowdown"), i));
        out->covered[i] = json_number_value(json_array_get(json_object_get(e, "covered"), i));
    }
}

void stage_record(struct stage *s, const char *path)
{
    json_error_t err;
    file = json_load_file(path, 0, &err);
    const json_t *shape = json_object_get(file, "sm");
    const char *gpu = json_string_value(json_object_get(file, "gpu"));
    experiments = json_object_get(file, "experiments");
    if (!gpu || !shape || !json_is_array(experiments)) {
        fprintf(stderr, "bench_interference: %s is no result of --json%s%s\n", path,
                file ? "" : ": ", file ? "" : err.text);
        exit(2);
    }
    *s = (struct stage){.part_sms = whole(file, "part_sms"),
                        .dram_gbps = number(file, "dram_gbps"),
                        .l2_gbps = number(file, "l2_gbps"),
                        .meet = meet};
    snprintf(s->name, sizeof(s->name), "%s", gpu);
    s->shape = (struct gpu_shape){.sms = whole(file, "sms"),
                                  .sm_threads = whole(shape, "threads"),
                                  .sm_blocks = whole(shape, "blocks"),
                                  .sm_registers = whole(shape, "registers"),
                                  .sm_shared_bytes = whole(shape, "shared_bytes"),
                                  .sm_l1_bytes = whole(shape, "l1_bytes"),
                                  .l2_bytes = (uint64_t)number(file, "l2_bytes"),
                                  .l2_by_dram = s->l2_gbps / s->dram_gbps};
}
