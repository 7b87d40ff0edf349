/* Shows what the nvidia driver finds and does on this machine's GPUs, with the times it takes:
 *   nvidia_probe [PID...]               every process, or these, with their groups; changes nothing
 *   nvidia_probe --no-nvml [PID...]     the same without the management library
 *   nvidia_probe --slice US PID...      sets all their groups' timeslices, and leaves them so
 *   nvidia_probe --suspend|--resume PID...
 *   nvidia_probe --time PID...          sets, suspends, resumes, 20 times; suspends after rests of
 *                                       several kinds; puts all back
 *   nvidia_probe --pace PID...          scans all ten times a second for 2 s: CPU time of each
 *   nvidia_probe --watch PID            scans without a pause for 8 s and tells each change
 *   nvidia_probe --parallel PID...      suspends and resumes each 20 times, one by one, and then
 * all at once, each from a thread and a driver of its own nvidia_probe --trace PID...         who
 * had these programs' GPUs, by the driver's trace, ten times a second for 2 s; or the step at which
 * it refuses to trace Exits 77 where there is no such GPU. Must not leave a program suspended
 * except on --suspend. */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "gpu/nvidia/nvidia.h"
#include "gpu/ops.h"

#define ROUNDS 20

static uint64_t cpu_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (uint64_t)ts.tv_sec * NSEC_PER_SEC + (uint64_t)ts.tv_nsec;
}

static double us_since(uint64_t then)
{
    return (double)(monotonic_ns() - then) / 1000;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, double *us)
{
    qsort(us, ROUNDS, sizeof(us[0]), compare);
    printf("  %-20s min %.0f  median %.0f  max %.0f us\n", what, us[0], us[ROUNDS / 2],
           us[ROUNDS - 1]);
}

static int scan(struct device_driver *d, struct proc_id id, struct group_list *l, bool show)
{
    struct error err = {""};
    l->n = 0;
    uint64_t t = monotonic_ns(), c = cpu_ns();
    int r;
    while ((r = d->ops->scan(d, id, l, &err)) == -EAGAIN)
        l->n = 0;
    if (show || r < 0)
        printf("scan of %d: %zu groups, %.0f us, CPU %.0f us%s%s\n", (int)id.pid, l->n, us_since(t),
               (double)(cpu_ns() - c) / 1000, r < 0 ? ": " : "", err.text);
    return r;
}

/* What the driver says is set now, by a descriptor borrowed here. */
static uint64_t get_timeslice(const struct device_group *g)
{
    const struct rm_io *io = &rm_io_system;
    struct rm_timeslice t = {0};
    int pidfd = io->pidfd(g->proc);
    int fd = pidfd < 0 ? -1 : io->getfd(g->proc.pid, pidfd, g->source);
    if (fd >= 0)
        rm_control(io, fd, g->handles[0], g->handles[3], RM_GET_TIMESLICE, &t, NULL);
    io->close(fd);
    io->close(pidfd);
    return t.us;
}

static void show_groups(const struct group_list *l)
{
    static const char *const kinds[] = {"compute", "copy", "other"};
    for (size_t i = 0; i < l->n; i++) {
        const struct device_group *g = &l->v[i];
        printf("  gpu %u %-7s client %x device %x subdevice %x group %x, %u channels, "
               "first seen %llu us, now %llu us\n",
               g->gpu, kinds[g->kind], g->handles[0], g->handles[1], g->handles[2], g->handles[3],
               g->nchannels, (unsigned long long)g->timeslice_us,
               (unsigned long long)get_timeslice(g));
    }
}

static int set_all(struct device_driver *d, const struct group_list *l, uint64_t us)
{
    struct error err = {""};
    for (size_t i = 0; i < l->n; i++) {
        int r = d->ops->set_timeslice(d, &l->v[i], us ? us : l->v[i].timeslice_us, &err);
        if (r < 0) {
            printf("set_timeslice: %s\n", err.text);
            return r;
        }
        if (us && get_timeslice(&l->v[i]) != us) {
            printf("set %llu us, but the driver says %llu us\n", (unsigned long long)us,
                   (unsigned long long)get_timeslice(&l->v[i]));
            return -EIO;
        }
    }
    return 0;
}

