/* See kfd.h: the wire format, and the system calls behind struct kfd_io.
 * Keeps no state of any process. */
#include "gpu/amd/kfd.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <time.h>

_Static_assert(sizeof(struct kfd_trap) == 32, "kfd_ioctl_dbg_trap_args");
_Static_assert(offsetof(struct kfd_trap, enable) == 8, "union");
_Static_assert(offsetof(struct kfd_trap, enable.event_fd) == 28, "enable");
_Static_assert(offsetof(struct kfd_trap, suspend.grace) == 28, "suspend");
_Static_assert(offsetof(struct kfd_trap, resume.count) == 16, "resume");
_Static_assert(offsetof(struct kfd_trap, snapshot.entry_size) == 28, "snapshot");
_Static_assert(sizeof(struct kfd_runtime) == 16, "kfd_runtime_info");
_Static_assert(sizeof(struct kfd_queue_entry) == 64, "kfd_queue_snapshot_entry");
_Static_assert(KFD_IOC_VERSION == 0x80084B01UL, "GET_VERSION");
_Static_assert(KFD_IOC_TRAP == 0xC0204B26UL, "DBG_TRAP");
_Static_assert(KFD_IOC_UPDATE_QUEUE == 0x40184B07UL, "UPDATE_QUEUE");

static int system_open(void)
{
    int fd = open(KFD_PATH, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int system_ioctl(int fd, unsigned long cmd, void *arg)
{
    int r = ioctl(fd, cmd, arg);
    return r < 0 ? -errno : r;
}

static void system_close(int fd)
{
    close(fd);
}

pid_t kfd_tracer(pid_t pid)
{
    char status[4096];
    const char *line = proc_read(pid, "status", status, sizeof(status)) > 0
                           ? strstr(status, "\nTracerPid:")
                           : NULL;
    return line ? (pid_t)atoi(line + strlen("\nTracerPid:")) : 0;
}

/* At the moment of the call, the calling thread has to be the tracer of the target's first thread.
 * PTRACE_DETACH would need a stop of the target, but a thread that exits, or is killed, releases
 * its tracees without stopping them. So each call gets a short-lived thread. */
struct tracer {
    struct proc_id proc;
    int (*fn)(void *arg);
    void *arg;
    int result;
    pid_t tid;
};

static void *tracer_thread(void *p)
{
    struct tracer *t = p;
    t->tid = gettid();
    if (ptrace(PTRACE_SEIZE, t->proc.pid, NULL, NULL) < 0)
        t->result = -errno;
    else /* a traced pid is not reused, so that the check holds from now on */
        t->result = proc_check(t->proc);
    if (t->result == 0)
        t->result = t->fn(t->arg);
    return NULL;
}

static int system_traced(struct proc_id proc, int (*fn)(void *arg), void *arg)
{
    struct tracer t = {.proc = proc, .fn = fn, .arg = arg};
    sigset_t all, before;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the first thread handles signals */
    int r = pthread_create(&thread, NULL, tracer_thread, &t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r)
        return -r;
    pthread_join(thread, NULL);
    /* A joined thread may not have released the target yet, and a new call would be refused. */
    const struct timespec pause = {.tv_nsec = 100000};
    for (int i = 0; i < 500 && kfd_tracer(proc.pid) == t.tid; i++)
        nanosleep(&pause, NULL);
    return t.result;
}

const struct kfd_io kfd_io_system = {
    .sysfs = KFD_SYSFS,
    .open = system_open,
    .ioctl = system_ioctl,
    .close = system_close,
    .traced = system_traced,
    .alive = proc_alive,
};
