/* The order of latency jobs with open requests, on one device. It is not a policy: "laxity" and
 * "edf" ask it before they decide as "priority" does. For jobs below the latency class there is
 * boost.h.
 *
 * By weight such jobs share the device in timeslices, so that each request takes as long as all of
 * them together. That stays so where all are in time. Otherwise one job *leads*: its timeslice is
 * long, and those of the others with open requests, which *follow*, are the shortest, so that the
 * hardware gives them the time that the leader leaves. If there are jobs of lower classes, which
 * have the shortest timeslices, followers keep theirs, so that they get that time in large pieces,
 * for one of which the leader waits at most. Nothing is suspended.
 *
 * As few requests as possible are given up, of the lowest priority first and then the longest, so
 * that the others can be met one after the other (Moore and Hodgson 1968). Of these the one with
 * the least slack leads (deadline, less now, less the GPU time that it still needs) if the others
 * can wait for it, else the one with the earliest deadline. A leader stays as long as the others
 * can wait for its end, and if it ends within two switches. A request that cannot be met any more
 * does not lead. An order lasts for CHANGE_NS, and for KEEP_NS after it was last needed, because
 * changing it takes control calls.
 *
 * Short deadlines gain nothing in the long run. Jobs without an open deadline, without a known
 * need, with a ceiling, or on several devices take no part, and have their share of each round.
 * Each of the others has a *credit*: the time that its share (account_shares.h) gave it while it
 * had a request, less the time that it had. When a job is *owed* OWED_NS, no other job leads: jobs
 * with open requests share by weight until it has had half of that.
 *
 * Not good for requests shorter than a timeslice of a latency job (4 ms), which run whole in theirs
 * by weight, and for which no order is made. */
#ifndef CEDE_PLAN_LATENCY_ORDER_H
#define CEDE_PLAN_LATENCY_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct machine;
struct policy_device;
struct sched_params;

enum slack_role { SLACK_NONE, SLACK_LEADS, SLACK_FOLLOWS };

/* A member's state. */
struct member_slack {
    enum slack_role role;
    bool reports; /* it takes part, with a request or without */
    bool pending; /* it has a request since the last decision */
    bool owed;
    uint64_t deadline_ns, left_ns; /* of the request that served_ns belongs to */
    double served_ns;              /* GPU time that its request has had, by estimate */
    double credit_ns;
};

/* A device's state. Invariant: leader is the job that leads, or SLOT_NONE, and then roles do not
 * count. */
struct slack_order {
    uint32_t leader;
    uint64_t charged_ns;            /* credits are charged up to this time; 0: none takes part */
    uint64_t needed_ns, changed_ns; /* when the order was last needed, and changed; 0: never */
};

/* Called before the policy: sets the roles of all members. use: false for policies that ignore
 * deadlines. */
void slack_decide(const struct machine *mc, bool use);
/* Called when timeslices by weight are set: changes those of members with a role. */
void slack_slices(const struct sched_params *p, struct policy_device *dev, bool lower);

#endif
