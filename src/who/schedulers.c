/* See schedulers.h. */
#include "who/schedulers.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/unasked_fds.h"
#include "base/util.h"

/* The name of the control daemon and of a server, which the kernel cuts to 15 bytes. */
#define MPS_COMM "nvidia-cuda-mps"

static bool stat_of(pid_t pid, const char *link, struct statx *out)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, link);
    return foreign_stat(AT_FDCWD, path, out) == 0;
}

/* Whether a link in /proc leads to the same as our own. */
static bool shares(pid_t pid, const char *link)
{
    struct statx own, other;
    return stat_of(getpid(), link, &own) && stat_of(pid, link, &other) &&
           own.stx_dev_major == other.stx_dev_major && own.stx_dev_minor == other.stx_dev_minor &&
           own.stx_ino == other.stx_ino;
}

static bool same_executable(pid_t pid)
{
    return shares(pid, "exe");
}

bool proc_is_keeper(const struct proc_stat *st)
{
    return strcmp(st->comm, "cede-pool") == 0 && same_executable(st->id.pid);
}

/* Whether the process is our user's, or root's of our own system, and not of a container in which a
 * user has root's uid. Only root can tell these apart. */
static bool is_believed(pid_t pid, uid_t uid)
{
    return (uid == 0 || uid == geteuid()) && (uid != 0 || geteuid() != 0 || shares(pid, "ns/pid"));
}

static bool executable_is(pid_t pid, const char *name)
{
    char exe[4096];
    if (proc_exe(pid, exe, sizeof(exe)) < 0)
        return false;
    const char *last = strrchr(exe, '/');
    return strcmp(last ? last + 1 : exe, name) == 0;
}

/* A user can choose a file's name, but cannot give a file to root. */
static bool is_roots_file(pid_t pid)
{
    struct statx st;
    return stat_of(pid, "exe", &st) && st.stx_uid == 0 && !(st.stx_mode & 022);
}

/* A program of another user is not believed, because it may have any name. */
static bool is_mps_control(const struct proc_stat *st, uid_t uid)
{
    return strcmp(st->comm, MPS_COMM) == 0 && is_believed(st->id.pid, uid) &&
           executable_is(st->id.pid, "nvidia-cuda-mps-control");
}

bool proc_serves_mps(const struct proc_stat *st, uid_t uid)
{
    return strcmp(st->comm, MPS_COMM) == 0 &&
           (is_believed(st->id.pid, uid) ||
            (is_roots_file(st->id.pid) && executable_is(st->id.pid, "nvidia-cuda-mps-server")));
}

/* The server of a pool that cede runs is the grandchild of the pool's keeper. */
static bool is_pool_server(const struct proc_stat *st, uid_t uid)
{
    struct proc_stat control, keeper;
    return proc_serves_mps(st, uid) && proc_stat_read(st->ppid, &control) == 0 &&
           strcmp(control.comm, MPS_COMM) == 0 && proc_stat_read(control.ppid, &keeper) == 0 &&
           proc_is_keeper(&keeper);
}

/* Whether it is one of the programs with which root's or this user's ceded checks a driver. */
static bool is_of_check(const struct proc_stat *st, uid_t uid)
{
    struct proc_stat parent;
    return strcmp(st->comm, "cede-load") == 0 && is_believed(st->id.pid, uid) &&
           (uid == 0 || same_executable(st->id.pid)) && proc_stat_read(st->ppid, &parent) == 0 &&
           strcmp(parent.comm, "cede-check") == 0;
}

bool proc_is_scheduler(const struct proc_stat *st, uid_t uid)
{
    static const char *const ours[] = {"ceded",     "cede-restore",  "cede-swap",
                                       "cede-acct", "cede-identify", "cede-check"};
    bool named = false;
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
        named |= strcmp(st->comm, ours[i]) == 0;
    /* Another user's process is not believed even if it runs this executable, because its user
     * decides which libraries it loads. */
    if (named)
        return is_believed(st->id.pid, uid) && (uid == 0 || same_executable(st->id.pid));
    return is_mps_control(st, uid) || is_pool_server(st, uid) || is_of_check(st, uid);
}
