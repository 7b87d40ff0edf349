/* Running a program's main function in a process of its own, with its output kept. For cmocka
 * tests: what goes wrong here fails the test. */
#ifndef CEDE_TESTS_LOAD_CHILD_H
#define CEDE_TESTS_LOAD_CHILD_H

#include <jansson.h>
#include <stdio.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    FILE *files[2]; /* standard output and error */
    int status;     /* exit status, once ended */
    char out[65536], err[4096];
    json_t *last; /* what child_final() returned */
};

/* Starts it on the words of a line, the program's name first. */
void child_start(struct child *c, int (*program)(int argc, char **argv), const char *line);
/* Returns once the program has written to standard output, or has ended. */
void child_await_output(struct child *c);
/* Fills in status, out and err. A program that a signal ended fails the test. */
void child_end(struct child *c);

/* The object on the last line of a program that went well and said nothing to people; until it is
 * started anew. */
const json_t *child_final(struct child *c);
/* Likewise, and all its results were right. */
const json_t *child_verified(struct child *c);

/* cede-load on the words of a line, to its end. */
void child_load(struct child *c, const char *line);
/* Likewise; it ends with this status, says this and nothing else on a line to people, and puts out
 * nothing. */
void child_load_fails(struct child *c, const char *line, int status, const char *text);

double json_number(const json_t *object, const char *key);
/* Its numbers are these, but for what adding and printing may lose: "requests 10 late 0". */
void json_says(const json_t *object, const char *says);

#endif
