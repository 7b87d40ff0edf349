/* See scan.h. Finds the clients behind a descriptor.
 *
 * A client answers only on the open file that allocated it, so a question about a client handle
 * shows whether the descriptor owns it. Client handles count up for the whole machine; the
 * positions to ask are bounded by the counter now and by its value before the process started. A
 * question takes about 2 us (H200, 580.159.04) whether or not the client exists, so questions are
 * saved, and a long search is spread over many scans. The search of one descriptor goes from the
 * newest position down:
 *
 *     UNKNOWN ── a guess hits ──────────────────────────────────────> DONE
 *        │ none does                                                 ^ │ ^
 *        v                                                           │ │ │
 *      NEAR ─── hit ──> CLUSTER ── NEIGHBOURS misses, or the end ────┘ │ │
 *        │ the process's start       ^                                 │ │
 *        ├── it uses a GPU ──> FAR ──┤ hit                             │ │
 *        │                      └────│── the oldest position ──────────│─┤
 *        └── it does not ────────────│─────────────────────────────────│─┘
 *                                    │            asked again          v
 *      DONE <── the position of the last search ──────────────────── NEWER
 *
 * NEAR, FAR, CLUSTER and NEWER go on at the next scan when this one has asked ASK_MAX questions. A
 * client that does not answer any more leads from any state to UNKNOWN, because the descriptor is
 * another file now. */
#include <errno.h>

#include "gpu/nvidia/scan.h"

#define NEIGHBOURS  64U   /* positions around a client at which the process may have others */
#define ASK_MAX     2048U /* of one scan: 4 ms */
#define CLIENTS_MAX 128U  /* of one process; most have one or two */

/* ---- the clients' counter ---- */

int nv_counter_update(struct nv_scanner *s, struct error *err)
{
    uint32_t index;
    int r = rm_client_counter(s->io, s->ctl_fd, &index, err);
    if (r < 0)
        return r;
    /* The position starts one range up, so that earlier positions are not negative. */
    if (s->position == 0)
        s->position = RM_CLIENT_RANGE + index;
    else
        s->position += (index - (uint32_t)(s->position % RM_CLIENT_RANGE)) % RM_CLIENT_RANGE;

    uint64_t now = s->io->now_ns();
    if (s->nmarks && now - s->marks[s->nmarks - 1].ns < NSEC_PER_SEC)
        return 0;
    if (s->nmarks == NV_MARKS) { /* every second mark goes: old processes need no exact bound */
        for (unsigned i = 0; i < NV_MARKS / 2; i++)
            s->marks[i] = s->marks[2 * i];
        s->nmarks = NV_MARKS / 2;
    }
    s->marks[s->nmarks].ns = now;
    s->marks[s->nmarks++].position = s->position;
    return 0;
}

/* A lower bound of the positions of this process's clients. */
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

/* ---- clients ---- */

bool nv_client_answers(struct nv_scanner *s, int fd, uint32_t client)
{
    uint32_t class;
    s->asked++;
    return rm_info(s->io, fd, client, client, RM_INFO_CLASS, &class) == 0;
}

static int client_add(struct nv_scanner *s, struct nv_process *p, int32_t number, uint32_t handle)
{
    for (size_t i = 0; i < p->nclients; i++) {
        if (p->clients[i].handle == handle)
            return 0; /* two descriptors of one open file (dup) */
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

/* Asks about the clients at positions low to high, from the top. Returns the number that was found,
 * or -errno. */
static int clients_probe(struct nv_scanner *s, struct nv_process *p, int fd, int32_t number,
                         uint64_t low, uint64_t high)
{
    int found = 0;
    for (uint64_t i = high; i >= low && i > 0; i--) {
        if (!nv_client_answers(s, fd, client_handle(i)))
            continue;
        found++;
        int r = client_add(s, p, number, client_handle(i));
        if (r < 0)
            return r;
    }
    return found;
}

/* Asks about known clients, in case the descriptor is inherited, and about positions near the
 * process's other clients, which saves a long search on a machine that has run for long. Returns
 * the same. */
static int clients_guess(struct nv_scanner *s, struct nv_process *p, int fd, int32_t number,
                         uint64_t low)
{
    int r, found = 0;
    uint64_t top = s->position;
    for (size_t i = 0; i < s->nprocs; i++) {
        for (size_t k = 0; &s->procs[i] != p && k < s->procs[i].nclients; k++) {
            uint32_t handle = s->procs[i].clients[k].handle;
            if (s->asked < ASK_MAX && nv_client_answers(s, fd, handle)) {
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

/* ---- the search ---- */

static void search_finish(struct nv_fd *x)
{
    x->state = NV_SEARCH_DONE;
    x->searched = x->top;
}

/* At the lowest position of NEAR the search goes on (the descriptor may be inherited, or the
 * counter may have wrapped) only if the process certainly uses a GPU. */
static void search_end(const struct nv_process *p, struct nv_fd *x)
{
    uint64_t oldest = x->top - RM_CLIENT_RANGE + 1;
    if (x->state != NV_SEARCH_NEAR || !p->fds.ngpu || x->end <= oldest) {
        search_finish(x);
        return;
    }
    x->state = NV_SEARCH_FAR;
    x->end = oldest;
}

/* Begins a search: from UNKNOWN back to the process's start or, if the position of that is not
 * known, to the counter's zero; from DONE back to the last search. */
static int search_begin(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *x)
{
    uint64_t low = counter_before(s, p->id), top = s->position, oldest = top - RM_CLIENT_RANGE + 1;
    bool first = x->state == NV_SEARCH_UNKNOWN;
    if (s->asked >= ASK_MAX)
        return -EAGAIN;
    int found = first ? clients_guess(s, p, fd, x->number, low) : 0;
    if (found < 0)
        return found;
    x->state = first ? NV_SEARCH_NEAR : NV_SEARCH_NEWER;
    x->top = x->next = top;
    x->misses = 0;
    if (!first)
        x->end = max_u64(x->searched + 1, low);
    else
        x->end = low > oldest ? low : max_u64(oldest, top - top % RM_CLIENT_RANGE);
    if (found)
        search_finish(x);
    return 0;
}

int nv_search(struct nv_scanner *s, struct nv_process *p, int fd, struct nv_fd *x)
{
    int r = 0;
    if (x->state == NV_SEARCH_UNKNOWN || x->state == NV_SEARCH_DONE)
        r = search_begin(s, p, fd, x);
    while (r == 0 && x->state != NV_SEARCH_DONE) {
        if (x->next < x->end || x->next == 0) {
            search_end(p, x);
            continue;
        }
        if (s->asked >= ASK_MAX)
            return -EAGAIN;
        uint32_t handle = client_handle(x->next--);
        if (nv_client_answers(s, fd, handle)) {
            r = client_add(s, p, x->number, handle);
            x->misses = 0;
            if (x->state != NV_SEARCH_NEWER)
                x->state = NV_SEARCH_CLUSTER;
        } else if (x->state == NV_SEARCH_CLUSTER && ++x->misses >= NEIGHBOURS) {
            search_finish(x);
        }
    }
    return r;
}
