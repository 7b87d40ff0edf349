/* Texts about GPU programs in no job, from a daemon's reply: which they are, and what to type so
 * that they are scheduled. Pure. */
#ifndef CEDE_CLI_UNMANAGED_H
#define CEDE_CLI_UNMANAGED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct unmanaged_words {
    bool several;
    char who[400];    /* "python3 (pid 4711) uses GPU 0 and is not scheduled" */
    char command[64]; /* what to type so that it yields: "cede set 4711 -c batch" */
};

/* About programs that the caller may set and that were not detached; unless jobs is NULL, only
 * those that may be on a GPU of one of these jobs. False: there are none. */
bool unmanaged_words(const json_t *reply, const json_t *jobs, struct unmanaged_words *out);

#define UNMANAGED_NAMES 240
/* Names those that are left alone: detached by hand, or else other users' that the caller may not
 * set. False: there are none. */
bool unmanaged_left(const json_t *reply, bool detached, char *buf, size_t size);

#endif
