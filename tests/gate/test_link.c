/* The gate's connection and a daemon that the test plays: one that hands over what it should not,
 * hangs or dies, inside a program that closes descriptors it did not open, forks in a signal
 * handler, cancels threads or runs out of memory. Waits for states; the clock is moved, not waited
 * for. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../descriptors.h"
#include "../test.h"
#include "base/shared_page.h"
#include "base/util.h"
#include "gate/gate.h"

#define PATIENCE_MS 10000
#define PAIRS       4

static char path[64];
static int listener, own; /* own: the daemon's side; what is above is the gate's */
static struct gate_control *control;
static struct gate_slot *slot;

/* ---- system calls of the gate that a test interrupts (--wrap) ---- */

static atomic_bool fork_in_send, refuse_memory;
static atomic_uint held_polls; /* the next poll() of so many descriptors stays until `go` */
static atomic_int polled_fd;   /* the last of them */
static atomic_ullong ahead_ns; /* of CLOCK_MONOTONIC */
static sem_t in_poll, go;
static pid_t child;

__typeof__(poll) __real_poll, __wrap_poll;
__typeof__(send) __real_send, __wrap_send;
__typeof__(mmap64) __real_mmap64, __wrap_mmap64;
__typeof__(clock_gettime) __real_clock_gettime, __wrap_clock_gettime;

int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
    unsigned held = (unsigned)n;
    if (ms != PATIENCE_MS && atomic_compare_exchange_strong(&held_polls, &held, 0)) {
        atomic_store(&polled_fd, p[n - 1].fd);
        sem_post(&in_poll);
        sem_wait(&go);
    }
    return __real_poll(p, n, ms > 100 && ms != PATIENCE_MS ? 50 : ms);
}

ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
    if (atomic_exchange(&fork_in_send, false)) {
        child = fork();
        if (child == 0) {
            alarm(PATIENCE_MS / 1000);
            gate_host_waits(1);
            _exit(gate_active() ? 1 : 0);
        }
    }
    return __real_send(fd, buf, n, flags);
}

/* Private memory that can be written is charged: the kernel may find that there is none after it
 * has taken away what was mapped there. */
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
    if (atomic_load(&refuse_memory) && flags & MAP_ANONYMOUS && flags & MAP_FIXED &&
        prot & PROT_WRITE) {
        munmap(at, n);
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap64(at, n, prot, flags, fd, offset);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    int r = __real_clock_gettime(id, t);
    uint64_t ns = (uint64_t)t->tv_nsec + atomic_load(&ahead_ns);
    t->tv_sec += (time_t)(ns / NSEC_PER_SEC);
    t->tv_nsec = (long)(ns % NSEC_PER_SEC);
    return r;
}

/* ---- the daemon ---- */

static void wait_for(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
}

/* A connection whose first message has been read. */
static int greeted(void)
{
    struct gate_msg m;
    wait_for(listener);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(recv(fd, &m, sizeof(m), 0), sizeof(m));
    assert_int_equal(m.type, GATE_HELLO);
    return fd;
}

static void welcome(int fd, int a, int b)
{
    struct gate_msg m = {.type = GATE_WELCOME, .magic = GATE_MAGIC, .version = GATE_VERSION};
    assert_int_equal(send_with_fds(fd, &m, sizeof(m), (int[]){a, b}, b < 0 ? 1 : 2), 0);
}

static void hung_up(int fd)
{
    char buf[512];
    ssize_t n = 1;
    while (n > 0) {
        wait_for(fd);
        n = recv(fd, buf, sizeof(buf), 0);
    }
    close(fd);
}

static int memory(off_t size)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0 && ftruncate(fd, size) == 0);
    return fd;
}

/* Nothing of what it sends is kept, or mapped where reading could fault. */
TEST(a_daemon_that_lies)
{
    size_t before = 0;
    for (int lie = 0; lie < 3; lie++) {
        int fd = greeted();
        int page = memory(lie == 1 ? 0 : GATE_PAGE);
        welcome(fd, page, lie == 0 ? -1 : page);
        close(page);
        hung_up(fd);
        assert_false(gate_active());
        if (lie == 0)
            before = descriptors(getpid());
    }
    assert_int_equal(descriptors(getpid()), before);
}

static void honest(void)
{
    struct gate_msg m;
    int a, b, fd = greeted();
    control = shared_page("control", GATE_PAGE, SHARE_OURS, &a);
    slot = shared_page("slot", GATE_PAGE, SHARE_THEIRS, &b);
    assert_true(control && slot);
    atomic_store(&control->any, 1);
    atomic_store(&control->device[0].state, GATE_ACTIVE);
    welcome(fd, a, b);
    close(a);
    close(b);
    wait_for(fd);
    assert_int_equal(recv(fd, &m, sizeof(m), 0), sizeof(m));
    assert_int_equal(m.type, GATE_DEVICE);
    assert_int_equal(dup3(fd, own, O_CLOEXEC), own);
    close(fd);
    assert_true(gate_active());
}

/* In a thread, so that one that never ends is seen. */
static void ends(void *(*f)(void *))
{
    struct timespec t;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, f, NULL), 0);
    __real_clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += PATIENCE_MS / 1000;
    assert_int_equal(pthread_timedjoin_np(thread, NULL, &t), 0);
}

static void until(bool (*f)(void), bool value)
{
    for (int i = 0; i < PATIENCE_MS && f() != value; i++)
        usleep(1000);
    assert_int_equal(f(), value);
}

static bool wanted(void)
{
    return atomic_load(&slot->device[0].wants) == 1;
}

static void dies(void)
{
    assert_int_equal(dup3(listener, own, O_CLOEXEC), own);
    until(gate_active, false);
}

