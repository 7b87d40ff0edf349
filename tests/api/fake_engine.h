/* An engine without processes, GPUs and a scheduler: a table of jobs behind engine.h, linked in
 * place of the real one to test what speaks to it. Tests look into it and set it up here. */
#ifndef CEDE_TESTS_API_FAKE_ENGINE_H
#define CEDE_TESTS_API_FAKE_ENGINE_H

#include "engine/engine.h"

#define FAKE_JOBS 4096

struct engine {
    unsigned naccounts;
    char account[ACCOUNT_NAME_MAX];  /* the last one named */
    struct job_view jobs[FAKE_JOBS]; /* number 0: free */
    struct report told[FAKE_JOBS];   /* what each said last */
    uint32_t askers[FAKE_JOBS];      /* as struct job's told */
    uint32_t share;                  /* what engine_job_share() answers */
    unsigned watched;                /* calls of engine_watch() */
    uint64_t report_again_ns;        /* and when it is asked again */
    uint8_t room_class;              /* the first GPU's, for engine_room_wanted() */
    uint64_t room[FAKE_JOBS][2], room_until[FAKE_JOBS][2]; /* that each waits for */
    uint32_t end;
    uint64_t next_number;
    char policy[32];
    struct sched_params params;
    uint32_t withheld; /* of each GPU, "made-up" */
    int recorded;      /* 1: by engine_record(); 2: and the first job was paused */
    int unrecorded;    /* of engine_may_record() */
    int status;        /* what engine_job_status() answers */
    struct job_trial tried[FAKE_JOBS];
    uint32_t together; /* of the last engine_try() */
    uint64_t untried;  /* the connection that engine_try_no_more() had last */
    unsigned applied;
    unsigned applied_paused; /* jobs that were paused when changes were applied last */
    uint64_t wait_us;        /* of the last yield_acquire() */
    bool waits_full;         /* no user may have one more job that waits for room */
    bool ends_when_applied;  /* every job ends in the next tick */
    void (*on_apply)(void *arg);
    void *arg;
    struct command *first;
    struct unmanaged unmanaged[100];
    uint32_t nunmanaged;
    unsigned looks; /* how often all were looked at anew */
    unsigned facts_came;
};

struct engine *fake_engine_new(void);

/* Slot of a new job. */
uint32_t fake_engine_put(struct engine *m, pid_t pid, uid_t uid, enum job_class class,
                         uint32_t weight, const char *name);

/* Carries out the commands that wait. */
void fake_engine_tick(struct engine *m);

/* What its driver's switches() reports at the next call, and whether it was last told to record. */
extern struct switch_list fake_switches;
extern uint32_t fake_gates; /* GPUs that are slots of a gate, a bit mask */
extern bool fake_recording;
extern unsigned fake_lookups;  /* of jobs by number */
extern int fake_switches_code; /* what it answers then */

#endif
