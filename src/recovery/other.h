/* Other cedes on this machine that are alive, each with a restorer that stands by. What they have
 * suspended is theirs: whoever finds a suspended program without a record of it asks here first. */
#ifndef CEDE_RECOVERY_OTHER_H
#define CEDE_RECOVERY_OTHER_H

#include <stdbool.h>
#include <sys/types.h>

#include "recovery/journal.h"

#define OTHERS_MAX 64 /* users */

struct other_cedes {
    uid_t owners[OTHERS_MAX]; /* of those that may have these devices, each once */
    unsigned n;
    bool unsure; /* not all could be looked at: every process may be theirs, for now */
};

/* By the driver's name and address as in a journal, and the asker's own place: a restorer there
 * stands by for the asker, or goes on with what the asker's predecessor left to it. */
void other_cedes_find(struct other_cedes *o, const char *driver, const char *where,
                      const struct journal_place *own);
/* Whether one of them may have changed something in this process: root's in anybody's, a user's in
 * that user's. */
bool other_cedes_have(struct other_cedes *o, pid_t pid);

/* -EBUSY, and which one: a cede in another directory is scheduling these devices already, root's or
 * this user's own. One of another user keeps nobody from starting, as it reaches that user's
 * programs alone. `restorer` stands by for the asker: of two that start at once the one whose
 * restorer is older stays. 0: the asker has none, and does one thing. */
int other_cedes_refuse(const struct journal_shared *s, const struct journal_place *own,
                       pid_t restorer, struct error *err);

#endif