static int disable_all(struct device_driver *d, const struct group_list *l, bool disable)
{
    struct error err = {""};
    const struct device_group *v[256];
    size_t n = 0;
    for (; n < l->n && n < ARRAY_SIZE(v); n++)
        v[n] = &l->v[n];
    int r = d->ops->set_running(d, v, n, !disable, &err);
    if (r < 0)
        printf("%s: %s\n", disable ? "suspend" : "resume", err.text);
    return r;
}

/* How long a suspension takes depends on what was before it: the processor may have slept, the
 * driver may have had nothing to do, the program may not have been on the GPU. */
static int time_suspend_after(struct device_driver *d, const struct group_list *l)
{
    enum { SHORT, ASLEEP, AWAKE, TOLD, COMPUTE, NKINDS };
    static const char *const names[NKINDS] = {[SHORT] = "after 2 ms",
                                              [ASLEEP] = "after 150 ms",
                                              [AWAKE] = "  spent spinning",
                                              [TOLD] = "  a timeslice set",
                                              [COMPUTE] = "  compute only"};
    struct error err = {""};
    struct group_list compute = {0};
    double us[ROUNDS];
    int r = 0;
    for (size_t i = 0; i < l->n && r == 0; i++) {
        if (l->v[i].kind == GROUP_COMPUTE)
            r = group_list_push(&compute, &l->v[i]);
    }
    for (int kind = 0; kind < NKINDS && r == 0; kind++) {
        const struct group_list *which = kind == COMPUTE ? &compute : l;
        for (int i = 0; i < ROUNDS && r == 0; i++) {
            uint64_t rest = (kind == SHORT ? 2 : 150) * NSEC_PER_MSEC, t = monotonic_ns();
            while (kind == AWAKE && monotonic_ns() - t < rest)
                ;
            if (kind != AWAKE)
                nanosleep(&(struct timespec){.tv_nsec = (long)rest}, NULL);
            if (kind == TOLD)
                r = d->ops->set_timeslice(d, &l->v[0], 1000 + (uint64_t)i, &err);
            t = monotonic_ns();
            r = r ? r : disable_all(d, which, true);
            us[i] = us_since(t);
            int r2 = disable_all(d, which, false);
            r = r ? r : r2;
        }
        if (r == 0)
            report(names[kind], us);
    }
    group_list_free(&compute);
    return r;
}

static int time_controls(struct device_driver *d, const struct group_list *l)
{
    double set[ROUNDS], off[ROUNDS], on[ROUNDS];
    struct error err = {""};
    int r = 0;
    for (int i = 0; i < ROUNDS && l->n && r == 0; i++) {
        uint64_t t = monotonic_ns();
        r = d->ops->set_timeslice(d, &l->v[0], 1000 + (uint64_t)i, &err);
        set[i] = us_since(t);
        t = monotonic_ns();
        r = r ? r : disable_all(d, l, true);
        off[i] = us_since(t);
        t = monotonic_ns();
        int r2 = disable_all(d, l, false);
        on[i] = us_since(t);
        r = r ? r : r2;
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
    }
    if (r < 0 || !l->n)
        return r < 0 ? r : -ENOENT;
    report("set_timeslice", set);
    report("suspend (process)", off);
    report("resume (process)", on);
    r = time_suspend_after(d, l);
    int r2 = set_all(d, l, 0);
    return r ? r : r2;
}

static int visit(struct device_driver *d, pid_t pid, const char *verb, uint64_t us)
{
    struct proc_stat st;
    struct group_list l = {0};
    double again[ROUNDS];
    int r = proc_stat_read(pid, &st);
    r = r < 0 ? r : scan(d, st.id, &l, true);
    uint64_t c = cpu_ns();
    for (int i = 0; i < ROUNDS && r == 0; i++) {
        uint64_t t = monotonic_ns();
        r = scan(d, st.id, &l, false);
        again[i] = us_since(t);
    }
    if (r == 0) {
        c = cpu_ns() - c;
        report("scan again", again);
        printf("  %-20s %.1f us\n", "CPU a scan", (double)c / ROUNDS / 1000);
        show_groups(&l);
        if (strcmp(verb, "--slice") == 0)
            r = set_all(d, &l, us);
        else if (strcmp(verb, "--suspend") == 0 || strcmp(verb, "--resume") == 0)
            r = disable_all(d, &l, verb[2] == 's');
        else if (strcmp(verb, "--time") == 0)
            r = time_controls(d, &l);
    }
    group_list_free(&l);
    return r;
}

