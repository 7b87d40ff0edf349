/* A pool's files, for join.c and keeper.c. */
#ifndef CEDE_POOL_FILES_H
#define CEDE_POOL_FILES_H

#include <stdbool.h>

#include "lib/procfs.h"

#define POOL_PATH    128
#define POOL_LOOK_NS 20000000L
#define POOL_READY   "ready"
#define POOL_SOCKET  "mps/control"

/* -errno: none; 0600. */
int pool_open(const char *dir, const char *name, int flags);
bool pool_has_control(void);
/* The control daemon as it is on record, if it lives. */
bool pool_control(const char *dir, struct proc_id *id);
int pool_control_put(const char *dir, struct proc_id id); /* 0 or -errno */
bool pool_answers(const char *dir);                       /* it has its socket */
long pool_faults_end(const char *dir);
/* For the control daemon, and for its clients. 0 or -ENOMEM. */
int pool_environment(const char *dir);

#endif
