/* Files that a program writes because somebody named them. A regular file is replaced at once and
 * whole, or stays as it was; anything else (a device, a pipe) is written in place; "-" is standard
 * output. Links are followed, but as root none that another user could have put there. */
#ifndef CEDE_LIB_OUT_FILE_H
#define CEDE_LIB_OUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/util.h"

struct out_file {
    int fd;             /* to write to */
    int dir;            /* where it is replaced; -1: it is written in place */
    char temporary[32]; /* names in dir */
    char name[256];
    char path[512]; /* as it was given, for texts */
};

/* Whether this is standard output, where nothing else may be printed then. */
bool out_file_is_output(const char *path);

/* mode: of the file; 0: that of the file which is there, or else as the umask has it. The file
 * there is untouched before out_file_commit(). */
int out_file_open(struct out_file *o, const char *path, mode_t mode, struct error *err);
/* For what is of use while it grows: the file is this one from now on. Closes it after a failure.
 */
int out_file_show(struct out_file *o, struct error *err);
/* What was written is the file now. Closes it, also after a failure. */
int out_file_commit(struct out_file *o, struct error *err);
/* What was written is lost, unless it was shown, or written in place. */
void out_file_drop(struct out_file *o);

/* All of these. */
int out_file_put(const char *path, mode_t mode, const void *data, size_t n, struct error *err);

#endif
