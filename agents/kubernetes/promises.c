/* See promises.h. */
#include "agents/kubernetes/promises.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/util.h"

#define MIB            1048576.0
#define CONTAINERS_MAX 64
#define VARIABLES_MAX  256
/* KAI: nvidia.com/container.NAME.gpu-memory.limit, where NAME is the container's. */
#define KAI_CONTAINER         "nvidia.com/container."
#define KAI_PORTION_CONTAINER "kai.scheduler/container."
#define HAMI_POLICY           "GPU_CORE_UTILIZATION_POLICY"

/* ---- numbers ---- */

bool kube_quantity(const char *text, double *out)
{
    static const struct {
        const char *suffix;
        double times;
    } suffixes[] = {
        {"", 1},     {"m", 1e-3},        {"k", 1e3},        {"M", 1e6},
        {"G", 1e9},  {"T", 1e12},        {"P", 1e15},       {"Ki", 1024},
        {"Mi", MIB}, {"Gi", 1024 * MIB}, {"Ti", MIB * MIB}, {"Pi", 1024 * MIB * MIB},
    };
    char *end;
    if (text[0] < '0' || text[0] > '9') /* no sign, no "inf" */
        return false;
    const double v = text[1] == 'x' || text[1] == 'X' ? -1 : strtod(text, &end);
    for (size_t i = 0; v >= 0 && i < ARRAY_SIZE(suffixes); i++) {
        if (strcmp(end, suffixes[i].suffix) != 0)
            continue;
        *out = v * suffixes[i].times;
        return *out <= (double)MEMORY_MAX_BYTES;
    }
    return false;
}

/* "0.5" of a GPU, above 0 and at most 1. */
static bool read_part(const char *text, double *out)
{
    return kube_quantity(text, out) && *out > 0 && *out <= 1;
}

static uint32_t percent_of(double part)
{
    const double percent = nearbyint(part * 100);
    return percent < 1 ? 1 : (uint32_t)percent;
}

static struct gpu_memory memory_of(double bytes)
{
    return (struct gpu_memory){.bytes = bytes >= 1 ? (uint64_t)bytes : 0};
}

static bool is_some(struct gpu_memory m)
{
    return m.bytes || m.part > 0;
}

/* ---- joining ---- */

static uint32_t lower_of(uint32_t a, uint32_t b)
{
    return !a || (b && b < a) ? b : a;
}

static struct gpu_memory more_of(struct gpu_memory a, struct gpu_memory b)
{
    return (struct gpu_memory){.bytes = max_u64(a.bytes, b.bytes), .part = fmax(a.part, b.part)};
}

void kube_promise_join(struct promise *p, const struct promise *more)
{
    static const char *const order[] = {"batch", "normal", "latency", ""};
    for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
        if (strcmp(order[i], p->class) != 0 && strcmp(order[i], more->class) != 0)
            continue;
        snprintf(p->class, sizeof(p->class), "%s", order[i]);
        break;
    }
    p->weight = lower_of(p->weight, more->weight);
    p->gpu_min = lower_of(p->gpu_min, more->gpu_min);
    p->gpu_max = p->gpu_max > more->gpu_max ? p->gpu_max : more->gpu_max;
    p->memory = more_of(p->memory, more->memory);
    p->memory_max = more_of(p->memory_max, more->memory_max);
}

/* ---- KAI-Scheduler ---- */

static const char *note_text(const json_t *notes, const char *name)
{
    const char *text = json_string_value(json_object_get(notes, name));
    return text ? text : "";
}

/* The whole pod's, which KAI gives to one container: gpu-fraction is a part of a GPU, gpu-memory is
 * MiB. KAI places pods by them and leaves the time to the driver. */
static void read_kai_pod(const json_t *notes, struct promise *p)
{
    double v;
    if (read_part(note_text(notes, "gpu-fraction"), &v)) {
        p->gpu_min = percent_of(v);
        p->memory.part = p->memory_max.part = v;
    } else if (kube_quantity(note_text(notes, "gpu-memory"), &v)) {
        p->memory = p->memory_max = memory_of(v * MIB);
    }
}

/* The rest of `key` behind "PREFIXname", where the name has no dot; NULL: it is another key. */
static const char *container_key(const char *key, const char *prefix)
{
    const size_t n = strlen(prefix);
    return strncmp(key, prefix, n) == 0 ? strchr(key + n, '.') : NULL;
}

/* One annotation of a container, into what was read of the others: a portion is what the scheduler
 * charged for, both the least and the most. */
