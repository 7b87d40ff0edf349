/* The growable lists that drivers fill, and the names of levels (ops.h). Must know no driver. */
#include "gpu/ops.h"

#define DEFINE_LIST(list, type)                                                                    \
    int list##_push(struct list *l, const type *x)                                                 \
    {                                                                                              \
        int r = list_grow(&l->v, l->n, &l->cap, sizeof(*x));                                       \
        if (r == 0)                                                                                \
            l->v[l->n++] = *x;                                                                     \
        return r;                                                                                  \
    }                                                                                              \
    void list##_free(struct list *l)                                                               \
    {                                                                                              \
        free(l->v);                                                                                \
        *l = (struct list){.v = NULL};                                                             \
    }

DEFINE_LIST(group_list, struct device_group)
DEFINE_LIST(usage_list, struct gpu_usage)
DEFINE_LIST(activity_list, struct gpu_activity)
DEFINE_LIST(switch_list, struct gpu_switch)
DEFINE_LIST(demand_list, struct gpu_demand)

int pid_list_push(struct pid_list *l, pid_t pid)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i] == pid)
            return 0;
    }
    int r = list_grow(&l->v, l->n, &l->cap, sizeof(pid));
    if (r == 0)
        l->v[l->n++] = pid;
    return r;
}

void pid_list_free(struct pid_list *l)
{
    free(l->v);
    *l = (struct pid_list){.v = NULL};
}

const char *device_level_name(unsigned level)
{
    static const char *const names[] = {
        [LEVEL_GATE] = "gate", [LEVEL_PIECE] = "piece", [LEVEL_QUEUE] = "hardware"};
    return level < ARRAY_SIZE(names) ? names[level] : NULL;
}
