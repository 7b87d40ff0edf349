/* See launch.h. */
#include "control/launch.h"

#include <string.h>

#include "lib/fnv.h"

static const char *const names[] = {
    [LAUNCH_ANY] = "",          [LAUNCH_PROCESS] = "process",     [LAUNCH_SESSION] = "session",
    [LAUNCH_CGROUP] = "cgroup", [LAUNCH_CONTAINER] = "container", [LAUNCH_STEP] = "step"};

const char *launch_name(enum launch_by by)
{
    return names[by];
}

bool launch_parse(const char *text, enum launch_by *out)
{
    for (size_t i = LAUNCH_PROCESS; i < ARRAY_SIZE(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum launch_by)i;
            return true;
        }
    }
    return false;
}

static uint64_t add_text(uint64_t h, const char *text)
{
    return fnv(h, text, strlen(text) + 1);
}

static uint64_t add_number(uint64_t h, uint64_t number)
{
    return fnv(h, &number, sizeof(number));
}

static uint64_t add_process(uint64_t h, struct proc_id id)
{
    return add_number(add_number(h, (uint64_t)id.pid), id.start_ticks);
}

/* The parent, if it is of the same user and in the same control groups, and no shell in which a
 * person types: then it has started its children as one thing. */
static bool find_launcher(const struct facts *f, struct proc_id *out)
{
    struct proc_stat st;
    char cgroups[sizeof(f->cgroups)];
    uid_t owner;
    if (proc_stat_read(f->proc.pid, &st) < 0 || st.ppid <= 1 || proc_stat_parent(&st) < 0)
        return false;
    const bool types = st.tty && st.session == st.id.pid;
    if (types || proc_owner(st.id.pid, &owner) < 0 || owner != f->of.uid ||
        proc_read(st.id.pid, "cgroup", cgroups, sizeof(cgroups)) < 0 ||
        strcmp(cgroups, f->cgroups) != 0)
        return false;
    *out = st.id;
    return true;
}

/* Of a rule. */
static uint64_t add_launch(uint64_t h, const struct facts *f, enum launch_by by)
{
    struct proc_stat st;
    struct proc_id launcher;
    const struct workload *w = &f->workload;
    if (by == LAUNCH_ANY && w->slurm_step[0])
        by = LAUNCH_STEP;
    switch (by) {
    case LAUNCH_ANY:
        return find_launcher(f, &launcher)
                   ? add_text(add_text(add_process(h, launcher), f->exe), f->comm)
                   : 0;
    case LAUNCH_PROCESS:
        return 0;
    case LAUNCH_SESSION:
        return proc_stat_read(f->proc.pid, &st) < 0 ? 0 : add_number(h, (uint64_t)st.session);
    case LAUNCH_CGROUP:
        return f->cgroup[0] && f->cgroup[1] ? add_text(h, f->cgroup) : 0;
    case LAUNCH_CONTAINER:
        return w->container[0] ? add_text(h, w->container) : 0;
    case LAUNCH_STEP:
        return w->slurm_step[0] ? add_text(add_number(h, w->slurm_job), w->slurm_step) : 0;
    }
    return 0;
}

uint64_t launch_of(const struct facts *f, const struct outcome *o)
{
    const bool words = o->by == BY_ENVIRONMENT || (o->by == BY_RULE && o->rule->class_said);
    const enum launch_by by = o->rule ? o->rule->launch : LAUNCH_ANY;
    uint64_t h = add_number(FNV_START, f->of.uid);
    h = add_text(add_number(h, by), o->rule ? o->rule->title : "");
    if (!words || by != LAUNCH_ANY)
        return add_launch(h, f, by);
    h = add_number(add_text(h, o->request.name), o->request.class);
    return add_process(add_number(h, o->request.weight), f->of.origin.speaker);
}
