/* See profile.h. */
#include "profile/profile.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "lib/json_text.h"
#include "lib/out_file.h"

/* Of one SM, by NVIDIA's programming guide (compute capabilities). */
static const struct limits {
    unsigned capability;
    struct gpu_shape of;
} known[] = {
    {70,
     {.sm_threads = 2048, .sm_blocks = 32, .sm_shared_bytes = 96 << 10, .sm_l1_bytes = 128 << 10}},
    {75,
     {.sm_threads = 1024, .sm_blocks = 16, .sm_shared_bytes = 64 << 10, .sm_l1_bytes = 96 << 10}},
    {80,
     {.sm_threads = 2048, .sm_blocks = 32, .sm_shared_bytes = 164 << 10, .sm_l1_bytes = 192 << 10}},
    {86,
     {.sm_threads = 1536, .sm_blocks = 16, .sm_shared_bytes = 100 << 10, .sm_l1_bytes = 128 << 10}},
    {87,
     {.sm_threads = 1536, .sm_blocks = 16, .sm_shared_bytes = 164 << 10, .sm_l1_bytes = 192 << 10}},
    {89,
     {.sm_threads = 1536, .sm_blocks = 24, .sm_shared_bytes = 100 << 10, .sm_l1_bytes = 128 << 10}},
    {90,
     {.sm_threads = 2048, .sm_blocks = 32, .sm_shared_bytes = 228 << 10, .sm_l1_bytes = 256 << 10}},
    {100,
     {.sm_threads = 2048, .sm_blocks = 32, .sm_shared_bytes = 228 << 10, .sm_l1_bytes = 256 << 10}},
    {120,
     {.sm_threads = 1536, .sm_blocks = 24, .sm_shared_bytes = 100 << 10, .sm_l1_bytes = 128 << 10}},
};

int profile_complete_gpu(struct gpu_shape *g, unsigned capability)
{
    for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
        const struct gpu_shape *k = &known[i].of;
        if (known[i].capability != capability)
            continue;
        g->sm_threads = g->sm_threads ? g->sm_threads : k->sm_threads;
        g->sm_blocks = g->sm_blocks ? g->sm_blocks : k->sm_blocks;
        g->sm_registers = g->sm_registers ? g->sm_registers : 65536;
        g->sm_shared_bytes = g->sm_shared_bytes ? g->sm_shared_bytes : k->sm_shared_bytes;
        g->sm_l1_bytes = g->sm_l1_bytes ? g->sm_l1_bytes : k->sm_l1_bytes;
    }
    return g->sms && g->sm_threads && g->sm_blocks ? 0 : -ENODEV;
}

/* ---- kernels ---- */

static bool same_launch(const struct kernel_profile *a, const struct kernel_profile *b)
{
    return a->blocks == b->blocks && a->threads == b->threads && a->registers == b->registers &&
           a->shared_bytes == b->shared_bytes;
}

static void add_mean(double *mean, double value, double weight)
{
    *mean += (value - *mean) * weight;
}

int profile_add(struct profile *p, const char *name, const struct kernel_profile *use)
{
    uint32_t i = 0;
    while (i < p->n && !(strncmp(p->kernels[i].name, name, sizeof(p->kernels[i].name) - 1) == 0 &&
                         same_launch(&p->uses[i], use)))
        i++;
    if (i == PROFILE_KERNELS)
        return -E2BIG;
    if (i == p->n) {
        if ((i & (i - 1)) == 0) { /* full, or the first */
            size_t room = i ? 2 * (size_t)i : 1;
            void *kernels = realloc(p->kernels, room * sizeof(*p->kernels));
            p->kernels = kernels ? kernels : p->kernels;
            void *uses = kernels ? realloc(p->uses, room * sizeof(*p->uses)) : NULL;
            p->uses = uses ? uses : p->uses;
            if (!kernels || !uses)
                return -ENOMEM;
        }
        p->n++;
        p->uses[i] = *use;
        p->kernels[i].calls = 1;
        snprintf(p->kernels[i].name, sizeof(p->kernels[i].name), "%s", name);
        return 0;
    }
    struct kernel_profile *mean = &p->uses[i];
    double weight = 1.0 / (double)++p->kernels[i].calls;
    add_mean(&mean->us, use->us, weight);
    for (int r = 0; r < RESOURCE_COUNT; r++)
        add_mean(&mean->use[r], use->use[r], weight);
    add_mean(&mean->l1_hit, use->l1_hit, weight);
    add_mean(&mean->l2_hit, use->l2_hit, weight);
    return 0;
}

void profile_finish(struct profile *p)
{
    double all = 0;
    for (uint32_t i = 0; i < p->n; i++)
        all += p->uses[i].us * (double)p->kernels[i].calls;
    for (uint32_t i = 0; i < p->n; i++)
        p->uses[i].share = all > 0 ? p->uses[i].us * (double)p->kernels[i].calls / all : 0;
    for (uint32_t i = 1; i < p->n; i++) {
        for (uint32_t k = i; k > 0 && p->uses[k - 1].share < p->uses[k].share; k--) {
            struct kernel_profile use = p->uses[k];
            struct profile_kernel kernel = p->kernels[k];
            p->uses[k] = p->uses[k - 1];
            p->kernels[k] = p->kernels[k - 1];
            p->uses[k - 1] = use;
            p->kernels[k - 1] = kernel;
        }
    }
}

