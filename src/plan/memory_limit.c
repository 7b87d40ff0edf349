/* See memory_limit.h. */
#include "plan/memory_limit.h"

#define TELL_NS 60000000000ULL
#define KILL_NS 1000000000ULL

enum memory_act memory_limit_decide(struct memory_watch *w, uint64_t limit_bytes,
                                    enum memory_over over, uint64_t has, bool paused,
                                    uint64_t now_ns)
{
    const uint64_t since = w->acted_ns ? now_ns - w->acted_ns : UINT64_MAX;
    if (!limit_bytes || has <= limit_bytes) {
        w->acted_bytes = 0;
        return MEMORY_LEAVE;
    }
    if (over == MEMORY_PAUSE ? paused || has <= w->acted_bytes
                             : since < (over == MEMORY_KILL ? KILL_NS : TELL_NS))
        return MEMORY_LEAVE;
    w->acted_ns = now_ns;
    w->acted_bytes = has;
    return over == MEMORY_PAUSE ? MEMORY_STOP : over == MEMORY_KILL ? MEMORY_END : MEMORY_TELL;
}
