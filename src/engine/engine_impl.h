/* Inside the engine: the parts that tick.c calls in order, each with its own state. Only engine.c,
 * tick.c and view.c see this; the parts know the model and what they were given. */
#ifndef CEDE_ENGINE_ENGINE_IMPL_H
#define CEDE_ENGINE_ENGINE_IMPL_H

#include "engine/apply.h"
#include "engine/autoswap.h"
#include "engine/engine.h"
#include "engine/observe/demand.h"
#include "engine/observe/scans.h"
#include "engine/survey.h"
#include "engine/watch.h"

struct engine {
    struct model model;
    struct sched *sched;
    struct device_driver *driver;
    struct journal *journal;

    struct watches watches;
    struct discovery discovery;
    struct scans scans;
    struct demand demand;
    struct swaps swaps;
    struct autoswap autoswap;
    struct survey survey;
    struct apply apply;

    bool dirty;    /* something changed since the last decision */
    uint64_t wake; /* decide again then; TIME_NEVER: no jobs take turns */
    uint64_t restored_seen;
    bool stays;                   /* see engine_options */
    struct command *first, *last; /* that wait */
};

#endif
