/* The results of `cede demo`, and their output. */
#ifndef CEDE_CLI_DEMO_H
#define CEDE_CLI_DEMO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "doctor/series.h"

struct demo_result {
    const char *device; /* "soft" or "nvidia" */
    char gpu[64], driver[64];
    double seconds;
    uint64_t batch_kernel_us, rate;
    /* Shares are fractions of the work of one batch program alone. */
    struct demo_row {
        struct percentiles latency;
        double batch_share;
    } alone, normal, cede, multi; /* normal: the driver's default */
    double asked[2], got[2];
    bool stopped, resumed;
    double again; /* the batch program alone at the end, as a part of what it did alone at first */
    double suspend_us, resume_us; /* the whole call, through the daemon */
    bool verified;                /* every program's results were right */
};

/* Tells whether the machine was too busy to compare windows, and in `why` by what: a batch program
 * alone did not do the same twice, or did more beside others than alone. */
bool demo_busy(const struct demo_result *r, char *why, size_t size);

json_t *demo_json(const struct demo_result *r);

/* A table and a picture of at most 80 columns; without utf8 in ASCII alone. */
void demo_print(FILE *f, const struct demo_result *r, bool utf8);

#endif
