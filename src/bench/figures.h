/* Figures of one scenario's results, drawn by gnuplot. */
#ifndef CEDE_BENCH_FIGURES_H
#define CEDE_BENCH_FIGURES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/util.h"

/* Whether that is one. */
bool figure_known(const char *spec);

/* gnuplot's commands for it, with their data; malloc'd. -ENODATA: nothing to draw; -EINVAL: not a
 * figure. */
int figure_script(const json_t *result, const char *spec, char **text, struct error *err);

/* Draws the figure that `spec` (a line "figure =" of the scenario) asks for, as DIR/NAME.svg and
 * DIR/NAME.png; the script stays beside them as DIR/NAME.gp. -ENODATA: nothing to draw; -ENOENT: no
 * gnuplot; -EIO: it failed; -EINVAL: not a figure. */
int figure_draw(const json_t *result, const char *spec, const char *dir, const char *name,
                struct error *err);

#endif
