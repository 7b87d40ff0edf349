/* Arithmetic of scenario files: "max(cede.latency.p99) / min(cede.latency.p99) <= 1.3",
 * "1e6 / rate", "alone.latency.p99 + 220us". Pure: values come from a callback.
 *
 * Numbers may carry a unit: us (1), ms (1000), s (1e6), % (0.01). Functions: abs(x); min(x),
 * max(x), mean(x) over all points of the scenario's axes. One comparison at most: <= >= < > ==. */
#ifndef CEDE_BENCH_EXPR_H
#define CEDE_BENCH_EXPR_H

#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

struct expr_env {
    /* NAN: known and not measured. -ENOENT: no such name. */
    int (*value)(void *arg, const char *name, double *out);
    /* Makes the i-th point the current one; NULL where there are no points. */
    void (*select)(void *arg, size_t i);
    size_t npoints, current;
    void *arg;
};

#define EXPR_MAX 1e300 /* stands for what is infinite, which JSON does not have */

enum expr_op { EXPR_NONE, EXPR_LE, EXPR_GE, EXPR_LT, EXPR_GT, EXPR_EQ };
extern const char *const expr_ops[];

struct expr_result {
    double left, right; /* right is of use with a comparison only */
    enum expr_op op;
    bool pointwise; /* a name stands outside of all that goes over points: another point, another
                       value */
};

/* 0, or -EINVAL with what is wrong and where. */
int expr_eval(const char *text, const struct expr_env *env, struct expr_result *out,
              struct error *err);

/* What a limit was written in, for printing: "ms" and 1000 for "a.p99 < 40ms", "" and 1 without. */
const char *expr_unit(const char *text, double *factor);

/* False where a side is NAN. */
bool expr_holds(enum expr_op op, double left, double right);

#endif
