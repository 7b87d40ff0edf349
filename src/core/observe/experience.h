/* Remembers which programs (by user, name and arguments) did less together in a pool than in turns,
 * so that they do not lose that time again: the next time one of them does not join the others, or
 * they begin with turns (plan/space_sharing.h) and are tried together later. Kept in a small file
 * in the daemon's directory, and forgotten after a week. */
#ifndef CEDE_CORE_OBSERVE_EXPERIENCE_H
#define CEDE_CORE_OBSERVE_EXPERIENCE_H

#include "core/model.h"

#define EXPERIENCE_MAX 64

struct experience {
    const char *dir; /* NULL: no file */
    struct {
        uint64_t key, until_ns;
    } v[EXPERIENCE_MAX];
    uint32_t n;
};

/* Reads the file `experience` in dir. A file that is missing or unreadable counts as empty. */
void experience_load(struct experience *x, const char *dir, uint64_t now_ns);
/* The key of these n jobs together, in any order. */
uint64_t experience_key(const struct model *m, const uint32_t *slots, uint32_t n);
bool experience_has(const struct experience *x, uint64_t key, uint64_t now_ns);
/* lost: in a trial the jobs have done less together than in turns. */
void experience_learn(struct experience *x, uint64_t key, bool lost, uint64_t now_ns);

#endif
