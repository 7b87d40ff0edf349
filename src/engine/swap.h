/* Jobs that leave the GPU's memory and come back. See swap.c. */
#ifndef CEDE_ENGINE_SWAP_H
#define CEDE_ENGINE_SWAP_H

#include "model/model.h"

enum swap_mode {
    SWAP_AUTO,   /* jobs leave for latency jobs that need memory */
    SWAP_MANUAL, /* only when a person asks */
    SWAP_OFF,
};

struct swap_options {
    enum swap_mode mode;
    /* For a latency job that begins without engine_need(): of the GPU, or of those it has begun to
     * use. */
    uint64_t reserve_bytes;
    uint64_t start_us; /* the longest that a starting job keeps others where they are */
};

struct swaps {
    enum swap_mode mode;
    uint64_t start_ns;
    bool moved; /* a move has ended: automatic swapping looks again */
};

/* Who has a job leave: automatic swapping, a person, or the job, which knows whether it has
 * started.
 */
enum swap_why { SWAP_AUTOMATIC, SWAP_BY_USER, SWAP_BY_ITSELF };
/* All but the first: by_user of struct job_swap. The job's processes were scanned just now. 0: it
 * leaves; or why it stays, running. */
int swap_out(struct swaps *x, struct model *m, uint32_t job, enum swap_why why, uid_t uid,
             struct error *err);
int swap_in(struct model *m, uint32_t job);
/* A process that may be off the GPU, on no record: as a job of its own if it is in none, it is
 * brought in. must: until it has come, also if groups of it are known. -EEXIST: it is on record, or
 * has groups on the GPU. */
int swap_adopt(struct model *m, struct proc_id id, bool must, uint32_t *job, struct error *err);
uint32_t swap_moving(const struct model *m); /* SLOT_NONE: no job */
void swap_process_gone(struct model *m, struct proc_id id);
/* Takes swappers' answers: after commands, which then cannot begin a move before those that wait
 * for one. */
void swap_reap(struct swaps *x, struct model *m);
/* Begins what is due; returns when to ask again. */
uint64_t swap_due(struct swaps *x, struct model *m);
/* The records of an earlier holder. An error: one cannot be taken over now; it stays on record. */
int swap_take_back(struct model *m);
/* restore: brings back all jobs that are out, and waits for it. */
void swap_leave(struct model *m, bool restore);

#endif
