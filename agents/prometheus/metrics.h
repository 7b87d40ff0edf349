/* The data of `cede ps --json` and `cede policy --json` as text for Prometheus. Pure except for
 * users' names (who/users.h): it asks no daemon and writes no file. */
#ifndef CEDE_AGENTS_METRICS_H
#define CEDE_AGENTS_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct metrics_choice {
    unsigned max_jobs; /* jobs, or sums, with series: those with the lowest numbers */
    bool per_job;      /* ps has jobs, with the label number; else sums of jobs (client_sums()) */
    bool pids;         /* cede_job_info, which only jobs have, has the label pid */
};

enum metrics_format {
    METRICS_PLAIN, /* text format 0.0.4, which the textfile collector reads */
    METRICS_OPEN,  /* OpenMetrics 1.0.0 */
    METRICS_FORMATS,
};

const char *metrics_content_type(enum metrics_format format);

/* The caller frees it; NULL: no memory. ps NULL: ceded gave no answer. policy may be NULL. */
char *metrics_text(const json_t *ps, const json_t *policy, const struct metrics_choice *choice,
                   enum metrics_format format);

#endif
