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

#include "cede/cede.h"
#include "lib/hints_proto.h"
#include "lib/share.h"
#include "lib/util.h"

#define ROUNDS 101
#define CALLS  20000

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double ns_each(struct cede *c, bool deadline)
{
    static double v[ROUNDS];
    struct cede_request r;
    for (unsigned k = 0; k < ROUNDS; k++) {
        uint64_t t = monotonic_ns();
        for (int i = 0; i < CALLS; i++) {
            cede_request_begin(c, &r, CEDE_JOB, 100, deadline ? 1000 : 0);
            cede_request_end(c, &r);
        }
        v[k] = (double)(monotonic_ns() - t) / (2 * CALLS);
    }
    qsort(v, ROUNDS, sizeof(*v), compare);
    return v[ROUNDS / 2];
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
    char buf[256], text[64];
    int n =
        snprintf(text, sizeof(text), "{\"v\":1,\"ok\":true,\"hints\":%d,\"pid\":1}", HINTS_VERSION);
    int page, fd = accept(listener, NULL, NULL);
    if (fd < 0 || recv(fd, buf, sizeof(buf), 0) <= 0 ||
        !shared_page("bench", HINTS_PAGE, false, &page))
        return;
    send_with_fds(fd, text, (size_t)n, &page, 1);
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
    double alone = ns_each(c, true);
    cede_close(c);
    int listener = listen_at(path);
    pid_t child = fork();
    if (child == 0) {
        hand_over(listener);
        return 1;
    }
    cede_connect(&c);
    int connected = cede_connected(c);
    double heard = ns_each(c, true), plain = ns_each(c, false);
    cede_close(c);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    unlink(path);
    rmdir(dir);
    printf("{\"hints\":%d,\"rounds\":%d,\"connected\":%d,\"no_daemon_ns\":%.1f,\"daemon_ns\":%.1f,"
           "\"no_deadline_ns\":%.1f}\n",
           2 * CALLS, ROUNDS, connected, alone, heard, plain);
    return connected ? 0 : 1;
}
