/* Loads of `cede load` on a GPU of this machine, for the tests that steer them. A copy in the test
 * that uses it. */
#ifndef TESTS_DEVICE_NVIDIA_GPU_LOAD_H
#define TESTS_DEVICE_NVIDIA_GPU_LOAD_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/ops.h"

/* The driver; else ends the test, with 77 where there is no such GPU. */
static struct device_driver *open_or_exit(void)
{
    struct device_driver *d = NULL;
    struct error err = {""};
    int r = device_nvidia.open(NULL, &d, &err);
    if (r < 0) {
        printf("no NVIDIA GPU: %s\n", err.text);
        exit(r == -ENODEV ? 77 : 1);
    }
    return d;
}

/* `cede load KIND` with that option, which writes to a file of its own, /dev/null or `output`. How
 * long its kernels take does not matter, and calibration would have to be alone. */
static pid_t load(const char *cede, const char *kind, const char *option, const char *output)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (output)
            dup2(open(output, O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        execl(cede, cede, "load", kind, "--device", "nvidia", "--iterations-per-us", "5", option,
              (char *)NULL);
        _exit(127);
    }
    return pid;
}

/* Its compute group, within 30 s. */
static int compute_group(struct device_driver *d, pid_t pid, struct device_group *out)
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

#endif
