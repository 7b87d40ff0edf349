/* See scan.h. Remembers processes, and decides when to look at them again.
 *
 * Of a known process only its groups and the next names are read; everything else waits for a
 * change in its descriptors (each context keeps about 16 of /dev/nvidiaN open) or for a slow timer.
 * No scan takes long, whatever a process has open: listing its descriptors (process_list),
 * searching for clients (search.c) and looking at their objects (objects.c) each stop at a limit
 * and go on at the next scan, because the caller has other processes to serve. A scan goes through
 *
 *     list ──> reconcile ──> search each descriptor ──> discover each client's groups
 *
 * and skips steps for which nothing has changed. Until all steps were done once, a scan returns
 * -EAGAIN. */
#include "gpu/nvidia/scan.h"

#include <errno.h>
#include <string.h>

#define RELIST_NS     (30 * NSEC_PER_SEC) /* after which descriptors are listed in any case */
#define REDISCOVER_NS (60 * NSEC_PER_SEC)
#define RELOCATE_NS   NSEC_PER_SEC /* the same for a process whose MIG instance is not known yet */
#define LIST_MAX      2048U        /* descriptors that one scan lists, in 4 ms */

/* ---- memory of processes ---- */

static void client_free(struct nv_client *c)
{
    group_list_free(&c->groups);
    group_list_free(&c->fresh);
}

static void process_clear(struct nv_process *p)
{
    for (size_t i = 0; i < p->nclients; i++)
        client_free(&p->clients[i]);
    free(p->clients);
    *p = (struct nv_process){.id = p->id};
}

static struct nv_process *process_find(struct nv_scanner *s, pid_t pid)
{
    for (size_t i = 0; i < s->nprocs; i++) {
        if (s->procs[i].id.pid == pid)
            return &s->procs[i];
    }
    return NULL;
}

static struct nv_process *process_get(struct nv_scanner *s, struct proc_id id)
{
    struct nv_process *p = process_find(s, id.pid);
    if (p && proc_same(p->id, id))
        return p;
    nv_forget(s, id.pid);
    if (list_grow(&s->procs, s->nprocs, &s->cap, sizeof(*p)) < 0)
        return NULL;
    p = &s->procs[s->nprocs++];
    *p = (struct nv_process){.id = id};
    return p;
}

void nv_distrust(struct nv_scanner *s, pid_t pid)
{
    struct nv_process *p = process_find(s, pid);
    if (p)
        p->dirty = true;
}

void nv_forget(struct nv_scanner *s, pid_t pid)
{
    struct nv_process *p = process_find(s, pid);
    if (!p)
        return;
    /* Another process may have inherited its clients, whose groups count as that one's now. */
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++)
            s->procs[i].dirty |= s->procs[i].clients[k].elsewhere;
    }
    process_clear(p);
    *p = s->procs[--s->nprocs];
}

/* Whether another living process was seen with this client first. */
static bool owned_elsewhere(const struct nv_scanner *s, const struct nv_process *p, uint32_t client)
{
    for_each (q, s->procs, s->nprocs) {
        for (size_t k = 0; q != p && k < q->nclients; k++) {
            if (q->clients[k].handle == client && !q->clients[k].elsewhere)
                return s->io->alive(q->id);
        }
    }
    return false;
}

static struct nv_fd *fd_state(struct nv_process *p, int32_t number)
{
    for (uint32_t i = 0; i < p->nfd; i++) {
        if (p->fd[i].number == number)
            return &p->fd[i];
    }
    return NULL;
}

/* Forgets descriptors that the new list lacks, with their clients, and adds new ones. */
static void fds_reconcile(struct nv_process *p)
{
    struct nv_fd old[RM_CTL_FDS_MAX];
    uint32_t nold = p->nfd;
    memcpy(old, p->fd, sizeof(old));
    p->nfd = p->fds.nctl;
    for (uint32_t i = 0; i < p->nfd; i++) {
        p->fd[i] = (struct nv_fd){.number = p->fds.ctl[i]};
        for (uint32_t k = 0; k < nold; k++) {
            if (old[k].number == p->fd[i].number)
                p->fd[i] = old[k];
        }
    }
    size_t n = 0;
    for (size_t i = 0; i < p->nclients; i++) {
        if (fd_state(p, p->clients[i].fd))
            p->clients[n++] = p->clients[i];
        else
            client_free(&p->clients[i]);
    }
    p->nclients = n;
}

