/* What a random test of the whole (test_chaos.c) stands on: the processes that there are and may
 * end, the loads as the verbs have left them, ceded's life and death, and what has to hold at any
 * time. What is done and when is not decided here. */
#ifndef CEDE_TESTS_E2E_CHAOS_H
#define CEDE_TESTS_E2E_CHAOS_H

#include "fixture.h"

#define LOADS  5
#define SILENT 8

struct load {
    char name[16];
    pid_t pid;    /* 0: none */
    pid_t runner; /* its `cede run`, while that lives; 0: none */
    pid_t root;   /* of its job; 0: in none */
    bool named;   /* and that has its name */
    unsigned gpu;
    bool requests; /* its program is one of requests, which leaves room for others */
    bool known;    /* what follows is so; else a verb was torn, and what `ps` says is believed */
    bool paused, out;
    char class[8];
    long long weight;
};

/* Our children, and others whose end is ours to explain. */
struct kid {
    pid_t pid; /* 0: free */
    char what[24];
    bool may_end, doomed, ended;
    int status;
};

struct chaos {
    uint64_t seed, steps, step;
    struct rng rng;
    struct load loads[LOADS];
    unsigned started;
    struct kid kids[64];
    pid_t killed[1024]; /* restorers and swappers */
    size_t nkilled;
    struct ceded d;
    bool up;
    bool clean;      /* not up, and everything is undone */
    bool transient;  /* it leaves with its last job */
    bool odd_slices; /* the journal was lost: what a budget gave cannot be told from a program's own
                      */
    bool rules;      /* what is in no job may become one at any time */
    size_t bare;     /* descriptors of a ceded without jobs and clients */
    unsigned verb_us; /* what a verb takes */
    int silent[SILENT];
    char history[256 * 1024];
    size_t history_end;
    bool over;
};
extern struct chaos chaos;

uint64_t draw(uint64_t n);
/* Into the history. */
void done(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Every child is watched, from its start until finish(): none ends but as the test wants it. */
struct kid *kid(pid_t pid);
struct kid *watch(pid_t pid, const char *what);
void reap(void);
/* Waits for its end; as from status_of(). */
int finish(pid_t pid);
void slay(pid_t pid);
/* What a killed ceded leaves: children of ours that nobody watches. */
unsigned orphans(void);
void await_orphans(void);
/* ceded's living child of that name; 0: none. */
pid_t helper(const char *name);
void kill_helper(pid_t pid);
/* Of a sanitizer, of a damaged journal, or that a restorer ended unasked. */
void no_complaints(void);

/* Runs a verb. must: it has to succeed; else it may fail, with status 1. */
int verb(bool must, const char *const argv[]);
#define VERB(must, ...) verb(must, (const char *const[]){"cede", __VA_ARGS__, NULL})

/* Starts a program; class NULL: in no job yet, else under `cede run`. */
void launch(struct load *l, const char *class);
/* That of a runner, which may take a while to start it; false: it ended without. */
bool find_program(struct load *l);
void await_context(const struct load *l);

void in_no_job(struct load *l);
void became_job(struct load *l, const char *class, long long weight);
static inline bool is_able(const struct load *l) /* to use the GPU */
{
    return !l->paused && !l->out;
}

/* Before anything is done: a transient one may have left. */
void look(void);
/* Nothing if it runs. */
void start(void);
/* undone: the restorer, or ceded itself, has done its work. */
void ceded_gone(bool undone);
/* kill -9; both: its restorer too, at once or while it is at work. */
void kill_ceded(bool both);
void stop(void);
void write_config(void);
/* Closes the connections that say nothing. */
void hang_up(void);

/* Whether ps says of every load what the verbs have asked for. */
void check_ps(void);
/* That, and that who may run gets the GPU, who may not does not, and whoever is in no job has what
 * the driver gave it; that ceded has a restorer and no descriptor too many. Without ceded: that
 * everything is undone, if there was somebody to do it. That nobody has complained or ended. */
void check(void);

/* One of those that run; NULL: none does. */
struct load *any_load(void);

/* chaos_verbs.c */
void rubbish(struct load *l);
void silence(struct load *l);
void torn(struct load *l);
void crowd(struct load *l);

#endif
