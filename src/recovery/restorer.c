/* See restorer.h. Must not die before its work is done: ignores every polite signal, allocates
 * nothing it needs late, has the driver open while anything is on record. */
#include "recovery/restorer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "lib/log.h"
#include "recovery/address.h"
#include "recovery/restorers.h"
#include "recovery/swapper.h"

#define DISMISSAL        'Q'
#define LOOK_MS          500 /* at the daemon's heartbeat */
#define UNDO_TRIES       20
#define UNDO_LATER       10 /* once a second, after those */
#define UNDO_INTERVAL_NS 50000000L
/* Of bringing in all that is out: hours of GPU memory moved at its slowest measured 3 GB/s would be
 * more, but a swapper that hangs is not to keep a process for ever. */
#define SEARCH_MS    (120 * 1000)
#define SWAP_UNDO_MS (600 * 1000)
/* A daemon that begins has programs to schedule. */
#define SWAP_START_MS 10000

int restorer_start(struct journal *j, pid_t *pid, int *pipe_fd, struct error *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe for the restorer: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        int r = -errno;
        close(fds[0]);
        close(fds[1]);
        return error_set(err, r, "cannot start the restorer: %s", strerror(-r));
    }
    if (child == 0) {
        const struct journal_shared *s = journal_shared(j);
        char devices[ADDRESS_TEXT], path[64], dir[256];
        address_text(s->driver, s->where, devices);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", journal_fd(j));
        ssize_t n = readlink(path, dir, sizeof(dir) - 1);
        dir[n > 0 ? n : 0] = '\0';
        char *end = strrchr(dir, '/');
        if (end)
            *end = '\0';
        const int own[] = {[RESTORE_JOURNAL_FD - 3] = journal_fd(j),
                           [RESTORE_LOCK_FD - 3] = journal_lock_fd(j),
                           [RESTORE_PIPE_FD - 3] = fds[0],
                           [RESTORE_MEMORY_FD - 3] = journal_memory_fd(j)};
        standby_exec(own, ARRAY_SIZE(own),
                     (const char *const[]){"cede-restore", devices, dir, NULL});
    }
    close(fds[0]);
    *pid = child;
    *pipe_fd = fds[1];
    return 0;
}

void restorer_dismiss(int pipe_fd)
{
    char c = DISMISSAL;
    while (write(pipe_fd, &c, 1) < 0 && errno == EINTR)
        ;
    close(pipe_fd);
}

static bool anything_waits(const struct journal *j)
{
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        if (journal_group(j, i, &flags) && (flags & (JG_SUSPENDED | JG_STOPPED)))
            return true;
    }
    return false;
}

static unsigned restorer_undo(struct journal *j, struct device_driver **driver)
{
    struct error err = {""};
    struct journal_shared *s = journal_shared(j);
    journal_refresh(j);
    if (!*driver && device_open(s->driver, s->where[0] ? s->where : NULL, driver, &err) < 0) {
        log_say(LOG_ERR, "%s", err.text);
        journal_undo_stops(j, NULL, NULL);
        return 1;
    }
    unsigned failed = journal_undo(j, *driver, NULL, NULL);
    atomic_fetch_add(&s->restored, 1);
    journal_store_shared(j);
    return failed;
}

int restorer_undo_abandoned(const char *dir, struct error *err)
{
    struct journal *j;
    struct device_driver *driver = NULL;
    if (journal_open_readonly(dir, &j, NULL) < 0)
        return 0;
    bool any = anything_waits(j);
    journal_close(j);
    if (!any || journal_open(dir, 0, &j, NULL) < 0)
        return 0;
    unsigned failed = restorer_undo(j, &driver);
    device_close(driver);
    journal_close(j);
    return failed ? error_set(err, -EIO, "%u channel groups could not be given back what they had",
                              failed)
                  : 0;
}

unsigned restorer_address(struct journal *j, struct device_driver *driver,
                          const struct device_address *address)
{
    struct journal_shared *s = journal_shared(j);
    unsigned gpus = driver->ops->gpus(driver), left = 0;
    bool foreign = false, any = swapper_anything(j);
    uint32_t flags;
    s->driver[sizeof(s->driver) - 1] = s->where[sizeof(s->where) - 1] = '\0';
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        const struct device_group *g = journal_group(j, i, &flags);
        any |= g != NULL;
        foreign |= g && g->gpu >= gpus;
    }
    if (any && s->driver[0] &&
        (foreign || !address_same(s->driver, s->where, address->name, address->where))) {
        struct device_driver *old = NULL;
        restorer_undo(j, &old);
        device_close(old);
        for (uint32_t i = 0; i < journal_groups_end(j); i++) {
            left += journal_group(j, i, &flags) != NULL;
            journal_put_group(j, i, 0, NULL);
        }
        if (left)
            atomic_fetch_or(&s->incomplete, JOURNAL_GROUPS_MISSING);
        (void)swapper_undo(j, SWAP_START_MS, false,
                           NULL); /* what does not come back stays on record */
    }
    snprintf(s->driver, sizeof(s->driver), "%s", address->name);
    snprintf(s->where, sizeof(s->where), "%s", address->where);
    journal_store_shared(j);
    return left;
}

static bool daemon_hangs(struct journal *j)
{
    uint64_t beat = journal_shared(j)->heartbeat_ns, now = monotonic_ns();
    if (!beat || now < beat || now - beat < RESTORER_HANG_MS * NSEC_PER_MSEC)
        return false;
    journal_refresh(j);
    return anything_waits(j);
}

