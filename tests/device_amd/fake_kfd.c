/* See fake_kfd.h. */
#include "fake_kfd.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "../test.h"

enum { FD = 4242 };

static struct fake_kfd *machine; /* what the driver calls: that of the last fake_kfd_init() */

void fake_write(const struct fake_kfd *k, const char *text, const char *fmt, ...)
{
    char path[256];
    int n = snprintf(path, sizeof(path), "%s/", k->root);
    va_list args;
    va_start(args, fmt);
    vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, args);
    va_end(args);
    for (char *p = path + n; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        mkdir(path, 0755);
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static void remove_tree(const struct fake_kfd *k, const char *fmt, unsigned long a, unsigned long b)
{
    char path[256];
    int n = snprintf(path, sizeof(path), "%s/", k->root);
    snprintf(path + n, sizeof(path) - (size_t)n, fmt, a, b);
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static struct fake_process *by_pid(struct fake_kfd *k, uint32_t pid)
{
    for (size_t i = 0; i < ARRAY_SIZE(k->processes); i++) {
        if (k->processes[i].alive && (uint32_t)k->processes[i].id.pid == pid)
            return &k->processes[i];
    }
    return NULL;
}

static void resume_all(struct fake_process *p)
{
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++)
        p->queues[i].suspended = p->queues[i].is_new = false;
    p->debugged = p->by_us = false;
}

static int enable(struct fake_process *p, struct kfd_trap *t)
{
    struct kfd_runtime *runtime = (struct kfd_runtime *)(uintptr_t)t->enable.runtime;
    assert_int_equal(t->enable.exceptions, 0);
    assert_int_equal(t->enable.runtime_size, sizeof(*runtime));
    if (p->debugged)
        return -EALREADY;
    if (fcntl((int)t->enable.event_fd, F_GETFD) < 0)
        return -EBADF;
    p->debugged = p->by_us = true;
    *runtime = (struct kfd_runtime){.state = p->runtime_state};
    return 0;
}

struct fake_queue *fake_queue_at(struct fake_process *p, uint32_t number)
{
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++) {
        if (p->queues[i].there && p->queues[i].number == number)
            return &p->queues[i];
    }
    return NULL;
}

static int switch_queues(struct fake_process *p, uint64_t array, uint32_t n, bool suspend)
{
    uint32_t *v = (uint32_t *)(uintptr_t)array;
    int done = 0;
    assert_true(n > 0);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(v[i] & ~KFD_QUEUE_NUMBER, 0);
        struct fake_queue *q = fake_queue_at(p, v[i]);
        if (!q || (suspend && q->is_new && !q->suspended)) {
            v[i] |= KFD_QUEUE_INVALID;
        } else if (q->stuck) {
            v[i] |= KFD_QUEUE_ERROR;
        } else {
            q->suspended = suspend;
            done++;
        }
    }
    return done;
}

static int snapshot(struct fake_process *p, struct kfd_trap *t)
{
    struct kfd_queue_entry *v = (struct kfd_queue_entry *)(uintptr_t)t->snapshot.entries;
    uint32_t n = 0;
    assert_int_equal(t->snapshot.entry_size, sizeof(*v));
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++) {
        struct fake_queue *q = &p->queues[i];
        if (!q->there)
            continue;
        if (n < t->snapshot.count)
            v[n] = (struct kfd_queue_entry){.number = q->number, .gpu_id = q->gpu_id};
        n++;
        if (t->snapshot.clear & KFD_EXCEPTION_NEW)
            q->is_new = false;
    }
    t->snapshot.count = n;
    return 0;
}

static int trap(struct fake_kfd *k, struct kfd_trap *t)
{
    k->traps++;
    struct fake_process *p = by_pid(k, t->pid);
    if (!p)
        return -ESRCH;
    if (t->op != KFD_TRAP_DISABLE && !p->traced)
        return -EPERM;
    if (t->op != KFD_TRAP_ENABLE && !p->debugged)
        return -EINVAL;
    bool needs_runtime = t->op == KFD_TRAP_SUSPEND_QUEUES || t->op == KFD_TRAP_RESUME_QUEUES;
    if (needs_runtime && p->runtime_state != KFD_RUNTIME_ENABLED)
        return -EPERM;
    switch (t->op) {
    case KFD_TRAP_ENABLE:
        k->enables++;
        return enable(p, t);
    case KFD_TRAP_DISABLE:
        k->disables++;
        resume_all(p);
        return 0;
    case KFD_TRAP_SUSPEND_QUEUES:
        if (k->race) {
            void (*race)(struct fake_kfd *) = k->race;
            k->race = NULL;
            race(k);
        }
        assert_int_equal(t->suspend.clear, 0);
        return switch_queues(p, t->suspend.queues, t->suspend.count, true);
    case KFD_TRAP_RESUME_QUEUES:
        assert_int_equal(t->resume.pad, 0);
        return switch_queues(p, t->resume.queues, t->resume.count, false);
    case KFD_TRAP_QUEUE_SNAPSHOT:
        return snapshot(p, t);
    default:
        fail_msg("operation %u is none of the driver's", t->op);
        return -EINVAL;
    }
}

