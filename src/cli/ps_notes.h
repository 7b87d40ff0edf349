/* The notes that `cede ps` prints below its table. */
#ifndef CEDE_CLI_PS_NOTES_H
#define CEDE_CLI_PS_NOTES_H

#include <jansson.h>
#include <stdbool.h>

/* Names GPU programs in no job that may be on a GPU of a job. all: a reply to ps. */
void notes_unmanaged(const json_t *all);
/* Names jobs that are clients of one MPS server, and jobs that are preempted at block ends. */
void notes_jobs(const json_t *jobs);
/* Whether jobs on this GPU, of a reply to ps, can be suspended in their running work, but have no
 * timeslices (AMD): a latency job there gains nothing over a single batch job. */
bool notes_no_slices(const json_t *gpu);
/* Names such GPUs on which there is a latency job. all: a reply to ps. */
void notes_slices(const json_t *all);
/* Names controls that are not used on a GPU, and why. all: a reply to ps. */
void notes_off(const json_t *all);
/* The names of a GPU's unused controls, "suspend, preempt"; false: all are used. */
bool notes_off_words(const json_t *gpu, char *buf, size_t size);

#endif
