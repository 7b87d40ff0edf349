/* See scan.h. This part: whose clients are behind a process's descriptors, and when to look again.
 *
 * A client answers only on the open file that allocated it, so asking a descriptor about a client
 * handle tells whose it is. Client handles count up for the whole machine; the range to ask is
 * bounded by the counter now and by its value before the process started.
 * Asking costs about 2 us a handle (H200, 580.159.04), there or not, so the number of questions is
 * what to save: of a known process only its groups and the next names are asked; everything else
 * waits for a change in its descriptors (each context keeps about 16 of /dev/nvidiaN open) or for a
 * slow timer. A long search is spread over many scans: a process can have as many descriptors of
 * nobody's as it likes, and whoever asks has others to serve. */
#include "device/nvidia/scan.h"

#include <errno.h>
#include <string.h>

#define RELIST_NS     (30 * NSEC_PER_SEC) /* descriptors listed although their number is the same */
#define REDISCOVER_NS (60 * NSEC_PER_SEC)
#define NEIGHBOURS    64U   /* clients of one process lie close together */
#define ASK_MAX       2048U /* of one scan: 4 ms */
#define CLIENTS_MAX   128U  /* of one process; most have one or two */

/* ---- the clients' counter ---- */

static int counter_update(struct nv_scanner *s, struct error *err)
{
    uint32_t index;
    int r = rm_client_counter(&s->io, s->ctl_fd, &index, err);
    if (r < 0)
        return r;
    /* Starts one range up, so that positions before the first look exist. */
    if (s->position == 0)
        s->position = RM_CLIENT_RANGE + index;
    else
        s->position += (index - (uint32_t)(s->position % RM_CLIENT_RANGE)) % RM_CLIENT_RANGE;

    uint64_t now = s->io.now_ns(s->io.ctx);
    if (s->nmarks && now - s->marks[s->nmarks - 1].ns < NSEC_PER_SEC)
        return 0;
    if (s->nmarks == NV_MARKS) { /* thin out: old processes need no exact bound */
        for (unsigned i = 0; i < NV_MARKS / 2; i++)
            s->marks[i] = s->marks[2 * i];
        s->nmarks = NV_MARKS / 2;
    }
    s->marks[s->nmarks].ns = now;
    s->marks[s->nmarks++].position = s->position;
    return 0;
}

/* A position that no client of this process can be below. */
static uint64_t counter_before(const struct nv_scanner *s, struct proc_id proc)
{
    uint64_t oldest = s->position - RM_CLIENT_RANGE + 1;
    /* Start times are whole ticks, rounded down. */
    uint64_t start = proc.start_ticks * (NSEC_PER_SEC / s->ticks_per_s);
    for (unsigned i = s->nmarks; i-- > 0;) {
        if (s->marks[i].ns < start)
            return max_u64(s->marks[i].position, oldest);
    }
    return oldest;
}

static uint32_t client_handle(uint64_t position)
{
    return RM_CLIENT_BASE + (uint32_t)(position % RM_CLIENT_RANGE);
}

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
    if (p && p->id.start_ticks == id.start_ticks)
        return p;
    nv_forget(s, id.pid);
    if (s->nprocs == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        p = reallocarray(s->procs, cap, sizeof(*p));
        if (!p)
            return NULL;
        s->procs = p;
        s->cap = cap;
    }
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
    /* Whoever inherited its clients has them from now on. */
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++)
            s->procs[i].dirty |= s->procs[i].clients[k].elsewhere;
    }
    process_clear(p);
    *p = s->procs[--s->nprocs];
}

