/* See other.h. */
#include "recovery/other.h"

#include <string.h>

#include "lib/procfs.h"
#include "lib/util.h"

/* Only that user can make a process that looks so, and it is about that user's programs alone. */
bool other_cede_has(pid_t pid)
{
    _cleanup_free_ pid_t *pids = NULL;
    size_t n = 0;
    uid_t owner, uid;
    struct proc_stat st;
    bool own = false;
    if (geteuid() != 0 || proc_owner(pid, &owner) < 0 || owner == 0 || proc_list(&pids, &n) < 0)
        return false;
    for (size_t i = 0; i < n && !own; i++)
        own = proc_stat_read(pids[i], &st) == 0 && strcmp(st.comm, "cede-restore") == 0 &&
              proc_owner(pids[i], &uid) == 0 && uid == owner;
    return own;
}
