/* Directories and files that the daemon and the verbs share. */
#ifndef CEDE_BASE_PATHS_H
#define CEDE_BASE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/socket_path.h"
#include "base/util.h"

/* Gets the directory of this user's socket and journal, which is not created here: $CEDE_DIR;
 * /run/cede for root; $XDG_RUNTIME_DIR/cede, or /tmp/cede-UID, for others. */
int cede_dir(char *buf, size_t size, struct error *err);

/* Gets the directory of data that outlive a boot, which is not created here: $CEDE_STATE_DIR;
 * `dir`, if ceded was given one, or $CEDE_DIR; /var/lib/cede for root; $XDG_STATE_HOME/cede, or
 * ~/.local/state/cede, for others. */
int cede_state_dir(const char *dir, char *buf, size_t size, struct error *err);

/* Creates dir (one level, 0755; 0700 under /tmp) if missing, and refuses one that another user owns
 * or may write to. */
int cede_dir_make(const char *dir, struct error *err);

/* Finds a file that belongs to this program: in its build folder, else where data/install.sh puts
 * it relative to the program, else at the configured path. The working directory never matters,
 * because root runs the file. False: it is missing, and path is where it should be. */
bool cede_find(const char *built, const char *beside, const char *installed, char *path,
               size_t size);

#endif