static void pace(struct device_driver *d, const struct pid_list *pids)
{
    struct group_list l = {0};
    uint64_t sum = 0, wall = 0;
    for (int i = 0; i < ROUNDS + 1; i++) {
        uint64_t c = cpu_ns(), t = monotonic_ns();
        for (size_t k = 0; k < pids->n; k++) {
            struct proc_stat st;
            if (proc_stat_read(pids->v[k], &st) == 0)
                scan(d, st.id, &l, false);
        }
        sum += i ? cpu_ns() - c : 0;
        wall += i ? monotonic_ns() - t : 0;
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    double n = (double)ROUNDS * (double)pids->n * 1000;
    printf("paced: %.1f us CPU, %.1f us a scan\n", (double)sum / n, (double)wall / n);
    group_list_free(&l);
}

static void watch(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    struct proc_stat st;
    char before[512] = "?";
    uint64_t start = monotonic_ns();
    for (uint64_t n = 0; monotonic_ns() - start < 8 * NSEC_PER_SEC; n++) {
        if (proc_stat_read(pid, &st) < 0 || scan(d, st.id, &l, false) < 0)
            break;
        char now[512] = "";
        size_t at = 0;
        for (size_t i = 0; i < l.n && at < sizeof(now) - 32; i++)
            at += (size_t)snprintf(now + at, sizeof(now) - at, " %x:%u@%llu", l.v[i].handles[3],
                                   l.v[i].nchannels, (unsigned long long)get_timeslice(&l.v[i]));
        if (strcmp(now, before) != 0)
            printf("  %8.0f us, scan %llu:%s\n", us_since(start), (unsigned long long)n, now);
        memcpy(before, now, sizeof(now));
    }
    group_list_free(&l);
}

static int trace(struct device_driver *d, const struct pid_list *pids)
{
    struct group_list l = {0};
    struct error err = {""};
    int r = 0;
    for (size_t k = 0; k < pids->n; k++) { /* their GPUs are those that are traced */
        struct proc_stat st;
        if (proc_stat_read(pids->v[k], &st) == 0)
            scan(d, st.id, &l, true);
    }
    for (int i = 0; i < ROUNDS && r == 0; i++) {
        struct activity_list a = {0};
        uint64_t t = monotonic_ns();
        r = d->ops->activity(d, &a, &err);
        printf("%.0f us, gaps on GPUs %x:%s", us_since(t), a.incomplete, a.n ? "" : " nobody");
        for (size_t k = 0; k < a.n; k++)
            printf("  pid %d gpu %u %u times %.1f ms", a.v[k].pid, a.v[k].gpu, a.v[k].bursts,
                   (double)a.v[k].busy_ns / NSEC_PER_MSEC);
        printf("\n");
        activity_list_free(&a);
        nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    }
    if (r < 0)
        printf("trace: %s\n", err.text);
    group_list_free(&l);
    return r;
}

/* ---- whether calls to different GPUs run at the same time ---- */

struct lane {
    pid_t pid;
    double off[ROUNDS], on[ROUNDS];
    pthread_barrier_t *together; /* NULL: alone */
    int result;
};

static void *toggle(void *arg)
{
    struct lane *x = arg;
    struct device_driver *d = NULL;
    struct group_list l = {0};
    struct proc_stat st;
    struct error err = {""};
    x->result = proc_stat_read(x->pid, &st);
    x->result = x->result < 0 ? x->result : device_nvidia.open(NULL, &d, &err);
    x->result = x->result < 0 ? x->result : scan(d, st.id, &l, false);
    for (int i = 0; i < ROUNDS; i++) {
        if (x->together)
            pthread_barrier_wait(x->together);
        uint64_t t = monotonic_ns();
        int r = x->result ? 0 : disable_all(d, &l, true);
        x->off[i] = us_since(t);
        if (x->together)
            pthread_barrier_wait(x->together);
        t = monotonic_ns();
        int r2 = x->result ? 0 : disable_all(d, &l, false);
        x->on[i] = us_since(t);
        x->result = x->result ? x->result : r ? r : r2;
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    }
    group_list_free(&l);
    device_close(d);
    return NULL;
}

static int parallel(const struct pid_list *pids)
{
    enum { LANES = 8 };
    struct lane lanes[LANES];
    pthread_t threads[LANES];
    pthread_barrier_t together;
    unsigned n = pids->n < LANES ? (unsigned)pids->n : LANES;
    int r = 0;
    pthread_barrier_init(&together, NULL, n);
    for (int at_once = 0; at_once < 2 && n; at_once++) {
        for (unsigned i = 0; i < n; i++) {
            lanes[i] = (struct lane){.pid = pids->v[i], .together = at_once ? &together : NULL};
            if (pthread_create(&threads[i], NULL, toggle, &lanes[i]) != 0)
                return -EAGAIN;
            if (!at_once)
                pthread_join(threads[i], NULL);
        }
        for (unsigned i = 0; i < n; i++) {
            if (at_once)
                pthread_join(threads[i], NULL);
            r = r ? r : lanes[i].result;
            printf("%d, %s:\n", (int)lanes[i].pid, at_once ? "all at once" : "one by one");
            report("suspend (process)", lanes[i].off);
            report("resume (process)", lanes[i].on);
        }
    }
    pthread_barrier_destroy(&together);
    return r;
}

/* ---- what there is ---- */

static int show_all(struct device_driver *d, struct pid_list *pids)
{
    struct error err = {""};
    int r = 0;
    for (unsigned i = 0; i < d->ops->gpus(d); i++) {
        struct gpu_info g;
        uint64_t t = monotonic_ns();
        d->ops->info(d, i, &g);
        printf("gpu %u: %s, %s, %s, %llu MiB, caps %x (told in %.0f us)\n", i, g.name, g.uuid,
               g.bus_id, (unsigned long long)(g.memory_bytes >> 20), g.caps, us_since(t));
    }
    for (int i = 0; i < 2; i++) {
        pids->n = 0;
        uint64_t t = monotonic_ns(), c = cpu_ns();
        r = d->ops->processes(d, pids, &err);
        printf("%zu processes in %.0f us, CPU %.0f us%s%s\n", pids->n, us_since(t),
               (double)(cpu_ns() - c) / 1000, r < 0 ? ": " : "", err.text);
    }
    struct usage_list u = {0};
    uint64_t t = monotonic_ns();
    int r2 = d->ops->usage(d, &u, &err);
    printf("usage in %.0f us%s%s\n", us_since(t), r2 < 0 ? ": " : "", r2 < 0 ? err.text : "");
    for (size_t i = 0; i < u.n; i++)
        printf("  pid %d gpu %u busy %.2f memory %llu MiB\n", u.v[i].pid, u.v[i].gpu, u.v[i].busy,
               (unsigned long long)(u.v[i].memory_bytes >> 20));
    usage_list_free(&u);
    return r;
}

int main(int argc, char **argv)
{
    struct error err = {""};
    struct device_driver *d;
    uint64_t t = monotonic_ns();
    int r = device_nvidia.open(NULL, &d, &err);
    if (r == -ENODEV) {
        printf("no NVIDIA GPU: %s\n", err.text);
        return 77;
    }
    if (r < 0) {
        printf("open: %s\n", err.text);
        return 1;
    }
    printf("opened in %.0f us\n", us_since(t));

    int at = 1;
    const char *verb = "";
    uint64_t us = 0;
    if (at < argc && argv[at][0] == '-')
        verb = argv[at++];
    if (strcmp(verb, "--slice") == 0 && (at == argc || parse_u64(argv[at++], 1, UINT32_MAX, &us)))
        return 2;

    if (strcmp(verb, "--no-nvml") == 0) {
        struct nv_gpus gpus = ((struct nv_driver *)d)->gpus;
        device_close(d);
        r = nv_driver_open(&rm_io_system, &gpus, false, &d, &err);
        if (r < 0)
            return 1;
    }
    struct pid_list pids = {0};
    for (; at < argc; at++) {
        uint64_t pid;
        if (parse_u64(argv[at], 1, INT32_MAX, &pid) < 0)
            return 2;
        r = pid_list_push(&pids, (pid_t)pid);
    }
    if (!pids.n)
        r = show_all(d, &pids);
    int result = r;
    if (strcmp(verb, "--pace") == 0)
        pace(d, &pids);
    if (strcmp(verb, "--watch") == 0 && pids.n) {
        watch(d, pids.v[0]);
        pids.n = 0;
    }
    if (strcmp(verb, "--parallel") == 0 || strcmp(verb, "--trace") == 0) {
        result = verb[2] == 'p' ? parallel(&pids) : trace(d, &pids);
        pids.n = 0;
    }
    for (size_t i = 0; i < pids.n; i++) {
        r = visit(d, pids.v[i], verb, us);
        result = result ? result : r;
    }
    pid_list_free(&pids);
    device_close(d);
    return result < 0;
}
