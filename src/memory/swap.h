/* Moves jobs out of the GPU's memory and back: see swap.c. */
#ifndef CEDE_MEMORY_SWAP_H
#define CEDE_MEMORY_SWAP_H

#include "core/model.h"

enum swap_mode {
    SWAP_AUTO,   /* jobs leave for latency jobs that need memory */
    SWAP_MANUAL, /* only when a person asks */
    SWAP_OFF,
};

struct swap_options {
    enum swap_mode mode;
    /* Kept for a latency job that begins without engine_need(), on the only GPU, or on those that
     * it has begun to use. */
    uint64_t reserve_bytes;
    uint64_t start_us; /* the longest time for which a starting job delays moves of others */
};

struct swaps {
    enum swap_mode mode;
    uint64_t start_ns;
    bool moved; /* a move has ended, so that automatic swapping looks again */
};

/* Who moves a job out: automatic swapping, a user, or the job, which knows whether it has started.
 * The last two set by_user of struct job_swap. */
enum swap_why { SWAP_AUTOMATIC, SWAP_BY_USER, SWAP_BY_ITSELF };
/* Begins to move out a job whose processes were scanned just now. 0, or the reason why it stays. */
int swap_out(struct swaps *x, struct model *m, uint32_t job, enum swap_why why, uid_t uid,
             struct error *err);
int swap_in(struct model *m, uint32_t job);
/* Records by whom a job is out: by_user keeps it out until it is asked in. As with pausing, the
 * last user who asked it out decides who may ask it in. */
void swap_set_author(struct model *m, uint32_t job, bool by_user, uid_t uid);
/* Brings in a process that may be off the GPU and has no record; it becomes a job if it is in none.
 * must: tries until it is in, also if it has groups. -EEXIST: it is on record, or has groups. */
int swap_adopt(struct model *m, struct proc_id id, bool must, uint32_t *job, struct error *err);
uint32_t swap_moving(const struct model *m); /* the job with a swapper; SLOT_NONE: none */
void swap_process_gone(struct model *m, struct proc_id id);
/* Takes swappers' answers. Called after commands, so that these cannot begin a move before jobs
 * that wait for one. */
void swap_reap(struct swaps *x, struct model *m);
/* Begins moves that are due; returns when to ask again. */
uint64_t swap_due(struct swaps *x, struct model *m);
/* Takes over the records of an earlier holder. An error: one could not be taken over now. */
int swap_take_back(struct model *m);
/* Called when the daemon ends. restore: brings in all jobs that are out, and waits for that. */
void swap_leave(struct model *m, bool restore);

#endif
