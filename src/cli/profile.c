/* See profile.h. */
#include "cli/profile.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/json_text.h"

#define US_LEAST 1e-3 /* keeps ratios of two times within bounds */

static uint32_t whole(const json_t *o, const char *key, bool *bad)
{
    json_int_t v = json_get_int(o, key);
    *bad |= v < 0 || v > INT32_MAX;
    return (uint32_t)v;
}

static double share(const json_t *o, const char *key, bool *bad)
{
    double v = json_number_value(json_object_get(o, key));
    *bad |= !(v >= 0 && v < 1e12);
    return *bad ? 0 : v;
}

static struct gpu_shape gpu_from(const json_t *o, bool *bad)
{
    return (struct gpu_shape){.sms = whole(o, "sms", bad),
                              .sm_threads = whole(o, "sm_threads", bad),
                              .sm_blocks = whole(o, "sm_blocks", bad),
                              .sm_registers = whole(o, "sm_registers", bad),
                              .sm_shared_bytes = whole(o, "sm_shared_bytes", bad),
                              .sm_l1_bytes = whole(o, "sm_l1_bytes", bad),
                              .l2_bytes = whole(o, "l2_bytes", bad)};
}

/* share: the time of all calls; profile_from() divides it by the sum over all kernels. */
static struct kernel_profile kernel_from(const json_t *o, bool *bad)
{
    const json_t *use = json_object_get(o, "use");
    json_int_t calls = json_get_int(o, "calls");
    struct kernel_profile k = {.blocks = whole(o, "blocks", bad),
                               .threads = whole(o, "threads", bad),
                               .registers = whole(o, "registers", bad),
                               .shared_bytes = whole(o, "shared_bytes", bad),
                               .division = whole(o, "division", bad),
                               .us = share(o, "us", bad),
                               .l1_hit = fmin(share(o, "l1_hit", bad), 1),
                               .l2_hit = fmin(share(o, "l2_hit", bad), 1)};
    for (int r = 1; r < RESOURCE_COUNT; r++)
        k.use[r] = share(use, resource_name((enum resource)r), bad);
    k.share = k.us * (double)calls;
    *bad |= !json_get_text(o, "name") || calls < 1 || calls > 1LL << 40 || !k.blocks ||
            !k.threads || k.us < US_LEAST;
    return k;
}

static bool profile_from(const json_t *all, struct profile *out)
{
    const json_t *kernels = json_object_get(all, "kernels"), *k;
    size_t n = json_array_size(kernels), i;
    bool bad = n < 1 || n > PROFILE_KERNELS;
    double sum = 0;
    out->gpu = gpu_from(json_object_get(all, "gpu"), &bad);
    out->busy = fmin(share(all, "busy", &bad), 1);
    out->uses = bad ? NULL : calloc(n, sizeof(*out->uses));
    if (!out->uses || !out->gpu.sms || !out->gpu.sm_threads || !out->gpu.sm_blocks)
        return false;
    json_array_foreach(kernels, i, k)
    {
        out->uses[out->n] = kernel_from(k, &bad);
        sum += out->uses[out->n++].share;
    }
    for (i = 0; i < out->n && !bad; i++)
        out->uses[i].share /= sum;
    return !bad;
}

int profile_load(const char *path, struct profile *out, struct error *err)
{
    json_error_t why;
    errno = 0;
    json_t *all = json_load_file(path, 0, &why);
    *out = (struct profile){.n = 0};
    if (!all && errno == ENOENT)
        return error_set(err, -ENOENT, "cannot open %s: no such file", path);
    if (!all)
        return error_set(err, -EINVAL, "%s: line %d: %s", path, why.line, why.text);
    const char *name = json_get_text(all, "program");
    snprintf(out->name, sizeof(out->name), "%s", name ? name : path);
    bool ok = profile_from(all, out);
    json_decref(all);
    if (ok)
        return 0;
    profile_free(out);
    return error_set(err, -EINVAL, "%s is no profile of a program, or damaged", path);
}

void profile_free(struct profile *p)
{
    free(p->uses);
    *p = (struct profile){.n = 0};
}
