/* Where the daemon and the verbs meet; see paths.h. Creates nothing but the one directory. */
#include "daemon/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

#define SYSTEM_DIR "/run/cede"

/* A directory whose socket fits into a socket address. */
static int put_dir(char *buf, size_t size, struct error *err, const char *a, const char *b)
{
    size_t room =
        min_u64(size, sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/socket") + 1);
    int n = snprintf(buf, size, "%s%s", a, b);
    if (n < 0 || (size_t)n >= room)
        return error_set(err, -ENAMETOOLONG,
                         "directory %.64s... is too long for a socket in it: set CEDE_DIR to one "
                         "of at most %zu bytes",
                         a, room - 1);
    return 0;
}

/* The directory of this user, whatever CEDE_DIR says. */
static int user_dir(char *buf, size_t size, struct error *err)
{
    if (geteuid() == 0)
        return put_dir(buf, size, err, SYSTEM_DIR, "");
    const char *runtime = secure_getenv("XDG_RUNTIME_DIR");
    if (runtime && runtime[0] == '/')
        return put_dir(buf, size, err, runtime, "/cede");
    char uid[16];
    snprintf(uid, sizeof(uid), "%u", geteuid());
    return put_dir(buf, size, err, "/tmp/cede-", uid);
}

int cede_dir(char *buf, size_t size, struct error *err)
{
    const char *dir = secure_getenv("CEDE_DIR");
    if (dir && *dir)
        return put_dir(buf, size, err, dir, "");
    return user_dir(buf, size, err);
}

int cede_dir_make(const char *dir, struct error *err)
{
    mode_t mode = strncmp(dir, "/tmp/", 5) == 0 ? 0700 : 0755;
    bool made = mkdir(dir, mode) == 0;
    if (!made && errno != EEXIST)
        return error_set(err, -errno, "cannot create directory %s: %s%s", dir, strerror(errno),
                         errno == ENOENT ? " (the directory above it must exist)" : "");

    _cleanup_close_ int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return error_set(err, -errno, "cannot use directory %s: %s", dir,
                         errno == ELOOP || errno == ENOTDIR ? "it is a link or no directory"
                                                            : strerror(errno));
    if (st.st_uid != geteuid())
        return error_set(err, -EPERM,
                         "directory %s belongs to uid %u, not to uid %u: remove it or set CEDE_DIR",
                         dir, st.st_uid, geteuid());
    /* The umask may have taken rights away that others need to reach the socket. */
    if (made && fchmod(fd, mode) < 0)
        return error_set(err, -errno, "cannot set the rights of %s: %s", dir, strerror(errno));
    if (!made && (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, -EPERM, "directory %s may be written to by others: chmod go-w %s",
                         dir, dir);
    return 0;
}

int cede_socket_at(unsigned i, char *buf, size_t size)
{
    const char *own = secure_getenv("CEDE_DIR");
    char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int r = -ENOENT;
    if (own && *own)
        r = i == 0 ? put_dir(dir, sizeof(dir), NULL, own, "") : -ENOENT;
    else if (i == 0)
        r = put_dir(dir, sizeof(dir), NULL, SYSTEM_DIR, "");
    else if (i == 1 && geteuid() != 0) /* root's own is the system's */
        r = user_dir(dir, sizeof(dir), NULL);
    if (r < 0)
        return 0;
    int n = snprintf(buf, size, "%s/socket", dir);
    return n > 0 && (size_t)n < size;
}
