/* The data that `cede top` shows: rows, their shares, order, filter and selection. Pure: no clock,
 * no system call, no terminal. Times are the caller's, in ns of one clock. Not thread-safe. */
#ifndef CEDE_CLI_TOP_MODEL_H
#define CEDE_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/util.h"
#include "gpu/ops.h"
#include "who/users.h"

#define TOP_NAME  160 /* bytes */
#define TOP_WHERE 64
#define TOP_TEXT  64 /* a filter */

enum top_column {
    TOP_JOB,
    TOP_PID,
    TOP_CLASS,
    TOP_WEIGHT,
    TOP_STATE,
    TOP_GPU,
    TOP_SHARE,
    TOP_BAR,
    TOP_WAIT,
    TOP_MEM,
    TOP_SPEED,
    TOP_DUE,
    TOP_WHERE_COLUMN,
    TOP_USER,
    TOP_NAME_COLUMN,
    TOP_COLUMNS
};

/* A job's sums on one GPU in the last reply; share < 0: not known yet. */
struct top_sums {
    double gpu_s, counted_s, share;
};

/* A job, or a process that uses a GPU and is in no job. */
struct top_row {
    uint64_t number; /* 0: in no job */
    pid_t pid;
    uid_t uid;
    json_t *entry;      /* of the last reply */
    double share, wait; /* share: 1 is one whole GPU; wait: part of the time; < 0: not known yet */
    double known_s, waited_s;
    struct top_sums on[DEVICE_GPUS_MAX];
    unsigned ngpus;
    bool looked; /* the row was in an earlier reply, too */
    char name[TOP_NAME];
    /* source.c sets these once per row, from /proc and the users' names. */
    bool facts;
    char user[USER_TEXT], where[TOP_WHERE];
};

struct top_gpu {
    unsigned index, jobs; /* jobs that use it */
    double share;
    double idle_s;            /* total time in which it was idle while jobs waited, */
    uint64_t idle_at_ns;      /* when that was read */
    double idle;              /* its part of the time before that; < 0: not known yet */
    const json_t *entry;      /* of the last reply */
    const char *label, *name; /* of the entry; NULL: none */
};

struct top_model {
    json_t *reply;        /* the last one; NULL: none yet */
    struct top_row *rows; /* jobs by number, then processes in no job by pid */
    size_t nrows, njobs;
    struct top_gpu gpus[DEVICE_GPUS_MAX];
    unsigned ngpus;
    struct top_row **lines; /* the rows that are shown, in order */
    size_t nlines;
    /* Order and filter of lines. The caller calls top_model_arrange() after a change. */
    enum top_column sort;
    bool inverted;
    char filter[TOP_TEXT];
    /* The selected row, which the selection follows; pid 0: the selection stays on its line. */
    uint64_t selected;
    pid_t selected_pid;
    size_t at;    /* line of the selection */
    size_t first; /* line that is shown first */
    size_t height;
};

void top_model_init(struct top_model *m);
void top_model_free(struct top_model *m);

/* Takes a reply in the form of `cede ps --json` that came at now_ns (the caller keeps its
 * reference). The caller then calls top_model_arrange(). 0, or -ENOMEM and nothing is changed. */
int top_model_update(struct top_model *m, json_t *reply, uint64_t now_ns);

/* Filters and sorts again; the selection stays on its row, or on its line if that is gone. */
void top_model_arrange(struct top_model *m);

/* The selected row; NULL: there is none. */
struct top_row *top_model_selected(const struct top_model *m);

void top_model_select(struct top_model *m, size_t line);
void top_model_move(struct top_model *m, long lines);
/* Sets the number of lines that fit, and scrolls so that the selection is visible. */
void top_model_height(struct top_model *m, size_t height);

#endif
