/* Reads the configuration in a separate process, because a directory service that resolves names of
 * users and groups may take minutes to answer or never do so, and the restorer would take the
 * daemon for hung. A thread could not be ended, and a daemon that leaves would wait for it. */
#ifndef CEDE_DAEMON_CONFIG_READER_H
#define CEDE_DAEMON_CONFIG_READER_H

#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/daemonize.h"

struct reader {
    pid_t pid; /* 0: no process runs */
    int fd;    /* readable when a part of the answer has come */
    char *answer;
    size_t got;
};
#define READER_NONE                                                                                \
    {                                                                                              \
        .pid = 0, .fd = -1                                                                         \
    }

/* Starts the process, one at a time. file NULL: CONFIG_FILE, which may be missing. */
int reader_start(struct reader *r, const char *file, struct error *err);

/* 0: the caller frees *out. -EAGAIN: the answer is not complete; -EINTR: the reader was killed;
 * others: the configuration is wrong. After all but -EAGAIN the caller calls reader_stop(). */
int reader_take(struct reader *r, struct config *out, struct error *err);

/* Reads the configuration and waits as long as that takes, before ceded serves anybody. Meanwhile
 * changes that a killed ceded has left in dir (NULL: the default) are undone. */
int reader_wait(const char *file, const char *dir, struct config *out, struct children *left,
                struct error *err);

/* Ends the process, if one runs, and closes fd. */
void reader_stop(struct reader *r, struct children *left);

#endif
