/* See socket_path.h. */
#include "base/socket_path.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SYSTEM_DIR "/run/cede"
#define DIR_ROOM   (sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/socket") + 1)

int cede_dir_put(char *buf, size_t size, const char *a, const char *b)
{
    size_t room = size < DIR_ROOM ? size : DIR_ROOM;
    int n = snprintf(buf, size, "%s%s", a, b);
    return n < 0 || (size_t)n >= room ? -ENAMETOOLONG : 0;
}

/* Whether the root of the host, or of the user namespace around ours, has a uid in ours. */
static int root_is_mapped(void)
{
    unsigned inside, outside, count;
    int mapped = 0;
    FILE *f = fopen("/proc/self/uid_map", "re");
    if (!f)
        return 1;
    while (!mapped && fscanf(f, "%u %u %u", &inside, &outside, &count) == 3)
        mapped = outside == 0 && count;
    fclose(f);
    return mapped;
}

int cede_peer_trusted(unsigned peer, int given)
{
    unsigned unmapped = 65534;
    if (peer == 0 || peer == geteuid())
        return 1;
    FILE *f = given ? fopen("/proc/sys/kernel/overflowuid", "re") : NULL;
    if (f) {
        if (fscanf(f, "%u", &unmapped) != 1)
            unmapped = 65534;
        fclose(f);
    }
    return given && peer == unmapped && !root_is_mapped();
}

int cede_socket_trusted(const char *path, int given)
{
    struct stat st;
    return lstat(path, &st) < 0 || cede_peer_trusted(st.st_uid, given);
}

int cede_user_dir(char *buf, size_t size)
{
    if (geteuid() == 0)
        return cede_dir_put(buf, size, SYSTEM_DIR, "");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/')
        return cede_dir_put(buf, size, runtime, "/cede");
    char uid[16];
    snprintf(uid, sizeof(uid), "%u", geteuid());
    return cede_dir_put(buf, size, "/tmp/cede-", uid);
}

int cede_socket_at(unsigned i, char *buf, size_t size)
{
    const char *own = secure_getenv("CEDE_DIR");
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int r = -ENOENT;
    if (own && *own)
        r = i == 0 ? cede_dir_put(dir, sizeof(dir), own, "") : -ENOENT;
    else if (i == 0)
        r = cede_dir_put(dir, sizeof(dir), SYSTEM_DIR, "");
    else if (i == 1 && geteuid() != 0) /* root's own is the system's */
        r = cede_user_dir(dir, sizeof(dir));
    if (r < 0)
        return 0;
    int n = snprintf(buf, size, "%s/socket", dir);
    return n > 0 && (size_t)n < size;
}