/* ---- a process ---- */

/* The steps of this scan. */
struct plan {
    bool search;     /* for new clients */
    bool rediscover; /* look at all objects */
    bool deep;
    bool first; /* no scan was finished before, so that its groups count as complete */
};

/* Forgets all of the descriptor's clients (fd < 0), or those that do not answer. If one does not,
 * the descriptor is another file now. */
static void clients_drop(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state)
{
    for (size_t i = 0; i < p->nclients;) {
        struct nv_client *c = &p->clients[i];
        if (c->fd != state->number || (fd >= 0 && nv_client_answers(s, fd, c->handle))) {
            i++;
            continue;
        }
        client_free(c);
        *c = p->clients[--p->nclients];
        if (fd >= 0)
            state->state = NV_SEARCH_UNKNOWN;
    }
}

static int client_update(const struct nv_look *l, const struct plan *plan)
{
    struct nv_client *c = l->c;
    bool inherited = c->elsewhere;
    if (plan->search)
        c->elsewhere = owned_elsewhere(l->s, l->p, c->handle);
    if (c->elsewhere) {
        group_list_free(&c->groups);
        return 0;
    }
    uint64_t age = l->s->io->now_ns() - c->discovered_ns;
    bool whole = plan->first || inherited, anew = inherited || c->discovered_ns == 0;
    if (plan->rediscover || anew || c->fresh.n ||
        age > (c->unlocated ? RELOCATE_NS : REDISCOVER_NS))
        return nv_client_discover(l, plan->deep || anew, !whole);
    if (nv_client_unchanged(l))
        return 0;
    return nv_client_answers(l->s, l->fd, c->handle) ? nv_client_discover(l, false, true) : -ESTALE;
}

static int client_scan(const struct nv_look *l, const struct plan *plan)
{
    int r = client_update(l, plan);
    for (size_t i = 0; i < l->s->mps.n && r == 0; i++) {
        if (l->s->mps.v[i] == l->p->id.pid)
            nv_client_share(l);
    }
    return r;
}

static int fd_scan(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state,
                   const struct plan *plan)
{
    int r = 0;
    if (plan->search) {
        clients_drop(s, p, fd, state);
        r = nv_search(s, p, fd, state);
    }
    if (r == -EAGAIN) {
        p->searching = true;
        r = 0;
    }
    for (size_t i = 0; i < p->nclients && r == 0; i++) {
        struct nv_look l = {.s = s, .p = p, .c = &p->clients[i], .fd = fd};
        if (l.c->fd == state->number)
            r = client_scan(&l, plan);
    }
    return r;
}

/* Whether this descriptor need not be borrowed, because no group or name is known on it. */
static bool fd_idle(const struct nv_process *p, const struct nv_fd *state)
{
    for_each (c, p->clients, p->nclients) {
        if (c->fd == state->number && !c->elsewhere && (c->groups.n || c->fresh.n || c->own_next))
            return false;
    }
    return true;
}

/* Continues the list of descriptors. -EAGAIN: there are more, and the old list stays. */
static int process_list(struct nv_scanner *s, struct nv_process *p, bool anew, struct plan *plan)
{
    if (anew)
        p->listing = (struct rm_fds){.next = 0};
    int r = s->io->fds(p->id.pid, &p->listing, &s->list_left);
    if (r < 0)
        return r;
    struct rm_fds old = p->fds;
    p->fds = p->listing;
    p->listing = (struct rm_fds){.next = 0};
    /* Only a change of the driver's descriptors matters; others may come and go all the time. */
    plan->deep = old.ngpu != p->fds.ngpu || old.nctl != p->fds.nctl ||
                 memcmp(old.ctl, p->fds.ctl, sizeof(old.ctl)) != 0;
    plan->rediscover |= plan->deep;
    plan->search |= plan->deep || s->io->now_ns() - p->listed_ns > RELIST_NS;
    fds_reconcile(p);
    p->listed_ns = s->io->now_ns();
    p->dirty = false;
    return 0;
}

