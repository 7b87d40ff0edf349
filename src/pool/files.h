/* A pool's files, for join.c and keeper.c. */
#ifndef CEDE_POOL_FILES_H
#define CEDE_POOL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/procfs.h"

#define POOL_PATH    128
#define POOL_PROGRAM 512 /* bytes of a path in $PATH */
#define POOL_LOOK_NS 20000000L
#define POOL_READY   "ready"
#define POOL_ENDING  "ending\n"
#define POOL_SOCKET  "mps/control"

/* -errno: none; 0600. */
int pool_open(const char *dir, const char *name, int flags);
/* The program, by an absolute path. */
bool pool_find_control(char *file, size_t size);
/* The control daemon as it is on record, if it lives; whether it was asked to end. */
bool pool_control(const char *dir, struct proc_id *id, bool *ending);
int pool_control_put(const char *dir, struct proc_id id); /* 0 or -errno */
int pool_control_end(const char *dir);                    /* it is about to be asked; the same */
bool pool_answers(const char *dir);                       /* it has its socket */
off_t pool_size(const char *dir, const char *name);       /* 0: there is none */
/* For the control daemon, and for its clients. 0 or -ENOMEM. */
int pool_environment(const char *dir);

#endif
