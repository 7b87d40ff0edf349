/* See unmanaged.h. */
#include "cli/unmanaged.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "base/util.h"
#include "plan/sched.h"

#define NAMED_MAX 3 /* further programs are counted */

/* The GPUs of an entry, a bit mask; 0: not known. */
static uint32_t unmanaged_gpus(const json_t *entry)
{
    uint32_t mask = 0;
    for_each_json (gpu, json_object_get(entry, "gpus")) {
        json_int_t index = json_integer_value(gpu);
        mask |= index >= 0 && index < 32 ? 1U << index : 0;
    }
    return mask;
}

static uint32_t unmanaged_near(const json_t *jobs)
{
    uint32_t mask = 0;
    for_each_json (job, jobs) {
        uint32_t of = unmanaged_gpus(job);
        mask |= of ? of : UINT32_MAX; /* a job on no GPU yet may come to any */
    }
    return mask;
}

static void unmanaged_gpus_text(char *buf, size_t size, uint32_t mask, bool all_known, bool several)
{
    if (!all_known || !mask) {
        snprintf(buf, size, "%s", several ? "GPUs" : "a GPU");
        return;
    }
    snprintf(buf, size, "%s ", mask & (mask - 1) ? "GPUs" : "GPU");
    for (unsigned i = 0, n = 0; i < 32; i++) {
        size_t used = strlen(buf);
        if (mask & 1U << i)
            snprintf(buf + used, size - used, "%s%u", n++ ? ", " : "", i);
    }
}

struct unmanaged_list {
    const json_t *named[NAMED_MAX + 1]; /* and one that is counted alone */
    size_t n;
};

static void unmanaged_add(struct unmanaged_list *l, const json_t *entry)
{
    l->named[min_u64(l->n++, NAMED_MAX)] = entry;
}

static void unmanaged_names(char *buf, size_t size, const struct unmanaged_list *l)
{
    size_t used = 0;
    for (size_t i = 0; i < l->n && i < NAMED_MAX; i++) {
        char name[32];
        const char *given = json_get_text(l->named[i], "name");
        snprintf(name, sizeof(name), "%s", given ? given : "?");
        text_printable(name);
        used += (size_t)snprintf(buf + used, size - used, "%s%s (pid %lld)",
                                 i == 0          ? ""
                                 : i + 1 == l->n ? " and "
                                                 : ", ",
                                 name, (long long)json_get_int(l->named[i], "pid"));
    }
    if (l->n > NAMED_MAX)
        snprintf(buf + used, size - used, " and %zu more", l->n - NAMED_MAX);
}

bool unmanaged_left(const json_t *reply, bool detached, char *buf, size_t size)
{
    struct unmanaged_list list = {.n = 0};
    for_each_json (u, json_object_get(reply, "unmanaged")) {
        if (json_get_true(u, "detached") == detached && (detached || !json_get_true(u, "may_set")))
            unmanaged_add(&list, u);
    }
    unmanaged_names(buf, size, &list);
    return list.n > 0;
}

bool unmanaged_words(const json_t *reply, const json_t *jobs, struct unmanaged_words *out)
{
    struct unmanaged_list list = {.n = 0};
    uint32_t near = jobs ? unmanaged_near(jobs) : UINT32_MAX, mask = 0;
    bool all_known = true;
    for_each_json (u, json_object_get(reply, "unmanaged")) {
        uint32_t on = unmanaged_gpus(u);
        if (!json_get_true(u, "may_set") || json_get_true(u, "detached") || (on && !(on & near)))
            continue;
        mask |= on;
        all_known &= on != 0;
        unmanaged_add(&list, u);
    }
    if (!list.n)
        return false;
    bool several = out->several = list.n > 1;
    char gpus[96], names[UNMANAGED_NAMES];
    unmanaged_names(names, sizeof(names), &list);
    unmanaged_gpus_text(gpus, sizeof(gpus), mask, all_known, several);
    snprintf(out->who, sizeof(out->who), "%s %s %s and %s not scheduled", names,
             several ? "use" : "uses", gpus, several ? "are" : "is");
    if (several)
        snprintf(out->command, sizeof(out->command), "cede set --others -c batch");
    else
        snprintf(out->command, sizeof(out->command), "cede set %lld -c batch",
                 (long long)json_get_int(list.named[0], "pid"));
    return true;
}
