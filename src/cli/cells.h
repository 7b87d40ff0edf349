/* The cells of `cede ps`, some of which `cede top` shows too. */
#ifndef CEDE_CLI_CELLS_H
#define CEDE_CLI_CELLS_H

#include <jansson.h>
#include <stdbool.h>

#define CELL 160

void cell_time(char buf[static CELL], json_int_t us); /* "-": none */

/* Whether a device of the daemon's answer has a capability, by its name there. */
bool cell_has_cap(const json_t *devices, json_int_t gpu, const char *cap);

/* The columns of s, one per character of UTF-8. */
size_t cell_columns(const char *s);
/* Bytes of s that fill at most `width` columns. */
int cell_cut(const char *s, size_t width);
/* Prints s in exactly `width` columns, which it is cut to. */
void cell_print(const char *s, size_t width, bool right);

/* The subject of a row: a job, or a program in no job. */
struct shown {
    const json_t *job;
    const json_t *devices; /* of the daemon's answer */
    bool labels;           /* devices are shown by their labels instead of their indices */
};

/* The columns from left to right; the last one takes the rest of the line. */
struct column {
    const char *title;
    bool right;
    /* The column is shown if this is true of a job; NULL: always. */
    bool (*needed)(const char *cell, const json_t *job);
    const char *key;    /* name of the field, or NULL */
    const char *format; /* for number_text() */
    void (*text)(char buf[static CELL], const struct column *c, const struct shown *s);
};
/* Cells of columns that have neither key nor format: GPU memory and speed of a job, and its GPUs.
 */
void cell_memory(char buf[static CELL], const struct column *c, const struct shown *s);
void cell_speed(char buf[static CELL], const struct column *c, const struct shown *s);
void cell_gpus(char buf[static CELL], const struct column *c, const struct shown *s);

#define COLUMNS 15
extern const struct column ps_columns[COLUMNS];

#endif
