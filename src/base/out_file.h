/* Writes files that the user named. A regular file is replaced atomically or stays as it was;
 * anything else (a device, a pipe) is written in place; "-" is standard output. Links are followed,
 * but as root none that another user could have put there. */
#ifndef CEDE_BASE_OUT_FILE_H
#define CEDE_BASE_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/util.h"

struct out_file {
    int fd;             /* to write to */
    int dir;            /* the file's directory; -1: it is written in place */
    char temporary[32]; /* its name in dir until it replaces `name` */
    char name[256];
    char path[512]; /* as the user gave it, for messages */
};

/* Whether the path means standard output, on which nothing else may be printed then. */
bool out_file_is_output(const char *path);

/* mode: the file's rights; 0: those of the file that it replaces, else as the umask has it. The
 * previous file is untouched until out_file_show(). */
int out_file_open(struct out_file *o, const char *path, mode_t mode, struct error *err);
/* Replaces the file now, for one that is of use while it still grows. Closes it after a failure. */
int out_file_show(struct out_file *o, struct error *err);
/* Closes it and discards what was written, unless it was shown or written in place. */
void out_file_drop(struct out_file *o);

/* Opens, writes and commits. */
int out_file_put(const char *path, mode_t mode, const void *data, size_t n, struct error *err);

#endif
