/* What an earlier run left of a scenario, for `cede bench run --resume`: whether that is of the
 * same scenario, device and machine, and which sessions it holds. Reads, and decides nothing. */
#ifndef CEDE_BENCH_EARLIER_H
#define CEDE_BENCH_EARLIER_H

#include <jansson.h>

#include "bench/cell.h"

/* A file's text; NULL if it cannot be read or is not UTF-8. */
json_t *earlier_text(const char *path);

/* What another run's head of a result differs in from this run's, in words; NULL: in nothing that
 * matters. Texts that are "" now are not known, and not compared. */
const char *earlier_differs(const json_t *then, const json_t *now);

/* Whether a result has all cells of a session. Where this machine cannot run it, a cell marked
 * unavailable will do. */
bool earlier_has(const json_t *result, const struct bench *b, const struct session *x,
                 size_t repeat);

#endif
