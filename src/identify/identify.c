/* The process itself: see identify.h. Ends when ceded has, and its children a little later. */
#include "identify/identify.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/util.h"

/* So that recv(2) is interrupted, and who has ended is waited for. */
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

_Noreturn static void identify_look(const struct identify_ask *ask)
{
    static struct identify_answer a;
    const struct pairs wanted = {ask->wanted, ask->n};
    signal(SIGALRM, SIG_DFL); /* ends it, also while it waits for another's lock */
    alarm(IDENTIFY_S);
    prctl(PR_SET_DUMPABLE, 0); /* it has the words of all users */
    a.id = ask->id;
    a.code = words_read(ask->proc, ask->container, wanted, &a);
    if (ask->container[0])
        container_read("", ask->container, wanted, &a);
    answer_send(&a);
    _exit(0);
}

static void take_ask(struct identify_ask *ask, size_t n, unsigned *children)
{
    const size_t head = offsetof(struct identify_ask, wanted);
    struct identify_answer refusal = {.code = -EBUSY};
    if (n < head || ask->n != n - head || !pairs_valid((struct pairs){ask->wanted, ask->n}))
        return;
    ask->container[sizeof(ask->container) - 1] = '\0';
    pid_t pid = *children < IDENTIFY_CHILDREN ? fork() : -1;
    if (pid == 0)
        identify_look(ask);
    if (pid > 0) {
        (*children)++;
        return;
    }
    refusal.id = ask->id;
    answer_send(&refusal);
}

/* What ceded has for itself alone. */
static void give_up_privileges(void)
{
    setpriority(PRIO_PROCESS, 0, 0);
    _cleanup_close_ int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)write_full(fd, "0", 1);
}

int identify_main(int argc, char **argv)
{
    static const int ignored[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2};
    static struct identify_ask ask;
    unsigned children = 0;
    ssize_t n;
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++)
        signal(ignored[i], SIG_IGN);
    give_up_privileges();
    sigaction(SIGCHLD, &(struct sigaction){.sa_handler = on_child}, NULL);
    while ((n = recv(IDENTIFY_LINK_FD, &ask, sizeof(ask), 0)) > 0 || (n < 0 && errno == EINTR)) {
        while (children && waitpid(-1, NULL, WNOHANG) > 0)
            children--;
        if (n > 0)
            take_ask(&ask, (size_t)n, &children);
    }
    return n < 0 ? 1 : 0;
}
