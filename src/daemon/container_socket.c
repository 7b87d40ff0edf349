/* See container_socket.h. */
#include "daemon/container_socket.h"

#include <stdio.h>

#include "base/log.h"
#include "base/paths.h"

void container_socket_open(const char *dir, struct server *s)
{
    struct error err = {""};
    char path[160];
    snprintf(path, sizeof(path), "%s/container", dir);
    int r = cede_dir_make(path, &err);
    snprintf(path, sizeof(path), "%s/container/socket", dir);
    if (r == 0)
        r = server_listen_guests(s, path, &err);
    if (r < 0)
        log_say(LOG_WARNING, "verbs do not work inside of containers: %s", err.text);
}
