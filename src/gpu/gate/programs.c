/* See gate.h. Programs are not trusted: SO_PEERCRED identifies a program, its messages change only
 * its own entry, the numbers of messages and programs are bounded for each user, and nothing waits
 * for a program. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/shared_page.h"
#include "base/unasked_fds.h"
#include "gpu/gate/gate.h"

#define ACCEPTS_AT_ONCE 64
#define REFUSED_AT_ONCE 16 /* refusals after which none is accepted for a while */
/* A user owes DEBT_PART times the processor time of connecting, up to DEBT_MAX_NS. */
#define DEBT_PART        5
#define DEBT_MAX_NS      (200 * NSEC_PER_MSEC)
#define LEAVING_NS       (20 * NSEC_PER_USEC) /* cost of closing the connection later */
#define MESSAGES_AT_ONCE 64                   /* of one program, before those of others */
/* Limit of messages of all programs of a user within MUTE_NS; more are read only afterwards.
 * Meanwhile their wants are still seen, because demand() reads them from their pages. */
#define MESSAGES_MAX 128
#define MUTE_NS      ACCEPT_PAUSE_NS
/* The limit of a new program until the scheduler has decided about it. */
#define FIRST_LIMIT_US 10000
#define FIRST_NS       NSEC_PER_SEC

/* ---- what is sent to a program ---- */

