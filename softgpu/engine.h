/* One GPU as a discrete-event engine: how channel groups take turns on it, in virtual time.
 *
 * Pure: no clock, no system calls, no randomness but a seeded generator; it allocates only in
 * softgpu_new() and softgpu_reserve(). The server runs it in real time, tests and the simulator in
 * virtual time. It knows nothing of processes, sockets or policies.
 *
 * What it models (parameters and their sources: softgpu_params_h200()):
 * - Groups stand on a round-robin runlist in the order of their numbers. One group has the GPU at a
 *   time; it keeps it until its timeslice is over *and* another group has work, or until it has no
 *   work itself. If nobody else has work its timeslice renews without a switch.
 * - A group has streams. The oldest kernel of each stream may run, several at once as long as their
 *   SM fractions fit, in order of arrival; those of an owner of lower priority after the others.
 * - A group may have several owners, as that of an MPS server has its clients. Each has a number
 * for the group, streams of its own as far as there are some, and its own suspension; timeslice and
 *   turn are the group's. Their kernels run at the same time, as those of one owner do. An owner
 * that is suspended and has work stops the whole group, and one without work nobody until it has
 * some.
 * - What an owner says that its kernels use of the GPU's parts adds up over the owners of a group
 *   that run at the same time. If they together want more of a part than there is, all of them run
 *   slower, at the rate at which the most wanted part is used fully; not while a kernel of a
 *   collective is among them. In no other way do kernels that run at the same time slow each other
 *   down.
 * - A switch takes time, during which nothing runs, and once begun it completes. The group that
 * comes in then has at least its timeslice. On an idle GPU work starts without a switch.
 * - While another group waits, a group's streams that had no work when its turn began are not
 * looked at before its next turn.
 * - Suspensions are counted, as the hardware does: two need two resumptions. One more than that
 *   changes nothing.
 * - A group may be set to be preempted at block ends: a kernel counts as one wave of blocks, and a
 *   switch waits until those that run have ended. One that makes another group wait for
 *   block_limit_ns loses its channel, and never runs again.
 * - Controls take a while and take effect at their end.
 * - A kernel of a collective occupies its GPU until all its peers on other engines have run at the
 *   same time for its duration (struct fabric).
 * - A kernel reaches the GPU some time after it was submitted: all host overhead of a request is
 * put there, so that end_ns - submit_ns is what a program that waits for the result measures.
 *
 * Every call with at_ns first advances the engine to at_ns; a time in the past counts as now.
 * Not thread-safe. Functions return 0 or -errno.
 */
#ifndef CEDE_SOFTGPU_ENGINE_H
#define CEDE_SOFTGPU_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "gpu/soft/proto.h"

#define SOFTGPU_NEVER UINT64_MAX
#define SOFTGPU_NONE  UINT32_MAX

struct softgpu_params {
    uint32_t switch_ns;  /* any switch */
    uint32_t save_ns;    /* more, if the group that leaves is in mid-kernel: times its occupancy */
    uint32_t restore_ns; /* more, if the group that comes was preempted: times its occupancy */
    uint32_t block_switch_ns; /* instead of all three, from or to a group preempted at block ends */
    uint64_t block_limit_ns;
    uint32_t launch_ns;        /* host overhead of a request (launch and synchronisation) */
    uint32_t launch_warm_ns;   /* same, if the group's last kernel ended less than warm_ns ago */
    uint32_t launch_jitter_ns; /* at most this is added; seldom much of it */
    uint32_t warm_ns;
    uint32_t timeslice_us; /* of a new group */
    uint32_t timeslice_call_idle_ns;
    uint32_t timeslice_call_busy_ns;
    uint32_t suspend_call_ns;
    uint32_t resume_call_ns;
    uint32_t preempt_call_ns;
    uint64_t seed; /* of the jitter */
};
void softgpu_params_h200(struct softgpu_params *p);

struct softgpu_kernel {
    uint32_t stream; /* < SOFTGPU_STREAMS */
    uint64_t duration_ns;
    float sm_fraction; /* (0..1] */
    uint64_t cookie;   /* comes back in the completion */
    /* Of one rank of a collective: how many ranks it has, each on another engine and all of the
     * same duration (struct fabric). 0: of none. */
    uint32_t ranks;
    uint64_t collective;
    uint64_t launch_ns; /* the host launches it then; a time that has passed, such as 0: at once */
};

struct softgpu_completion {
    uint32_t group, stream; /* as they were submitted */
    uint64_t cookie;
    uint64_t submit_ns, start_ns, end_ns;
};

/* All but the timeslice is of this owner of the group, if there are several. */
struct softgpu_group_info {
    uint64_t busy_ns; /* its kernels ran for so long, switches not counted */
    /* Times it got the GPU, from another group or from nobody; or its work came while other owners
     * had it. */
    uint64_t bursts;
    uint32_t timeslice_us;
    uint32_t kernels; /* submitted and not completed */
    bool suspended;
    bool block_ends; /* preempted there */
    bool reset;      /* it has lost its channel */
};

struct softgpu;

/* Room for so many groups (owners, where several share one) and so many kernels (submitted, and
 * until their completions are popped). 0, -ENOMEM or -EINVAL. */
