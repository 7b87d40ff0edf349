/* The gate's connection (src/gate/gate.c) and a daemon that the test plays: one that hands over
 * what it should not, and a program that closes descriptors it did not open. Waits for states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka wants the four above
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../descriptors.h"
#include "gate/gate.h"
#include "lib/share.h"
#include "lib/util.h"

#define PATIENCE_MS 20000
#define PAIRS       4

static char path[64];
static int listener, own; /* own: the daemon's side; what is above is the gate's */
static struct gate_control *control;
static struct gate_slot *slot;

static void *uses_a_device(void *unused)
{
    assert_int_equal(gate_device_add("made up", "one", 1), 0);
    return NULL;
}

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
static void a_daemon_that_lies(void **state)
{
    pthread_t t;
    size_t before = 0;
    assert_int_equal(pthread_create(&t, NULL, uses_a_device, NULL), 0);
    for (int lie = 0; lie < 3; lie++) {
        int fd = greeted();
        int page = memory(lie == 1 ? 0 : GATE_PAGE);
        welcome(fd, page, lie == 0 ? -1 : page);
        close(page);
        hung_up(fd);
        assert_false(gate_active());
        if (lie == 0) {
            pthread_join(t, NULL);
            before = descriptors(getpid());
        }
    }
    assert_int_equal(descriptors(getpid()), before);
}

static void honest(void)
{
    struct gate_msg m;
    int a, b, fd = greeted();
    control = shared_page("control", GATE_PAGE, true, &a);
    slot = shared_page("slot", GATE_PAGE, false, &b);
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

static void a_program_that_closes_all(void **state)
{
    int pairs[PAIRS][2];
    char x[8];
    honest();
    close_range((unsigned)own + 1, ~0U, 0);
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pairs[i]), 0);
    gate_admit(0, 1000, true, NULL, NULL);
    gate_done(0, 1000, 1000);
    honest(); /* it has begun anew */
    gate_admit(0, 1000, true, NULL, NULL);
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
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_daemon_that_lies),
        cmocka_unit_test(a_program_that_closes_all),
    };
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(path, sizeof(path), "/tmp/cede-gate-link-%d", getpid());
    memcpy(a.sun_path, path, strlen(path) + 1);
    setenv("CEDE_GATE", path, 1);
    listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(listener, 8) < 0 || (own = dup(listener)) < 0)
        return 1;
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return r;
}