static int plan_scan(struct nv_scanner *s, struct nv_process *p, bool force, struct plan *plan,
                     struct error *err)
{
    /* Descriptors are listed if their number has changed, the last list is too old, or the list is
     * unfinished. */
    bool list = force || p->dirty || p->listing.next || p->listed_ns == 0 ||
                s->io->now_ns() - p->listed_ns > RELIST_NS;
    uint64_t count = 0;
    int r = list ? 0 : s->io->fd_count(p->id.pid, &count);
    list |= count == 0 || count != p->fds.fd_count;
    *plan = (struct plan){.search = force || p->dirty || p->searching || p->listed_ns == 0,
                          .rediscover = force || p->dirty,
                          .first = !p->looked};
    p->searching = false;
    if (r == 0 && list)
        r = process_list(s, p, force, plan);
    if (r == -EAGAIN) {
        *plan = (struct plan){.first = !p->looked};
        p->searching = true;
        p->dirty |= force;
        return 0;
    }
    if (r < 0)
        return rm_borrow_error(err, r, p->id.pid);
    return plan->search && p->nfd ? nv_counter_update(s, err) : 0;
}

static int process_scan(struct nv_scanner *s, struct nv_process *p, int pidfd, bool force,
                        struct error *err)
{
    const struct rm_io *io = s->io;
    struct plan plan;
    int r = plan_scan(s, p, force, &plan, err);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < p->nfd; i++) {
        if (!plan.search && fd_idle(p, &p->fd[i]))
            continue;
        int fd = io->getfd(p->id.pid, pidfd, p->fd[i].number);
        r = fd;
        if (fd >= 0) {
            r = fd_scan(s, p, fd, &p->fd[i], &plan);
            io->close(fd);
        } else if (fd == -EBADF) {
            clients_drop(s, p, -1, &p->fd[i]);
            r = -ESTALE;
        }
        if (r == -ESTALE && !force)
            return -ESTALE;
        if (r == -ENOMEM)
            return error_set(err, r, "out of memory");
        if (r < 0 && r != -ESTALE)
            return rm_borrow_error(err, r, p->id.pid);
    }
    p->looked |= !p->searching;
    return 0;
}

int nv_scan(struct nv_scanner *s, struct proc_id proc, struct group_list *out, struct error *err)
{
    int pidfd = s->io->pidfd(proc);
    s->asked = s->looked = 0;
    s->list_left = LIST_MAX;
    if (pidfd < 0) {
        if (pidfd == -ESRCH)
            nv_forget(s, proc.pid);
        return rm_borrow_error(err, pidfd, proc.pid);
    }
    struct nv_process *p = process_get(s, proc);
    int r = p ? process_scan(s, p, pidfd, false, err) : error_set(err, -ENOMEM, "out of memory");
    if (r == -ESTALE) /* the remembered state is wrong: the scan starts from nothing */
        r = process_scan(s, p, pidfd, true, err);
    s->io->close(pidfd);
    bool unlocated = false;
    for (size_t i = 0; r == 0 && i < p->nclients; i++) {
        unlocated |= p->clients[i].unlocated && !p->clients[i].elsewhere;
        for (size_t k = 0; r == 0 && k < p->clients[i].groups.n; k++)
            r = group_list_push(out, &p->clients[i].groups.v[k]);
    }
    if (r == -ESRCH)
        nv_forget(s, proc.pid);
    else if (r < 0 && p)
        p->dirty = true;
    if (r == 0 && p->searching)
        return error_set(err, -EAGAIN, "process %d: still looking for its GPU contexts",
                         (int)proc.pid);
    if (r == 0 && unlocated)
        return error_set(err, -ENOTSUP,
                         "process %d computes in a MIG instance that cede does not schedule: it is "
                         "newer than this cede (restart it: systemctl restart ceded), or beyond "
                         "the first %d devices, or the driver does not say which it is",
                         (int)proc.pid, DEVICE_GPUS_MAX);
    return r;
}

int nv_scanner_init(struct nv_scanner *s, const struct rm_io *io, int ctl_fd, struct nv_gpus *gpus,
                    struct error *err)
{
    *s = (struct nv_scanner){.io = io, .ctl_fd = ctl_fd, .gpus = gpus};
    s->ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    return nv_counter_update(s, err);
}

void nv_scanner_free(struct nv_scanner *s)
{
    for (size_t i = 0; i < s->nprocs; i++)
        process_clear(&s->procs[i]);
    free(s->procs);
    pid_list_free(&s->mps);
    usage_list_free(&s->located);
    *s = (struct nv_scanner){.ctl_fd = -1};
}
