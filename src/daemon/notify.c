/* See notify.h. */
#include "daemon/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

void logger_init(struct logger *l, int level)
{
    l->level = level;
    l->prefixed = getenv("JOURNAL_STREAM") || getenv("NOTIFY_SOCKET");
}

void logger_say(const struct logger *l, int level, const char *fmt, ...)
{
    if (level > l->level)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < ' ') /* one message is one line, whatever was quoted */
            *p = ' ';
    }
    if (l->prefixed)
        fprintf(stderr, "<%d>%s\n", level, text);
    else
        fprintf(stderr, "ceded: %s\n", text);
}

int notify_send(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path)
        return 0;
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || n >= sizeof(a.sun_path))
        return -EINVAL;
    memcpy(a.sun_path, path, n);
    if (path[0] == '@')
        a.sun_path[0] = '\0'; /* abstract: the length ends it */
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    /* What is only for people must not wait for a manager that does not read. */
    int flags = MSG_NOSIGNAL | (strncmp(state, "STATUS=", 7) == 0 ? MSG_DONTWAIT : 0);
    if (sendto(fd, state, strlen(state), flags, (struct sockaddr *)&a, len) < 0)
        return -errno;
    return 0;
}
