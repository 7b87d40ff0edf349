/* A pool's files, for join.c and keeper.c. */
#ifndef CEDE_MEMORY_POOL_FILES_H
#define CEDE_MEMORY_POOL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "who/procfs.h"

#define POOL_PATH    128
#define POOL_PROGRAM 512 /* bytes of a path in $PATH */
#define POOL_LOOK_NS 20000000L
#define POOL_READY   "ready"
#define POOL_ENDING  "ending\n"
#define POOL_SOCKET  "mps/control"

/* Opens a file, created with 0600. Returns the descriptor or -errno. */
int pool_open(const char *dir, const char *name, int flags);
/* Finds MPS's control program, by an absolute path. */
bool pool_find_control(char *file, size_t size);
/* Reads which process the control daemon is, and whether it was asked to end. False: none lives. */
bool pool_control(const char *dir, struct proc_id *id, bool *ending);
int pool_control_put(const char *dir, struct proc_id id); /* 0 or -errno */
int pool_control_end(const char *dir); /* writes that it will be asked to end; 0 or -errno */
bool pool_answers(const char *dir);    /* whether the control daemon has its socket */
off_t pool_size(const char *dir, const char *name); /* 0: there is no such file */
/* Sets the environment of the control daemon and of its clients. 0 or -ENOMEM. */
int pool_environment(const char *dir);

#endif