int softgpu_new(const struct softgpu_params *p, uint32_t groups, uint32_t kernels,
                struct softgpu **out);
void softgpu_free(struct softgpu *e);
/* Grows to at least that. On -ENOMEM the engine is as it was. */
int softgpu_reserve(struct softgpu *e, uint32_t groups, uint32_t kernels);

/* A new group's number (the lowest free one) into *group. -ENOSPC if there is no room. */
int softgpu_group_add(struct softgpu *e, uint64_t at_ns, uint32_t *group);
/* A further owner of the group that `with` is a number for, as softgpu_group_add(). -EINVAL: there
 * is no such group. */
int softgpu_group_join(struct softgpu *e, uint32_t with, uint64_t at_ns, uint32_t *group);
/* At once: its kernels, completions that were not popped and pending controls are dropped. Those of
 * other owners stay, and the group goes with the last. */
int softgpu_group_remove(struct softgpu *e, uint32_t group, uint64_t at_ns);
/* At once, and whatever suspend and resume say: a locked group's work waits (its memory is
 * elsewhere).
 */
int softgpu_lock(struct softgpu *e, uint32_t group, bool on, uint64_t at_ns);
/* What its kernels use of each part while they run alone, 0 to 1, from now on: at first nothing.
 * -EINVAL: no such group, or no such share. */
int softgpu_uses(struct softgpu *e, uint32_t group, const float uses[GPU_PARTS], uint64_t at_ns);
/* Of several owners of a group, before its first kernel: how much of the SMs this one's kernels
 * have at most together, so that larger ones take longer (0: all), and whether they begin after
 * those of owners of which this is not so. -EINVAL: no such group, or no such percentage. */
int softgpu_client(struct softgpu *e, uint32_t group, uint32_t sm_percent, bool below);
/* Groups that were reset since the beginning. */
uint32_t softgpu_resets(const struct softgpu *e);
/* Since the beginning, of each part: ns for which it would have been used fully. Of all owners
 * there were. */
void softgpu_counters(const struct softgpu *e, uint64_t parts_ns[GPU_PARTS]);
/* -EINVAL if there is no such group. The time is the engine's now. */
int softgpu_group_info(const struct softgpu *e, uint32_t group, struct softgpu_group_info *out);

/* -EINVAL (no such group, stream out of range, no duration, fraction out of range, a duration or a
 * wait for the launch of more than a year), -ENOSPC. */
int softgpu_submit(struct softgpu *e, uint32_t group, const struct softgpu_kernel *k,
                   uint64_t at_ns);

/* Puts the time when the call is done and has its effect into *done_ns. Suspending a group in
 * mid-kernel switches it out. value: of SOFTGPU_TIMESLICE the timeslice in us, of SOFTGPU_PREEMPT
 * 1 for block ends and 0 for anywhere. -EINVAL (no such group, timeslice out of range), -ENOSPC. */
int softgpu_control(struct softgpu *e, uint32_t group, enum softgpu_call call, uint32_t value,
                    uint64_t at_ns, uint64_t *done_ns);

/* Records from now on who has the engine, as the hardware's own record does: a group that has no
 * work keeps it until another gets it, and nobody has it while a switch is under way. In the
 * caller's memory: switch number i is in ring[i % size], the last is number *end - 1. ring NULL:
 * records no more. */
struct softgpu_switch {
    uint64_t ns;  /* from then on */
    uint32_t who; /* softgpu_tag(); 0: nobody */
};
void softgpu_record(struct softgpu *e, struct softgpu_switch *ring, uint32_t size, uint64_t *end);
/* What an owner is called there, at first 0; of several owners whose kernels run at once, one is
 * named. -EINVAL: no such group. */
int softgpu_tag(struct softgpu *e, uint32_t group, uint32_t tag);

uint64_t softgpu_now_ns(const struct softgpu *e);
/* Whether a kernel runs or a switch is under way. */
bool softgpu_working(const struct softgpu *e);
/* When something changes next by itself: SOFTGPU_NEVER if nothing will. */
uint64_t softgpu_next_event_ns(const struct softgpu *e);
/* Works through everything up to and including to_ns, each at its exact time. */
void softgpu_advance(struct softgpu *e, uint64_t to_ns);
/* Oldest first; false if there is none. */
bool softgpu_pop_completion(struct softgpu *e, struct softgpu_completion *out);

/* Several engines whose kernels wait for each other, as those of NCCL do. A kernel of a collective
 * occupies its GPU, spinning, and gets nearer to its end only while all its peers run on theirs:
 * ranks that are never on at the same time never end.
 *
 * The engines stay their owner's. Between two calls of fabric_advance() they may be given work and
 * controls at the fabric's time, and must not be advanced otherwise. */
#define FABRIC_ENGINES 16U
struct fabric {
    struct softgpu *engines[FABRIC_ENGINES];
    uint32_t n;
};
/* When something changes next by itself: SOFTGPU_NEVER if nothing will. */
uint64_t fabric_next_event_ns(struct fabric *f);
/* Works through everything up to and including to_ns, on all engines in step. */
void fabric_advance(struct fabric *f, uint64_t to_ns);

#endif
