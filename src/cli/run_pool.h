/* `cede run --pool`: whether a program is to be in a pool, and how it gets there. */
#ifndef CEDE_CLI_RUN_POOL_H
#define CEDE_CLI_RUN_POOL_H

#include <jansson.h>

#include "control/proto.h"
#include "pool/pool.h"

/* What the command line says, or the environment. */
struct run_pool {
    bool wanted, latency; /* --pool; --pool=latency: latency jobs may join */
    bool strict;          /* not outside of it */
    uint32_t sm_percent;  /* 0: all */
};

/* For option rows; `to` is the struct, or the percentage. */
int run_pool_option(void *to, const char *name, const char *text, struct error *err);
int run_pool_sm(void *to, const char *name, const char *text, struct error *err);
/* CEDE_POOL, which has an effect on batch jobs. */
void run_pool_words(struct run_pool *o, const struct request *r);
/* OPTIONS_GO_ON, or the exit status where options do not fit together. */
int run_pool_check(const struct run_pool *o, const struct request *r);
/* Makes this process a user of its pool if it is to be one. reply: of the daemon, which made a job
 * of it. OPTIONS_GO_ON, in the pool or not; or the exit status, if the program is not to run. */
int run_pool_join(const struct run_pool *o, const struct request *r, const json_t *reply,
                  struct pool *pool);

#endif
