/* What the files of the engine share: its state, and the functions that keep it. See engine.h; the
 * layout of the state is explained in engine.c. */
#ifndef CEDE_SOFTGPU_ENGINE_IMPL_H
#define CEDE_SOFTGPU_ENGINE_IMPL_H

#include "softgpu/engine.h"

#define ONE            65536U /* an SM fraction, a share of a part or a rate of 1 */
#define CALLS_IN_GROUP 8U     /* room for pending controls: so many for each group */

struct event {
    uint64_t at_ns;
    uint32_t owner;
    uint32_t kernel; /* that arrives; SOFTGPU_NONE: a call has its effect */
    enum softgpu_call call;
    uint32_t value;
};

struct kernel {
    uint64_t submit_ns, start_ns, end_ns;
    uint64_t order; /* of arrival */
    uint64_t duration_ns;
    uint64_t end_progress_ns;     /* ends when that is the group's progress; NEVER: it spins */
    uint64_t collective, left_ns; /* left: to do together with its peers */
    uint64_t cookie;
    uint32_t owner, stream; /* as submitted */
    uint32_t slot;          /* stream of the group */
    uint32_t fraction, ranks, next;
};

struct fifo {
    uint32_t head, tail;
};

/* What the numbers of engine.h mean: who has a group, alone or with others. */
struct owner {
    bool used, locked;
    uint32_t suspended; /* so many times */
    bool blocks;        /* suspended or locked, with work: the group waits for that */
    uint32_t tag;
    uint32_t group, next; /* another owner of the group */
    uint32_t kernels;     /* submitted and not completed */
    uint32_t arrived;     /* of those */
    uint32_t running;     /* streams on which they run, */
    uint32_t occupied;    /* the sum of their fractions, */
    uint32_t limit;       /* and the most that it may be */
    bool below;           /* its kernels begin after those of other owners */
    uint64_t busy_ns;     /* until none ran last ... */
    uint64_t since_ns;    /* ... and busy_ns of the group when one began */
    uint64_t bursts, last_end_ns;
    uint32_t uses[GPU_PARTS];       /* while its kernels run */
    uint32_t has;                   /* bit map: streams that have a slot */
    uint8_t slots[SOFTGPU_STREAMS]; /* stream of the group for each of its own */
};

struct group {
    uint32_t owner;    /* the first; SOFTGPU_NONE: there is no such group */
    uint32_t blocks;   /* owners that do */
    bool preempted;    /* in mid-kernel and switched out: has to be restored */
    bool block_ends;   /* is switched out only when its kernels have ended */
    bool reset;        /* one did not in time: it never runs again */
    uint32_t work;     /* streams with kernels that arrived */
    uint32_t seen;     /* streams that are looked at in this turn */
    uint32_t running;  /* streams whose first kernel has begun */
    uint32_t occupied; /* sum of the fractions of those */
    uint32_t timeslice_us;
    uint64_t busy_ns, last_call_ns;
    uint64_t progress_ns;         /* of its kernels: as busy_ns, but slower when they slow down */
    uint32_t progress_rest;       /* ns / ONE */
    uint32_t rate;                /* of progress, (0..ONE] */
    uint32_t collectives;         /* ranks of them that run */
    uint32_t together[GPU_PARTS]; /* sum of the uses of the owners that run */
    struct fifo streams[SOFTGPU_STREAMS];
    uint64_t last_arrival_ns[SOFTGPU_STREAMS];
    uint32_t users[SOFTGPU_STREAMS]; /* owners with that slot */
};

struct softgpu {
    struct softgpu_params p;
    uint64_t now_ns, arrivals, random;

    struct owner *owners;
    struct group *groups;
    uint32_t groups_cap, ready_count;  /* cap: of both */
    uint32_t owners_free, groups_free; /* none below is free */
    uint64_t *ready;                   /* bit map of groups: may run, and have work */
    uint32_t resets;                   /* groups so far */

    struct kernel *kernels;
    uint32_t kernels_cap, free_kernel;
    struct fifo done;

    /* From events_first to events_end, in the order in which they happen. */
    struct event *events;
    uint32_t events_first, events_end, events_cap;
    uint32_t calls_n; /* of those, not arrivals */

    uint32_t cur;  /* has the GPU, or gets it when the switch is over */
    uint32_t turn; /* where on the runlist: number of the last group that had the GPU */
    bool switching, idle;
    bool draining; /* its kernels are to end, and none begins: at drain_end_ns it is reset */
    uint64_t drain_end_ns;
    uint64_t switch_end_ns;
    uint64_t saved_ns, restored_ns; /* parts of the switch: one leaves, and one is restored */
    bool contended;                 /* another group waits: slice_start_ns is of this very slice */
    uint64_t slice_start_ns;
    uint64_t parts_ns[GPU_PARTS];
    uint32_t parts_rest[GPU_PARTS]; /* ns / ONE */

    struct softgpu_switch *switches; /* the caller's; NULL: not recorded */
    uint32_t switches_size, last_who;
    uint64_t *switches_end;
};

static inline uint64_t max_ns(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#define READY_BITS 64U /* of a word of softgpu.ready */

static inline bool softgpu_ready(const struct softgpu *e, uint32_t group)
{
    return e->ready[group / READY_BITS] >> group % READY_BITS & 1;
}

/* The first kernel of a stream of the group begins to run, or no longer does. */
void softgpu_running(struct softgpu *e, struct kernel *k, bool on);
void softgpu_set_uses(struct softgpu *e, uint32_t owner, const uint32_t uses[GPU_PARTS]);
void softgpu_fifo_push(struct softgpu *e, struct fifo *f, uint32_t k);
uint32_t softgpu_fifo_pop(struct softgpu *e, struct fifo *f);
void softgpu_kernel_free(struct softgpu *e, uint32_t k);
/* There is room: an arrival for every kernel, and controls are counted. */
void softgpu_event_push(struct softgpu *e, struct event ev);
/* After anything that decides whether an owner's group may run. */
void softgpu_update_ready(struct softgpu *e, uint32_t owner);
/* The group with the GPU is running kernels. */
bool softgpu_executing(const struct softgpu *e);
/* After all events of one moment: which group has the GPU from now on. */
void softgpu_settle(struct softgpu *e);

#endif