static void read_kai_container(const char *key, const char *text, struct promise *p)
{
    const char *what = container_key(key, KAI_CONTAINER);
    const char *portion = container_key(key, KAI_PORTION_CONTAINER);
    struct promise one = {.class = ""};
    double v;
    if (what && strcmp(what, ".gpu-memory.request") == 0 && kube_quantity(text, &v))
        one.memory = memory_of(v);
    else if (what && strcmp(what, ".gpu-memory.limit") == 0 && kube_quantity(text, &v))
        one.memory_max = memory_of(v);
    else if (what && strcmp(what, ".gpu-compute.portion") == 0 && read_part(text, &v))
        one.gpu_min = one.gpu_max = percent_of(v);
    else if (portion && strcmp(portion, ".gpu-memory.portion.limit") == 0 && read_part(text, &v))
        one.memory_max.part = v;
    kube_promise_join(p, &one);
}

static void read_kai(const json_t *notes, struct promise *p)
{
    struct promise of_containers = {.class = ""};
    const char *key;
    json_t *value;
    read_kai_pod(notes, p);
    json_object_foreach ((json_t *)notes, key, value) {
        const char *text = json_string_value(value);
        if (text)
            read_kai_container(key, text, &of_containers);
    }
    /* A request without a limit is also the limit, and the other way round. */
    const bool limited = is_some(of_containers.memory_max);
    if (is_some(of_containers.memory))
        p->memory = of_containers.memory;
    else if (!is_some(p->memory))
        p->memory = of_containers.memory_max;
    if (limited || is_some(of_containers.memory))
        p->memory_max = limited ? of_containers.memory_max : of_containers.memory;
    p->gpu_min = of_containers.gpu_min ? of_containers.gpu_min : p->gpu_min;
    p->gpu_max = of_containers.gpu_max;
}

/* ---- HAMi ---- */

static bool limit_of(struct span limits, const char *name, double *out)
{
    char text[32];
    const struct span v = span_member(limits, name);
    if (!span_text(v, text, sizeof(text)) && v.n < sizeof(text))
        snprintf(text, sizeof(text), "%.*s", (int)v.n, v.n ? v.at : ""); /* a number */
    return kube_quantity(text, out);
}

/* HAMi limits nothing in a container with this variable. */
static bool policy_disabled(struct span container)
{
    const struct span list = span_member(container, "env");
    struct span one;
    size_t at = 0;
    for (unsigned i = 0; i < VARIABLES_MAX && span_next(list, &at, &one); i++) {
        if (span_is(span_member(one, "name"), HAMI_POLICY))
            return span_is(span_member(one, "value"), "disable");
    }
    return false;
}

/* gpucores is the percentage of a GPU that is reserved, and its limit; gpumem is MiB. Priority 0
 * runs before 1, whose programs HAMi blocks meanwhile. What a container with a GPU leaves out it
 * may have all of. *open: one has no reserved part. */
static void read_hami_container(struct span container, struct promise *p, bool *open)
{
    const struct span limits = span_member(span_member(container, "resources"), "limits");
    struct promise one = {.gpu_max = 100, .memory_max.part = 1};
    double v;
    if (!limit_of(limits, "nvidia.com/gpu", &v) || v < 1)
        return;
    if (limit_of(limits, "nvidia.com/gpucores", &v) && v >= 1 && v <= 100) {
        one.gpu_min = (uint32_t)v;
        one.gpu_max = policy_disabled(container) ? 100 : (uint32_t)v;
    }
    *open |= !one.gpu_min;
    if (limit_of(limits, "nvidia.com/gpumem", &v))
        one.memory = one.memory_max = memory_of(v * MIB);
    else if (limit_of(limits, "nvidia.com/gpumem-percentage", &v) && v >= 1 && v <= 100)
        one.memory.part = one.memory_max.part = v / 100;
    if (limit_of(limits, "nvidia.com/priority", &v))
        snprintf(one.class, sizeof(one.class), "%s", v < 1 ? "latency" : "batch");
    kube_promise_join(p, &one);
}

static void read_hami(struct span spec, struct promise *out)
{
    const struct span list = span_member(spec, "containers");
    struct promise p = {.class = ""};
    struct span one;
    bool open = false;
    size_t at = 0;
    for (unsigned i = 0; i < CONTAINERS_MAX && span_next(list, &at, &one); i++)
        read_hami_container(one, &p, &open);
    p.gpu_min = open ? 0 : p.gpu_min;
    p.gpu_max = p.gpu_max == 100 ? 0 : p.gpu_max;
    p.memory_max = p.memory_max.part >= 1 ? (struct gpu_memory){.bytes = 0} : p.memory_max;
    kube_promise_join(out, &p);
}

void kube_promise_read(struct span spec, const json_t *notes, struct promise *out)
{
    *out = (struct promise){.class = ""};
    read_kai(notes, out);
    read_hami(spec, out);
}
