/* What ops.h declares beside the interface: the growable lists that drivers fill, and names of
 * levels. Must know no driver. */
#include "device/ops.h"

#include <errno.h>
#include <string.h>

static int list_grow(void **v, size_t *cap, size_t n, size_t size)
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
        int r = list_grow((void **)&l->v, &l->cap, l->n, sizeof(*l->v));                           \
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

const char *device_level_name(unsigned level)
{
    static const char *const names[] = {
        [LEVEL_GATE] = "gate", [LEVEL_SLICE] = "slice", [LEVEL_QUEUE] = "hardware"};
    return level < ARRAY_SIZE(names) ? names[level] : NULL;
}
