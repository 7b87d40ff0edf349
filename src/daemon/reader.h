/* Reads the configuration in a process of its own, because names of users and groups are asked of a
 * directory service that may take minutes to answer, or never does: the daemon would be taken for
 * hung. A thread would not do: it cannot be ended, and a daemon that leaves would wait for it. */
#ifndef CEDE_DAEMON_READER_H
#define CEDE_DAEMON_READER_H

#include <sys/types.h>

#include "control/config.h"
#include "daemon/process.h"

struct reader {
    pid_t pid; /* 0: none */
    int fd;    /* readable when something has come */
    char *answer;
    size_t got;
};
#define READER_NONE                                                                                \
    {                                                                                              \
        .pid = 0, .fd = -1                                                                         \
    }

/* One at a time. file NULL: CONFIG_FILE, which may be missing. */
int reader_start(struct reader *r, const char *file, struct error *err);

/* -EAGAIN: not all has come. 0: *out is the caller's to free. Else what is wrong with the
 * configuration; -EINTR: the reader was killed. After all but -EAGAIN: reader_stop(). */
int reader_take(struct reader *r, struct config *out, struct error *err);

/* All of it at once, as long as that takes: before ceded is anybody's daemon it has nothing else to
 * do. What a killed one has left suspended in dir (NULL: the default) does not wait. */
int reader_wait(const char *file, const char *dir, struct config *out, struct children *left,
                struct error *err);

/* Ends it, if there is one, and closes fd. */
void reader_stop(struct reader *r, struct children *left);

#endif
