/* A scenario file: which programs run together, in which configurations, at which points, what has
 * to come out. Reading and checking only; nothing here runs anything. The syntax is in
 * cede-scenario(5). */
#ifndef CEDE_BENCH_SCENARIO_H
#define CEDE_BENCH_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>

#include "bench/expr.h"
#include "lib/util.h"

#define SCENARIO_ROLES    6
#define SCENARIO_CONFIGS  10
#define SCENARIO_PHASES   8
#define SCENARIO_AXES     2
#define SCENARIO_VALUES   12 /* of an axis */
#define SCENARIO_TARGETS  12
#define SCENARIO_POINTS   64
#define SCENARIO_TEXT     640
#define SCENARIO_PROGRAMS 64 /* of a role, and at once */

typedef char scenario_name[24];
typedef char scenario_text[SCENARIO_TEXT];

/* What a configuration is built on: the scheduler in charge. */
enum scenario_base { BASE_ALONE, BASE_DEFAULT, BASE_MPS, BASE_CEDE, BASE_OTHER };

/* How it is to be run; chooses among the values of axes. */
struct scenario_how {
    bool quick, soft;
};

/* An expression over the axes, and its value. */
struct scenario_amount {
    scenario_text text;
    double v;
};

/* A scenario at one of its points. Lists of lines are separated by newlines. */
struct scenario {
    scenario_name name;
    struct scenario_how how;
    size_t point;
    scenario_text title, id, reference, shows, note, needs, configs_text, figures;
    struct scenario_amount seconds, memory_mib; /* seconds: of the window */
    double quick_seconds, settle;
    double repeat, quick_repeat;
    double gpus; /* that it takes */

    struct axis {
        scenario_name name;
        scenario_text values, quick, soft; /* as written */
        double v[SCENARIO_VALUES];         /* as chosen */
        size_t n;
        double at; /* the point */
    } axes[SCENARIO_AXES];
    size_t naxes;

    struct role {
        scenario_name name;
        scenario_text load, program, soft, class, set, alone, start;
        struct scenario_amount count, weight;
        double ready; /* seconds it may take until it works */
    } roles[SCENARIO_ROLES];
    size_t nroles;

    struct config {
        scenario_name name;
        enum scenario_base base;
        scenario_text base_text, policy, conf, set, options, run, start, stop, wrap, env;
    } configs[SCENARIO_CONFIGS];
    size_t nconfigs;

    /* With phases the programs live on while these steps are taken one after the other. */
    struct phase {
        scenario_name name;
        scenario_text steps;
        struct scenario_amount takes; /* seconds of the steps */
        double seconds;
    } phases[SCENARIO_PHASES];
    size_t nphases;

    struct target {
        scenario_text name, check, when, only;
    } targets[SCENARIO_TARGETS];
    size_t ntargets;
};

/* One for each point, in an array that is the caller's to free(): {expression}s are replaced and
 * amounts worked out; steps may still hold {ROLE}. -ENOENT: no such file; -EINVAL with file and
 * line. */
int scenario_load(const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err);
/* The same of an open file; path: for messages, and for its name. */
int scenario_read(FILE *f, const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err);

size_t scenario_points(const struct scenario *s);
/* How long to measure; phase: NULL where there are none. */
double scenario_window(const struct scenario *s, const struct phase *phase);

/* Replaces {expression}. lenient: braces with anything else in them, and ${...}, stay what they
 * are, as in a shell command. -EINVAL, -E2BIG. */
int scenario_expand(const struct scenario *s, const char *text, bool lenient, char *buf,
                    size_t size, struct error *err);
/* The value of an expression over the axes; `otherwise` for "". */
int scenario_number(const struct scenario *s, const char *text, double otherwise, double *out,
                    struct error *err);

/* Whether an expression over axes and metrics (a target's) can be evaluated; nothing is measured
 * yet. -EINVAL. */
int scenario_try(const struct scenario *s, const char *text, struct error *err);

/* Whether results can have ROLE.METRIC; a metric with or without its unit. */
bool scenario_has_metric(const struct scenario *s, const char *role, const char *metric);

/* One line of a list after the other into buf: start with previous NULL, go on with what was
 * returned, until NULL. */
const char *scenario_line(const char *list, const char *previous, char *buf, size_t size);

const struct role *scenario_role(const struct scenario *s, const char *name);

#endif
