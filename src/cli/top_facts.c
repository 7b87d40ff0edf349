/* See top_facts.h. */
#include "cli/top_facts.h"

#include <errno.h>
#include <string.h>

#include "cli/top_text.h"
#include "cli/users.h"
#include "lib/util.h"

static void facts_user(struct top_model *m, struct top_row *r)
{
    for (size_t i = 0; i < m->nrows; i++) {
        if (m->rows[i]->facts && m->rows[i]->uid == r->uid) {
            snprintf(r->user, sizeof(r->user), "%s", m->rows[i]->user);
            return;
        }
    }
    user_text(r->user, r->uid);
}

void top_facts(struct top_model *m, bool same_pids)
{
    for (size_t i = 0; i < m->nrows; i++) {
        struct top_row *r = m->rows[i];
        struct proc_stat st;
        char cgroup[4096];
        if (r->facts)
            continue;
        facts_user(m, r);
        r->facts = true;
        if (!same_pids || proc_stat_read(r->pid, &st) < 0)
            continue;
        r->id = st.id;
        if (proc_cgroup(r->pid, cgroup, sizeof(cgroup)) == 0)
            top_where(r->where, cgroup);
    }
}

/* The processes are listed before the first of them has its signal: they may end by it, and what
 * they began is in no tree then. */
static struct proc_id *signal_tree(struct proc_id root, bool job, size_t *n)
{
    pid_t *pids = NULL;
    size_t all = 0;
    *n = 0;
    if (job && proc_list(&pids, &all) < 0)
        return NULL;
    struct proc_id *ids = calloc(all + 1, sizeof(*ids));
    if (ids)
        ids[(*n)++] = root;
    for (size_t i = 0; ids && i < all; i++) {
        struct proc_stat st;
        if (pids[i] != root.pid && pids[i] != getpid() && proc_in_tree(pids[i], root.pid) &&
            proc_stat_read(pids[i], &st) == 0)
            ids[(*n)++] = st.id;
    }
    free(pids);
    return ids;
}

int top_signal(const struct top_row *r, int signal, unsigned *sent, struct error *err)
{
    size_t n;
    int result = 0;
    *sent = 0;
    /* The number was read between two replies that named it, so it was this process's. */
    if (!r->id.pid || r->looks < 2)
        return error_set(err, -ESRCH, "its process is not known here yet");
    if (r->id.pid <= 1 || r->id.pid == getpid())
        return error_set(err, -EPERM, "pid %d is not sent signals from here", (int)r->id.pid);
    if (proc_check(r->id) == -ESRCH)
        return error_set(err, -ESRCH, "pid %d has ended", (int)r->id.pid);
    struct proc_id *ids = signal_tree(r->id, r->number != 0, &n);
    if (!ids)
        return error_set(err, -ENOMEM, "its processes cannot be listed");
    for (size_t i = 0; i < n; i++) {
        int e = proc_signal(ids[i], signal);
        *sent += e == 0;
        if (e < 0 && e != -ESRCH)
            result = error_set(err, e, "pid %d: %s", (int)ids[i].pid, strerror(-e));
    }
    free(ids);
    return result;
}
