/* `cede run --pool`: decides whether a program joins a pool, and joins it. */
#ifndef CEDE_CLI_RUN_POOL_H
#define CEDE_CLI_RUN_POOL_H

#include <jansson.h>

#include "api/proto.h"
#include "memory/pool/pool.h"

/* Options of the command line, or of the environment. */
struct run_pool {
    bool wanted, latency; /* --pool; --pool=latency: latency jobs may join */
    bool strict;          /* the program does not run outside of the pool */
    uint32_t sm_percent;  /* 0: all */
};

/* Readers of option rows; `to` is the struct, or the percentage. */
int run_pool_option(void *to, const char *name, const char *text, struct error *err);
int run_pool_sm(void *to, const char *name, const char *text, struct error *err);
/* Applies CEDE_POOL, which only affects batch jobs. */
void run_pool_words(struct run_pool *o, const struct request *r);
/* OPTIONS_GO_ON, or the exit status if options exclude each other. */
int run_pool_check(const struct run_pool *o, const struct request *r);
/* Joins the pool, if options or configuration ask for it. reply: of the daemon, which made this
 * process a job. OPTIONS_GO_ON, in the pool or not; or the exit status instead of running. */
int run_pool_join(const struct run_pool *o, const struct request *r, const json_t *reply,
                  struct pool *pool);

#endif
