/* See log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/principal.h"
#include "base/quota.h"

static struct {
    const char *name;
    int level;
    bool prefixed;
    int fd; /* standard error, opened anew as non-blocking if possible */
    enum { PLAIN, SOCKET, ASK_FIRST } how;
    unsigned lost;
    struct quotas users;
} log_state = {.name = "cede", .level = LOG_WARNING, .fd = STDERR_FILENO, .how = ASK_FIRST};

void log_open(const char *name, int level)
{
    struct stat st;
    log_state.name = name;
    log_state.level = level;
    log_state.prefixed = getenv("JOURNAL_STREAM") || getenv("NOTIFY_SOCKET");
    if (log_state.fd != STDERR_FILENO)
        close(log_state.fd);
    log_state.fd = STDERR_FILENO;
    log_state.how = fstat(STDERR_FILENO, &st) < 0 ? ASK_FIRST
                    : S_ISREG(st.st_mode)         ? PLAIN
                    : S_ISSOCK(st.st_mode)        ? SOCKET
                                                  : ASK_FIRST;
    if (log_state.how != ASK_FIRST)
        return;
    /* O_NONBLOCK on the inherited descriptor would hold for every process that has it. */
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    log_state.fd = fd;
    log_state.how = PLAIN;
}

void log_set_level(int level)
{
    log_state.level = level;
}

/* A pipe takes a line as a whole or not at all. */
static bool log_put(const char *line, size_t n)
{
    struct pollfd p = {.fd = log_state.fd, .events = POLLOUT};
    ssize_t done;
    if (log_state.how == ASK_FIRST && poll(&p, 1, 0) != 1)
        return false;
    do {
        done = log_state.how == SOCKET ? send(log_state.fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                                       : write(log_state.fd, line, n);
    } while (done < 0 && errno == EINTR);
    return done == (ssize_t)n;
}

static bool put_line(int level, const char *text)
{
    char line[1152];
    int n = log_state.prefixed ? snprintf(line, sizeof(line), "<%d>%s\n", level, text)
                               : snprintf(line, sizeof(line), "%.64s: %s\n", log_state.name, text);
    return log_put(line, (size_t)n);
}

static void say(int level, const char *fmt, va_list ap)
{
    char text[1024], lost[64];
    vsnprintf(text, sizeof(text), fmt, ap);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ') /* one message is one line, whatever was quoted */
            *p = ' ';
    }
    snprintf(lost, sizeof(lost), "%u messages were lost: nobody read them", log_state.lost);
    if (log_state.lost && put_line(LOG_WARNING, lost))
        log_state.lost = 0;
    if (log_state.lost || !put_line(level, text))
        log_state.lost++;
}

void log_say(int level, const char *fmt, ...)
{
    va_list ap;
    if (level > log_state.level)
        return;
    va_start(ap, fmt);
    say(level, fmt, ap);
    va_end(ap);
}

void log_user(uid_t principal, int level, const char *fmt, ...)
{
    va_list ap;
    if (level > log_state.level)
        return;
    const uint64_t now = monotonic_ns();
    struct quota *u = quota_of(&log_state.users, principal);
    if (u->paid_ns > now + (LOG_USER_BURST - 1) * LOG_USER_NS) {
        u->left_out++;
        return;
    }
    quota_charge(u, now, LOG_USER_NS);
    if (u->left_out)
        log_say(LOG_WARNING, "%u messages about %s %u left out: too many at once", u->left_out,
                principal_is_container(principal) ? "the container with pid namespace" : "uid",
                principal);
    u->left_out = 0;
    va_start(ap, fmt);
    say(level, fmt, ap);
    va_end(ap);
}
