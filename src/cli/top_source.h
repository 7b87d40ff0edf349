/* Where `cede top` has its data from: the daemon, over one connection that it never waits on, or,
 * where none runs, what can be seen without. One request is under way at a time. */
#ifndef CEDE_CLI_TOP_SOURCE_H
#define CEDE_CLI_TOP_SOURCE_H

#include <jansson.h>
#include <stdbool.h>

#include "cli/client.h"

#define TOP_WHO 112

/* What a person wants done to a job. */
struct top_action {
    struct request request;
    char who[TOP_WHO]; /* the job, for messages */
};

struct top_source {
    struct client client; /* fd < 0: no connection */
    struct request ps;
    json_t *partial; /* pages of a reply that has more */
    bool under_way;  /* a request is */
    bool acting;     /* and it is actions[0] */
    uint64_t sent_ns;
    struct top_action *actions; /* to be done */
    size_t nactions;
    pid_t daemon_pid;  /* the last one; 0: none yet */
    bool lost;         /* it has ended, or none was there */
    char status[600];  /* what is wrong, as long as it is; "" nothing */
    char message[128]; /* what has happened; the reader empties it */
    /* reply: in the form of `cede ps --json`, lent. done: code 0, or -errno and why. */
    void *ctx;
    void (*reply)(void *ctx, json_t *reply);
    void (*done)(void *ctx, const struct top_action *a, int code, const char *text);
};

void top_source_init(struct top_source *s);
void top_source_close(struct top_source *s);
/* It is time for a reply; called again before one came, it says who does not answer. */
void top_source_tick(struct top_source *s, uint64_t now_ns);
/* The connection is readable. */
void top_source_ready(struct top_source *s, uint64_t now_ns);
/* To be done after those that are waiting. 0 or -ENOMEM. */
int top_source_act(struct top_source *s, const struct top_action *a);
/* Whether a process has the same number here as the daemon says. */
bool top_source_same_pids(const struct top_source *s, const json_t *reply);

#endif
