/* The process cede-identify: see identify.h. It ends when ceded has ended, and its children a
 * little later. */
#include "who/identify.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/util.h"
#include "who/container.h"
#include "who/environment.h"

static struct {
    pid_t pid; /* 0: none */
    uint64_t id;
} children[IDENTIFY_CHILDREN];

/* Does nothing: the signal only has to interrupt ppoll(2). */
static void on_child(int number)
{
}

static void answer_send(const struct identify_answer *a)
{
    ssize_t n;
    do
        n = send(IDENTIFY_LINK_FD, a, offsetof(struct identify_answer, text) + a->n, MSG_NOSIGNAL);
    while (n < 0 && (errno == EINTR || errno == ENOBUFS || errno == ENOMEM) && usleep(1000) == 0);
}

/* Runs in a separate process. */
static int identify_look(void *arg)
{
    static struct identify_answer a;
    const struct identify_ask *ask = arg;
    const struct pairs wanted = {ask->wanted, ask->n};
    signal(SIGALRM, SIG_DFL);
    alarm(IDENTIFY_S);         /* ends this process, also while it waits for a program's lock */
    prctl(PR_SET_DUMPABLE, 0); /* its memory may have any user's environment */
    a.id = ask->id;
    a.code = environment_read(ask->proc, ask->container, wanted, &a);
    const int r = ask->container[0] ? container_read("", ask->container, wanted, &a) : 0;
    if (r < 0 && !proc_unsure(a.code)) {
        a.code = r;
        a.n = 0;
    }
    answer_send(&a);
    return 0;
}

static void look_refuse(uint64_t id, int code)
{
    answer_send(&(struct identify_answer){.id = id, .code = code});
}

/* Answers for a child that was killed, or ended otherwise before it sent its answer. */
static void looks_reap(void)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (size_t i = 0; i < IDENTIFY_CHILDREN; i++) {
            if (children[i].pid != pid)
                continue;
            children[i].pid = 0;
            if (status != 0)
                look_refuse(children[i].id, WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
                                                ? -ETIMEDOUT
                                                : -EBUSY);
        }
    }
}

static void take_ask(struct identify_ask *ask, size_t n)
{
    const size_t head = offsetof(struct identify_ask, wanted);
    size_t i = 0;
    if (n < head || ask->n != n - head || !pairs_valid((struct pairs){ask->wanted, ask->n}))
        return;
    ask->container[sizeof(ask->container) - 1] = '\0';
    while (i < IDENTIFY_CHILDREN && children[i].pid)
        i++;
    const struct child_spec spec = {
        .begin = identify_look, .arg = ask, .fds = {{IDENTIFY_LINK_FD, IDENTIFY_LINK_FD}}};
    pid_t pid;
    if (i == IDENTIFY_CHILDREN || child_start(&spec, &pid) < 0) {
        look_refuse(ask->id, -EBUSY);
        return;
    }
    children[i].pid = pid;
    children[i].id = ask->id;
}

/* Gives up priority and protection that ceded has for itself alone. */
static void give_up_privileges(void)
{
    setpriority(PRIO_PROCESS, 0, 0);
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)write_full(fd, "0", 1);
}

int identify_main(int argc, char **argv)
{
    static struct identify_ask ask;
    struct pollfd p = {.fd = IDENTIFY_LINK_FD, .events = POLLIN};
    sigset_t child, was;
    ssize_t n = 0;
    if (child_begin("cede-identify") < 0)
        return 1;
    give_up_privileges();
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_child}, NULL);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, &was);
    for (;;) {
        looks_reap();
        if (ppoll(&p, 1, NULL, &was) <= 0)
            continue;
        n = recv(IDENTIFY_LINK_FD, &ask, sizeof(ask), MSG_DONTWAIT);
        if (n > 0)
            take_ask(&ask, (size_t)n);
        else if (n == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOMEM))
            return n < 0 ? 1 : 0;
    }
}