void profile_free(struct profile *p)
{
    free(p->kernels);
    free(p->uses);
    *p = (struct profile){.n = 0};
}

/* ---- files ---- */

#define WHOLE(X, of)                                                                               \
    X(of, sms)                                                                                     \
    X(of, sm_threads)                                                                              \
    X(of, sm_blocks) X(of, sm_registers) X(of, sm_shared_bytes) X(of, sm_l1_bytes) X(of, l2_bytes)
#define LAUNCH(X, of)                                                                              \
    X(of, blocks) X(of, threads) X(of, registers) X(of, shared_bytes) X(of, division)

#define PUT(of, field) json_object_set_new(o, #field, json_integer((json_int_t)(of)->field));
#define GET(of, field)                                                                             \
    bad |= json_get_int(o, #field) < 0 || json_get_int(o, #field) > (1LL << 31) - 1;               \
    (of)->field = (uint32_t)json_get_int(o, #field);

static json_t *kernel_json(const struct profile_kernel *kernel, const struct kernel_profile *k)
{
    json_t *o = json_object(), *use = json_object();
    json_object_set_new(o, "name", json_text(kernel->name));
    json_object_set_new(o, "calls", json_integer((json_int_t)kernel->calls));
    json_object_set_new(o, "us", json_real(k->us));
    json_object_set_new(o, "share", json_real(k->share));
    LAUNCH(PUT, k)
    json_object_set_new(o, "l1_hit", json_real(k->l1_hit));
    json_object_set_new(o, "l2_hit", json_real(k->l2_hit));
    for (int r = 1; r < RESOURCE_COUNT; r++) {
        if (k->use[r] > 0)
            json_object_set_new(use, resource_name((enum resource)r), json_real(k->use[r]));
    }
    json_object_set_new(o, "use", use);
    return o;
}

int profile_save(const struct profile *p, const char *path, struct error *err)
{
    json_t *o = json_object(), *all = json_object(), *kernels = json_array();
    WHOLE(PUT, &p->gpu)
    json_object_set_new(all, "program", json_text(p->name));
    json_object_set_new(all, "gpu", o);
    if (p->busy > 0)
        json_object_set_new(all, "busy", json_real(p->busy));
    for (uint32_t i = 0; i < p->n; i++)
        json_array_append_new(kernels, kernel_json(&p->kernels[i], &p->uses[i]));
    json_object_set_new(all, "kernels", kernels);
    _cleanup_free_ char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    json_decref(all);
    return text ? out_file_put(path, 0, text, strlen(text), err)
                : error_set(err, -ENOMEM, "out of memory");
}

/* Any two times have a ratio that can be reckoned with. */
#define US_LEAST 1e-3

static double profile_share(const json_t *o, const char *key, bool *bad)
{
    double v = json_number_value(json_object_get(o, key));
    *bad |= !(v >= 0 && v < 1e12);
    return *bad ? 0 : v;
}

static bool kernel_from(const json_t *o, struct profile *p)
{
    struct kernel_profile k = {.us = 0};
    const char *name = json_get_text(o, "name");
    json_int_t calls = json_get_int(o, "calls");
    bool bad = !name || calls < 1 || calls > 1LL << 40;
    LAUNCH(GET, &k)
    k.us = profile_share(o, "us", &bad);
    k.l1_hit = fmin(profile_share(o, "l1_hit", &bad), 1);
    k.l2_hit = fmin(profile_share(o, "l2_hit", &bad), 1);
    for (int r = 1; r < RESOURCE_COUNT; r++)
        k.use[r] = profile_share(json_object_get(o, "use"), resource_name((enum resource)r), &bad);
    bad |= !k.blocks || !k.threads || k.us < US_LEAST;
    if (bad || profile_add(p, name, &k) < 0)
        return false;
    p->kernels[p->n - 1].calls = (uint64_t)calls;
    return true;
}

int profile_load(const char *path, struct profile *out, struct error *err)
{
    json_error_t why;
    bool bad = false;
    errno = 0;
    json_t *all = json_load_file(path, 0, &why);
    *out = (struct profile){.n = 0};
    if (!all && errno == ENOENT)
        return error_set(err, -ENOENT, "cannot open %s: no such file", path);
    if (!all)
        return error_set(err, -EINVAL, "%s: line %d: %s", path, why.line, why.text);
    const json_t *o = json_object_get(all, "gpu"), *kernels = json_object_get(all, "kernels"), *k;
    const char *name = json_get_text(all, "program");
    snprintf(out->name, sizeof(out->name), "%s", name ? name : path);
    WHOLE(GET, &out->gpu)
    out->busy = fmin(profile_share(all, "busy", &bad), 1);
    size_t i;
    json_array_foreach(kernels, i, k)
    {
        bad = bad || !kernel_from(k, out);
    }
    profile_finish(out);
    json_decref(all);
    if (!bad && out->n && profile_complete_gpu(&out->gpu, 0) == 0)
        return 0;
    profile_free(out);
    return error_set(err, -EINVAL, "%s is no profile of `cede profile`, or damaged", path);
}
