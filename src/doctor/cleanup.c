/* See cleanup.h. */
#include "doctor/cleanup.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <sys/wait.h>

int process_make_dir(const char *prefix, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%sXXXXXX", prefix);
    int r = n < 0 || (size_t)n >= size ? -ENAMETOOLONG : mkdtemp(buf) ? 0 : -errno;
    if (r < 0)
        buf[0] = '\0';
    return r;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

void process_remove_dir(const char *dir)
{
    nftw(dir, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* Children of a killed child become this process's, so the loop goes on until there are none. */
void process_end_all(uint64_t patience_ns)
{
    uint64_t deadline = monotonic_ns() + patience_ns;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid > 0)
            continue;
        if (monotonic_ns() < deadline) {
            poll(NULL, 0, 10);
            continue;
        }
        _cleanup_fclose_ FILE *f = fopen("/proc/thread-self/children", "re");
        if (!f)
            return;
        while (fscanf(f, "%d", &pid) == 1)
            kill(pid, SIGKILL);
        waitpid(-1, NULL, 0);
    }
}
