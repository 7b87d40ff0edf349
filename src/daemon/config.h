/* The configuration file of ceded (cede.conf(5)). It is parsed completely and checked before any of
 * it is used, so that a bad file is never used in part. Reads only. */
#ifndef CEDE_DAEMON_CONFIG_H
#define CEDE_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "api/rights.h"
#include "api/rules/rules.h"
#include "base/util.h"
#include "engine/engine.h"
#include "plan/sched.h"

#define CONFIG_FILE      "/etc/cede/cede.conf"
#define CONFIG_SIZE_MAX  (1U << 20) /* bytes */
#define CONFIG_RULES_MAX 256
#define OTHERS_LEAVE     CLASS_COUNT
#define KEEP_DAYS        90
#define KEEP_DAYS_MAX    3650

/* Whether drivers are checked at start (daemon/driver_check.h): those that are not known; all;
 * none. */
enum driver_check { DRIVER_CHECK_AUTO, DRIVER_CHECK_ALWAYS, DRIVER_CHECK_NEVER };
/* Which jobs that cede starts are in pools: none by themselves; batch jobs; batch jobs in pools
 * that latency jobs may join. */
enum pool_of { POOL_OF_NONE, POOL_OF_BATCH, POOL_OF_LATENCY };
#define POOL_LATENCY_SM 95

struct config {
    gid_t admin_gid;       /* its members may do what root may; ADMIN_NO_GROUP: none */
    char device[256];      /* of device_open_list() */
    char soft_socket[108]; /* "": the default */
    struct swap_options swap;
    int log_level; /* of syslog: LOG_ERR .. LOG_DEBUG */
    char policy[32];
    struct sched_params params;
    int accounts;       /* accounting records are kept, */
    uint32_t keep_days; /* for this long */
    int environment;    /* CEDE_CLASS in a program's environment counts */
    int pool;           /* enum pool_of */
    /* Percent of the SMs that batch jobs have in a pool that latency jobs may join; 100: all. */
    uint32_t pool_latency_sm;
    int driver_check; /* enum driver_check */
    int others;       /* class of programs that no rule matches; OTHERS_LEAVE: they stay no jobs */
    struct rule *rules; /* and accounts; the last one stands for `others`, if that is a class */
    size_t nrules;
};

void config_free(struct config *c);

/* err gets "FILE:LINE: what; what is allowed". On failure *out is unchanged. */
int config_parse(const char *file, const char *text, size_t n, struct config *out,
                 struct error *err);

/* must_exist false: a missing file gives the defaults. -ENOENT, -EFBIG, -EINVAL, ... */
int config_read(const char *file, bool must_exist, struct config *out, struct error *err);

#endif
