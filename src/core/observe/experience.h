/* Remembers what programs (by user, name and arguments) did together in a pool: less than in turns,
 * so that they do not lose that time again - the next time one of them does not join the others, or
 * they begin with turns (plan/space_sharing.h) and are tried together later - or as much as `cede
 * advise` measured. Kept in a small file in the daemon's directory, and forgotten after a week. */
#ifndef CEDE_CORE_OBSERVE_EXPERIENCE_H
#define CEDE_CORE_OBSERVE_EXPERIENCE_H

#include "core/model.h"
#include "plan/space_sharing.h"

#define EXPERIENCE_MAX 64
#define EXPERIENCE_LEAST                                                                           \
    ((uint32_t)(1000 * SPACE_GAIN)) /* below it they did less than in turns                        \
                                     */

struct experience {
    const char *dir; /* NULL: no file */
    struct {
        uint64_t key, until_ns;
        uint32_t together; /* sum of their speeds in thousandths; 1: less than in turns */
    } v[EXPERIENCE_MAX];
    uint32_t n;
};

/* Reads the file `experience` in dir. A file that is missing or unreadable counts as empty. */
void experience_load(struct experience *x, const char *dir, uint64_t now_ns);
/* The key of these n jobs together, in any order. */
uint64_t experience_key(const struct model *m, const uint32_t *slots, uint32_t n);
/* In thousandths; 0: not known. */
uint32_t experience_of(const struct experience *x, uint64_t key, uint64_t now_ns);
/* Whether they did less together than in turns. */
bool experience_lost(const struct experience *x, uint64_t key, uint64_t now_ns);
/* together 0: they do not lose, whatever was known. */
void experience_learn(struct experience *x, uint64_t key, uint32_t together, uint64_t now_ns);

#endif
