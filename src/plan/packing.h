/* Decides which jobs have their turn together. A job counts by the set of GPUs on which it computes
 * and by its tier (0 comes before 1); jobs of one set, or of sets that overlap, never run at the
 * same time. Pure arithmetic: no jobs, no clock.
 *
 * Fair parts: the parts of all sets of a tier rise together, each at its rate, until one can rise
 * no more, then the others go on (max-min fairness); tier 1 gets the time that tier 0 leaves. No
 * GPU has more than all of its time; where sets overlap in a ring, less is possible. Such further
 * limits are found as cuts: sets are packed round by round, by how far each is behind its part; if
 * no packing is worth the parts that are owed in a round, these are a limit (perceptron and cutting
 * planes).
 *
 * If the turn always goes to the packing of the greatest value, where a set's value is how far it
 * is behind its fair part, all sets stay within a bounded distance of their parts (max-weight
 * scheduling: Tassiulas and Ephremides, 1992). */
#ifndef CEDE_PLAN_PACKING_H
#define CEDE_PLAN_PACKING_H

#include <stdbool.h>
#include <stdint.h>

#define PACKING_SETS 64
#define PACKING_CUTS 16
#define PACKING_GPUS 8 /* number of GPUs up to which packings are exact */

struct packing_set {
    uint64_t devices; /* bit map */
    uint32_t tier;
    double rate; /* at which its part rises */
    double part; /* of the time, 0..1 */
    double owed; /* rounds that it is behind its part, in simulated rounds */
};

struct packing {
    uint32_t n, cuts;
    struct packing_set sets[PACKING_SETS];
    double cut[PACKING_CUTS][PACKING_SETS]; /* sum over sets of cut * part <= 1 */
};

/* Computes the parts of these sets (devices, tier, rate); cheap if they are the same as before. */
void packing_update(struct packing *p, const struct packing_set *sets, uint32_t n);
/* The sets of free devices, without overlap, with the greatest sum of values, as a bit map of
 * indices. Sets of value 0 are left out. */
uint64_t packing_best(const struct packing *p, const double *value, uint64_t free);

#endif
