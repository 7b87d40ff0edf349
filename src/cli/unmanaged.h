/* What the daemon reports of GPU programs that no job owns, in words: which they are, and what to
 * type so that they are scheduled. Pure text. */
#ifndef CEDE_CLI_UNMANAGED_H
#define CEDE_CLI_UNMANAGED_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/terms.h"

struct unmanaged_words {
    bool several;
    char who[400];    /* "python3 (pid 4711) uses GPU 0 and is not scheduled" */
    char command[64]; /* what to type for class `to`: "cede set 4711 -c batch" */
};

/* Those of a daemon's reply that the caller may set and nobody detached. jobs: not NULL: only those
 * that may be on a GPU of one of these jobs. False: there are none. */
bool unmanaged_words(const json_t *reply, const json_t *jobs, enum job_class to,
                     struct unmanaged_words *out);

#endif
