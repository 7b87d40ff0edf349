/* What `cede top` shows, apart from how: rows, their last minute, order, filter and selection.
 * Pure: no clock, no system call, no terminal. Times are the caller's, in ns of one clock. Not
 * thread-safe. */
#ifndef CEDE_CLI_TOP_MODEL_H
#define CEDE_CLI_TOP_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cli/users.h"
#include "device/ops.h"
#include "lib/procfs.h"
#include "lib/util.h"
#include "sched/sched.h"

#define TOP_SECONDS 60  /* of history that are shown */
#define TOP_NAME    160 /* bytes */
#define TOP_WHERE   64
#define TOP_TEXT    64 /* a filter, or what is searched for */

enum top_column {
    TOP_JOB,
    TOP_PID,
    TOP_CLASS,
    TOP_WEIGHT,
    TOP_STATE,
    TOP_GPU,
    TOP_SHARE,
    TOP_BAR,
    TOP_MINUTE,
    TOP_WAIT,
    TOP_MEM,
    TOP_SPEED,
    TOP_DUE,
    TOP_WHERE_COLUMN,
    TOP_USER,
    TOP_NAME_COLUMN,
    TOP_COLUMNS
};

/* GPU time of each of the last seconds, in seconds: a ring by the second's number. */
struct top_history {
    float used[TOP_SECONDS + 4];
    uint64_t end; /* the number of the newest second, plus 1; 0: nothing yet */
};

/* Sums of a job on one GPU, as the last reply had them. */
struct top_sums {
    double gpu_s, counted_s, share;
};

/* A job, or a process that uses a GPU and is in no job. */
struct top_row {
    uint64_t number; /* 0: in no job */
    pid_t pid;
    uid_t uid;
    json_t *entry;      /* of the last reply */
    double share, wait; /* 1 is one whole GPU all the time; < 0: not known yet */
    double known_s, waited_s;
    struct top_sums on[DEVICE_GPUS_MAX];
    struct top_history history;
    unsigned ngpus, looks; /* in so many replies, up to 2 */
    bool tagged;
    char name[TOP_NAME];
    bool seen; /* in the reply that is being taken */
    /* From outside the model, once a row: the reader of /proc and /etc/passwd sets them. */
    bool facts;
    struct proc_id id; /* of pid, when facts was set; pid 0: not known */
    char user[USER_TEXT], where[TOP_WHERE];
};

struct top_gpu {
    unsigned index, jobs; /* jobs that use it */
    double share;
    double idle_s; /* while jobs waited, in all, at: */
    uint64_t idle_at_ns;
    double idle;              /* of some seconds since then; < 0: not known yet */
    const json_t *entry;      /* of the last reply; */
    const char *label, *name; /* too */
    struct top_history history;
};

/* A line of the table: a row, or the heading of a user's rows (row < 0). */
struct top_line {
    int row;
    uid_t uid;
};

struct top_model {
    json_t *reply;         /* the last one; NULL: none yet */
    struct top_row **rows; /* by number, then those in no job by pid */
    size_t nrows, njobs;
    struct top_gpu gpus[DEVICE_GPUS_MAX];
    unsigned ngpus;
    struct top_line *lines; /* what of them is shown, in order; and room to make it */
    size_t nlines, room;    /* rows that there is room for */
    uint64_t now_ns;
    /* How it is to be shown: top_model_arrange() after a change. */
    enum top_column sort;
    bool inverted, grouped;
    char filter[TOP_TEXT];
    /* The selected row is kept by what it is, wherever it moves, once a person chose it. */
    bool chosen;
    uint64_t selected;
    pid_t selected_pid;
    size_t at;    /* line of the selection */
    size_t first; /* line that is shown first */
    size_t height;
};

void top_model_init(struct top_model *m);
void top_model_free(struct top_model *m);

/* Takes a reply in the form of `cede ps --json` (its own reference is the caller's still), that
 * came at now_ns; top_model_arrange() is to follow. 0 or -ENOMEM: rows are missing. */
int top_model_update(struct top_model *m, json_t *reply, uint64_t now_ns);

/* Filters, sorts and groups again; the selection stays on its row, or on its line if that is gone.
 * 0 or -ENOMEM. */
int top_model_arrange(struct top_model *m);

/* NULL: there is none. */
struct top_row *top_model_selected(const struct top_model *m);

void top_model_select(struct top_model *m, size_t line);
void top_model_move(struct top_model *m, long lines);
/* Lines that fit; keeps the selection among them. */
void top_model_height(struct top_model *m, size_t height);
/* The next row that holds the text, from the selected one on or from the one behind it. */
bool top_model_search(struct top_model *m, const char *text, bool next);
void top_model_untag(struct top_model *m);

/* Sorts by that column; by the one that it is sorted by already the other way round. */
void top_model_sort(struct top_model *m, enum top_column by);

/* Mean share over the i-th of n equal parts of the last minute, the oldest first. */
double top_history_part(const struct top_history *h, uint64_t now_ns, unsigned i, unsigned n);

/* Sum of the shares that are known of a user's rows, and how many rows. */
double top_user_share(const struct top_model *m, uid_t uid, unsigned *rows);

#endif
