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

/* Texts may hold {expression} over the axes. Lists of lines are separated by newlines. */
struct scenario {
    scenario_name name;
    scenario_text title, id, reference, shows, note, needs, configs_text, figures;
    scenario_text seconds_text, memory_mib; /* expressions */
    double seconds[SCENARIO_POINTS];        /* of the window, as chosen */
    double quick_seconds, settle;
    double repeat, quick_repeat;
    double gpus; /* that it takes */

    struct axis {
        scenario_name name;
        scenario_text values, quick, soft; /* as written */
        double v[SCENARIO_VALUES];         /* as chosen */
        size_t n;
    } axes[SCENARIO_AXES];
    size_t naxes;

    struct role {
        scenario_name name;
        scenario_text load, program, soft, count, class, weight, set, alone, start;
        double ready; /* seconds it may take until it works */
    } roles[SCENARIO_ROLES];
    size_t nroles;

    struct config {
        scenario_name name;
        enum scenario_base base;
        scenario_text base_text, policy, conf, set, run, start, stop, wrap, env;
    } configs[SCENARIO_CONFIGS];
    size_t nconfigs;

    /* With phases the programs live on while these steps are taken one after the other. */
    struct phase {
        scenario_name name;
        scenario_text steps, takes; /* takes: seconds of the steps, an expression */
        double seconds;
    } phases[SCENARIO_PHASES];
    size_t nphases;

    struct target {
        scenario_text name, check, when, only;
    } targets[SCENARIO_TARGETS];
    size_t ntargets;
};

/* How it is to be run; chooses among the values of axes. */
struct scenario_how {
    bool quick, soft;
};

/* -ENOENT: no such file; -EINVAL with file and line. *out is malloc'd. */
int scenario_load(const char *path, struct scenario_how how, struct scenario **out,
                  struct error *err);

size_t scenario_points(const struct scenario *s);
/* How long to measure at a point; phase: NULL where there are none. */
double scenario_window(const struct scenario *s, const struct phase *phase, size_t point);
/* The value of an axis at a point. */
double scenario_at(const struct scenario *s, size_t point, size_t axis);

/* Replaces {expression}. -EINVAL, -E2BIG. */
int scenario_expand(const struct scenario *s, size_t point, const char *text, char *buf,
                    size_t size, struct error *err);
/* In a shell command: other braces stay what they are, and ${...}. -E2BIG. */
int scenario_expand_shell(const struct scenario *s, size_t point, const char *text, char *buf,
                          size_t size, struct error *err);
/* The value of an expression over the axes; `otherwise` for "". */
int scenario_number(const struct scenario *s, size_t point, const char *text, double otherwise,
                    double *out, struct error *err);

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
