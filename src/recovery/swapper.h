/* The swapper: a process of its own that moves one job's processes off the GPU or back
 * (ops.h: swap_out, swap_in), because that takes up to minutes and the vendor's library, and may
 * hang or die. It gets one order and answers once; it opens nothing of cede's.
 *
 * Who starts one writes journal records first, in this order: start (it waits), records with its
 * pid, begin. If the starter dies in between, the swapper does nothing; if it dies later, the
 * swapper goes on to its end, and the records name the process that the next holder has to wait
 * for. Bringing in works from every half-way state, so a holder that finds the record of a swapper
 * that has ended brings in. */
#ifndef CEDE_RECOVERY_SWAPPER_H
#define CEDE_RECOVERY_SWAPPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "lib/util.h"
#include "recovery/journal.h"

#define SWAP_PROCESSES_MAX 32 /* of one job */
#define SWAP_LOCK_MS       10000U

struct swap_order {
    uint32_t out;    /* else in */
    uint32_t search; /* neither: what is off the GPU, of all that there is */
    uint32_t lock_ms;
    uint64_t host_max_bytes; /* take no more host memory; 0: what the machine has to spare */
    char driver[16], where[256];
    struct journal_place place;
    uint32_t n, spare;
    struct journal_swap v[SWAP_PROCESSES_MAX];
};

/* A restore that fails for want of room loses the process (nvidia/checkpoint.c): so much is to stay
 * free beside it. */
#define SWAP_GPU_MARGIN(bytes) (64ULL * 1024 * 1024 + (bytes) / 32)

/* What the swapper is started with, and answers. */
#define SWAP_ORDER_FD  3
#define SWAP_RESULT_FD 4
struct swap_result {
    int32_t code;
    uint64_t locked_ns; /* when its work had ended; 0: it did not come so far */
    struct error err;
};

struct swapper {
    struct proc_id id; /* pid 0: none */
    int pidfd;         /* readable when it has ended */
    int order_fd, result_fd;
    uint64_t locked_ns; /* after swapper_end() */
};

int swapper_start(struct swapper *s, struct error *err);
/* Writes the records of o->v, which name the swapper, and hands over the order. */
int swapper_begin(struct swapper *s, struct journal *j, struct swap_order *o, struct error *err);
/* Waits for its end and takes its answer: 0, or the error of ops.h's function; -EINTR: it was
 * killed. *s is free again. */
int swapper_end(struct swapper *s, struct error *err);
/* Leaves it to itself: with an order it goes on to its end, without it does nothing. */
void swapper_detach(struct swapper *s);

/* Searches for processes that are off the GPU or half-way, of all that this user may look at: for
 * when no record tells of them. It may take seconds: the vendor's driver is asked about each. */
#define SWAPS_FOUND_MAX JOURNAL_SWAPS
int swapper_search(struct swapper *s, struct journal *j, struct error *err);
/* When it has ended. 0: these are all; else these are what was found until then. */
int swapper_found(struct swapper *s, struct proc_id v[SWAPS_FOUND_MAX], uint32_t *n,
                  struct error *err);

/* How many processes are out, or on their way, because users asked for it. */
uint32_t swapper_users(const struct journal *j);

/* Host memory of a process, swapped pages included. */
uint64_t swapper_host_bytes(pid_t pid);

/* Where a job's memory is, and what is to happen to it; engine/swap.c has the transitions. What the
 * memory of a process is doing only the driver knows (swap_state in ops.h); its record says what
 * the next holder has to do about it: it is AWAY, STRANDED or MOVING. */
enum swap_phase {
    SWAP_HERE,     /* on the GPU: nothing is on record */
    SWAP_LEAVING,  /* a swapper moves it out; */
    SWAP_RECALLED, /* and then it is to come in again */
    SWAP_AWAY,     /* until it is asked in */
    SWAP_ASKED,    /* it is to come in, and stays AWAY if it cannot */
    SWAP_STRANDED, /* it has to come in, since it may be half-way: tried until it has */
    SWAP_MOVING,   /* an earlier holder's swapper is at it; then it is STRANDED */
};
enum swap_phase swapper_phase(const struct journal_swap *rec);
/* "", "swapping-out", "swapped" or "swapping-in". */
const char *swap_phase_name(enum swap_phase phase);

/* Brings back, job by job, all that is recorded (what a dead daemon left, or what one that leaves
 * has moved), and waits for it, but no longer than wait_ms: a swapper that is not done by then goes
 * on, on record. yields: others may take the journal during each wait (journal_yield()); once
 * somebody does, the rest is left to them. Frees the records of what is back or gone; returns how
 * many are left, the last reason in err; 0 if they are somebody else's. */
unsigned swapper_undo(struct journal *j, unsigned wait_ms, bool yields, struct error *err);
bool swapper_anything(const struct journal *j);

/* What the restorer, the swapper and other helpers have in common. In the child: this program
 * again, by the name argv[0], in a session of its own, with these descriptors as 3, 4, ... and no
 * more. */
#define STANDBY_FDS_MAX 4
_Noreturn void standby_exec(const int *fds, unsigned n, const char *const argv[]);
/* As it begins: its name, no polite signal and no directory. */
int standby_begin(const char *name);

/* `cede-swap`; returns the exit status. */
int swap_main(int argc, char **argv);

#endif
