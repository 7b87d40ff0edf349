/* Reads processes in /proc: an identity that survives the reuse of pids, parents, owner, names.
 * Every function copes with a process that disappears meanwhile (-ESRCH). */
#ifndef CEDE_WHO_PROCFS_H
#define CEDE_WHO_PROCFS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A pid may be reused; a pid with its start time (clock ticks since boot, field 22 of
 * /proc/PID/stat) names one process for the life of the machine. */
struct proc_id {
    int32_t pid;
    uint64_t start_ticks;
};

struct proc_stat {
    struct proc_id id;
    pid_t ppid, group, session;
    int tty;       /* device of its controlling terminal; 0: none */
    char state;    /* 'R', 'S', 'T', 'Z', ... */
    char comm[32]; /* truncated by the kernel to 15 bytes */
    uint32_t threads;
    bool kernel; /* a thread of the kernel's */
};

/* Whether a look at a process failed for a reason that says nothing about it (-EMFILE, -ENOMEM), so
 * that the caller should look again. */
static inline bool proc_unsure(int r)
{
    return r < 0 && r != -ESRCH && r != -ENOENT && r != -EACCES && r != -EPERM &&
           r != -ENAMETOOLONG;
}

/* Reads /proc/PID/NAME, as far as one read(2) does; always terminated. Returns the number of bytes
 * or -errno, with -ESRCH in place of -ENOENT. */
ssize_t proc_read(pid_t pid, const char *name, char *buf, size_t size);

/* 0, -ESRCH (no such process, or a zombie's /proc entry just went), -EIO (unparsable); another
 * error (-EMFILE) says nothing about the process. */
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* Gets the process's real user, as kill(2) uses it. The effective user of a set-user-ID program, or
 * of a program of root's that acts for a user, is another one. 0 or -errno. */
int proc_owner(pid_t pid, uid_t *uid);
/* Gets the same user and, up to max, its groups, the real one first. Returns their number, or
 * -errno. */
int proc_credentials(pid_t pid, uid_t *uid, gid_t *groups, size_t max);

/* Distinguishes the program that a process runs from those that it ran before, because exec(2)
 * changes these addresses. Reading them takes neither the lock of the address space nor the file
 * system. */
struct proc_image {
    uint64_t code, code_end, stack;
};
int proc_image_read(struct proc_id id, struct proc_image *out);
static inline bool proc_image_same(struct proc_image a, struct proc_image b)
{
    return a.code == b.code && a.code_end == b.code_end && a.stack == b.stack;
}

/* Gets the random name of this boot, 36 characters. 0, or -errno with an empty buf. */
int proc_boot_id(char buf[static 37]);
uint64_t proc_ticks_now(void); /* start_ticks of a process that starts now, or less */

/* Whether the whole process has ended: a zombie with threads is a program whose first thread has
 * ended while others go on. */
bool proc_ended(const struct proc_stat *st);

/* 0 while exactly this process exists and is not a zombie, -ESRCH once it has ended, another error
 * (-EMFILE, -ENOMEM) if that cannot be found out now. */
int proc_check(struct proc_id id);

/* False only if the process is known to have ended, so that no caller forgets one by mistake. */
bool proc_alive(struct proc_id id);

/* Whether its first thread is stopped, by a signal (^Z) or a tracer. */
bool proc_stopped(struct proc_id id);

/* Replaces *st by that of the parent; -ESRCH at the top, and where a process that is younger than
 * the child has the parent's pid. Loops stop after PROC_LEVELS_MAX levels, about 0.1 s. */
#define PROC_LEVELS_MAX 32768
int proc_stat_parent(struct proc_stat *st);

/* Whether `pid` is `ancestor` or descends from it, by the parents as they are now. */
bool proc_is_descendant(pid_t pid, pid_t ancestor);

/* The same for a job's processes: no job has process 1 as its root. */
static inline bool proc_in_tree(pid_t pid, pid_t root)
{
    return root > 1 && proc_is_descendant(pid, root);
}

static inline bool proc_same(struct proc_id a, struct proc_id b)
{
    return a.pid == b.pid && a.start_ticks == b.start_ticks;
}

/* Opens a pidfd of exactly this process: -ESRCH if the pid is gone or was reused, another error
 * (-EMFILE) if that cannot be found out now. The caller closes it. */
int proc_pidfd(struct proc_id id);

/* Sends a signal to exactly this process. 0, -ESRCH, -EPERM, or an error of proc_pidfd(). */
int proc_signal(struct proc_id id, int signal);

/* False once the process has ended with all its threads. Takes one system call, where proc_alive()
 * takes three and path look-ups in /proc. */
bool pidfd_alive(int pidfd);

/* Get the target of /proc/PID/exe, and the path of the control group (of version 2, else the first
 * one). 0 or -errno; always terminated. */
int proc_exe(pid_t pid, char *buf, size_t size);
int proc_cgroup(pid_t pid, char *buf, size_t size);

/* False in a pid namespace below the first one, where some processes are invisible and where the
 * kernel uses other pids outside /proc. */
bool proc_sees_all(void);

/* Lists all pids. *pids is malloc'd. 0 or -errno. */
int proc_list(pid_t **pids, size_t *n);

#endif
