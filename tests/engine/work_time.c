/* monotonic_ns() for the engine's tests, in the library's place (--wrap): the test's clock. The
 * engine also measures what its calls take, to make fewer of those that take long, and on a busy
 * machine waiting for a processor would be most of that. So the clock goes on with this process's
 * work meanwhile. Its children live in real time. */
#include <time.h>
#include <unistd.h>

#include "fixture.h"

const uint64_t *work_time_clock;

uint64_t __real_monotonic_ns(void);
uint64_t __wrap_monotonic_ns(void);
uint64_t __wrap_monotonic_ns(void)
{
    static pid_t here;
    static uint64_t begin;
    struct timespec used;
    if (!here) {
        here = getpid();
        begin = __real_monotonic_ns();
    }
    if (getpid() != here || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) < 0)
        return __real_monotonic_ns();
    return max_u64(begin, work_time_clock ? *work_time_clock : 0) +
           (uint64_t)used.tv_sec * NSEC_PER_SEC + (uint64_t)used.tv_nsec;
}
