/* Signals to all processes of a group that changes meanwhile, such as a job's. The kernel decides
 * whether the caller may send them: nobody sends any for another user. */
#ifndef CEDE_CLI_SIGNALS_H
#define CEDE_CLI_SIGNALS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/util.h"
#include "gpu/ops.h"

/* Processes that were looked at already. */
struct signalled {
    struct member *v;
    size_t n;       /* of v */
    unsigned found; /* processes that were to get the signal; those that did; another user's: */
    unsigned sent, refused;
};

/* Sends the signal, by pidfd, to each process that `list` lists and that is not in `to` yet, but
 * not to the caller. Returns how many were new, or -errno. */
int signals_send(struct signalled *to, int signal, int (*list)(struct pid_list *out, void *arg),
                 void *arg);
void signalled_free(struct signalled *s);

/* Reads a signal, for an option: TERM, SIGTERM or 15. `to` is an int. */
int signals_read(void *to, const char *name, const char *text, struct error *err);
const char *signals_name(int signal, char buf[static 16]);

/* Ends what descends from this process: by SIGTERM, and by SIGKILL after 5 s. Returns how many
 * processes there were. */
unsigned signals_end_descendants(void);

#endif
