/* Where the daemon and the verbs meet. */
#ifndef CEDE_LIB_PATHS_H
#define CEDE_LIB_PATHS_H

#include <stddef.h>

#include "lib/socket_path.h"
#include "lib/util.h"

/* Directory of the socket and the journal for this user: $CEDE_DIR; /run/cede as root;
 * $XDG_RUNTIME_DIR/cede, or /tmp/cede-UID, for others. Not created. */
int cede_dir(char *buf, size_t size, struct error *err);

/* Directory of what outlives a boot, at present the accounts: $CEDE_STATE_DIR; `dir`, if ceded was
 * given one, or $CEDE_DIR; /var/lib/cede as root; $XDG_STATE_HOME/cede, or ~/.local/state/cede, for
 * others. Not created. */
int cede_state_dir(const char *dir, char *buf, size_t size, struct error *err);

/* Creates dir (one level, 0755; 0700 under /tmp) if missing, and refuses one that another user owns
 * or may write to. */
int cede_dir_make(const char *dir, struct error *err);

#endif
