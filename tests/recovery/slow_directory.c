/* Preloaded into ceded: a directory service that does not answer as long as the file
 * $CEDE_TEST_SLOW is there; a question that waits makes $CEDE_TEST_SLOW.asked. */
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/util.h"

static void wait_for_answer(void)
{
    char asked[128];
    const char *slow = getenv("CEDE_TEST_SLOW");
    if (!slow || access(slow, F_OK) < 0)
        return;
    snprintf(asked, sizeof(asked), "%s.asked", slow);
    close(open(asked, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    while (access(slow, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

__attribute__((visibility("default"))) struct group *getgrnam(const char *name)
{
    struct group *(*next)(const char *);
    void *p = dlsym(RTLD_NEXT, "getgrnam");
    memcpy(&next, &p, sizeof(p));
    wait_for_answer();
    return next(name);
}

__attribute__((visibility("default"))) struct passwd *getpwnam(const char *name)
{
    struct passwd *(*next)(const char *);
    void *p = dlsym(RTLD_NEXT, "getpwnam");
    memcpy(&next, &p, sizeof(p));
    wait_for_answer();
    return next(name);
}
