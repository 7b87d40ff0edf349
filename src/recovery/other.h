/* Other cedes on this machine. */
#ifndef CEDE_RECOVERY_OTHER_H
#define CEDE_RECOVERY_OTHER_H

#include <stdbool.h>
#include <sys/types.h>

/* Root only: whether this process is of a user whose own cede is alive, and knows what it has done
 * to it. False for root's processes. */
bool other_cede_has(pid_t pid);

#endif
