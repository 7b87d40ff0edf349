/* Which jobs have their turn together. Jobs are told apart by the set of GPUs that they compute on
 * and by their tier (0 comes before 1); those of one set never run at the same time, nor do those
 * of sets that overlap. Pure arithmetic: no jobs, no clock.
 *
 * The fair part of each set: all of a tier rise together, each as its rate says, until one can get
 * no more, then the others go on (max-min fairness); tier 1 gets what tier 0 leaves. Certainly no
 * GPU has more than all of its time; where sets overlap in a ring, less than that is possible. Such
 * further limits are found as cuts: sets are packed round by round by how far each is behind its
 * part; if no packing is worth what is owed in a round, what is owed is a limit (perceptron and
 * cutting planes).
 *
 * Whoever always gives the turn to the packing of the greatest value, the value of a set being how
 * far it is behind its fair part, keeps all of them within a bounded distance of it (max-weight
 * scheduling: Tassiulas and Ephremides, 1992). */
#ifndef CEDE_SCHED_PACKING_H
#define CEDE_SCHED_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#define PACKING_SETS 64
#define PACKING_CUTS 16
#define PACKING_GPUS 8 /* packings of so many GPUs are exact */

struct packing_set {
    uint64_t devices; /* bit map */
    uint32_t tier;
    double rate; /* of its part, as long as that rises */
    double part; /* of the time, 0..1 */
    double owed; /* part so far, less what it had when packed in thought, in rounds */
};

struct packing {
    uint32_t n, cuts;
    struct packing_set sets[PACKING_SETS];
    double cut[PACKING_CUTS][PACKING_SETS]; /* sum over sets of cut * part <= 1 */
};

/* Finds the parts of these sets (devices, tier, rate); cheap if they are those of the last call. */
void packing_update(struct packing *p, const struct packing_set *sets, uint32_t n);
/* Of the free devices: the sets without overlap whose values sum up to most, as a bit map of
 * indices. Sets of value 0 are left out. */
uint64_t packing_best(const struct packing *p, const double *value, uint64_t free);

#endif
