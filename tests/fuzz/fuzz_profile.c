/* Fuzz target for profiles of programs, and what is predicted from them: numbers that make sense,
 * whatever is in the file. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/profile.h"
#include "fuzz.h"
#include "plan/advice.h"

static void require_number(double v, double lo, double hi)
{
    if (!(v >= lo && v <= hi))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct profile p;
    struct error err = {""};
    char path[32];
    int fd = memfd_create("profile", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    if (profile_load(path, &p, &err) == 0) {
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
    } else if (!err.text[0]) {
        abort();
    }
    close(fd);
    return 0;
}
