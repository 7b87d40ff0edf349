/* See still_starting.h. */
#include "plan/still_starting.h"

uint64_t starting_until(const struct starting *s, uint64_t max_ns, uint64_t now_ns)
{
    const uint64_t sign = s->grew_ns > s->opened_ns ? s->grew_ns : s->opened_ns;
    const uint64_t last = s->opened_ns + max_ns;
    return s->opened_ns && now_ns < sign + STARTING_QUIET_NS && now_ns < last ? last : 0;
}

bool starting_opens(struct starting_spell *s, uint64_t now_ns)
{
    if (!s->last_ns || now_ns - s->last_ns >= STARTING_REST_NS)
        s->began_ns = now_ns;
    s->last_ns = now_ns;
    return now_ns - s->began_ns < STARTING_SPELL_NS;
}