static void *makes_a_host_event(void *unused)
{
    gate_host_waits(1);
    gate_host_waits(-1);
    return NULL;
}

static void *submits(void *unused)
{
    gate_admit(0, 1000, NULL, NULL);
    gate_done(0, 1000, 1000);
    return NULL;
}

/* While the thread waits for the answer of a daemon that hangs, the program is not kept. */
TEST(a_daemon_that_does_not_answer)
{
    atomic_store(&held_polls, 1);
    sem_wait(&in_poll);
    ends(makes_a_host_event);
    sem_post(&go);
    hung_up(greeted());
}

/* A number that the program has closed and opened again is the program's. */
TEST(a_program_that_closes_an_answer)
{
    struct stat now, mine;
    atomic_store(&held_polls, 1);
    sem_wait(&in_poll);
    int fd = atomic_load(&polled_fd);
    assert_int_equal(dup3(listener, fd, O_CLOEXEC), fd);
    sem_post(&go);
    int stale = greeted();
    close(stale);
    honest(); /* it has asked again */
    assert_true(fstat(fd, &now) == 0 && fstat(listener, &mine) == 0);
    assert_true(now.st_ino == mine.st_ino);
    close(fd);
    dies();
}

/* fork() may be called by a signal handler, in a thread that was in the middle of a submission. */
TEST(a_handler_that_forks)
{
    int status;
    honest();
    atomic_store(&fork_in_send, true);
    ends(submits);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(gate_active());
    dies();
}

static void *is_cancelled(void *unused)
{
    pthread_cancel(pthread_self());
    submits(NULL);
    pthread_testcancel();
    return NULL;
}

/* A thread that is cancelled while it submits takes no lock with it. */
TEST(a_thread_that_is_cancelled)
{
    honest();
    ends(is_cancelled);
    ends(submits);
    until(wanted, false);
    dies();
}

static atomic_uint flushes;
static void count_flush(void *unused)
{
    atomic_fetch_add(&flushes, 1);
}

/* Commands whose end is never reported (a device that was lost) do not slow what comes after them:
 * flush is called before a wait. */
TEST(ends_that_are_lost)
{
    enum { LOST = 3 };
    honest();
    for (int i = 0; i < LOST; i++)
        gate_admit(0, 500000, NULL, NULL);
    until(wanted, true);
    atomic_fetch_add(&ahead_ns, 11 * NSEC_PER_SEC);
    until(wanted, false);
    atomic_store(&control->device[0].limit_us, 1);
    gate_admit(0, 1000000, count_flush, NULL);
    assert_int_equal(flushes, 0);
    gate_done(0, 1000000, 1000);
    atomic_store(&control->device[0].limit_us, 0);
    for (int i = 0; i < LOST; i++)
        gate_done(0, 500000, 1000); /* late */
    ends(submits);
    until(wanted, false);
    dies();
}

/* The thread that looks after the daemon has an end of its own that others wake it by. */
TEST(a_program_that_closes_one)
{
    honest();
    atomic_store(&held_polls, 2);
    ends(submits); /* wakes it up */
    sem_wait(&in_poll);
    close(atomic_load(&polled_fd));
    ends(submits);
    sem_post(&go);
    ends(submits);
    dies();
}

/* Reading the page never faults, and a daemon's end is seen. */
TEST(a_daemon_that_dies_without_memory)
{
    honest();
    atomic_store(&refuse_memory, true);
    dies();
    ends(submits);
    atomic_store(&refuse_memory, false);
}

static void *passes(void *unused)
{
    gate_pass(0);
    return NULL;
}

/* With a new daemon, which keeps it from the device. */
static pthread_t held_thread(void)
{
    pthread_t t;
    honest();
    atomic_store(&control->device[0].state, GATE_ACTIVE | GATE_CLOSED);
    assert_int_equal(pthread_create(&t, NULL, passes, NULL), 0);
    until(wanted, true);
    return t;
}

/* A new daemon is believed, whatever the last one did. */
TEST(a_daemon_that_hangs)
{
    pthread_t t = held_thread();
    atomic_fetch_add(&ahead_ns, 6 * NSEC_PER_SEC);
    pthread_join(t, NULL);
    ends(passes);
    dies();
    t = held_thread();
    atomic_store(&control->device[0].state, GATE_ACTIVE);
    pthread_join(t, NULL);
    until(wanted, false);
    dies();
}

TEST(a_program_that_closes_all)
{
    int pairs[PAIRS][2];
    char x[8];
    honest();
    close_range((unsigned)own + 1, ~0U, 0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pairs[i]), 0);
    gate_admit(0, 1000, NULL, NULL);
    gate_done(0, 1000, 1000);
    honest(); /* it has begun anew */
    gate_admit(0, 1000, NULL, NULL);
    wait_for(own);
    assert_int_equal(recv(own, x, sizeof(x), 0), 8);
    gate_done(0, 1000, 1000);
    for (int i = 0; i < PAIRS; i++) {
        for (int k = 0; k < 2; k++) {
            assert_int_equal(recv(pairs[i][k], x, sizeof(x), MSG_DONTWAIT), -1);
            assert_int_equal(errno, EAGAIN);
        }
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
}

int main(void)
{
    sem_init(&in_poll, 0, 0);
    sem_init(&go, 0, 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "/tmp/cede-gate-link-%d", getpid());
    memcpy(a.sun_path, path, strlen(path) + 1);
    setenv("CEDE_GATE", path, 1);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        gate_device_add("made up", "one", 1) != 0 || listen(listener, 8) < 0 ||
        (own = dup(listener)) < 0)
        return 1;
    int r = test_run(NULL, NULL);
    unlink(path);
    return r;
}
