/* Where the time of overlapped steps goes, in sums. Deterministic: the caller measures.
 *
 * CPU time is exposed while the GPU has nothing to do: between the end of a step and the beginning
 * of the next, and while a step is launched into an empty stream. The rest of it is hidden.
 *
 * Not thread-safe. Times are nanoseconds. */
#ifndef CEDE_LIBCEDE_PURE_STEP_TIMES_H
#define CEDE_LIBCEDE_PURE_STEP_TIMES_H

#include <stdbool.h>
#include <stdint.h>

struct step_times {
    uint64_t schedule, launch, wait, finish; /* on the CPU */
    uint64_t gpu, idle;
    uint64_t exposed;
    uint64_t last; /* of `finish`, since the end of the latest step */
    bool going;    /* a step was launched since there was nothing to do */
};

/* A step was launched; empty: into a stream in which nothing ran any more. What comes back belongs
 * to the step: it follows one, with nothing but the loop's own work between. */
bool cede_times_launched(struct step_times *t, uint64_t schedule, uint64_t launch, bool empty);

/* A step was finished. gpu: from its beginning to its end. gap: since the end of the step before
 * it; 0 if it follows none. empty: every step had run when `finish` was called. */
void cede_times_finished(struct step_times *t, uint64_t wait, uint64_t finish, uint64_t gpu,
                         uint64_t gap, bool empty);

/* There is nothing to do. */
void cede_times_idle(struct step_times *t);

uint64_t cede_times_hidden(const struct step_times *t);

#endif
