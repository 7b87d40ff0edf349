/* See paths.h. */
#include "base/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>

int cede_dir(char *buf, size_t size, struct error *err)
{
    const char *own = secure_getenv("CEDE_DIR");
    int r = own && *own ? cede_dir_put(buf, size, own, "") : cede_user_dir(buf, size);
    if (r < 0)
        return error_set(err, r,
                         "directory %.64s... is too long for a socket in it: set CEDE_DIR to one "
                         "of at most %zu bytes",
                         buf, sizeof(((struct sockaddr_un *)0)->sun_path) - sizeof("/socket"));
    return 0;
}

int cede_state_dir(const char *dir, char *buf, size_t size, struct error *err)
{
    const struct {
        const char *above, *name;
    } dirs[] = {{secure_getenv("CEDE_STATE_DIR"), ""},
                {dir ? dir : secure_getenv("CEDE_DIR"), ""},
                {geteuid() == 0 ? "/var/lib" : NULL, "/cede"},
                {secure_getenv("XDG_STATE_HOME"), "/cede"},
                {secure_getenv("HOME"), "/.local/state/cede"}};
    size_t i = 0;
    while (i < ARRAY_SIZE(dirs) - 1 && (!dirs[i].above || !*dirs[i].above))
        i++;
    const char *above = dirs[i].above;
    if (!above || *above != '/' || (size_t)snprintf(buf, size, "%s%s", above, dirs[i].name) >= size)
        return error_set(err, -ENAMETOOLONG,
                         "the state directory needs an absolute path of at most %zu bytes: set "
                         "CEDE_STATE_DIR",
                         size - 1);
    return 0;
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
    /* The umask may have removed rights that other users need to reach the socket. */
    if (made && fchmod(fd, mode) < 0)
        return error_set(err, -errno, "cannot set the rights of %s: %s", dir, strerror(errno));
    if (!made && (st.st_mode & (S_IWGRP | S_IWOTH)))
        return error_set(err, -EPERM, "directory %s may be written to by others: chmod go-w %s",
                         dir, dir);
    return 0;
}

/* Whether a build put the program into this folder. Only then the files two folders up are the
 * build's; above a copy in /tmp/x/bin they may be any user's. */
static bool in_build(const char *folder)
{
    const size_t n = strlen(folder), end = strlen("/src/cli");
    return n > end && strcmp(folder + n - end, "/src/cli") == 0;
}

bool cede_find(const char *built, const char *beside, const char *installed, char *path,
               size_t size)
{
    char exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    exe[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) {
        *slash = '\0';
        snprintf(path, size, "%s/../../%s", exe, built);
        if (in_build(exe) && access(path, R_OK) == 0)
            return true;
        snprintf(path, size, "%s/../%s", exe, beside);
        if (access(path, R_OK) == 0)
            return true;
    }
    snprintf(path, size, "%s", installed);
    return access(path, R_OK) == 0;
}
