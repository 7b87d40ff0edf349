/* Starts programs and processes. This is the only file of src/ that calls fork(2) and exec(3), so
 * that their pitfalls are avoided once: no signal handler of the parent runs in the child, a parent
 * that dies before PR_SET_PDEATHSIG is noticed, descriptors do not overwrite each other, and none
 * is inherited by mistake. */
#ifndef CEDE_BASE_CHILD_H
#define CEDE_BASE_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#define CHILD_SELF    "/proc/self/exe" /* as `file`: this program again, under the name argv[0] */
#define CHILD_FDS_MAX 5

struct child_spec {
    const char *const *argv; /* NULL: no program, the child only calls `begin` */
    const char *file;        /* NULL: argv[0], searched for in PATH */
    /* Called in the child when everything else is set, before the program. The child exits with its
     * result if that is not 0 or if there is no program. */
    int (*begin)(void *arg);
    void *arg;
    const char *const *env; /* pairs of name and value to add, ended by NULL; or NULL */
    /* The parent's descriptor `from` becomes the child's `as`; from -1: /dev/null. Standard
     * descriptors that are not named stay as they are. The child gets no others or, with `inherit`,
     * those of the parent without FD_CLOEXEC. */
    struct {
        int from, as;
    } fds[CHILD_FDS_MAX];
    bool inherit;
    bool session;         /* in a new session */
    bool group;           /* in a new process group, which ^C does not reach and kill(-pid) does */
    bool detached;        /* in a new session, and not our child: its pid is not known */
    bool fresh;           /* every signal has its default; else ignored ones stay ignored */
    const sigset_t *mask; /* NULL: with `fresh` nothing is blocked, else what the parent blocks */
    int death_signal;     /* sent to the child when the parent dies; 0: none */
};

/* The caller keeps its descriptors. pid may be NULL with `detached`. Returns 0 or a negative errno,
 * with *pid 0. If the program cannot be executed, the child writes that to its standard error and
 * ends, as under a shell, with status 127 if the file does not exist, else 126. */
int child_start(const struct child_spec *spec, pid_t *pid);
/* Starts a child with a link to it: a pipe that the child reads or writes, or a SEQPACKET socket.
 * The child's end is its descriptor `as`, one of CHILD_FDS_MAX. Returns this process's end, which
 * does not block if the child writes, or a negative errno as above. */
enum child_link { CHILD_READS, CHILD_WRITES, CHILD_SOCKET };
int child_start_linked(const struct child_spec *spec, enum child_link link, int as, pid_t *pid);
/* Replaces this process by the program, which is searched for in PATH. Returns, with a negative
 * errno, only if that fails. */
int child_become(const char *file, const char *const argv[]);
/* Prepares a helper process of ceded: sets its name and log, ignores signals by which users stop
 * programs, and changes to /. Returns 0 or a negative errno. */
int child_begin(const char *name);

#endif
