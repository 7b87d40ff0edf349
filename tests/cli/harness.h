/* For tests of the verbs: a private directory, the real executable, and a stand-in for the daemon
 * that answers with prepared texts. Asserts nothing about the verbs itself. */
#ifndef CEDE_TESTS_CLI_HARNESS_H
#define CEDE_TESTS_CLI_HARNESS_H

#include <sys/types.h>

#include "../test.h"

#define OUTPUT_MAX 300000

struct result {
    int status; /* as from waitpid */
    char out[OUTPUT_MAX], err[8192];
};

/* $CEDE_EXE, and a directory of this test's own in $CEDE_DIR, with no daemon and no software GPU.
 * Group set-up and tear-down for cmocka. */
int harness_begin(void **state);
int harness_end(void **state);
const char *harness_dir(void);
/* A file in it; eight may be in use at once. */
const char *harness_file(const char *name);
const char *harness_exe(void);

/* Runs a program to its end. argv ends with NULL; "cede" at its start is the executable under test.
 * in: standard input, NULL: /dev/null. */
void run_program(struct result *r, const char *in, const char *const argv[]);
#define RUN(r, ...) run_program(r, NULL, (const char *const[]){__VA_ARGS__, NULL})

/* The same, and fails the test unless it ends with that status, and says these parts; "": nothing,
 * NULL: whatever. */
void run_says(struct result *r, int status, const char *out, const char *err,
              const char *const argv[]);
#define SAYS(r, status, out, err, ...)                                                             \
    run_says(r, status, out, err, (const char *const[]){__VA_ARGS__, NULL})
#define RUN_OK(...) SAYS(&r, 0, NULL, NULL, __VA_ARGS__)

/* Exit status, or 1000 + signal. */
int status_of(int wait_status);

/* Starts a program with these standard descriptors, -1: /dev/null. */
pid_t harness_start(const char *const argv[], int in, int out, int err, bool own_group);

/* Only starts it, standard output to *out (a pipe). */
pid_t start_program(int *out, const char *const argv[]);

/* The next line from a descriptor, without newline; fails the test at the end or after 20 s. */
void read_line(int fd, char *buf, size_t size);
/* It is this one. */
void reads(int fd, const char *line);
/* The child ends, with that status_of(). */
void ends_with(pid_t pid, int status);

/* The process's state letter, 0 if there is none. */
char process_state(pid_t pid);
pid_t process_parent(pid_t pid);
/* Waits for a state, one of `states`; "" means: gone. Fails the test after 20 s. */
void await_state(pid_t pid, const char *states);

/* A daemon that answers the n-th message with the n-th text (' stands for "; the last one again and
 * again; NULL: closes the connection instead; "": none until the client has gone) and writes down
 * what it was asked. uid -1: this user. */
pid_t fake_daemon(uid_t uid, const char *const replies[]);
/* Ends it; what it was asked, one message a line. malloc'd. */
char *fake_daemon_end(pid_t pid);

#define TALK_REPLIES 5

/* A verb, and a daemon that answers it. */
struct talk {
    /* Words behind "cede"; NAME=VALUE before them is in its environment. DAEMON_UID=UID: the daemon
     * is that user's; such a row counts where root runs the test. */
    const char *command;
    const char *replies[TALK_REPLIES]; /* as of fake_daemon() */
    int status;
    const char *out; /* all of it; NULL: whatever */
    const char *err; /* a part; "": nothing */
    /* All of it, or, where that is no JSON, parts with blanks between, and behind ! what is no
     * part; ' stands for ". NULL: whatever. */
    const char *asked;
};
void check_talks(const struct talk *v, size_t n);
#define TEST_TALKS(v)                                                                              \
    TEST(all_##v)                                                                                  \
    {                                                                                              \
        check_talks(v, sizeof(v) / sizeof(*(v)));                                                  \
    }

/* Of replies. */
#define OK     "{'v':1,'ok':true"
#define NO(n)  "{'v':1,'ok':false,'errno':" #n ",'error':"
#define TRAIN  OK ",'job':{'number':12,'name':'train','class':'batch','weight':300,'pid':4711}"
#define OP(op) "{'v':1,'op':'" op "'"

#endif