static int fake_open(void)
{
    return FD;
}

static int fake_ioctl(int fd, unsigned long cmd, void *arg)
{
    struct fake_kfd *k = machine;
    assert_int_equal(fd, FD);
    if (cmd == KFD_IOC_VERSION) {
        *(struct kfd_version *)arg = (struct kfd_version){1, k->minor};
        return 0;
    }
    assert_int_equal(cmd, KFD_IOC_TRAP);
    return trap(k, arg);
}

static void fake_close(int fd)
{
    assert_int_equal(fd, FD);
}

static bool fake_alive(struct proc_id proc)
{
    struct fake_process *p = by_pid(machine, (uint32_t)proc.pid);
    return p && p->id.start_ticks == proc.start_ticks;
}

static int fake_traced(struct proc_id proc, int (*fn)(void *arg), void *arg)
{
    struct fake_process *p = by_pid(machine, (uint32_t)proc.pid);
    if (!p || p->id.start_ticks != proc.start_ticks)
        return -ESRCH;
    if (p->foreign_tracer)
        return -EPERM;
    assert_false(p->traced);
    p->traced = true;
    int r = fn(arg);
    p->traced = false;
    return r;
}

static void node(const struct fake_kfd *k, unsigned n, const char *gpu_id, const char *properties)
{
    fake_write(k, gpu_id, "topology/nodes/%u/gpu_id", n);
    fake_write(k, properties, "topology/nodes/%u/properties", n);
}

void fake_kfd_init(struct fake_kfd *k)
{
    *k = (struct fake_kfd){
        .io = {.open = fake_open,
               .ioctl = fake_ioctl,
               .close = fake_close,
               .traced = fake_traced,
               .alive = fake_alive},
        .root = "/tmp/cede-kfd-XXXXXX",
        .minor = KFD_DEBUG_MINOR,
    };
    assert_non_null(mkdtemp(k->root));
    machine = k;
    k->io.sysfs = k->root;
    node(k, 0, "0\n", "cpu_cores_count 64\nsimd_count 0\nlocation_id 0\n");
    node(k, 1, "4369\n",
         "simd_count 416\nlocation_id 8960\ndomain 0\ncapability 671145984\n"
         "gfx_target_version 90010\nunique_id 1234605616436508552\n");
    fake_write(k, "heap_type 1\nsize_in_bytes 68702699520\nflags 0\n",
               "topology/nodes/1/mem_banks/0/properties");
    /* no firmware for the debug trap */
    node(k, 2, "8738\n",
         "simd_count 120\nlocation_id 768\ndomain 1\ncapability 134258816\n"
         "gfx_target_version 110000\nunique_id 0\n");
}

void fake_kfd_free(struct fake_kfd *k)
{
    remove_tree(k, "", 0, 0);
}

struct fake_process *fake_process(struct fake_kfd *k, unsigned i, pid_t pid, uint64_t start)
{
    struct fake_process *p = &k->processes[i];
    *p = (struct fake_process){
        .id = {.pid = pid, .start_ticks = start}, .alive = true, .runtime_state = 1};
    fake_write(k, "32770\n", "proc/%d/pasid", (int)pid);
    char path[128];
    snprintf(path, sizeof(path), "%s/proc/%d/queues", k->root, (int)pid);
    mkdir(path, 0755);
    return p;
}

struct fake_queue *fake_queue(struct fake_kfd *k, struct fake_process *p, uint32_t number,
                              uint32_t gpu_id, uint32_t type)
{
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++) {
        struct fake_queue *q = &p->queues[i];
        if (q->there)
            continue;
        *q = (struct fake_queue){
            .number = number, .gpu_id = gpu_id, .type = type, .there = true, .is_new = p->debugged};
        char text[32];
        snprintf(text, sizeof(text), "%u\n", gpu_id);
        fake_write(k, text, "proc/%d/queues/%u/gpuid", (int)p->id.pid, number);
        snprintf(text, sizeof(text), "%u\n", type);
        fake_write(k, text, "proc/%d/queues/%u/type", (int)p->id.pid, number);
        fake_write(k, "8388608\n", "proc/%d/queues/%u/size", (int)p->id.pid, number);
        return q;
    }
    fail_msg("too many queues");
    return NULL;
}

void fake_queue_destroy(struct fake_kfd *k, struct fake_process *p, struct fake_queue *q)
{
    assert_false(q->suspended); /* the kernel would let the program wait */
    remove_tree(k, "proc/%lu/queues/%lu", (unsigned long)p->id.pid, q->number);
    q->there = false;
}

void fake_exit(struct fake_kfd *k, struct fake_process *p)
{
    remove_tree(k, "proc/%lu", (unsigned long)p->id.pid, 0);
    p->alive = false;
    for (size_t i = 0; i < ARRAY_SIZE(p->queues); i++)
        p->queues[i].there = false;
}

void fake_we_die(struct fake_kfd *k)
{
    for (size_t i = 0; i < ARRAY_SIZE(k->processes); i++) {
        if (k->processes[i].by_us)
            resume_all(&k->processes[i]);
    }
}
