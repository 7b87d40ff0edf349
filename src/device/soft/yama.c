/* See yama.h. */
#include "device/soft/yama.h"

#include "lib/procfs.h"
#include "lib/util.h"

/* As task_is_descendant(): parents as they are now. */
static bool yama_descendant(pid_t child, pid_t ancestor)
{
    struct proc_stat st;
    for (int depth = 0; child > 0 && depth < 128; depth++) {
        if (child == ancestor)
            return true;
        if (proc_stat_read(child, &st) < 0)
            break;
        child = st.ppid;
    }
    return false;
}

bool yama_may_trace(const char *grants, pid_t tracer, pid_t tracee)
{
    int who, whom = -1;
    unsigned long long start;
    struct proc_id named = {.pid = -1};
    if (yama_descendant(tracee, tracer))
        return true;
    _cleanup_fclose_ FILE *f = fopen(grants, "re");
    while (f && fscanf(f, "%d %d %llu", &who, &whom, &start) == 3) {
        if (who == tracee)
            named = (struct proc_id){.pid = whom, .start_ticks = start};
    }
    return named.pid == 0 ||
           (named.pid > 0 && proc_alive(named) && yama_descendant(tracer, named.pid));
}
