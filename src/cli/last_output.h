/* Keeps the last 4 KiB of what a program prints, however much that is: a process reads the pipe
 * into memory that it shares with this one, and ends with it. */
#ifndef CEDE_CLI_LAST_OUTPUT_H
#define CEDE_CLI_LAST_OUTPUT_H

#include "base/util.h"

#define LAST_OUTPUT_BYTES 4096

struct last_output {
    int read, write; /* ends of the pipe; the program's standard output is `write` */
    pid_t reader;
    struct last_output_kept {
        uint64_t n; /* bytes ever read */
        char ring[LAST_OUTPUT_BYTES];
    } * kept; /* NULL: not open */
};

/* Returns 0, or -errno, after which nothing is open. */
int last_output_open(struct last_output *o, struct error *err);
/* The last bytes, at most size - 1, as a text; also of what is still in the pipe. */
const char *last_output_text(struct last_output *o, char *buf, size_t size);
void last_output_close(struct last_output *o);

#endif
