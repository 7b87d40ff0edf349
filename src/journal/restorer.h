/* The restorer: a process that undoes the daemon's changes if the daemon dies or hangs. It has the
 * journal, with the journal's lock, and one end of a pipe. When the pipe ends without a dismissal,
 * it resumes and restores every recorded group, brings in swapped processes, and exits. While it
 * waits for the last, another daemon may take the journal over. */
#ifndef CEDE_JOURNAL_RESTORER_H
#define CEDE_JOURNAL_RESTORER_H

#include <sys/types.h>

#include "base/util.h"
#include "gpu/registry.h"
#include "journal/journal.h"

/* Starts the restorer: this program again, named cede-restore, in a new session. It opens the
 * driver that the journal's shared part names. The caller keeps *pipe_fd open while there may be
 * changes.
 */
int restorer_start(struct journal *j, pid_t *pid, int *pipe_fd, struct error *err);

/* Ends the restorer, because everything is undone or should stay. Closes pipe_fd. */
void restorer_dismiss(int pipe_fd);

/* Called before the first change through a driver: notes its address for the restorer. Changes of
 * an earlier cede in other devices, or in devices with other indices, are undone, because this
 * driver would not know them. Returns the number of groups that were given up, because their device
 * cannot be reached any more. */
unsigned restorer_address(struct journal *j, struct device_driver *driver,
                          const struct device_address *address);

/* For a daemon that cannot begin yet: resumes programs that a killed daemon and its restorer have
 * left suspended, by the journal in dir. 0 also if there are none, or if another process has the
 * journal; -EIO: some could not be resumed. */
int restorer_undo_abandoned(const char *dir, struct error *err);

/* `cede-restore`; returns the exit status. */
int restore_main(int argc, char **argv);

/* A daemon without a heartbeat for this long, while jobs are suspended, counts as hung. */
#define RESTORER_HANG_MS 3000

#endif
