/* What the campaign and its actions share: the programs, ceded's life and death, and the page that
 * makes calls fail. */
#ifndef CEDE_TESTS_CAMPAIGN_H
#define CEDE_TESTS_CAMPAIGN_H

#include "../e2e/fixture.h"
#include "faults.h"

#define LOADS     4
#define PROCESSES (2 * LOADS)

#define KILLED_KINDS(X)                                                                            \
    X(CEDED, "ceded") X(RESTORER, "restorer") X(SWAPPER, "swapper") X(PROGRAM, "program")
enum killed_kind {
#define X(name, text) KILLED_##name,
    KILLED_KINDS(X)
#undef X
        KILLED_COUNT
};

/* What a job shall be by the verbs that were done. Empty, 0: not known until ceded is asked. */
struct words {
    char class[8];
    long long weight;
    enum { PERHAPS_PAUSED, NOT_PAUSED, PAUSED } paused;
};

#define MOMENT_KINDS(X)                                                                            \
    X(CEDED_HANGS, "ceded_hangs")                                                                  \
    X(DRIVER_HANGS, "driver_hangs")                                                                \
    X(DRIVER_CHANGES, "drivers") X(CLOCK, "clock_steps") X(FULL, "disk_full") X(ATTACK, "attacks")
enum moment_kind {
#define X(name, text) MOMENT_##name,
    MOMENT_KINDS(X)
#undef X
        MOMENT_COUNT
};

struct load {
    char name[16];
    pid_t pid;       /* 0: none */
    pid_t second;    /* a GPU process more of its job; 0: none */
    pid_t launcher;  /* their parent, with CEDE_CLASS in its environment; 0: none, or killed */
    uint64_t number; /* of its job when ceded was asked last, and nobody has taken it out since */
    bool joined;     /* both were in it */
    bool apart;      /* both need not be: one was taken out, or what started both is gone */
    bool foreign;    /* runs --program */
    struct words words;
    bool off;          /* paused or swapped out when ceded was asked last */
    uint64_t resumed;  /* the step in which that was said to be done, from 1 */
    bool pause_wanted; /* somebody asked to pause it, or to swap it out, since it last ran freely */
};

struct campaign {
    uint64_t seed, steps, step, minutes;
    struct rng rng;
    struct faults *faults;
    struct load loads[LOADS];
    unsigned started;
    pid_t ceded;    /* 0: none */
    pid_t attacker; /* and its process group; 0: none */
    const char *device, *program;
    bool real; /* not on a software GPU */
    bool no_swap;
    bool over;
    bool ruled;      /* ceded may have a rule that takes loads, and the next one has none */
    bool measured;   /* ceded checks the driver, and may find that nothing can be paused */
    long long rows;  /* of accounts that were there; -1: none are kept */
    bool odd_slices; /* the journal was lost: which slices are a program's own cannot be told */
    char history[64 * 1024];
    size_t history_end;
    uint64_t killed[KILLED_COUNT], stops, lost, wrong, verified, begun_ns;
    uint64_t losses, failed[FAULT_COUNT], calls[FAULT_COUNT], starts_failed, moments[MOMENT_COUNT];
};
extern struct campaign c;

uint64_t draw(uint64_t n);
/* Into the history of the round. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Its processes that use the GPU; returns how many. */
size_t processes_of(const struct load *l, pid_t v[static 2]);
bool alive(pid_t pid);
/* A program's process, killed; of a launcher's its shell reaps them. */
void kill_program(pid_t pid);
/* The number of the job that a process is in; 0: none. */
uint64_t number_of(pid_t pid);
/* Of its job nothing is known. */
void forget_job(struct load *l);

/* ceded's living child of that name; 0: none. */
pid_t helper(const char *name);
void kill_it(enum killed_kind kind, pid_t pid);
void await_orphans(void);
/* Other users reach the GPU and the sockets, as on a machine. */
void open_to_users(void);
/* Whether ceded has ended by itself, which it may while its calls fail. */
bool has_ended(void);
bool answers(void);
/* What ceded says of all jobs; "none": it does not run, or does not answer. */
const char *ps_text(void);
/* Without failing calls, and without waiting. */
void spawn_ceded(void);
/* Nothing if it runs. It may fail as long as calls do; without that it has to come up. */
void start(void);
/* By kill -9; both: its restorer too, one way round or the other. */
void kill_ceded(bool both);

/* actions.c: something random; whether it succeeds is not asked. */
void act(void);
void start_load(void);
void end_attack(void);
/* A kill of one or both halves of ceded, or of a program: what each step on a real GPU begins with.
 */
void kill_something(void);

/* checks.c: what has to hold while ceded runs, and without it. */
void check_up(void);
void check_down(void);

/* programs.c: what programs do by their own output, where the driver cannot say it exactly. Loads
 * report counts; a program of --program has to print something for each step of its work. */
void start_program_of_load(struct load *l);
/* The second worker of a launcher that has had but one. */
void start_worker(struct load *l);
void kill_launcher(struct load *l);
void await_work(void);
bool works_while_off(void);
/* Ends it; its results have to be right. */
void end_load(struct load *l);

#endif
