/* Which kernels may be cut: may an ND-range be enqueued as several, each a part of it along its
 * outermost dimensions, by global offset, one after the other? It may where no work item can see
 * which part it is in, and none waits for one of another work-group. Every such order of
 * work-groups is one that the device could have chosen.
 *
 * Decided from tokens alone. Sound for what OpenCL C and its known extensions have, not complete:
 * what is not understood is refused. Pure: reads its arguments, allocates and frees a little, knows
 * nothing of OpenCL's run time. Any thread; time linear in the text's length, whatever it says. */
#ifndef CEDE_GATE_OPENCL_PROOF_H
#define CEDE_GATE_OPENCL_PROOF_H

#include <stdbool.h>

struct proof {
    bool sliceable;
    /* Cut only at whole work-groups of a size that the program itself gives, and keep that size. */
    bool needs_local_size;
    char reason[120]; /* why not; "" if sliceable */
};

/* The whole source of a program, the options it was built with (NULL: none), and the kernel's name.
 * Where functions and macros can be separated, only what this kernel can reach counts; else all of
 * it.
 */
void proof_of(const char *source, const char *options, const char *kernel, struct proof *out);

/* The same in two steps, for several kernels of a program: reading takes nearly all of the time,
 * some 80 ms for 1 MB of source (x86-64, 2026-11-22). NULL: out of memory, which judging refuses.
 * One thread at a time. */
struct proving *proof_read(const char *source, const char *options);
void proof_judge(struct proving *p, const char *kernel, struct proof *out);
void proof_free(struct proving *p);

#endif
