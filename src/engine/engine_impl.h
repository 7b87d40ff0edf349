/* Inside the engine: the parts that tick.c calls in order, each with its own state. Only engine.c,
 * tick.c and view.c see this; the parts know the model and what they were given. */
#ifndef CEDE_ENGINE_ENGINE_IMPL_H
#define CEDE_ENGINE_ENGINE_IMPL_H

#include "engine/apply.h"
#include "engine/autoswap.h"
#include "engine/counts.h"
#include "engine/engine.h"
#include "engine/idle.h"
#include "engine/observe/clients.h"
#include "engine/observe/demand.h"
#include "engine/observe/scans.h"
#include "engine/observe/speeds.h"
#include "engine/observe/switches.h"
#include "engine/place.h"
#include "engine/reclassify.h"
#include "engine/survey.h"
#include "engine/yield.h"

struct engine {
    struct model model;
    struct discovery discovery;
    struct reclassify reclassify;
    struct scans scans;
    struct demand demand;
    struct idle idle;
    struct switches switches;
    struct swaps swaps;
    struct autoswap autoswap;
    struct survey survey;
    struct speeds speeds;
    struct clients clients;
    struct place_names names; /* of jobs, and where they were */

    bool once;
    void (*job_changed)(void *arg, uint32_t job, const struct job_view *v, bool ends);
    void *job_arg;
    uint64_t restored_seen;
    struct command *first, *last; /* that wait */
};

/* Looks at what a job has on its GPUs now. An error: perhaps not all is known of it. */
int engine_look(struct engine *e, uint32_t job, struct error *err);

#endif
