/* stub */
#ifndef CEDE_GATE_OPENCL_PROOF_H
#define CEDE_GATE_OPENCL_PROOF_H
#include <stdbool.h>
struct proof {
    bool sliceable, needs_local_size;
};
static inline void proof_of(const char *s, const char *o, const char *k, struct proof *p)
{
    (void)s;
    (void)o;
    (void)k;
    *p = (struct proof){0};
}
#endif
