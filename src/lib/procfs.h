/* What /proc tells about processes: identity that survives pid reuse, parents, owner, names.
 * Reads only; every function copes with a process that disappears half-way (-ESRCH). */
#ifndef CEDE_LIB_PROCFS_H
#define CEDE_LIB_PROCFS_H

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

/* Whether a look at a process failed for a reason that says nothing about it (-EMFILE, -ENOMEM):
 * then it is to be looked at again. */
static inline bool proc_unsure(int r)
{
    return r < 0 && r != -ESRCH && r != -ENOENT && r != -EACCES && r != -EPERM &&
           r != -ENAMETOOLONG;
}

/* The file NAME of a process, as far as one read(2) gives it; always terminated. Bytes read or
 * -errno, with ENOENT told as ESRCH. */
ssize_t proc_read(pid_t pid, const char *name, char *buf, size_t size);

/* 0, -ESRCH (no such process, or a zombie's /proc entry just went), -EIO (unparsable); another
 * error (-EMFILE) says nothing about the process. */
int proc_stat_read(pid_t pid, struct proc_stat *out);

/* The user whose process it is: the real one, as kill(2) asks for. The effective one is another's
 * for who runs a set-user-ID program, and for root's programs that do something as a user. */
int proc_owner(pid_t pid, uid_t *uid);
/* The same user, and the groups that it is in: the real one first, as many as there is room for.
 * How many, or -errno. */
int proc_credentials(pid_t pid, uid_t *uid, gid_t *groups, size_t max);

/* What tells the program that a process runs from those that it ran before: exec(2) changes the
 * addresses. Asks for neither the lock of its address space nor its file system. */
struct proc_image {
    uint64_t code, code_end, stack;
};
int proc_image_read(struct proc_id id, struct proc_image *out);
static inline bool proc_image_same(struct proc_image a, struct proc_image b)
{
    return a.code == b.code && a.code_end == b.code_end && a.stack == b.stack;
}

/* The random name of this boot, 36 characters. 0, or -errno with nothing in it. */
int proc_boot_id(char buf[static 37]);
uint64_t proc_ticks_now(void); /* a process that starts now has this start_ticks, or a later one */

/* A zombie with threads is a program whose first thread has ended, and which goes on. */
bool proc_ended(const struct proc_stat *st);

/* 0 while exactly this process exists and is not a zombie, -ESRCH once it has ended, another error
 * (-EMFILE, -ENOMEM) if that cannot be told now. */
int proc_check(struct proc_id id);

/* False only if the process is known to have ended: whoever cannot tell must not forget it. */
bool proc_alive(struct proc_id id);

/* Whether its first thread is stopped: by a signal (^Z), or for a tracer. */
bool proc_stopped(struct proc_id id);

/* Its parent's in its place; -ESRCH at the top, and where the parent's number has passed to a
 * process that is younger than its child. More levels than these, about 0.1 s, nobody climbs. */
#define PROC_LEVELS_MAX 32768
int proc_stat_parent(struct proc_stat *st);

/* Whether `pid` is `ancestor` or descends from it, by the parents as they are now. */
bool proc_is_descendant(pid_t pid, pid_t ancestor);

/* The same for a job's processes: process 1 is the root of none. */
static inline bool proc_in_tree(pid_t pid, pid_t root)
{
    return root > 1 && proc_is_descendant(pid, root);
}

static inline bool proc_same(struct proc_id a, struct proc_id b)
{
    return a.pid == b.pid && a.start_ticks == b.start_ticks;
}

/* pidfd for exactly this process: -ESRCH if the pid is gone or was reused, another error (-EMFILE)
 * if that cannot be told now. The caller closes it. */
int proc_pidfd(struct proc_id id);

/* To exactly this process: -ESRCH, -EPERM, or an error of proc_pidfd(). */
int proc_signal(struct proc_id id, int signal);

/* False once the process has ended with all its threads. One system call, against the three and the
 * cold look-ups in /proc of proc_alive(). */
bool pidfd_alive(int pidfd);

/* /proc/PID/exe's target and the (v2 or first) cgroup path. 0 or -errno; always terminated. */
int proc_exe(pid_t pid, char *buf, size_t size);
int proc_cgroup(pid_t pid, char *buf, size_t size);

/* True unless we are in a pid namespace below the first: then there are processes we do not see,
 * and what the kernel tells outside /proc has other numbers. */
bool proc_sees_all(void);

/* All pids now. *pids is malloc'd. 0 or -errno. */
int proc_list(pid_t **pids, size_t *n);

#endif
