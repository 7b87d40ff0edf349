/* See visible_devices.h. */
#include "api/visible_devices.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

#define VARIABLE "CUDA_VISIBLE_DEVICES"

/* All GPUs that can be chosen. Software GPUs of different servers may have the same UUID; these are
 * left out as ambiguous. */
static void visible_all(struct device_driver *d, struct visible *out)
{
    struct visible all = {.n = 0};
    for (unsigned i = 0; i < d->ops->gpus(d) && all.n < DEVICE_GPUS_MAX; i++) {
        struct gpu_info g;
        if (d->ops->info(d, i, &g) < 0 || !(g.caps & GPU_CAP_PLACE))
            continue;
        struct visible_gpu *x = &all.v[all.n++];
        *x = (struct visible_gpu){.gpu = i};
        snprintf(x->name, sizeof(x->name), "%s", g.uuid);
    }
    out->n = 0;
    for (unsigned i = 0; i < all.n; i++) {
        unsigned same = 0;
        for (unsigned k = 0; k < all.n; k++)
            same += strcasecmp(all.v[k].name, all.v[i].name) == 0;
        if (same == 1)
            out->v[out->n++] = all.v[i];
    }
}

/* The index among all of the GPU that an entry names, or a negative errno. */
static int visible_find(const struct visible *all, const char *entry, struct error *err)
{
    char q[TEXT_QUOTE];
    uint64_t number;
    int found = -1;
    bool several = false;
    if (strncasecmp(entry, "MIG-", 4) == 0)
        return error_set(err, -EINVAL,
                         VARIABLE " lists %s, an instance of a GPU: these are "
                                  "not chosen, so leave out gpus",
                         text_quote(q, entry));
    if (parse_u64(entry, 0, UINT32_MAX, &number) == 0) {
        if (number < all->n)
            return (int)number;
        return error_set(err, -EINVAL,
                         all->n == 1
                             ? VARIABLE " lists %s, and the only GPU that can be chosen is %u"
                             : VARIABLE " lists %s, and the GPUs that can be chosen are 0 to %u",
                         entry, all->n - 1);
    }
    for (unsigned i = 0; i < all->n && *entry; i++) {
        if (strncasecmp(all->v[i].name, entry, strlen(entry)) != 0)
            continue;
        if (!all->v[i].name[strlen(entry)])
            return (int)i; /* an exact match counts, as SOFT-10 begins with SOFT-1 */
        several |= found >= 0;
        found = (int)i;
    }
    if (several)
        return error_set(err, -EINVAL, VARIABLE " lists '%s', with which several GPUs begin",
                         text_quote(q, entry));
    return found >= 0 ? found
                      : error_set(err, -EINVAL, VARIABLE " lists '%s', which is no GPU here",
                                  text_quote(q, entry));
}

static int visible_list(const struct visible *all, const char *list, struct visible *out,
                        struct error *err)
{
    out->n = 0;
    for (const char *p = list; *list; p++) {
        char entry[sizeof(out->v[0].name)], q[TEXT_QUOTE];
        p += strspn(p, " ");
        const size_t length = strcspn(p, ",");
        snprintf(entry, sizeof(entry), "%.*s", (int)min_u64(length, sizeof(entry)), p);
        int i = visible_find(all, entry, err);
        if (i < 0)
            return i;
        for (unsigned k = 0; k < out->n; k++) {
            if (out->v[k].gpu == all->v[i].gpu)
                return error_set(err, -EINVAL, VARIABLE " lists GPU %u twice ('%s')", out->v[k].gpu,
                                 text_quote(q, entry));
        }
        out->v[out->n].gpu = all->v[i].gpu;
        memcpy(out->v[out->n++].name, entry, sizeof(entry));
        p += length;
        if (!*p)
            break;
    }
    return 0;
}

int visible_read(struct device_driver *d, const char *list, unsigned wanted, struct visible *out,
                 struct error *err)
{
    struct visible all;
    char names[200] = "";
    visible_all(d, &all);
    if (!all.n)
        return error_set(err, -ENOTSUP,
                         "no GPU here can be chosen for a program: that can be whole NVIDIA GPUs "
                         "only, and the software GPUs of one server");
    *out = all;
    int r = list ? visible_list(&all, list, out, err) : 0;
    if (r < 0 || out->n >= wanted)
        return r;
    for (unsigned i = 0; i < out->n; i++)
        list_add(names, sizeof(names), out->v[i].name);
    return error_set(err, -E2BIG, "%u GPU%s wanted, and %s %u%s%s%s", wanted,
                     wanted == 1 ? " is" : "s are", list ? VARIABLE " lists" : "there are", out->n,
                     out->n ? " (" : "", names, out->n ? ")" : "");
}

uint32_t visible_mask(const struct visible *v)
{
    uint32_t mask = 0;
    for (unsigned i = 0; i < v->n; i++)
        mask |= 1U << v->v[i].gpu;
    return mask;
}

void visible_write(const struct visible *v, uint32_t gpus, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    for (unsigned i = 0; i < v->n; i++) {
        if (gpus >> v->v[i].gpu & 1 && n < size)
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "," : "", v->v[i].name);
    }
}
