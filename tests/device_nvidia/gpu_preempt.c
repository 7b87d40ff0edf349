/* Preemption modes on a GPU of this machine: a load whose work is verified, beside another that
 * waits for the GPU, is set to block ends and back. Exits 77 where there is no such GPU. Steers its
 * own children only; their blocks are short, so that none can make the driver reset a channel. */
#include "gpu_load.h"

#define CHANGES 200

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
    struct device_driver *d = open_or_exit();
    struct device_group g;
    const char *cede = argc > 1 ? argv[1] : "cede";
    pid_t pids[] = {load(cede, "batch", "--verify", NULL), load(cede, "latency", "--verify", NULL)};
    int r = compute_group(d, pids[1], &g);
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
