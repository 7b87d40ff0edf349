/* Accounts: the time of a GPU is shared between accounts first, and within each account between its
 * jobs, by weight. An account is that of a user, or one that the configuration names. So the number
 * of a user's jobs, how often they come and go, and the deadlines that they state only move time
 * within the user's part.
 *
 * Turns keep this in two levels: each account has a virtual time on each device as each job has
 * (turns.h), and the account that has had least for its weight is next. Timeslices and rounds
 * (gang_turns.c) use a job's *share*: its weight, scaled so that the shares of an account's working
 * jobs of one class add up to the account's part. That is the weight of the heaviest of them, times
 * the account's weight, so that a user who lowers the weight of all jobs gets less, and one with
 * many jobs gets no more than with one. On devices that gangs tie together a job counts once.
 *
 * A job that is boosted for its deadline takes deadline_share of its account's part, and with turns
 * it may be ahead of the account's part by ACCOUNT_LEAD_NS. Pure arithmetic. */
#ifndef CEDE_PLAN_ACCOUNT_SHARES_H
#define CEDE_PLAN_ACCOUNT_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/job_terms.h"
#include "plan/limits.h"

struct machine;
struct member;
struct policy_device;

struct account {
    uint32_t weight;
    struct limits limits;
    uint32_t jobs; /* number of its jobs */
    /* Scratch of account_shares(), of one island. */
    struct {
        double sum, most; /* of the weights of its working jobs */
    } working[CLASS_COUNT];
    struct {                           /* scratch of limits.c, of one device */
        uint32_t first, next, members; /* its working members; the next account with such */
        uint64_t looked;               /* the latest member_limits.looked */
        double lo, left, got; /* left of its floor and of its ceiling; its part in a class */
    } fill;
    uint64_t least_had[CLASS_COUNT]; /* scratch of company_judge(), of one device: a vtime */
    bool boosted;                    /* one of its jobs is boosted */
};

/* Turns that an account has had, in ns divided by weight (times WEIGHT_DEFAULT). */
struct account_had {
    uint64_t vtime;
    uint64_t probe; /* the part of it that the last turn added, if that was a probe */
};

/* An account on a device. Invariant: floor never falls. */
struct account_turns {
    struct account_had all;
    struct account_had by_class[CLASS_COUNT]; /* turns that were given by class */
    uint64_t floor; /* vtime with which a new job of the account starts here */
    double part;    /* weight of its jobs together; the default where there is one account */
    double debt;    /* on linked devices: lead of jobs that left, in ns times WEIGHT_DEFAULT */
};

#define ACCOUNT_LEAD_NS 1000000000U

/* Sets the share of every member and the part of every account, by their present classes. */
void account_shares(const struct machine *mc);
/* Whether a has its turn before b, by the turns that their accounts had, then by their own. A
 * boosted job is the first of its account. */
bool account_before(const struct policy_device *dev, const struct member *a,
                    const struct member *b);
/* Whether m, which is boosted, comes before jobs of other accounts too. On linked devices the job's
 * lead counts, on others the account's. */
bool account_may_lead(const struct policy_device *dev, const struct member *m);
/* Whether jobs of another account work on the device, below the latency class. */
bool account_shared(const struct policy_device *dev, const struct member *m);

#endif
