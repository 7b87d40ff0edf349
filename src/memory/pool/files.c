/* See files.h. */
#include "memory/pool/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "memory/pool/pool.h"

int pool_open(const char *dir, const char *name, int flags)
{
    char path[POOL_PATH];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd = open(path, flags | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : fd;
}

bool pool_find_control(char *file, size_t size)
{
    const char *path = getenv("PATH");
    for (size_t n; path && *path; path += n + (path[n] == ':')) {
        n = strcspn(path, ":");
        if (path[0] == '/' && /* a relative one depends on the working directory */
            (size_t)snprintf(file, size, "%.*s/%s", (int)n, path, POOL_CONTROL) < size &&
            access(file, X_OK) == 0)
            return true;
    }
    return false;
}

bool pool_control(const char *dir, struct proc_id *id, bool *ending)
{
    unsigned long long start;
    int pid;
    _cleanup_close_ int fd = pool_open(dir, "control", O_RDONLY | O_CLOEXEC);
    char text[64] = "";
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 ||
        sscanf(text, "%d %llu", &pid, &start) != 2)
        return false;
    *id = (struct proc_id){.pid = pid, .start_ticks = start};
    *ending = strstr(text, POOL_ENDING) != NULL;
    return proc_alive(*id);
}

int pool_control_put(const char *dir, struct proc_id id)
{
    _cleanup_close_ int fd = pool_open(dir, "control", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    if (fd < 0)
        return fd;
    return dprintf(fd, "%d %llu\n", id.pid, (unsigned long long)id.start_ticks) < 0 ? -errno : 0;
}

int pool_control_end(const char *dir)
{
    _cleanup_close_ int fd = pool_open(dir, "control", O_WRONLY | O_APPEND | O_CLOEXEC);
    return fd < 0 ? fd : write(fd, POOL_ENDING, strlen(POOL_ENDING)) < 0 ? -errno : 0;
}

bool pool_answers(const char *dir)
{
    char path[POOL_PATH];
    snprintf(path, sizeof(path), "%s/" POOL_SOCKET, dir);
    return access(path, F_OK) == 0;
}

off_t pool_size(const char *dir, const char *name)
{
    struct stat st;
    _cleanup_close_ int fd = pool_open(dir, name, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 ? st.st_size : 0;
}

int pool_environment(const char *dir)
{
    char mps[POOL_PATH], log[POOL_PATH];
    snprintf(mps, sizeof(mps), "%s/mps", dir);
    snprintf(log, sizeof(log), "%s/log", dir);
    return setenv("CUDA_MPS_PIPE_DIRECTORY", mps, 1) < 0 ||
                   setenv("CUDA_MPS_LOG_DIRECTORY", log, 1) < 0
               ? -ENOMEM
               : 0;
}
