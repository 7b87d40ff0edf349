/* Accounts: the time of a GPU is shared between those whose jobs they are first, and within each
 * account between its jobs, by weight. An account is a user, or what the configuration names. So
 * how many jobs somebody has, how often they come and go, and what deadlines they state moves time
 * within their own part only.
 *
 * Turns keep this in two levels: each account has a virtual time on each device as each job has
 * (rotation.h), and the account that has had least for its weight is next. Timeslices and rounds
 * (round.c) keep it by a job's *share*: its weight, scaled so that the shares of an account's
 * working jobs of one class add up to the account's part. That is the weight of the heaviest of
 * them, times the account's own: a user who lowers the weight of all jobs has less, and one who
 * has many jobs no more than for one. Of devices that gangs tie together a job counts once.
 *
 * A job that is boosted for its deadline takes deadline_share of its account's part, and in turns
 * it may bring forward what the account is owed by ACCOUNT_LEAD_NS. Pure arithmetic. */
#ifndef CEDE_SCHED_ACCOUNT_H
#define CEDE_SCHED_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/terms.h"
#include "sched/limits.h"

struct machine;
struct member;
struct policy_device;

struct account {
    uint32_t weight;
    struct limits limits;
    uint32_t jobs; /* that it has */
    /* Scratch of account_shares(), of one island. */
    struct {
        double sum, most; /* weights of its jobs that work */
    } working[CLASS_COUNT];
    struct {
        uint32_t first, next, members; /* of its members at work; the next such account */
        uint64_t looked;               /* as member_limits.looked */
        double lo, left, got;          /* of its floor, of its ceiling; in a class */
    } fill;                            /* scratch of limits.c, of one device */
    uint64_t least_had[CLASS_COUNT];   /* scratch of company_judge(), of one device: a vtime */
    bool boosted;                      /* one of its jobs is, for its deadline */
};

/* Turns that an account has had, in ns divided by weight (times WEIGHT_DEFAULT). */
struct account_had {
    uint64_t vtime;
    uint64_t probe; /* of it, if that was the last: a look whether an idle job works */
};

/* An account on a device. Invariant: floor never falls. */
struct account_turns {
    struct account_had all;
    struct account_had by_class[CLASS_COUNT]; /* of the turns that were given by class */
    uint64_t floor; /* vtime that a job which comes to it here starts with */
    double part;    /* of its jobs together, as a weight; the default where there is one account */
    double debt;    /* on linked devices: what jobs that left had ahead, ns times WEIGHT_DEFAULT */
};

#define ACCOUNT_LEAD_NS 1000000000U

/* Sets the share of every member and the part of every account, from the classes that they have
 * now. */
void account_shares(const struct machine *mc);
/* Whether a has the next turn rather than b, by what their accounts had and then by what they had.
 * A boosted job is first of its account. */
bool account_before(const struct policy_device *dev, const struct member *a,
                    const struct member *b);
/* Whether m, which is boosted, comes before jobs of other accounts too. On linked devices its own
 * lead counts. */
bool account_may_lead(const struct policy_device *dev, const struct member *m);
/* Whether jobs of another account work on the device, below the latency class. */
bool account_shared(const struct policy_device *dev, const struct member *m);

#endif
