/* See restorer.h. Must not die before its work is done: ignores signals by which users stop
 * programs, and has the driver open while anything is on record, so that it need not be opened
 * late. */
#include "journal/restorer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/child.h"
#include "base/log.h"
#include "journal/address.h"
#include "journal/restorers.h"
#include "journal/swapper.h"

#define DISMISSAL        'Q'
#define LOOK_MS          500 /* between looks at the daemon's heartbeat */
#define OPEN_AGAIN_MAX   6   /* a driver that does not open is tried every 32 s at last */
#define UNDO_TRIES       20
#define UNDO_LATER       10 /* further tries, one per second */
#define UNDO_INTERVAL_NS 50000000L
#define SEARCH_MS        (120 * 1000)
/* Limit of bringing in everything, because a swapper may hang; at the slowest measured 3 GB/s this
 * is enough for 1.8 TB. */
#define SWAP_UNDO_MS (600 * 1000)
/* The same limit while a daemon starts, which has programs to schedule. */
#define SWAP_START_MS 10000

int restorer_start(struct journal *j, pid_t *pid, int *pipe_fd, struct error *err)
{
    const struct journal_shared *s = journal_shared(j);
    char devices[ADDRESS_TEXT], path[64], dir[256];
    address_text(s->driver, s->where, devices);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", journal_fd(j));
    ssize_t n = readlink(path, dir, sizeof(dir) - 1);
    dir[n > 0 ? n : 0] = '\0';
    char *end = strrchr(dir, '/');
    if (end)
        *end = '\0';
    const struct child_spec spec = {.file = CHILD_SELF,
                                    .argv =
                                        (const char *const[]){"cede-restore", devices, dir, NULL},
                                    .fds = {{journal_fd(j), RESTORE_JOURNAL_FD},
                                            {journal_lock_fd(j), RESTORE_LOCK_FD},
                                            {journal_memory_fd(j), RESTORE_MEMORY_FD}},
                                    .session = true,
                                    .fresh = true};
    const int fd = child_start_linked(&spec, CHILD_READS, RESTORE_PIPE_FD, pid);
    if (fd < 0)
        return error_set(err, fd, "cannot start the restorer: %s", strerror(-fd));
    *pipe_fd = fd;
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
    /* Otherwise the next ceded would believe a file in which changes are missing. */
    (void)journal_mend(j);
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
        /* Processes that do not come back in time stay on record. */
        (void)swapper_undo(j, SWAP_START_MS, false, NULL);
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

/* The driver while the daemon lives. */
struct held {
    struct device_driver *driver;
    unsigned failures; /* of opening it, one after the other */
    uint64_t again_ns;
};

/* Keeps the driver open while something is on record, because opening it later might cost a second,
 * and only then, because an open driver cannot be unloaded. A GPU that is away, or whose driver is
 * unloaded, is tried less and less often. */
static void keep_driver_open(struct journal *j, struct held *h)
{
    const struct journal_shared *s = journal_shared(j);
    bool any = swapper_anything(j);
    struct error err = {""};
    uint32_t flags;
    journal_refresh(j);
    for (uint32_t i = 0; i < journal_groups_end(j) && !any; i++)
        any = journal_group(j, i, &flags) != NULL;
    if (!any) {
        device_close(h->driver);
        *h = (struct held){.driver = NULL};
        return;
    }
    const uint64_t now = monotonic_ns();
    if (h->driver || now < h->again_ns)
        return;
    if (device_open(s->driver, s->where[0] ? s->where : NULL, &h->driver, &err) == 0) {
        h->failures = 0;
        return;
    }
    if (!h->failures)
        log_say(LOG_WARNING, "restorer: %s; tried again, every 32 s at last", err.text);
    h->again_ns = now + ((LOOK_MS * NSEC_PER_MSEC) << h->failures);
    h->failures += h->failures < OPEN_AGAIN_MAX;
}

/* Waits until the daemon has ended. False: it dismissed the restorer. */
static bool guard(struct journal *j, int pipe_fd, struct held *h)
{
    bool hung = false;
    for (;;) {
        keep_driver_open(j, h);
        struct pollfd p = {.fd = pipe_fd, .events = POLLIN};
        int n = poll(&p, 1, LOOK_MS);
        if (n == 0) {
            bool hangs = daemon_hangs(j); /* again and again, in case undoing failed */
            if (hangs && !hung)
                log_say(LOG_ERR, "ceded does not answer; its jobs run again");
            if (hangs && (!hung || h->driver))
                restorer_undo(j, &h->driver);
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

/* Finds swapped processes without a record, for which the daemon was still searching. False:
 * another holder has the journal meanwhile, and searches itself. */
static bool find_swapped(struct journal *j, const struct device_driver *driver)
{
    struct swapper s;
    struct proc_id v[SWAPS_FOUND_MAX];
    struct error err = {""};
    uint32_t n = 0;
    if (!(journal_incomplete(j) & JOURNAL_SWAPS_MISSING) || !driver || !driver->ops->swap_state)
        return true;
    int r = swapper_search(&s, j, &err);
    if (r == 0) {
        struct pollfd ended = {.fd = s.pidfd, .events = POLLIN};
        journal_yield(j);
        const bool done = poll(&ended, 1, SEARCH_MS) > 0, ours = journal_reclaim(j) == 0;
        if (!ours || !done) {
            swapper_detach(&s);
            return ours;
        }
        r = swapper_found(&s, v, &n, &err);
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t slot = journal_swap_slot(j, v[i]);
        if (slot != SLOT_NONE && !journal_swap(j, slot)) /* each as a job by itself */
            journal_put_swap(
                j, slot,
                &(struct journal_swap){.proc = v[i], .arrived = true, .job = JOURNAL_JOBS + i});
    }
    if (r == 0)
        journal_complete(j, JOURNAL_SWAPS_MISSING);
    else
        log_say(LOG_ERR, "perhaps not all that is swapped out was found: %s", err.text);
    return true;
}

/* Undoes all changes at once or, if the machine is too busy, in the next seconds. False: another
 * holder has the journal meanwhile. */
static bool undo_all(struct journal *j, struct device_driver **driver)
{
    unsigned left;
    for (int i = 0; (left = restorer_undo(j, driver)) > 0 && i < UNDO_TRIES + UNDO_LATER; i++) {
        bool later = i >= UNDO_TRIES;
        if (i == UNDO_TRIES)
            log_say(LOG_ERR, "%u channel groups cannot be given back what they had; trying on",
                    left);
        if (later)
            journal_yield(j);
        nanosleep(&(struct timespec){later, later ? 0 : UNDO_INTERVAL_NS}, NULL);
        if (later && journal_reclaim(j) < 0)
            return false;
    }
    return true;
}

/* Undoes everything after the daemon's death. Swapping takes longest and comes last; meanwhile
 * another daemon may begin. */
static void clean_up(struct journal *j, struct device_driver **driver)
{
    struct error err = {""};
    journal_reclaim(j); /* the lock is held already; this names the new holder */
    if (!undo_all(j, driver) || !find_swapped(j, *driver))
        return;
    if (swapper_undo(j, SWAP_UNDO_MS, true, &err) > 0)
        log_say(LOG_ERR, "a job stays swapped out until the next ceded: %s", err.text);
    journal_mend_soon(j);
}

int restore_main(int argc, char **argv)
{
    (void)argc;
    (void)argv; /* for other processes to read: restorers.h */
    if (fcntl(RESTORE_JOURNAL_FD, F_GETFD) < 0 || fcntl(RESTORE_LOCK_FD, F_GETFD) < 0 ||
        fcntl(RESTORE_PIPE_FD, F_GETFD) < 0 || fcntl(RESTORE_MEMORY_FD, F_GETFD) < 0) {
        fprintf(stderr, "cede-restore is started by ceded, not by hand\n");
        return 2;
    }
    if (child_begin("cede-restore") < 0)
        return 1;

    struct journal *j;
    struct error err = {""};
    if (journal_from_fd(RESTORE_JOURNAL_FD, RESTORE_MEMORY_FD, RESTORE_LOCK_FD, &j, &err) < 0) {
        log_say(LOG_ERR, "%s", err.text);
        return 1;
    }
    struct held h = {.driver = NULL};
    if (guard(j, RESTORE_PIPE_FD, &h))
        clean_up(j, &h.driver);
    device_close(h.driver);
    journal_close(j);
    return 0;
}
