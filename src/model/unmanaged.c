/* GPU programs that no job owns. See model.h. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "model/model.h"

static bool same_executable(pid_t pid)
{
    char path[32];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/* The kernel cuts names to 15 bytes: MPS' server, which has the contexts of its clients, is called
 * the same. */
static bool is_mps_control(pid_t pid)
{
    char exe[4096];
    if (proc_exe(pid, exe, sizeof(exe)) < 0)
        return false;
    const char *last = strrchr(exe, '/');
    return strcmp(last ? last + 1 : exe, "nvidia-cuda-mps-control") == 0;
}

bool model_is_scheduler(const struct proc_stat *st, uid_t uid)
{
    static const char *const ours[] = {"ceded", "cede-restore", "cede-swap"};
    bool named = false;
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        named |= strcmp(st->comm, ours[i]) == 0;
    if (named)
        return uid == 0 || same_executable(st->id.pid);
    return strcmp(st->comm, "nvidia-cuda-mps") == 0 && is_mps_control(st->id.pid);
}

struct unmanaged *model_unmanaged_find(struct model *m, struct proc_id id)
{
    for (size_t i = 0; i < m->nunmanaged; i++) {
        if (m->unmanaged[i].id.pid == id.pid && m->unmanaged[i].id.start_ticks == id.start_ticks)
            return &m->unmanaged[i];
    }
    return NULL;
}

struct unmanaged *model_unmanaged_add(struct model *m, struct proc_id id, bool detached)
{
    struct unmanaged *known = model_unmanaged_find(m, id);
    if (known) {
        known->detached |= detached;
        known->seen |= detached; /* it was a job's until now */
        return known;
    }
    struct proc_stat st;
    struct unmanaged u = {.id = id, .seen = true, .detached = detached};
    if (proc_stat_read(id.pid, &st) < 0 || st.id.start_ticks != id.start_ticks ||
        proc_owner(id.pid, &u.uid) < 0)
        return NULL;
    snprintf(u.comm, sizeof(u.comm), "%s", st.comm);
    u.scheduler = model_is_scheduler(&st, u.uid);
    if (m->nunmanaged == m->unmanaged_cap) {
        size_t cap = m->unmanaged_cap ? m->unmanaged_cap * 2 : 64;
        struct unmanaged *v = reallocarray(m->unmanaged, cap, sizeof(*v));
        if (!v)
            return NULL; /* looked at again next time */
        m->unmanaged = v;
        m->unmanaged_cap = cap;
    }
    m->unmanaged[m->nunmanaged] = u;
    return &m->unmanaged[m->nunmanaged++];
}

void model_unmanaged_forget(struct model *m)
{
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].looked = false;
}

void model_unmanaged_sweep(struct model *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->nunmanaged; i++) {
        if (m->unmanaged[i].seen)
            m->unmanaged[kept++] = m->unmanaged[i];
    }
    m->nunmanaged = kept;
}
