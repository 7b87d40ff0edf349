/* A manager without processes, GPUs and a scheduler: a table of jobs behind manager.h, linked in
 * place of the real one to test what speaks to it. Tests look into it and set it up here. */
#ifndef CEDE_TESTS_CONTROL_FAKE_MANAGER_H
#define CEDE_TESTS_CONTROL_FAKE_MANAGER_H

#include "engine/manager.h"

#define FAKE_JOBS 4096

struct manager {
    struct job_view jobs[FAKE_JOBS]; /* number 0: free */
    struct told told[FAKE_JOBS];     /* what each said last */
    uint32_t end;
    uint64_t next_number;
    char policy[32];
    struct sched_params params;
    int status; /* what manager_job_status() answers */
    unsigned applied;
    unsigned applied_paused; /* jobs that were paused when changes were applied last */
    bool ends_when_applied;  /* every job ends in the next turn */
};

struct manager *fake_manager_new(void);

/* Slot of a new job. */
uint32_t fake_manager_put(struct manager *m, pid_t pid, uid_t uid, enum job_class class,
                          uint32_t weight, const char *name);

/* verbs.apply; arg is the manager. */
void fake_manager_apply(void *arg);

#endif
