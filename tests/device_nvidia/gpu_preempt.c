/* Preemption modes on a GPU of this machine: a load whose work is verified, beside another that
 * waits for the GPU, is set to block ends and back. Exits 77 where there is no such GPU. Steers its
 * own children only; their blocks are short, so that none can make the driver reset a channel. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/ops.h"

#define CHANGES 200

static pid_t load(const char *const argv[])
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(argv[0], (char *const *)argv);
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

static int change(struct device_driver *d, const struct device_group *g, struct error *err)
{
    uint64_t longest_ns = 0, sum_ns = 0;
    int r = 0;
    for (int i = 0; i < CHANGES && r == 0; i++) {
        uint64_t began = monotonic_ns();
        r = d->ops->set_preempt(d, g, i % 2 == 0, err);
        uint64_t took = monotonic_ns() - began;
        longest_ns = max_u64(longest_ns, took);
        sum_ns += took;
        usleep(10000);
    }
    printf("%d changes: mean %.0f us, longest %.0f us\n", CHANGES,
           (double)sum_ns / CHANGES / NSEC_PER_USEC, (double)longest_ns / NSEC_PER_USEC);
    /* Suspended, as a job is that waits for its turn. */
    for (int i = 0; i < 4 && r == 0; i++) {
        r = d->ops->set_running(d, &g, 1, false, err);
        r = r ? r : d->ops->set_preempt(d, g, i % 2 == 0, err);
        int back = d->ops->set_running(d, &g, 1, true, err);
        r = r ? r : back;
    }
    int back = d->ops->set_preempt(d, g, false, r ? NULL : err);
    return r ? r : back;
}

/* Ends it: what it verified has to be right. */
static int end_load(pid_t pid)
{
    int status = 0;
    kill(pid, SIGTERM);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv)
{
    struct error err = {""};
    struct device_driver *d;
    struct device_group g;
    const char *cede = argc > 1 ? argv[1] : "cede";
    /* How long their kernels take does not matter, and calibration would have to be alone. */
    const char *const batch[] = {
        cede, "load", "batch", "--device", "nvidia", "--iterations-per-us", "5", "--verify", NULL};
    const char *const serve[] = {cede,       "load",     "latency",
                                 "--device", "nvidia",   "--iterations-per-us",
                                 "5",        "--verify", NULL};
    int r = device_nvidia.open(NULL, &d, &err);
    if (r == -ENODEV)
        printf("no NVIDIA GPU: %s\n", err.text);
    if (r < 0)
        return r == -ENODEV ? 77 : 1;
    pid_t pids[] = {load(batch), load(serve)};
    r = compute_group(d, pids[1], &g);
    r = r ? r : compute_group(d, pids[0], &g);
    if (r == 0)
        r = change(d, &g, &err);
    if (r < 0)
        printf("%s: %s\n", strerror(-r), err.text);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        int status = end_load(pids[i]);
        printf("load %zu: exit status %d\n", i, status);
        r = r ? r : status;
    }
    device_close(d);
    return r != 0;
}
