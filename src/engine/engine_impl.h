/* The engine's state: the parts that tick.c calls in order. Only files of src/engine that work on
 * the whole engine include this; the parts see the model and their arguments. */
#ifndef CEDE_ENGINE_ENGINE_IMPL_H
#define CEDE_ENGINE_ENGINE_IMPL_H

#include "core/apply.h"
#include "core/observe/demand.h"
#include "core/observe/mps_clients.h"
#include "core/observe/scans.h"
#include "core/observe/speeds.h"
#include "core/observe/switches.h"
#include "engine/counts.h"
#include "engine/engine.h"
#include "engine/placement.h"
#include "engine/reclassify.h"
#include "engine/unrecorded.h"
#include "memory/autoswap.h"
#include "memory/over.h"
#include "memory/yield.h"

struct engine {
    struct model model;
    struct discovery discovery;
    struct job_walk reclassify;
    struct pods pods;
    struct scans scans;
    struct demand demand;
    struct counts counts;
    struct switches switches;
    struct swaps swaps;
    struct autoswap autoswap;
    struct over over;
    struct survey survey;
    struct speeds speeds;
    struct clients clients;
    struct place_names names; /* names of jobs, and their last GPUs */

    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
    uint64_t restored_seen;
    struct command *first, *last; /* commands that wait */
    struct command *ran;          /* commands that ran in this tick and wait for their answer */
};

/* Discovers and scans all that a job has on GPUs now. An error: something may have been missed. */
int engine_look(struct engine *e, uint32_t job, struct error *err);

#endif
