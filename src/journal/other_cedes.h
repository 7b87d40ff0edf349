/* Finds other living cedes on this machine, each of which has a restorer. A program that is
 * suspended without a record here may be theirs, so this is asked before it is resumed. */
#ifndef CEDE_JOURNAL_OTHER_CEDES_H
#define CEDE_JOURNAL_OTHER_CEDES_H

#include <stdbool.h>
#include <sys/types.h>

#include "journal/journal.h"

#define OTHERS_MAX 64 /* users */

struct other_cedes {
    uid_t owners[OTHERS_MAX]; /* owners of cedes that may have these devices, each once */
    unsigned n;
    bool unsure; /* not all could be looked at, so that every process may be theirs */
};

/* Finds cedes with these devices, given by driver and address as in a journal. Restorers with the
 * lock `own` do not count: they belong to the caller or to its predecessor in the directory. */
void other_cedes_find(struct other_cedes *o, const char *driver, const char *where,
                      const struct journal_lock_id *own);
/* Whether one of them may have changed this process: root's may change any, a user's only that
 * user's. */
bool other_cedes_have(struct other_cedes *o, pid_t pid);

/* -EBUSY, with its pid in err: a cede of root or of this user, in another directory, schedules
 * these devices. Those of other users do not matter, because they reach only their users' programs.
 * `restorer`: the caller's; of two cedes that start together the one with the older restorer stays.
 * 0: the caller has none, because it makes one change only. */
int other_cedes_refuse(const struct journal_shared *s, const struct journal_lock_id *own,
                       pid_t restorer, struct error *err);

#endif
