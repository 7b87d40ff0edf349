/* A test bed: a private directory, the programs started in it (cede-load, cede-softgpu, ceded: this
 * executable under other names) and the lines that they print. `cede demo`, `cede doctor` and
 * `cede bench` measure with it. Nothing of it is left behind: children die with this process, which
 * adopts their orphans, and testbed_close() waits for all of them.
 *
 * It is a part of src, not of tests, because three verbs of the product use it. The tests' harness
 * uses only its lower half (cleanup.h), because tests run single programs to their end, kill them
 * and look at their output, for which a loop over all children is in the way.
 *
 * The test bed does not know what is measured. A process has one at a time: it sets CEDE_DIR and
 * CEDE_SOFT_SOCKET in the environment and the signal mask, and reaps every child that ends. */
#ifndef CEDE_DOCTOR_TESTBED_H
#define CEDE_DOCTOR_TESTBED_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include <jansson.h>

#include "base/util.h"
#include "doctor/series.h"

#define TESTBED_CHILDREN 72 /* 50 programs, and what serves them */
#define TESTBED_ARGS     48
#define TESTBED_COVER_S  2.0 /* how late a line about the end of a window may come */

/* The monotonic clock in seconds, as loads print it. */
static inline double clock_s(void)
{
    return (double)monotonic_ns() / (double)NSEC_PER_SEC;
}

static inline uint64_t clock_ns(double s)
{
    return s > 0 ? (uint64_t)(s * (double)NSEC_PER_SEC) : 0;
}

enum child_kind { CHILD_LOAD, CHILD_SOFTGPU, CHILD_DAEMON, CHILD_HELPER };

struct child {
    pid_t pid; /* 0: it was not started, or has ended and was waited for */
    int pidfd, out;
    enum child_kind kind;
    bool ending; /* asked to end, so its end is no error */
    bool spoke;  /* it has printed a line */
    int status;  /* as of waitpid, once it has ended */
    char name[24];
    struct series series; /* of a load */
    char line[65536];
    size_t nline;
};

struct testbed {
    char dir[64];
    sigset_t old_mask;
    int signal_fd;
    int signal;      /* that asked this process to end; 0: none */
    uint64_t end_ns; /* how long a child may take to end; callers may change it */
    struct child *children[TESTBED_CHILDREN];
    struct child *daemon; /* one of them, once testbed_daemon() has started it */
};

/* The signals for which functions of a test bed return -EINTR. */
void testbed_signals(sigset_t *set);

/* softgpus: the number of GPUs of a private cede-softgpu; 0: none is started. The caller calls
 * testbed_close() after a failure too. */
int testbed_open(struct testbed *s, unsigned softgpus, struct error *err);
void testbed_close(struct testbed *s);

/* Starts a program ("cede...": this executable by that name). A load's lines, those of cede-load,
 * go into (*out)->series; a helper's are not read, and its end is no error. env: pairs of name and
 * value, ended by NULL; NULL: none. The child belongs to the test bed. */
int testbed_program(struct testbed *s, enum child_kind kind, const char *name,
                    const char *const *argv, const char *const *env, struct child **out,
                    struct error *err);

/* Starts a daemon with the given device and settings (the text of a cede.conf, "" for none) as its
 * only configuration, and returns when it listens. */
int testbed_daemon(struct testbed *s, const char *device, const char *settings, struct error *err);

/* Sends the daemon one message and takes its answer, which the caller frees (answer may be NULL);
 * *us is the time that took. -EPROTO: the daemon refused. */
int testbed_request(const struct testbed *s, const char *text, double *us, json_t **answer,
                    struct error *err);

/* Frees a child that has ended, with its log, to make room for another. */
void testbed_forget(struct testbed *s, struct child *c);

/* The end of what a child wrote to its standard error; "" if nothing. */
void testbed_words(const struct testbed *s, const struct child *c, char *buf, size_t size);

/* Waits until until_ns or for the first output or end of a child, and reads it. -EINTR: a signal
 * asks this process to end. -ECHILD: a child ended unasked; -EPROTO: a line is not cede-load's. */
int testbed_turn(struct testbed *s, uint64_t until_ns, struct error *err);

/* Reads what the children print until until_ns. */
int testbed_sleep(struct testbed *s, uint64_t until_ns, struct error *err);

/* Waits until all of these loads have done something. -ETIMEDOUT. */
int testbed_await_work(struct testbed *s, struct child *const *v, size_t n, double seconds,
                       struct error *err);

/* Waits until all of these loads have printed what they did up to t, in seconds. -ETIMEDOUT. */
int testbed_await_lines(struct testbed *s, struct child *const *v, size_t n, double t,
                        struct error *err);

/* Waits for a child's end; it is killed at the limit (-ETIMEDOUT). */
int testbed_await_end(struct testbed *s, struct child *c, uint64_t limit_ns, struct error *err);

/* Measures the GPU's speed, for an argument of loads in buf. The software GPU needs none. */
int testbed_calibrate(struct testbed *s, const char *device, char *buf, size_t size,
                      struct error *err);

/* Asks children to end, waits for them and their last output, and kills those that do not end in
 * time. -ETIME: one had to be killed; -ECHILD: one ended with an error. Their series stay until
 * testbed_close(). */
int testbed_stop(struct testbed *s, struct child *const *v, size_t n, struct error *err);

#endif
