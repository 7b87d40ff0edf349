/* The watch on the daemon's directory: without its lock a second daemon could begin, and without
 * its socket clients do not find this one. */
#ifndef CEDE_DAEMON_DIRECTORY_H
#define CEDE_DAEMON_DIRECTORY_H

#include <uv.h>

#include "journal/journal.h"

struct directory {
    uv_poll_t *poll;
    int fd; /* inotify's; -1: there is no watch */
    const char *path;
    struct journal_lock_id lock;
    void (*lost)(void *arg);
    void *arg;
};

/* As journal_open(). A daemon that is to stay tells a transient one to leave instead of waiting for
 * its jobs, and takes them over. */
int directory_journal(const char *dir, bool transient, struct journal **out, struct error *err);

/* path stays the caller's. lost() is called when the lock in it was replaced, or when the lock or
 * the socket was removed. */
int directory_watch(struct directory *d, uv_loop_t *loop, const char *path,
                    struct journal_lock_id lock, void (*lost)(void *arg), void *arg);
void directory_unwatch(struct directory *d);

#endif
