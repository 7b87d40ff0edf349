/* A file that the test, the program under the gate and the stand-in for gate.c map together:
 * what the scheduler wants, and what was seen. Its path is in CEDE_TEST_PAGE. */
#ifndef GATE_HIP_PAGE_H
#define GATE_HIP_PAGE_H

#include "base/gate_proto.h"

struct page {
    struct gate_control control; /* set by the test, as the next two are */
    _Atomic uint32_t closed;
    _Atomic uint64_t limit_ns;
    _Atomic uint32_t waiting, passed; /* by the stand-in: threads held now; calls that passed */
    _Atomic uint64_t inflight_ns;
};

#endif