/* True if another living process was seen with this client first. */
static bool owned_elsewhere(const struct nv_scanner *s, const struct nv_process *p, uint32_t client)
{
    for (size_t i = 0; i < s->nprocs; i++) {
        const struct nv_process *q = &s->procs[i];
        for (size_t k = 0; q != p && k < q->nclients; k++) {
            if (q->clients[k].handle == client && !q->clients[k].elsewhere)
                return s->io.alive(s->io.ctx, q->id);
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

/* After the descriptors were listed: forgets those that went, adds those that came. */
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

/* ---- clients of a descriptor ---- */

static bool client_answers(struct nv_scanner *s, int fd, uint32_t client)
{
    uint32_t class;
    s->asked++;
    return rm_info(&s->io, fd, client, client, RM_INFO_CLASS, &class) == 0;
}

static int client_add(struct nv_scanner *s, struct nv_process *p, int32_t number, uint32_t handle)
{
    for (size_t i = 0; i < p->nclients; i++) {
        if (p->clients[i].handle == handle)
            return 0; /* one open file under two numbers (dup) */
    }
    if (p->nclients == CLIENTS_MAX)
        return 0;
    struct nv_client *c = reallocarray(p->clients, p->nclients + 1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    p->clients = c;
    p->clients[p->nclients++] = (struct nv_client){.handle = handle, .fd = number};
    return 0;
}

/* Asks for the clients at positions low..high, from the top. Returns the number found or -errno. */
static int clients_probe(struct nv_scanner *s, struct nv_process *p, int fd, int32_t number,
                         uint64_t low, uint64_t high)
{
    int found = 0;
    for (uint64_t i = high; i >= low && i > 0; i--) {
        if (!client_answers(s, fd, client_handle(i)))
            continue;
        found++;
        int r = client_add(s, p, number, client_handle(i));
        if (r < 0)
            return r;
    }
    return found;
}

/* Goes on with the descriptor's search, as far as this scan may. -EAGAIN: there is more. */
static int search(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state)
{
    while (state->next >= state->end && state->next > 0) {
        if (s->asked >= ASK_MAX)
            return -EAGAIN;
        uint32_t handle = client_handle(state->next);
        if (client_answers(s, fd, handle)) {
            int r = client_add(s, p, state->number, handle);
            if (r < 0)
                return r;
            state->found = true;
            state->misses = 0;
        } else if (state->found && !state->all && ++state->misses >= NEIGHBOURS) {
            break;
        }
        if (--state->next < state->end && !state->found)
            state->end = state->last;
    }
    state->next = 0;
    state->resolved = true;
    state->searched = state->top;
    return 0;
}

/* One that is known already, if the descriptor is inherited; or near the process's other clients,
 * which saves the long way on a machine that is long up. As above. */
static int clients_guess(struct nv_scanner *s, struct nv_process *p, int fd, int32_t number,
                         uint64_t low)
{
    int r, found = 0;
    uint64_t top = s->position;
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++) {
            uint32_t handle = s->procs[i].clients[k].handle;
            if (s->asked < ASK_MAX && client_answers(s, fd, handle)) {
                if ((r = client_add(s, p, number, handle)) < 0)
                    return r;
                found++;
            }
        }
    }
    for (size_t i = 0; i < p->nclients && !found && s->asked < ASK_MAX; i++) {
        uint64_t at = top - (top - p->clients[i].handle + RM_CLIENT_BASE) % RM_CLIENT_RANGE;
        r = clients_probe(s, p, fd, number, max_u64(at, low + NEIGHBOURS) - NEIGHBOURS,
                          min_u64(at + NEIGHBOURS, top));
        if (r < 0)
            return r;
        found += r;
    }
    return found;
}

/* Finds the clients of one borrowed descriptor that are not known yet. -EAGAIN: not all of them. */
static int clients_find(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state)
{
    if (state->next)
        return search(s, p, fd, state);
    if (s->asked >= ASK_MAX)
        return -EAGAIN;
    uint64_t top = s->position, low = counter_before(s, p->id);
    state->top = state->next = top;
    state->found = false;
    state->misses = 0;
    state->all = state->resolved; /* only those that came since */
    if (state->resolved) {
        state->end = state->last = max_u64(state->searched + 1, low);
        return search(s, p, fd, state);
    }
    int found = clients_guess(s, p, fd, state->number, low);
    if (found) {
        state->next = 0;
        state->resolved = found > 0;
        state->searched = top;
        return found < 0 ? found : 0;
    }
    /* From now back to the process's start; where that is unknown, to the counter's zero. Further
     * (an inherited descriptor, a counter that has wrapped) only if it certainly uses a GPU. */
    uint64_t oldest = top - RM_CLIENT_RANGE + 1;
    state->end = low > oldest ? low : max_u64(oldest, top - top % RM_CLIENT_RANGE);
    state->last = p->fds.ngpu ? oldest : state->end;
    return search(s, p, fd, state);
}

/* ---- a process ---- */

/* What to do at this scan. */
struct plan {
    bool relist;     /* list the descriptors and look for new clients */
    bool rediscover; /* look at all objects */
    bool deep;
    bool first; /* never looked at before: what is there counts as finished */
};

static int scan_fd(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *state,
                   const struct plan *plan)
{
    /* A descriptor whose client does not answer is another file by now. */
    for (size_t i = 0; i < p->nclients && plan->relist;) {
        struct nv_client *c = &p->clients[i];
        if (c->fd != state->number || client_answers(s, fd, c->handle)) {
            i++;
            continue;
        }
        client_free(c);
        *c = p->clients[--p->nclients];
        state->resolved = false;
        state->next = 0;
    }
    int r = plan->relist ? clients_find(s, p, fd, state) : 0;
    if (r == -EAGAIN) {
        p->searching = true;
        r = 0;
    }
    for (size_t i = 0; i < p->nclients && r == 0; i++) {
        struct nv_look l = {.s = s, .p = p, .c = &p->clients[i], .fd = fd};
        if (l.c->fd != state->number)
            continue;
        bool inherited = l.c->elsewhere;
        if (plan->relist)
            l.c->elsewhere = owned_elsewhere(s, p, l.c->handle);
        if (l.c->elsewhere) {
            group_list_free(&l.c->groups);
            continue;
        }
        uint64_t age = s->io.now_ns(s->io.ctx) - l.c->discovered_ns;
        bool whole = plan->first || inherited, anew = inherited || l.c->discovered_ns == 0;
        if (plan->rediscover || anew || l.c->fresh.n || age > REDISCOVER_NS)
            r = nv_client_discover(&l, plan->deep || anew, !whole);
        else if (!nv_client_unchanged(&l))
            r = client_answers(s, fd, l.c->handle) ? nv_client_discover(&l, false, true) : -ESTALE;
    }
    return r;
}

/* True if this descriptor need not be borrowed now: nothing is known on it that could change. */
static bool fd_idle(const struct nv_process *p, const struct nv_fd *state)
{
    for (size_t i = 0; i < p->nclients; i++) {
        const struct nv_client *c = &p->clients[i];
        if (c->fd == state->number && !c->elsewhere && (c->groups.n || c->fresh.n || c->own_next))
            return false;
    }
    return true;
}

static int scan_process(struct nv_scanner *s, struct nv_process *p, int pidfd, bool force,
                        struct error *err)
{
    const struct rm_io *io = &s->io;
    uint64_t now = io->now_ns(io->ctx), count = 0;
    bool due =
        force || p->dirty || p->searching || p->listed_ns == 0 || now - p->listed_ns > RELIST_NS;
    struct plan plan = {.relist = due, .rediscover = force || p->dirty, .first = !p->looked};
    if (!plan.relist) {
        int r = io->fd_count(io->ctx, p->id.pid, &count);
        if (r < 0)
            return rm_borrow_error(err, r, p->id.pid);
        plan.relist = count == 0 || count != p->fds.fd_count;
    }
    if (plan.relist) {
        struct rm_fds old = p->fds;
        int r = io->fds(io->ctx, p->id.pid, &p->fds);
        if (r < 0)
            return rm_borrow_error(err, r, p->id.pid);
        bool changed = old.ngpu != p->fds.ngpu || old.nctl != p->fds.nctl ||
                       memcmp(old.ctl, p->fds.ctl, sizeof(old.ctl)) != 0;
        /* Descriptors that have nothing to do with a GPU may come and go all the time. */
        plan.deep = changed;
        plan.rediscover |= changed;
        plan.relist = changed || due;
        fds_reconcile(p);
    }
    if (plan.relist) {
        if (p->nfd) {
            int r = counter_update(s, err);
            if (r < 0)
                return r;
        }
        p->listed_ns = now;
        p->dirty = p->searching = false;
    }
    for (uint32_t i = 0; i < p->nfd; i++) {
        if (!plan.relist && fd_idle(p, &p->fd[i]))
            continue;
        int fd = io->getfd(io->ctx, pidfd, p->fd[i].number);
        int r = fd;
        if (fd >= 0) {
            r = scan_fd(s, p, fd, &p->fd[i], &plan);
            io->close(io->ctx, fd);
        } else if (fd == -EBADF) {
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
    int pidfd = s->io.pidfd(s->io.ctx, proc);
    s->asked = s->looked = 0;
    if (pidfd < 0) {
        if (pidfd == -ESRCH)
            nv_forget(s, proc.pid);
        return rm_borrow_error(err, pidfd, proc.pid);
    }
    struct nv_process *p = process_get(s, proc);
    int r = p ? scan_process(s, p, pidfd, false, err) : error_set(err, -ENOMEM, "out of memory");
    if (r == -ESTALE) /* what we knew is no longer so: once more, from the start */
        r = scan_process(s, p, pidfd, true, err);
    s->io.close(s->io.ctx, pidfd);
    for (size_t i = 0; r == 0 && i < p->nclients; i++) {
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
    return r;
}

int nv_scanner_init(struct nv_scanner *s, const struct rm_io *io, int ctl_fd, struct nv_gpus *gpus,
                    struct error *err)
{
    *s = (struct nv_scanner){.io = *io, .ctl_fd = ctl_fd, .gpus = gpus};
    s->ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    return counter_update(s, err);
}

void nv_scanner_free(struct nv_scanner *s)
{
    for (size_t i = 0; i < s->nprocs; i++)
        process_clear(&s->procs[i]);
    free(s->procs);
    *s = (struct nv_scanner){.ctl_fd = -1};
}
