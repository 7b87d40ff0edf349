/* See notify.h. */
#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/util.h"

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
