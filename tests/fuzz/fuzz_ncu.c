/* Fuzz target for tables of a profiler, and what is predicted from them: numbers that make sense,
 * whatever is in the table. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "profile/profile.h"
#include "sched/advice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_number(double v, double lo, double hi)
{
    if (!(v >= lo && v <= hi))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile p;
    struct error err = {""};
    FILE *f = size ? fmemopen((void *)(uintptr_t)data, size, "r") : NULL;
    if (f && profile_from_ncu(f, "f", &p, &err) == 0) {
        const struct program_kernels pair[2] = {{p.uses, p.n, p.busy}, {p.uses, p.n, p.busy}};
        struct advised a;
        double shares = 0;
        for (uint32_t i = 0; i < p.n; i++)
            shares += p.uses[i].share;
        require_number(shares, 0.999, 1.001);
        if (p.n <= 20) {
            advise(&p.gpu, pair, &a);
            require_number(a.pool.slowdown[0], 0.999, 1e300);
            require_number(a.pool.slowdown[1], 0.999, 1e300);
        }
        profile_free(&p);
    } else if (f && !err.text[0]) {
        abort();
    }
    if (f)
        fclose(f);
    return 0;
}
