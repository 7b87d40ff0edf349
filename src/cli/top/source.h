/* The source of `cede top`'s data: the daemon, over one connection without blocking, or, if none
 * runs, journals and processes. One request is under way at a time. */
#ifndef CEDE_CLI_TOP_SOURCE_H
#define CEDE_CLI_TOP_SOURCE_H

#include <jansson.h>
#include <stdbool.h>

#include "api/client.h"
#include "cli/top/model.h"

#define TOP_WHO 112

/* A change of a job that the user of `cede top` has asked for. */
struct top_action {
    struct request request;
    char who[TOP_WHO]; /* the job, for messages */
};

struct top_source {
    struct top_model *model; /* gets each reply */
    unsigned replies;        /* number of replies so far */
    struct client client;    /* fd < 0: no connection */
    struct request ps;
    json_t *partial; /* pages of a reply that is not complete */
    bool under_way;  /* a request was sent, and its answer has not come */
    bool acting;     /* the request under way is the action */
    bool wanted;     /* the action waits to be sent, or is under way */
    struct top_action action;
    uint64_t sent_ns, now_ns;
    pid_t daemon_pid;  /* the last one; 0: none yet */
    bool lost;         /* the daemon has ended, or none was there */
    char status[600];  /* a problem that lasts; "": none */
    char message[256]; /* the latest event; the reader empties it */
};

void top_source_init(struct top_source *s, struct top_model *model);
void top_source_close(struct top_source *s);
/* Asks for a reply. If the previous one has not come yet, the status says that ceded is late. */
void top_source_tick(struct top_source *s, uint64_t now_ns);
/* Called when the connection is readable. */
void top_source_ready(struct top_source *s, uint64_t now_ns);
/* Has a row changed as soon as no request is under way; a message reports the result. */
void top_source_act(struct top_source *s, const struct top_row *r, const struct request *what,
                    uint64_t now_ns);

#endif
