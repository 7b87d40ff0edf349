/* Choosing a driver by name, and the growable lists its interface hands out. */
#include "device/device.h"

#include <errno.h>
#include <string.h>

static int grow(void **v, size_t *cap, size_t n, size_t size)
{
    if (n < *cap)
        return 0;
    size_t cap2 = *cap ? *cap * 2 : 8;
    void *p = reallocarray(*v, cap2, size);
    if (!p)
        return -ENOMEM;
    *v = p;
    *cap = cap2;
    return 0;
}

#define DEFINE_LIST(list, type)                                                                    \
    int list##_push(struct list *l, type x)                                                        \
    {                                                                                              \
        int r = grow((void **)&l->v, &l->cap, l->n, sizeof(*l->v));                                \
        if (r == 0)                                                                                \
            l->v[l->n++] = LIST_VALUE(x);                                                          \
        return r;                                                                                  \
    }                                                                                              \
    void list##_free(struct list *l)                                                               \
    {                                                                                              \
        free(l->v);                                                                                \
        memset(l, 0, sizeof(*l));                                                                  \
    }

#define LIST_VALUE(x) (*(x))
DEFINE_LIST(group_list, const struct device_group *)
DEFINE_LIST(usage_list, const struct gpu_usage *)
DEFINE_LIST(activity_list, const struct gpu_activity *)
DEFINE_LIST(demand_list, const struct gpu_demand *)
#undef LIST_VALUE
#define LIST_VALUE(x) (x)
DEFINE_LIST(pid_list, pid_t)

int device_open(const char *name, const char *where, struct device_driver **out, struct error *err)
{
    static const struct device_ops *const drivers[] = {&device_nvidia, &device_amd, &device_soft,
                                                       &device_gate};
    bool any = strcmp(name, "auto") == 0;
    struct error first = {""};
    for (size_t i = 0; i < ARRAY_SIZE(drivers); i++) {
        if (any ? drivers[i] == &device_gate : strcmp(name, drivers[i]->name) != 0)
            continue;
        struct error e = {""};
        int r = drivers[i]->open(where, out, &e);
        if (r == 0)
            return 0;
        /* "auto" goes on only where there is no such device; a device that is there and cannot be
         * used is worth saying. */
        if (!any || r != -ENODEV)
            return error_set(err, r, "%s", e.text);
        if (!first.text[0])
            first = e;
    }
    if (!any)
        return error_set(err, -EINVAL, "unknown device '%s': use auto, nvidia, amd or soft", name);
    return error_set(err, -ENODEV,
                     "no GPU that can be scheduled: %s; for a software GPU start `cede-softgpu` "
                     "or try `cede demo --device soft`",
                     first.text);
}

void device_close(struct device_driver *d)
{
    if (d)
        d->ops->close(d);
}
