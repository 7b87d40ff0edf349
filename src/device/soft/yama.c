/* See yama.h. */
#include "device/soft/yama.h"

#include "lib/procfs.h"
#include "lib/util.h"

/* The kernel asks task_is_descendant(): parents as they are now. */
bool yama_may_trace(const char *grants, pid_t tracer, pid_t tracee)
{
    int who, whom = -1;
    unsigned long long start;
    struct proc_id named = {.pid = -1};
    if (proc_is_descendant(tracee, tracer))
        return true;
    _cleanup_fclose_ FILE *f = fopen(grants, "re");
    while (f && fscanf(f, "%d %d %llu", &who, &whom, &start) == 3) {
        if (who == tracee)
            named = (struct proc_id){.pid = whom, .start_ticks = start};
    }
    return named.pid == 0 ||
           (named.pid > 0 && proc_alive(named) && proc_is_descendant(tracer, named.pid));
}
