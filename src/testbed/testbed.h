/* The private place in which `cede demo`, `cede doctor` and `cede bench` work: a temporary
 * directory, the programs started in it (cede-load, cede-softgpu, ceded: this executable under
 * other names) and what they say. Whatever happens, nothing of it is left behind: children die with
 * us, orphans of theirs come to us, and stage_close() waits for all of them.
 *
 * Nothing here knows what is measured. One stage in a process at a time: it sets CEDE_DIR and
 * CEDE_SOFT_SOCKET in the environment, the signal mask, and takes every child that ends. */
#ifndef CEDE_BENCH_CHILDREN_H
#define CEDE_BENCH_CHILDREN_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "bench/series.h"
#include "lib/util.h"

#define STAGE_CHILDREN 72 /* 50 programs, and what serves them */
#define STAGE_ARGS     48

enum child_kind { CHILD_LOAD, CHILD_SOFTGPU, CHILD_DAEMON, CHILD_HELPER };

struct child {
    pid_t pid; /* 0: none, or it has ended and was waited for */
    int pidfd, out;
    enum child_kind kind;
    bool ending; /* told to end: an end is no accident */
    bool spoke;  /* a line has come */
    int status;  /* as of waitpid, once it has ended */
    char name[24];
    struct series series; /* of a load */
    char line[65536];
    size_t nline;
};

struct stage {
    char dir[64];
    sigset_t old_mask;
    int signal_fd;
    int signal;      /* that asked us to end; 0: none */
    uint64_t end_ns; /* how long a child may take to end; what stage_open() sets may be changed */
    struct child *children[STAGE_CHILDREN];
    struct child *daemon; /* one of them, once stage_daemon() has started it */
};

/* Those that a stage answers by -EINTR. */
void stage_signals(sigset_t *set);

/* softgpus: with a software machine of its own with so many GPUs, none if 0. stage_close() is due
 * after failure too. */
int stage_open(struct stage *s, unsigned softgpus, struct error *err);
void stage_close(struct stage *s);

/* Starts cede-load with these arguments (NULL-terminated); its lines go into (*out)->series. The
 * child belongs to the stage. */
int stage_load(struct stage *s, const char *name, const char *const *args, struct child **out,
               struct error *err);

/* Starts any program whose lines are those of cede-load ("cede...": this executable by that name).
 * env: pairs of name and value, ended by NULL; NULL: none. A helper's lines are not looked at, and
 * its end is no accident. */
int stage_program(struct stage *s, enum child_kind kind, const char *name, const char *const *argv,
                  const char *const *env, struct child **out, struct error *err);

/* Starts a daemon that knows no configuration but the given device and settings (the text of a
 * cede.conf, "" for none); back when it listens. */
int stage_daemon(struct stage *s, const char *device, const char *settings, struct error *err);

/* One message to that daemon and its answer; *us is the time that took. -EPROTO: it refused. */
int stage_request(const struct stage *s, const char *text, double *us, struct error *err);

/* Releases a child that has ended, to make room. */
void stage_forget(struct stage *s, struct child *c);

/* The end of what a child wrote to its standard error; "" if nothing. */
void stage_words(const struct stage *s, const struct child *c, char *buf, size_t size);

/* Takes what the children say until the time or the first news, whichever comes first. -EINTR: a
 * signal asks us to end. -ECHILD: a child ended that nobody told to; -EPROTO: a load says nonsense.
 */
int stage_turn(struct stage *s, uint64_t until_ns, struct error *err);

/* The same until the time. */
int stage_sleep(struct stage *s, uint64_t until_ns, struct error *err);

/* Tells children to end and waits for them and their last words; kills what does not end in time.
 * -ETIME: one had to be killed; -ECHILD: one ended with an error. Their series stay until the stage
 * is closed. */
int stage_stop(struct stage *s, struct child *const *v, size_t n, struct error *err);

#endif
