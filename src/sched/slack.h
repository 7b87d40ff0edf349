/* The order of latency jobs among each other: those with a request that is due, on one device. Not
 * a policy: "laxity" and "edf" ask it before they decide as "priority" does. Below the latency
 * class deadlines are boost.h's.
 *
 * By weight such jobs share the device in timeslices, so each takes as long as all of them
 * together. That is left alone where it is in time for all. Where it is not, one job *leads*: its
 * timeslice is long, and those of the others that are due, which *follow*, are the shortest, so
 * that the hardware gives them what the leader leaves. With jobs of lower classes, which have the
 * shortest, followers keep theirs: what the leader leaves is to be the followers' in large pieces,
 * and the leader waits for one of them at most. Nothing is suspended.
 *
 * Which one leads: as few requests as possible are given up, of the lowest priority first and then
 * the longest, so that the others can be met one after the other (Moore and Hodgson 1968). Of these
 * the one with the least slack leads (deadline, less now, less the GPU time that it still needs) if
 * the others can wait for it, else the one with the earliest deadline. A leader keeps its place as
 * long as the others can wait for its end, and when it ends within two switches. A request that
 * cannot be met any more leads nobody. As changing an order takes control calls, it lasts for
 * CHANGE_NS, and for KEEP_NS after it was last needed.
 *
 * Nobody gains by short deadlines. Jobs without a deadline that is open, without a known need, with
 * a ceiling, or on several devices take no part: they have their weight's part of each round. Of
 * the others each has a *credit*: the time that its share (account.h) gave it while it had a
 * request, less what it had. A job that is *owed* HOLD_NS of waiting is led by nobody: those that
 * are due then share by weight, until it has had half of that.
 *
 * Not good for requests shorter than a timeslice of a latency job (4 ms): by weight they run whole
 * in theirs, and no order is made for them. */
#ifndef CEDE_SCHED_SLACK_H
#define CEDE_SCHED_SLACK_H

#include <stdbool.h>
#include <stdint.h>

struct machine;
struct policy_device;
struct sched_params;

enum slack_role { SLACK_NONE, SLACK_LEADS, SLACK_FOLLOWS };

/* A member's. */
struct member_slack {
    enum slack_role role;
    bool reports; /* takes part, with a request or without */
    bool pending; /* since the last decision */
    bool owed;
    uint64_t deadline_ns, left_ns; /* of what was served */
    double served_ns;              /* GPU time that its request is taken to have had */
    double credit_ns;
};

/* A device's. Invariant: leader is SLOT_NONE, and roles count for nothing, or the one that leads.
 */
struct slack_order {
    uint32_t leader;
    uint64_t accounted_ns;          /* up to now */
    uint64_t needed_ns, changed_ns; /* when the order last was; 0: never */
};

/* Before deciding: the roles of all members. use: false for policies that ignore deadlines. */
void slack_decide(const struct machine *mc, bool use);
/* After the timeslices by weight are set: those of members with a role. */
void slack_slices(const struct sched_params *p, struct policy_device *dev, bool lower);

#endif
