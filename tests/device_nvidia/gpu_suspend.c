/* Suspending on a GPU of this machine: how many resumptions it takes after one, two and three
 * suspensions, by one process or by one each, which has ended since, and whether one that is
 * resumed first is suspended once then. Exits 77 where there is no such GPU, and 1 unless the last
 * is so. Steers its own child only. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/ops.h"

#define TIMES 3

static char output[] = "/tmp/cede-suspend-XXXXXX";

static pid_t load(const char *cede)
{
    int fd = mkstemp(output);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(fd, STDOUT_FILENO);
        execl(cede, cede, "load", "batch", "--device", "nvidia", "--iterations-per-us", "5",
              "--report", "20", (char *)NULL);
        _exit(127);
    }
    close(fd);
    return pid;
}

/* Kernels that have ended, by the last lines of its report. */
static long kernels(void)
{
    char text[512] = "";
    int fd = open(output, O_RDONLY | O_CLOEXEC);
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, sizeof(text) - 1, size > 500 ? size - 500 : 0);
    close(fd);
    long last = -1;
    for (char *at = text; n > 0 && (at = strstr(at, "\"kernels\":")); at++)
        last = strtol(at + 10, NULL, 10);
    return last;
}

static bool works(void)
{
    usleep(300000);
    long before = kernels();
    usleep(300000);
    return kernels() > before;
}

static int group_of(struct device_driver *d, pid_t pid, struct device_group *out)
{
    struct group_list l = {0};
    struct proc_stat st;
    int r = proc_stat_read(pid, &st);
    bool found = false;
    for (int i = 0; i < 300 && r == 0 && !found; i++) {
        l.n = 0;
        usleep(100000);
        d->ops->scan(d, st.id, &l, NULL);
        for (size_t k = 0; k < l.n && !found; k++) {
            found = l.v[k].kind == GROUP_COMPUTE;
            *out = l.v[k];
        }
    }
    group_list_free(&l);
    return r < 0 ? r : found ? 0 : -ENOENT;
}

/* By a process of its own, which ends. */
static int set_elsewhere(pid_t load, bool on)
{
    int status = 1;
    pid_t pid = fork();
    if (pid == 0) {
        struct device_driver *d;
        struct device_group g;
        int r = device_nvidia.open(NULL, &d, NULL);
        r = r ? r : group_of(d, load, &g);
        const struct device_group *one = &g;
        _exit((r ? r : d->ops->set_running(d, &one, 1, on, NULL)) != 0);
    }
    waitpid(pid, &status, 0);
    return status;
}

int main(int argc, char **argv)
{
    struct error err = {""};
    struct device_driver *d;
    struct device_group g;
    const struct device_group *one = &g;
    bool good = true;
    int r = device_nvidia.open(NULL, &d, &err);
    if (r == -ENODEV)
        printf("no NVIDIA GPU: %s\n", err.text);
    if (r < 0)
        return r == -ENODEV ? 77 : 1;
    pid_t pid = load(argc > 1 ? argv[1] : "cede");
    r = group_of(d, pid, &g);
    printf("found: %d, works: %d\n", r, works());
    for (int k = 0; k < 2 * TIMES && r == 0; k++) {
        bool elsewhere = k >= TIMES;
        int times = k % TIMES + 1, resumed = 0;
        for (int i = 0; i < times; i++)
            r |= elsewhere ? set_elsewhere(pid, false)
                           : d->ops->set_running(d, &one, 1, false, &err);
        bool off = !works();
        for (bool on = false; !on && resumed < 2 * TIMES; on = works(), resumed++)
            r |= d->ops->set_running(d, &one, 1, true, &err);
        printf("%d suspensions%s: off %d, resumed %d times\n", times, elsewhere ? " by others" : "",
               off, resumed);
    }
    for (int i = 0; i < TIMES && r == 0; i++) {
        r |= d->ops->set_running(d, &one, 1, true, &err);
        r |= d->ops->set_running(d, &one, 1, false, &err);
    }
    bool off = !works();
    r |= d->ops->set_running(d, &one, 1, true, &err);
    bool on = works();
    printf("resumed before each suspension: off %d, then on %d, r %d %s\n", off, on, r, err.text);
    good = r == 0 && off && on;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(output);
    device_close(d);
    return !good;
}
