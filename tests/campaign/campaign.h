/* What the campaign and its actions share: the programs, ceded's life and death, and the page that
 * makes calls fail. */
#ifndef CEDE_TESTS_CAMPAIGN_H
#define CEDE_TESTS_CAMPAIGN_H

#include "../e2e/fixture.h"
#include "faults.h"

#define LOADS 4

struct load {
    char name[16];
    pid_t pid;         /* 0: none */
    bool pause_wanted; /* somebody asked to pause it, or to swap it out, since it last ran freely */
};

struct campaign {
    uint64_t seed, steps, step, minutes;
    struct rng rng;
    struct faults *faults;
    struct load loads[LOADS];
    unsigned started;
    pid_t ceded; /* 0: none */
    bool over;
    bool odd_slices; /* the journal was lost: which slices are a program's own cannot be told */
    char history[64 * 1024];
    size_t history_end;
    uint64_t kills, losses, failed[FAULT_COUNT], calls[FAULT_COUNT], starts_failed;
};
extern struct campaign c;

uint64_t draw(uint64_t n);
/* Into the history of the round. */
void note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ceded's living child of that name; 0: none. */
pid_t helper(const char *name);
void kill_it(pid_t pid);
void await_orphans(void);
/* Whether ceded has ended by itself, which it may while its calls fail. */
bool has_ended(void);
bool answers(void);
/* Nothing if it runs. It may fail as long as calls do; without that it has to come up. */
void start(void);
/* By kill -9; both: its restorer too, one way round or the other. */
void kill_ceded(bool both);

/* actions.c: something random; whether it succeeds is not asked. */
void act(void);
void start_load(void);

#endif