/* Opened while something is on record, because later there is a second to lose, and only then,
 * because a driver that somebody has open cannot be unloaded. What fails is tried again. */
static void hold_driver(struct journal *j, struct device_driver **driver)
{
    const struct journal_shared *s = journal_shared(j);
    bool any = swapper_anything(j);
    uint32_t flags;
    journal_refresh(j);
    for (uint32_t i = 0; i < journal_groups_end(j) && !any; i++)
        any = journal_group(j, i, &flags) != NULL;
    if (any && !*driver) {
        (void)device_open(s->driver, s->where[0] ? s->where : NULL, driver, NULL);
    } else if (!any) {
        device_close(*driver);
        *driver = NULL;
    }
}

/* Until the daemon has ended; false: and there is nothing to undo. */
static bool guard(struct journal *j, int pipe_fd, struct device_driver **driver)
{
    bool hung = false;
    for (;;) {
        hold_driver(j, driver);
        struct pollfd p = {.fd = pipe_fd, .events = POLLIN};
        int n = poll(&p, 1, LOOK_MS);
        if (n == 0) {
            bool hangs = daemon_hangs(j); /* with something to undo, again if that failed */
            if (hangs && !hung)
                log_say(LOG_ERR, "ceded does not answer; its jobs run again");
            if (hangs)
                restorer_undo(j, driver);
            hung = hangs;
            continue;
        }
        char c;
        ssize_t got = n < 0 ? -1 : read(pipe_fd, &c, 1);
        if (got == 0)
            return true;
        if (got > 0 && c == DISMISSAL)
            return false;
    }
}

/* What is off the GPU and on no record: the daemon was still looking for it. Another one that
 * begins meanwhile looks itself. */
static void find_swapped(struct journal *j, const struct device_driver *driver)
{
    struct swapper s;
    struct proc_id v[SWAPS_FOUND_MAX];
    struct error err = {""};
    uint32_t n = 0;
    if (!(journal_incomplete(j) & JOURNAL_SWAPS_MISSING) || !driver || !driver->ops->swap_state)
        return;
    int r = swapper_search(&s, j, &err);
    if (r == 0) {
        struct pollfd ended = {.fd = s.pidfd, .events = POLLIN};
        journal_yield(j);
        bool done = poll(&ended, 1, SEARCH_MS) > 0;
        if (journal_reclaim(j) < 0 || !done) {
            swapper_detach(&s);
            return;
        }
        r = swapper_found(&s, v, &n, &err);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = journal_swap_slot(j, v[i]);
        if (slot != SLOT_NONE && !journal_swap(j, slot)) /* each by itself */
            journal_put_swap(
                j, slot,
                &(struct journal_swap){.proc = v[i], .arrived = true, .job = JOURNAL_JOBS + i});
    }
    if (r == 0)
        journal_complete(j, JOURNAL_SWAPS_MISSING);
    else
        log_say(LOG_ERR, "perhaps not all that is swapped out was found: %s", err.text);
}

/* At once, and on a machine that is too busy for that in the next seconds, unless another holder
 * begins: then false. */
static bool undo_all(struct journal *j, struct device_driver **driver)
{
    for (int i = 0; restorer_undo(j, driver) > 0 && i < UNDO_TRIES + UNDO_LATER; i++) {
        bool later = i >= UNDO_TRIES;
        if (later)
            journal_yield(j);
        nanosleep(&(struct timespec){later, later ? 0 : UNDO_INTERVAL_NS}, NULL);
        if (later && journal_reclaim(j) < 0)
            return false;
    }
    return true;
}

/* The daemon is dead. What takes longest comes last, and meanwhile another daemon may begin. */
static void clean_up(struct journal *j, struct device_driver **driver)
{
    struct error err = {""};
    journal_reclaim(j); /* held already: for its name */
    if (!undo_all(j, driver))
        return;
    (void)journal_mend(j); /* or the next ceded believes what the last one could not write */
    find_swapped(j, *driver);
    if (swapper_undo(j, SWAP_UNDO_MS, true, &err) > 0)
        log_say(LOG_ERR, "a job stays swapped out until the next ceded: %s", err.text);
}

int restore_main(int argc, char **argv)
{
    (void)argc;
    (void)argv; /* for others to read: restorers.h */
    if (fcntl(RESTORE_JOURNAL_FD, F_GETFD) < 0 || fcntl(RESTORE_LOCK_FD, F_GETFD) < 0 ||
        fcntl(RESTORE_PIPE_FD, F_GETFD) < 0 || fcntl(RESTORE_MEMORY_FD, F_GETFD) < 0) {
        fprintf(stderr, "cede-restore is started by ceded, not by hand\n");
        return 2;
    }
    if (standby_begin("cede-restore") < 0)
        return 1;

    struct journal *j;
    struct error err = {""};
    if (journal_from_fd(RESTORE_JOURNAL_FD, RESTORE_MEMORY_FD, RESTORE_LOCK_FD, &j, &err) < 0) {
        log_say(LOG_ERR, "%s", err.text);
        return 1;
    }
    struct device_driver *driver = NULL;
    if (guard(j, RESTORE_PIPE_FD, &driver))
        clean_up(j, &driver);
    device_close(driver);
    journal_close(j);
    return 0;
}
