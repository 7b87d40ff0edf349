/* For tests of the verbs: a private directory, the real executable, and a stand-in for the daemon
 * that answers with prepared texts. Asserts nothing about the verbs itself. */
#ifndef CEDE_TESTS_CLI_HARNESS_H
#define CEDE_TESTS_CLI_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <cmocka.h>

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
const char *harness_exe(void);

/* Runs a program to its end. argv ends with NULL; "cede" at its start is the executable under test.
 * in: standard input, NULL: /dev/null. */
void run_program(struct result *r, const char *in, const char *const argv[]);
#define RUN(r, ...) run_program(r, NULL, (const char *const[]){__VA_ARGS__, NULL})

/* Exit status, or 1000 + signal. */
int status_of(int wait_status);

/* Starts a program with these standard descriptors, -1: /dev/null. */
pid_t harness_start(const char *const argv[], int in, int out, int err, bool own_group);

/* Only starts it, standard output to *out (a pipe). */
pid_t start_program(int *out, const char *const argv[]);

/* The next line from a descriptor, without newline; fails the test at the end or after 20 s. */
void read_line(int fd, char *buf, size_t size);

/* The process's state letter, 0 if there is none. */
char process_state(pid_t pid);
pid_t process_parent(pid_t pid);
/* Waits for a state, one of `states`; "" means: gone. Fails the test after 20 s. */
void await_state(pid_t pid, const char *states);

/* A daemon that answers the n-th message with the n-th text (the last one again and again; NULL:
 * closes the connection instead; "": none until the client has gone) and writes down what it was
 * asked. uid -1: this user. */
pid_t fake_daemon(uid_t uid, const char *const replies[]);
/* Ends it; what it was asked, one message a line. malloc'd. */
char *fake_daemon_end(pid_t pid);

#endif
