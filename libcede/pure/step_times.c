/* See step_times.h. */
#include "libcede/pure/step_times.h"

#include "libcede/pure/times.h"

bool cede_times_launched(struct step_times *t, uint64_t schedule, uint64_t launch, bool empty)
{
    bool follows = t->going;
    t->schedule += schedule;
    t->launch += launch;
    t->exposed += (empty ? launch : 0) + (follows ? 0 : schedule);
    t->last = 0; /* it is in the gap that will be seen */
    t->going = true;
    return follows;
}

void cede_times_finished(struct step_times *t, uint64_t wait, uint64_t finish, uint64_t gpu,
                         uint64_t gap, bool empty)
{
    t->wait += wait;
    t->finish += finish;
    t->gpu += gpu;
    t->idle += gap;
    t->exposed += gap;
    t->last = empty ? t->last + finish : 0;
}

void cede_times_idle(struct step_times *t)
{
    t->exposed += t->last;
    t->last = 0;
    t->going = false;
}

uint64_t cede_times_hidden(const struct step_times *t)
{
    return saturating_sub(t->schedule + t->launch + t->finish, t->exposed);
}
