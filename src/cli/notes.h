/* What `cede ps` says below its table. */
#ifndef CEDE_CLI_NOTES_H
#define CEDE_CLI_NOTES_H

#include <jansson.h>
#include <stdbool.h>

/* Programs that no job owns, where jobs run beside them; of a reply to ps. */
void notes_unmanaged(const json_t *all);
/* The jobs that are clients of one MPS server; those that are preempted at block ends. */
void notes_jobs(const json_t *jobs);
/* Controls that are not used on some GPU, and why; of a reply to ps. */
void notes_off(const json_t *all);
/* One such GPU's in words, "suspend, preempt"; false: all are used there. */
bool notes_off_words(const json_t *gpu, char *buf, size_t size);

#endif
