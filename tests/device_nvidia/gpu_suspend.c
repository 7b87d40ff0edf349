/* Suspending on a GPU of this machine: how many resumptions it takes after one, two and three
 * suspensions, by one process or by one each, which has ended since; whether one that is resumed
 * first is suspended once then; and whether one call suspends, and resumes, two programs. Exits 77
 * where there is no such GPU, and 1 unless the last two are so. Steers its own children only. */
#include "gpu_load.h"

#define TIMES 3

struct program {
    pid_t pid;
    char output[32];
    struct device_group g; /* its compute group */
};

static void begin(const char *cede, struct program *p)
{
    strcpy(p->output, "/tmp/cede-suspend-XXXXXX");
    close(mkstemp(p->output));
    p->pid = load(cede, "batch", "--report=20", p->output);
}

static void end(struct program *p)
{
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    unlink(p->output);
}

/* Kernels that have ended, by the last lines of its report. */
static long kernels(const struct program *p)
{
    char text[512] = "";
    int fd = open(p->output, O_RDONLY | O_CLOEXEC);
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, sizeof(text) - 1, size > 500 ? size - 500 : 0);
    close(fd);
    long last = -1;
    for (char *at = text; n > 0 && (at = strstr(at, "\"kernels\":")); at++)
        last = strtol(at + 10, NULL, 10);
    return last;
}

static bool works(const struct program *p)
{
    usleep(300000);
    long before = kernels(p);
    usleep(300000);
    return kernels(p) > before;
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
        r = r ? r : compute_group(d, load, &g);
        const struct device_group *one = &g;
        _exit((r ? r : d->ops->set_running(d, &one, 1, on, NULL)) != 0);
    }
    waitpid(pid, &status, 0);
    return status;
}

/* Two programs in one call, twice: both stop, and both go on. */
static bool two_at_once(struct device_driver *d, const char *cede, struct program *a)
{
    struct program b;
    struct error err = {""};
    begin(cede, &b);
    int r = compute_group(d, b.pid, &b.g);
    const struct device_group *both[] = {&a->g, &b.g};
    bool good = r == 0 && works(a) && works(&b);
    for (int i = 0; i < 2 && r == 0; i++) {
        r = d->ops->set_running(d, both, 2, false, &err);
        bool off = !works(a) && !works(&b);
        r |= d->ops->set_running(d, both, 2, true, &err);
        bool on = works(a) && works(&b);
        printf("two in one call: off %d, then on %d, r %d %s\n", off, on, r, err.text);
        good &= off && on;
    }
    end(&b);
    return good && r == 0;
}

int main(int argc, char **argv)
{
    const char *cede = argc > 1 ? argv[1] : "cede";
    struct error err = {""};
    struct device_driver *d = open_or_exit();
    struct program p;
    const struct device_group *one = &p.g;
    begin(cede, &p);
    int r = compute_group(d, p.pid, &p.g);
    printf("found: %d, works: %d\n", r, works(&p));
    for (int k = 0; k < 2 * TIMES && r == 0; k++) {
        bool elsewhere = k >= TIMES;
        int times = k % TIMES + 1, resumed = 0;
        for (int i = 0; i < times; i++)
            r |= elsewhere ? set_elsewhere(p.pid, false)
                           : d->ops->set_running(d, &one, 1, false, &err);
        bool off = !works(&p);
        for (bool on = false; !on && resumed < 2 * TIMES; on = works(&p), resumed++)
            r |= d->ops->set_running(d, &one, 1, true, &err);
        printf("%d suspensions%s: off %d, resumed %d times\n", times, elsewhere ? " by others" : "",
               off, resumed);
    }
    for (int i = 0; i < TIMES && r == 0; i++) {
        r |= d->ops->set_running(d, &one, 1, true, &err);
        r |= d->ops->set_running(d, &one, 1, false, &err);
    }
    bool off = !works(&p);
    r |= d->ops->set_running(d, &one, 1, true, &err);
    bool on = works(&p);
    printf("resumed before each suspension: off %d, then on %d, r %d %s\n", off, on, r, err.text);
    bool good = r == 0 && off && on && two_at_once(d, cede, &p);
    end(&p);
    device_close(d);
    return !good;
}
