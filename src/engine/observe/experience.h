/* Which programs, by users, names and arguments, did less together than in turns: so that they need
 * not lose that time again, the next time one of them does not join the others in a pool, or they
 * begin with turns there (sched/space.h) and are tried again as ever. Kept in a small file in the
 * daemon's directory, and forgotten after a week. */
#ifndef CEDE_ENGINE_OBSERVE_EXPERIENCE_H
#define CEDE_ENGINE_OBSERVE_EXPERIENCE_H

#include "model/model.h"

#define EXPERIENCE_MAX 64

struct experience {
    const char *dir; /* NULL: it is not kept */
    struct {
        uint64_t key, until_ns;
    } v[EXPERIENCE_MAX];
    uint32_t n;
};

/* From the file `experience` there. One that is missing, or is not one of ours, says nothing. */
void experience_load(struct experience *x, const char *dir, uint64_t now_ns);
/* Of these jobs together, in any order. slots: n, at most SPEED_JOBS. */
uint64_t experience_key(const struct model *m, const uint32_t *slots, uint32_t n);
bool experience_has(const struct experience *x, uint64_t key, uint64_t now_ns);
/* lost: in a trial they have done less together; else not less. */
void experience_learn(struct experience *x, uint64_t key, bool lost, uint64_t now_ns);

#endif
