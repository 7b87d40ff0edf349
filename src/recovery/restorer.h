/* The restorer: a process of its own that undoes what the daemon changed, should the daemon die or
 * hang. It holds the journal (and with it the journal's lock) and one end of a pipe; when the pipe
 * ends without a dismissal, it resumes and restores every recorded group, brings in what is swapped
 * out, and exits. While it waits for that last, another daemon may take the journal over. */
#ifndef CEDE_RECOVERY_RESTORER_H
#define CEDE_RECOVERY_RESTORER_H

#include <sys/types.h>

#include "device/registry.h"
#include "lib/util.h"
#include "recovery/journal.h"

/* Starts it: this program again, named cede-restore, in a session of its own. The journal's shared
 * part names the driver to open. Keep *pipe_fd open for as long as there is something to guard. */
int restorer_start(struct journal *j, pid_t *pid, int *pipe_fd, struct error *err);

/* Everything is undone, or shall stay: the restorer ends. Closes pipe_fd. */
void restorer_dismiss(int pipe_fd);

/* Before the first change through a driver that was opened so: notes its address for the restorer.
 * What an earlier cede changed in devices that are not these, or have other indices, is undone,
 * because this driver would not know them. Returns how many groups were given up, because their
 * device cannot be reached any more. */
unsigned restorer_address(struct journal *j, struct device_driver *driver,
                          const struct device_address *address);

/* For a daemon that cannot begin yet: undoes what a killed daemon and its restorer have left
 * suspended in dir, and leaves the journal to the next holder. 0 also if there is nothing, or
 * another holder sees to it; -EIO: some could not be undone. */
int restorer_undo_abandoned(const char *dir, struct error *err);

/* `cede-restore`; returns the exit status. */
int restore_main(int argc, char **argv);

/* A daemon that has not turned for this long while jobs are suspended is taken for hung. */
#define RESTORER_HANG_MS 3000

#endif
