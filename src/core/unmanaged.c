/* Unmanaged GPU programs, which belong to no job. See model.h. */
#include <stdio.h>
#include <string.h>

#include "core/model.h"
#include "who/schedulers.h"

static void unmanaged_link(struct model *m, uint32_t i)
{
    uint32_t *bucket =
        &m->unmanaged_buckets[(uint32_t)m->unmanaged[i].id.pid % ARRAY_SIZE(m->unmanaged_buckets)];
    m->unmanaged[i].hash_next = *bucket;
    *bucket = i;
}

void model_unmanaged_init(struct model *m)
{
    for (size_t i = 0; i < ARRAY_SIZE(m->unmanaged_buckets); i++)
        m->unmanaged_buckets[i] = SLOT_NONE;
}

struct unmanaged *model_unmanaged_with(struct model *m, pid_t pid)
{
    uint32_t i = m->unmanaged_buckets[(uint32_t)pid % ARRAY_SIZE(m->unmanaged_buckets)];
    while (i != SLOT_NONE && m->unmanaged[i].id.pid != pid)
        i = m->unmanaged[i].hash_next;
    return i == SLOT_NONE ? NULL : &m->unmanaged[i];
}

struct unmanaged *model_unmanaged_find(struct model *m, struct proc_id id)
{
    uint32_t i = m->unmanaged_buckets[(uint32_t)id.pid % ARRAY_SIZE(m->unmanaged_buckets)];
    while (i != SLOT_NONE && !proc_same(m->unmanaged[i].id, id))
        i = m->unmanaged[i].hash_next;
    return i == SLOT_NONE ? NULL : &m->unmanaged[i];
}

struct unmanaged *model_unmanaged_add(struct model *m, struct proc_id id, bool detached)
{
    struct unmanaged *known = model_unmanaged_find(m, id);
    if (known) {
        known->detached |= detached;
        known->seen |= detached; /* it was in a job, and so not seen as unmanaged */
        return known;
    }
    struct proc_stat st;
    struct unmanaged u = {.id = id, .seen = true, .detached = detached};
    if (proc_stat_read(id.pid, &st) < 0 || st.id.start_ticks != id.start_ticks ||
        proc_owner(id.pid, &u.uid) < 0)
        return NULL;
    snprintf(u.comm, sizeof(u.comm), "%s", st.comm);
    u.group = st.group;
    u.session = st.session;
    u.scheduler = proc_is_scheduler(&st, u.uid);
    u.serves = proc_serves_mps(&st, u.uid);
    if (list_grow(&m->unmanaged, m->nunmanaged, &m->unmanaged_cap, sizeof(u)) < 0)
        return NULL; /* the next look tries again */
    m->unmanaged[m->nunmanaged] = u;
    unmanaged_link(m, (uint32_t)m->nunmanaged);
    return &m->unmanaged[m->nunmanaged++];
}

void model_unmanaged_forget(struct model *m)
{
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].looked = false;
}

void model_unmanaged_facts(struct model *m)
{
    for (size_t i = 0; i < m->nunmanaged; i++)
        m->unmanaged[i].facts_came = m->unmanaged[i].looked;
}

static void unmanaged_unshare(struct model *m, struct unmanaged *u)
{
    if (!u->client)
        return;
    u->client = false;
    memset(u->shares, 0, sizeof(u->shares));
    m->driver->ops->forget(m->driver, u->id.pid);
    m->units_dirty = true;
}

void model_unmanaged_share(struct model *m, struct unmanaged *u, const struct group_list *l)
{
    uint32_t shares[DEVICE_GPUS_MAX] = {0};
    if (!l) {
        unmanaged_unshare(m, u);
        return;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].gpu < DEVICE_GPUS_MAX && l->v[i].shared)
            shares[l->v[i].gpu] = l->v[i].shared;
    }
    m->units_dirty |= memcmp(shares, u->shares, sizeof(shares)) != 0;
    memcpy(u->shares, shares, sizeof(shares));
    u->client = true;
}

void model_unmanaged_sweep(struct model *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->nunmanaged; i++) {
        if (m->unmanaged[i].seen)
            m->unmanaged[kept++] = m->unmanaged[i];
        else
            unmanaged_unshare(m, &m->unmanaged[i]);
    }
    m->nunmanaged = kept;
    model_unmanaged_init(m);
    for (uint32_t i = 0; i < kept; i++)
        unmanaged_link(m, i);
}
