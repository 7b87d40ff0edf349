/* What a hint of libcede costs, from one thread: without a daemon, and with a page that one reads
 * (in this process, handed over on a socket by a child that says no more). Medians over rounds.
 *
 * usage: bench_hint_cost */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/hints_proto.h"
#include "base/link_proto.h"
#include "base/shared_page.h"
#include "base/util.h"
#include "bench/cost.h"
#include "cede/cede.h"

#define CALLS 20000

struct hints {
    struct cede *c;
    uint64_t deadline_us; /* 0: none */
};

static void hints_round(void *arg)
{
    const struct hints *h = arg;
    struct cede_request r;
    for (int i = 0; i < CALLS; i++) {
        cede_request_begin(h->c, &r, CEDE_JOB, 100, h->deadline_us);
        cede_request_end(h->c, &r);
    }
}

static double ns_each(struct cede *c, uint64_t deadline_us)
{
    return cost_of_call(hints_round, &(struct hints){c, deadline_us}, 2 * CALLS);
}

static int listen_at(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(fd, 1) == 0 ? fd
                                                                                            : -1;
}

static void hand_over(int listener)
{
    const struct link_answer a = {.magic = LINK_MAGIC};
    char buf[256];
    int page, fd = accept(listener, NULL, NULL);
    if (fd < 0 || recv(fd, buf, sizeof(buf), 0) <= 0 ||
        !shared_page("bench", HINTS_PAGE, false, &page))
        return;
    send_with_fds(fd, &a, sizeof(a), &page, 1);
    for (;;)
        pause();
}

int main(void)
{
    char dir[] = "/tmp/cede-bench-hint-XXXXXX", path[64];
    struct cede *c = NULL;
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/socket", dir);
    setenv("CEDE_DIR", dir, 1);
    cede_connect(&c);
    double alone = ns_each(c, 1000);
    cede_close(c);
    int listener = listen_at(path);
    pid_t child = fork();
    if (child == 0) {
        hand_over(listener);
        return 1;
    }
    cede_connect(&c);
    int connected = cede_connected(c);
    double heard = ns_each(c, 1000), plain = ns_each(c, 0);
    cede_close(c);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink(path);
    rmdir(dir);
    printf("{\"hints\":%d,\"rounds\":%d,\"connected\":%d,\"no_daemon_ns\":%.1f,\"daemon_ns\":%.1f,"
           "\"no_deadline_ns\":%.1f}\n",
           2 * CALLS, COST_ROUNDS, connected, alone, heard, plain);
    return connected ? 0 : 1;
}