void gate_set_state(struct gate_program *p, unsigned i, uint32_t state)
{
    uint32_t any = 0;
    atomic_store(&p->control->device[i].state, state);
    for (unsigned k = 0; k < GATE_DEVICES; k++)
        any |= atomic_load(&p->control->device[k].state);
    atomic_store(&p->control->any, any);
    if (!(state & GATE_CLOSED))
        syscall(SYS_futex, &p->control->device[i].state, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static int welcome(struct gate_program *p)
{
    _cleanup_close_ int control_fd = -1, slot_fd = -1;
    p->control = shared_page("cede-gate-control", GATE_PAGE, SHARE_OURS, &control_fd);
    p->slot = shared_page("cede-gate-slot", GATE_PAGE, SHARE_THEIRS, &slot_fd);
    if (!p->control || !p->slot)
        return -ENOMEM;
    struct gate_msg m = {.type = GATE_WELCOME, .magic = GATE_MAGIC, .version = GATE_VERSION};
    p->welcomed = true;
    return send_with_fds(p->fd, &m, sizeof(m), (int[]){control_fd, slot_fd}, 2);
}

/* ---- the watcher ---- */

static void watch_fd(const struct gate_driver *d, int fd, bool on)
{
    void (*change)(void *arg, int fd) = on ? d->watcher.add : d->watcher.remove;
    if (change)
        change(d->watcher.arg, fd);
}

static void watch_all(const struct gate_driver *d, bool on)
{
    if (d->acceptor.fd >= 0 && !d->paused)
        watch_fd(d, d->acceptor.fd, on);
    for (unsigned i = 0; i < d->end; i++) {
        if (d->programs[i].fd >= 0 && !d->programs[i].muted)
            watch_fd(d, d->programs[i].fd, on);
    }
}

void gate_watch(struct device_driver *base, const struct device_watcher *w)
{
    struct gate_driver *d = (struct gate_driver *)base;
    watch_all(d, false);
    d->watcher = w ? *w : (struct device_watcher){.add = NULL};
    watch_all(d, true);
}

uint64_t gate_due_ns(struct device_driver *base)
{
    const struct gate_driver *d = (const struct gate_driver *)base;
    return min_u64(d->any_muted || d->paused ? d->unmuted_ns + MUTE_NS : UINT64_MAX,
                   d->stops_looked ? d->stops_ns : UINT64_MAX);
}

void gate_unmute(struct gate_driver *d)
{
    uint64_t now = d->now_ns();
    if (now < d->unmuted_ns + MUTE_NS)
        return;
    d->unmuted_ns = now;
    if (d->paused)
        watch_fd(d, d->acceptor.fd, true);
    d->paused = d->any_muted = false;
    for_each (p, d->programs, d->end) {
        if (p->fd >= 0 && p->muted)
            watch_fd(d, p->fd, true);
        p->sent = 0;
        p->muted = false;
    }
}

/* ---- what a program sends ---- */

void gate_drop(struct gate_driver *d, struct gate_program *p)
{
    for (unsigned k = 0; k < GATE_DEVICES; k++) {
        if (p->v[k].used)
            gate_entry_update(d, p, k);
    }
    if (!p->muted)
        watch_fd(d, p->fd, false);
    unasked_close(p->fd);
    if (p->control)
        munmap(p->control, GATE_PAGE);
    if (p->slot)
        munmap(p->slot, GATE_PAGE);
    memset(p, 0, sizeof(*p));
    p->fd = -1;
}

static int receive_device(struct gate_driver *d, struct gate_program *p, const struct gate_msg *m)
{
    if (m->device >= GATE_DEVICES || p->v[m->device].used || !m->name[0])
        return -EPROTO;
    if (d->left_out && strncmp(m->id, d->left_out, sizeof(m->id)) == 0)
        return 0; /* the program's submissions pass */
    uint64_t now = d->now_ns();
    p->v[m->device] = (struct gate_entry){
        .used = true,
        .gpu = gate_gpu_of(d, p, m),
        .level = m->level == LEVEL_PIECE ? LEVEL_PIECE : LEVEL_GATE,
        .key = ++d->next_key,
        .first_until = now + FIRST_NS,
        .looked_ns = now,
        .ended = atomic_load(&p->slot->device[m->device].ended),
    };
    atomic_store(&p->control->device[m->device].limit_us, FIRST_LIMIT_US);
    gate_set_state(p, m->device, GATE_ACTIVE);
    return 0;
}

static bool sent_too_much(const struct gate_driver *d, uid_t by)
{
    unsigned n = 0;
    for (unsigned i = 0; i < d->end; i++)
        n += d->programs[i].fd >= 0 && d->programs[i].principal == by ? d->programs[i].sent : 0;
    return n > MESSAGES_MAX;
}

static int receive_messages(struct gate_driver *d, struct gate_program *p)
{
    struct gate_msg m;
    for (unsigned i = 0; i < MESSAGES_AT_ONCE; i++) {
        ssize_t n = unasked_recv(p->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR ? 0 : -errno;
        p->sent++;
        if (n != (ssize_t)sizeof(m) && (n < 8 || m.type != GATE_DEMAND))
            return -EPROTO; /* 0 bytes, the end of the connection, too */
        bool first = m.type == GATE_HELLO;
        if (first == p->welcomed)
            return -EPROTO;
        int r = 0;
        if (first)
            r = m.magic == GATE_MAGIC && m.version == GATE_VERSION ? welcome(p) : -EPROTO;
        else if (m.type == GATE_DEVICE)
            r = receive_device(d, p, &m);
        else if (m.type != GATE_DEMAND)
            r = -EPROTO;
        if (r < 0)
            return r;
    }
    return 0; /* the descriptor stays readable, so that the rest is read later */
}

static void receive_from(struct gate_driver *d, struct gate_program *p)
{
    if (receive_messages(d, p) < 0) {
        gate_drop(d, p);
    } else if (p->sent && sent_too_much(d, p->principal)) {
        watch_fd(d, p->fd, false);
        p->muted = d->any_muted = true;
    }
}

/* ---- connections ---- */

bool gate_refused(const struct gate_driver *d, struct proc_id proc)
{
    bool refused = false;
    for (unsigned i = 0; i < GATE_REFUSED; i++)
        refused |= d->refused[i].pid && proc_same(d->refused[i], proc);
    for (unsigned i = 0; i < d->end && refused; i++)
        refused = d->programs[i].fd < 0 || !proc_same(d->programs[i].proc, proc);
    return refused;
}

/* Adds the program of a connection if there is room, and its user does not owe too much. */
static bool program_admit(struct gate_driver *d, int fd, uid_t *whose)
{
    struct ucred c;
    socklen_t size = sizeof(c);
    struct proc_stat st;
    unsigned slot = 0, theirs = 0, users = 0;
    uid_t owner;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &size) < 0)
        return false;
    const uid_t principal = *whose = principal_of(&d->principals, c.uid, c.pid);
    if (principal != 0 && quota_of(&d->debts, principal)->paid_ns > d->now_ns() + DEBT_MAX_NS)
        return false;
    if (proc_stat_read(c.pid, &st) < 0 || proc_owner(c.pid, &owner) < 0 ||
        (c.uid != 0 && owner != c.uid)) /* another process has the pid now */
        return false;
    for (unsigned i = 0; i < d->end; i++) {
        theirs += d->programs[i].fd >= 0 && d->programs[i].principal == principal;
        users += d->programs[i].fd >= 0 && d->programs[i].principal != 0;
    }
    while (slot < d->end && d->programs[slot].fd >= 0)
        slot++;
    if (slot == GATE_PROGRAMS || theirs >= GATE_PROGRAMS_OF_USER ||
        (principal != 0 && users >= USERS_PART(GATE_PROGRAMS))) {
        log_user(principal, LOG_WARNING,
                 "process %d of uid %u runs unscheduled: its user has %u programs with a gate (at "
                 "most %d), all users together %u (at most %d)",
                 (int)c.pid, c.uid, theirs, GATE_PROGRAMS_OF_USER, users,
                 USERS_PART(GATE_PROGRAMS));
        if (!gate_refused(d, st.id))
            d->refused[d->nrefused++ % GATE_REFUSED] = st.id;
        return false;
    }
    d->programs[slot] = (struct gate_program){.fd = fd, .proc = st.id, .principal = principal};
    d->end = slot >= d->end ? slot + 1 : d->end;
    watch_fd(d, fd, true);
    return true;
}

static void accept_some(struct gate_driver *d)
{
    unsigned refused = 0;
    int fd = 0;
    uint64_t started = thread_cpu_ns();
    for (int i = 0; i < ACCEPTS_AT_ONCE && fd >= 0 && refused < REFUSED_AT_ONCE; i++) {
        uid_t principal = 0;
        fd = acceptor_next(&d->acceptor);
        bool in = fd >= 0 && program_admit(d, fd, &principal);
        if (fd >= 0 && !in) {
            unasked_close(fd);
            refused++;
        }
        uint64_t now = thread_cpu_ns(), took = now - started + (in ? LEAVING_NS : 0);
        started = now;
        struct quota *q = quota_of(&d->debts, principal);
        if (principal != 0 && q->paid_ns <= d->now_ns() + 2 * DEBT_MAX_NS)
            quota_charge(q, d->now_ns(), took * DEBT_PART);
    }
    if (fd == -EBUSY || refused == REFUSED_AT_ONCE) {
        watch_fd(d, d->acceptor.fd, false);
        d->paused = true;
    }
}

int gate_listen(struct gate_driver *d, struct error *err)
{
    if (d->acceptor.fd >= 0)
        return 0;
    if (!d->path[0])
        return error_set(err, -EIO,
                         "programs with a gate can be steered by a daemon only: start ceded");
    unlink(d->path);
    const int fd = listen_for_all(d->path, 64);
    if (fd < 0)
        return error_set(err, -EIO, "cannot listen at %s: %s", d->path, strerror(-fd));
    acceptor_init(&d->acceptor, fd, NULL);
    watch_fd(d, d->acceptor.fd, true);
    return 0;
}

void gate_ready(struct device_driver *base, int fd)
{
    struct gate_driver *d = (struct gate_driver *)base;
    gate_unmute(d);
    if (fd >= 0 && fd == d->acceptor.fd && !d->paused)
        accept_some(d);
    for (unsigned i = 0; i < d->end && fd >= 0; i++) {
        if (d->programs[i].fd == fd && !d->programs[i].muted) {
            receive_from(d, &d->programs[i]);
            return;
        }
    }
}

void gate_poll(struct gate_driver *d)
{
    gate_unmute(d);
    for (unsigned i = 0, end = d->end; i < end; i++) {
        if (d->programs[i].fd >= 0 && !d->programs[i].muted)
            receive_from(d, &d->programs[i]);
    }
    if (d->acceptor.fd >= 0 && !d->paused)
        accept_some(d);
}
