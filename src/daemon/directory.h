/* The daemon's own directory, watched: without its lock there a second daemon could begin, and
 * without its socket nobody finds this one. */
#ifndef CEDE_DAEMON_DIRECTORY_H
#define CEDE_DAEMON_DIRECTORY_H

#include <uv.h>

#include "control/server.h"
#include "recovery/journal.h"

struct directory {
    uv_poll_t poll;
    int fd; /* inotify's; -1: it is not watched */
    const char *path;
    struct journal_place lock;
    void (*lost)(void *arg);
    void *arg;
};

/* path stays the caller's. lost() is called when the lock in it is another file than this one, or
 * the lock or the socket has gone. The loop's handle is closed with the loop's others. */
int directory_watch(struct directory *d, uv_loop_t *loop, const char *path,
                    struct journal_place lock, void (*lost)(void *arg), void *arg);
void directory_unwatch(struct directory *d);

/* Makes the directory `container` in dir, with a socket for guests. It stays when ceded ends:
 * containers have it mounted, and find the next ceded there. */
void directory_open_containers(const char *dir, struct server *s);

#endif
