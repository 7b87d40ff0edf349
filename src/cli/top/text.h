/* The text of `cede top`: columns, their cells and order, bars, and the layout for a width. Uses no
 * terminal: the caller gives the width, and the locale decides what bytes mean. */
#ifndef CEDE_CLI_TOP_TEXT_H
#define CEDE_CLI_TOP_TEXT_H

#include "cli/cells.h"
#include "cli/top/model.h"

#define TOP_LINE 1024 /* bytes of a line at most */

struct top_layout {
    unsigned width[TOP_COLUMNS]; /* columns of the terminal; 0: not shown */
};

/* The columns that fit into the terminal's width; columns without contents are left out. */
struct top_layout top_layout(const struct top_model *m, unsigned terminal);

const char *top_title(enum top_column c);
/* The column's name in the menu: "share". NULL: rows cannot be sorted by it. */
const char *top_sort_name(enum top_column c);

/* The text of a row in a column, which may be longer than the column is wide. */
void top_cell(char buf[static CELL], const struct top_model *m, const struct top_row *r,
              enum top_column c);
/* Compares by the model's column, for qsort(): the row of most interest comes first. */
int top_compare(const struct top_model *m, const struct top_row *a, const struct top_row *b);

/* Cuts text to `width` columns, or fills it with blanks (on the left if right), and replaces all
 * characters that could control a terminal. Returns buf. */
const char *top_fit(char buf[static TOP_LINE], const char *text, unsigned width, bool right);
bool top_is_right(enum top_column c);

void top_gpu_line(char buf[static TOP_LINE], const struct top_gpu *g, unsigned terminal);
/* How many jobs there are, in which states, and the policy. */
void top_summary(char buf[static TOP_LINE], const struct top_model *m);

/* The container or unit in a path of /proc/PID/cgroup; "": the path names none. */
void top_where(char buf[static TOP_WHERE], const char *cgroup);
/* Replaces it by the pod and the container, if the entry of `cede ps` names them. */
void top_pod(char buf[static TOP_WHERE], const json_t *entry);

/* The contents as JSON, for programs: cede-json(5). NULL: no memory. */
json_t *top_json(const struct top_model *m);
/* Prints the table as text, without colours and with whole names. */
void top_print(FILE *f, const struct top_model *m);

#endif
