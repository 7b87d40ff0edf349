/* What `cede ps --json` and `cede policy --json` tell, as text for Prometheus. Pure but for users'
 * names (cli/users.h): asks nobody and writes no file. */
#ifndef CEDE_CLI_METRICS_TEXT_H
#define CEDE_CLI_METRICS_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct metrics_choice {
    unsigned max_jobs; /* of those with the lowest numbers: series of their own */
    bool pids;         /* label pid of cede_job_info */
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
