/* The swapper: a process that moves one job's processes off the GPU or back (ops.h: swap_step),
 * because that takes up to minutes, needs the vendor's library, and may hang or crash. It gets one
 * order and answers once; it opens no file of cede's.
 *
 * The holder of the journal starts a swapper, which waits; writes records with its pid; and sends
 * the order. If the holder dies before the order, the swapper does nothing; if it dies later, the
 * swapper finishes, and the records name the process for which the next holder has to wait.
 * Bringing in works from every half-way state, so it is what a holder does that finds the record of
 * a swapper that has ended. */
#ifndef CEDE_JOURNAL_SWAPPER_H
#define CEDE_JOURNAL_SWAPPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/util.h"
#include "journal/journal.h"

#define SWAP_PROCESSES_MAX 32 /* of one job */
#define SWAP_LOCK_MS       10000U

struct swap_order {
    uint32_t out;    /* 1: move out; 0: bring in */
    uint32_t search; /* 1: instead, search all processes for those that are swapped out */
    uint32_t lock_ms;
    uint64_t host_max_bytes; /* the most host memory to take; 0: as much as the machine has free */
    char driver[16], where[256];
    struct journal_lock_id lock;
    uint32_t n;
    uint32_t must; /* 1: begin even if the journal cannot be written */
    struct journal_swap v[SWAP_PROCESSES_MAX];
};

/* GPU memory that has to stay free besides the process's, because a restore that fails for lack of
 * room loses the process (nvidia/checkpoint.c). */
#define SWAP_GPU_MARGIN(bytes) (64ULL * 1024 * 1024 + (bytes) / 32)

/* The swapper's descriptors, and its answer. */
#define SWAP_ORDER_FD  3
#define SWAP_RESULT_FD 4
struct swap_result {
    int32_t code;
    uint64_t locked_ns; /* when the processes' GPU work had ended; 0: it had not */
    struct error err;
};

struct swapper {
    struct proc_id id; /* pid 0: none */
    int pidfd;         /* readable when it has ended */
    int order_fd, result_fd;
    uint64_t locked_ns; /* as in swap_result, after swapper_end() */
};

int swapper_start(struct swapper *s, struct error *err);
/* Writes the records of o->v, which name the swapper, and sends the order. If the records cannot be
 * written, the next holder would believe older ones, so the order is not sent, unless it must. */
int swapper_begin(struct swapper *s, struct journal *j, struct swap_order *o, struct error *err);
/* Waits for the swapper's end and takes its answer: 0, or the error of ops.h's function; -EINTR: it
 * was killed. *s is free again. */
int swapper_end(struct swapper *s, struct error *err);
/* Leaves the swapper alone: with an order it goes on to its end, without one it does nothing. */
void swapper_detach(struct swapper *s);

/* Searches all processes that this user may look at for swapped or half-moved ones, because records
 * may be missing. It may take seconds, because the vendor's driver is asked about each. */
#define SWAPS_FOUND_MAX JOURNAL_SWAPS
int swapper_search(struct swapper *s, struct journal *j, struct error *err);
/* Takes the result when the search has ended. 0: it is complete; else it is a part. */
int swapper_found(struct swapper *s, struct proc_id v[SWAPS_FOUND_MAX], uint32_t *n,
                  struct error *err);

/* The number of processes that are swapped out, or being moved, because users asked for it. */
uint32_t swapper_users(const struct journal *j);

/* Host memory of a process, including its swap space. */
uint64_t swapper_host_bytes(pid_t pid);

/* Where a job's memory is, and what will happen to it; memory/swap.c has the transitions. Only the
 * driver knows the state of a process's memory (swap_state in ops.h); its record says what the next
 * holder has to do: it is AWAY, STRANDED or MOVING. */
enum swap_phase {
    SWAP_HERE,     /* on the GPU: nothing is on record */
    SWAP_LEAVING,  /* a swapper moves it out */
    SWAP_RECALLED, /* a swapper moves it out, and then it comes in again */
    SWAP_AWAY,     /* it is out until it is asked in */
    SWAP_ASKED,    /* it is to come in, and stays AWAY if it cannot */
    SWAP_STRANDED, /* it may be half-way, and so is brought in, however often that fails */
    SWAP_MOVING,   /* an earlier holder's swapper moves it; then it is STRANDED */
};
enum swap_phase swapper_phase(const struct journal_swap *rec);
/* "", "swapping-out", "swapped" or "swapping-in". */
const char *swap_phase_name(enum swap_phase phase);

/* Brings in, job by job, all processes on record, after the daemon's death or when it leaves, and
 * waits for at most wait_ms: a swapper that is not done by then goes on, on record. yields: others
 * may take the journal during each wait (journal_yield()), and then the rest is theirs. Frees the
 * records of processes that are back or gone. Returns the number of those left, with the last
 * reason in err; 0 if another holder has them. */
unsigned swapper_undo(struct journal *j, unsigned wait_ms, bool yields, struct error *err);
bool swapper_anything(const struct journal *j);

/* `cede-swap`; returns the exit status. */
int swap_main(int argc, char **argv);

#endif
