/* What a scenario's cells come to: values within one repeat, medians over repeats, targets. Pure
 * but for the memory it takes. */
#ifndef CEDE_BENCH_RESULT_H
#define CEDE_BENCH_RESULT_H

#include <jansson.h>

#include "bench/scenario.h"

#define RESULT_REPEATS 100

/* A metric of a cell (a number) or of a row (its summary), with or without its unit; NULL. */
const json_t *result_metric(const json_t *cell_or_row, const char *role, const char *name);
/* "median", "min" or "max" of a summary; NAN without. */
double result_part(const json_t *summary, const char *which);

/* Cells are references into `cells`; the same cell may stand at several points. A slot is a
 * configuration or phase; after them come the roles alone. */
struct result {
    const struct scenario *s; /* one for each point */
    bool soft;
    size_t repeats, slots, points;
    json_t **at;   /* [repeat][slot][point] */
    json_t *cells; /* all, in the order they were run */
};

int result_init(struct result *r, const struct scenario *s, size_t repeats, bool soft);
void result_free(struct result *r);
size_t result_slot_alone(const struct result *r, const struct role *role);

/* Puts a cell there, with its shares (rate as part of the same role's alone in the same repeat). */
void result_put(struct result *r, size_t repeat, size_t slot, size_t point, json_t *cell);

json_t *result_at(const struct result *r, size_t repeat, size_t slot, size_t point);

/* {"results", "rows", "targets", "pass", "failed_cells", "missed", "unavailable"} */
json_t *result_json(const struct result *r);

#endif
