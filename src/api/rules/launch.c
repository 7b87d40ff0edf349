/* See launch.h. */
#include "api/rules/launch.h"

#include <string.h>

#include "base/fnv.h"

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

/* The parent, if it belongs to the same user and control groups and is no shell in which a person
 * types, because such a parent started its children as one thing. 1, 0 or -errno. */
static int find_launcher(const struct facts *f, struct proc_id *out)
{
    struct proc_stat st;
    char cgroups[sizeof(f->cgroups)];
    uid_t owner;
    int r = proc_stat_read(f->proc.pid, &st);
    if (r == 0)
        r = st.ppid > 1 ? proc_stat_parent(&st) : -ESRCH;
    const bool types = r == 0 && st.tty && st.session == st.id.pid;
    if (r == 0)
        r = types ? -ESRCH : proc_owner(st.id.pid, &owner);
    if (r == 0)
        r = owner == f->of.uid ? (int)proc_read(st.id.pid, "cgroup", cgroups, sizeof(cgroups))
                               : -ESRCH;
    if (r < 0)
        return proc_unsure(r) ? r : 0;
    *out = st.id;
    return strcmp(cgroups, f->cgroups) == 0;
}

/* The launch for a rule or `others`. */
static int add_launch(uint64_t h, const struct facts *f, enum launch_by by, uint64_t *out)
{
    struct proc_stat st;
    struct proc_id launcher;
    const struct workload *w = &f->workload;
    int r;
    if (by == LAUNCH_ANY && w->slurm_step[0])
        by = LAUNCH_STEP;
    *out = 0;
    switch (by) {
    case LAUNCH_ANY:
        r = find_launcher(f, &launcher);
        if (r > 0)
            *out = add_text(add_text(add_process(h, launcher), f->exe), f->comm);
        return r < 0 ? r : 0;
    case LAUNCH_PROCESS:
        return 0;
    case LAUNCH_SESSION:
        r = proc_stat_read(f->proc.pid, &st);
        if (r == 0)
            *out = add_number(h, (uint64_t)st.session);
        return proc_unsure(r) ? r : 0;
    case LAUNCH_CGROUP:
        *out = f->cgroup[0] && f->cgroup[1] ? add_text(h, f->cgroup) : 0;
        return 0;
    case LAUNCH_CONTAINER:
        *out = w->container[0] ? add_text(h, w->container) : 0;
        return 0;
    case LAUNCH_STEP:
        *out = w->slurm_step[0] ? add_text(add_number(h, w->slurm_job), w->slurm_step) : 0;
        return 0;
    }
    return 0;
}

int launch_of(const struct facts *f, const struct outcome *o, uint64_t *out)
{
    const bool words = o->by == BY_ENVIRONMENT || (o->by == BY_RULE && o->rule->class_said);
    const enum launch_by by = o->rule ? o->rule->launch : LAUNCH_ANY;
    uint64_t h = add_number(FNV_START, f->of.uid);
    h = add_text(add_number(h, by), o->rule ? o->rule->title : "");
    if (!words || by != LAUNCH_ANY)
        return add_launch(h, f, by, out);
    h = add_number(add_text(h, o->request.name), o->request.class);
    *out = add_process(add_number(h, o->request.weight), f->of.origin.speaker);
    return 0;
}
