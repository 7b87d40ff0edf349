/* `cede bench`: runs scenarios and writes what they came to. See cede-bench(1). */
#ifndef CEDE_BENCH_BENCH_H
#define CEDE_BENCH_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

#define BENCH_SCENARIOS 64

struct bench_options {
    const char *device;  /* "nvidia" or "soft" */
    const char *out;     /* directory for results; NULL: none are kept. bench_list: is it done? */
    const char *dir;     /* of scenario files */
    const char *command; /* as it was typed, for the results */
    const char *const *names;
    size_t nnames;
    const char *only; /* configuration; NULL: all */
    size_t repeat;    /* 0: the scenario's own */
    bool quick, progress;
    bool resume; /* leave out what is in `out` already, and print which results those are */
};

/* Where scenario files are: $CEDE_SCENARIOS, next to the installed program, or bench/scenarios
 * below the working directory. -ENOENT. */
int bench_find_scenarios(char *buf, size_t size, struct error *err);

/* One object a scenario: {"name", "id", "title", "needs", "sessions", "seconds", "left_out": why it
 * is none for this device, or null, "done": its result is in `out`}. */
int bench_list(const struct bench_options *o, json_t **out, struct error *err);

/* Runs all that are named. *out: {"scenarios": [...], "pass", "failed_cells", "missed"}, kept ones
 * of an earlier run included ("kept"); there even when a signal, *signal, interrupted it (-EINTR).
 * -ENOENT: no such scenario. */
int bench_run(const struct bench_options *o, json_t **out, int *signal, struct error *err);

/* Writes DIR/report.md from the JSON files in DIR, and with `figures` SVG and PNG figures. *missing
 * is true when those could not be drawn because gnuplot is not installed. */
int bench_report(const char *dir, bool figures, bool *missing, struct error *err);

#endif
