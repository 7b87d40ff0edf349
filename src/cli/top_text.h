/* The text of `cede top`: cells, bars and graphs, and what of them fits. No terminal: the width is
 * the caller's, and what a byte means is the locale's. */
#ifndef CEDE_CLI_TOP_TEXT_H
#define CEDE_CLI_TOP_TEXT_H

#include "cli/cells.h"
#include "cli/top_model.h"

#define TOP_LINE 1024 /* bytes of a line at most */

struct top_layout {
    unsigned width[TOP_COLUMNS]; /* columns of the terminal; 0: not shown */
};

/* What of the columns fits into that many; those that nothing is in are left out. */
struct top_layout top_layout(const struct top_model *m, unsigned columns);

const char *top_title(enum top_column c);
/* As in --json and in messages: "share". NULL: not to sort by. */
const char *top_sort_name(enum top_column c);

/* Of a row; longer than the width, perhaps. */
void top_cell(char buf[static CELL], const struct top_model *m, const struct top_row *r,
              enum top_column c, unsigned width, bool utf8);

/* Exactly `width` columns of text that nothing in can steer a terminal: cut or filled with blanks,
 * on the left where it is right-aligned. Returns buf. */
const char *top_fit(char buf[static TOP_LINE], const char *text, unsigned width, bool right);
bool top_is_right(enum top_column c);

/* n columns; value 1 fills all of them. */
void top_bar(char *buf, size_t size, double value, unsigned n, bool utf8);
/* n columns of the last minute, scaled to `of`. */
void top_graph(char *buf, size_t size, const struct top_history *h, uint64_t now_ns, double of,
               unsigned n, bool utf8);

void top_gpu_line(char buf[static TOP_LINE], const struct top_model *m, const struct top_gpu *g,
                  unsigned columns, bool utf8);
/* A user's heading. */
void top_user_line(char buf[static TOP_LINE], const struct top_model *m, uid_t uid,
                   const char *user);
/* How many jobs there are, in which states, and whose daemon says so. */
void top_summary(char buf[static TOP_LINE], const struct top_model *m);

/* Container or unit, of a path of /proc/PID/cgroup: "" where it says nothing. */
void top_where(char buf[static TOP_WHERE], const char *cgroup);

/* What it shows, for programs: cede-json(5). NULL: no memory. */
json_t *top_json(const struct top_model *m);
/* The table as text: no colours, nothing cut. */
void top_print(FILE *f, const struct top_model *m, bool utf8);

#endif
