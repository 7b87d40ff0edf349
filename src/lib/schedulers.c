/* See schedulers.h. */
#include "lib/schedulers.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util.h"

/* Of the control daemon and of a server, which has the contexts of its clients: the kernel cuts
 * names to 15 bytes. */
#define MPS_COMM "nvidia-cuda-mps"

static bool same_executable(pid_t pid)
{
    char path[32];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
           own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

bool proc_is_keeper(const struct proc_stat *st)
{
    return strcmp(st->comm, "cede-pool") == 0 && same_executable(st->id.pid);
}

/* Root is the one of our own system, not of a container that has root's number. */
static bool is_believed(pid_t pid, uid_t uid)
{
    char path[32];
    struct stat own, other;
    snprintf(path, sizeof(path), "/proc/%d/ns/pid", (int)pid);
    return (uid == 0 || uid == geteuid()) &&
           (uid != 0 || geteuid() != 0 || /* who is not root cannot tell */
            (stat("/proc/self/ns/pid", &own) == 0 && stat(path, &other) == 0 &&
             own.st_ino == other.st_ino));
}

static bool executable_is(pid_t pid, const char *name)
{
    char exe[4096];
    if (proc_exe(pid, exe, sizeof(exe)) < 0)
        return false;
    const char *last = strrchr(exe, '/');
    return strcmp(last ? last + 1 : exe, name) == 0;
}

/* A user chooses the name of a file, but not whose it is. */
static bool is_roots_file(pid_t pid)
{
    char path[32];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    return stat(path, &st) == 0 && st.st_uid == 0 && !(st.st_mode & 022);
}

/* What a user runs may be any program, whatever it is called. */
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

/* The server of a pool that cede runs: its keeper's grandchild. */
static bool is_pool_server(const struct proc_stat *st, uid_t uid)
{
    struct proc_stat control, keeper;
    return proc_serves_mps(st, uid) && proc_stat_read(st->ppid, &control) == 0 &&
           strcmp(control.comm, MPS_COMM) == 0 && proc_stat_read(control.ppid, &keeper) == 0 &&
           proc_is_keeper(&keeper);
}

/* One of the programs with which root's or this user's ceded checks a driver. */
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
    /* Another user's may be any program: what a process of this executable has loaded is its own.
     */
    if (named)
        return is_believed(st->id.pid, uid) && (uid == 0 || same_executable(st->id.pid));
    return is_mps_control(st, uid) || is_pool_server(st, uid) || is_of_check(st, uid);
}
