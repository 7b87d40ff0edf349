/* A file that the test, the program under the gate and the gate's stand-in port map together:
 * what the scheduler wants, and what was seen. Its path is in CEDE_TEST_PAGE. */
#ifndef GATE_HIP_PAGE_H
#define GATE_HIP_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

struct page {
    _Atomic uint32_t active, closed; /* set by the test */
    _Atomic uint64_t limit_ns;
    _Atomic uint32_t waiting, passed; /* by the port: threads held now; calls that passed */
    _Atomic uint64_t inflight_ns;
};

#endif
