/* The kernel that cede-load runs on NVIDIA GPUs, as text that the driver compiles at run time. */
#ifndef CEDE_LOAD_PTX_H
#define CEDE_LOAD_PTX_H

/* One 32-bit word of state a thread: x = x * MUL + ADD, `iters` times. The full period of 2^32
 * gives every step count another value, each step is a bijection, and each kernel goes on where the
 * one before it stopped: so one look at the end tells whether every kernel ran exactly its steps,
 * once. The steps depend on each other: the time is proportional to iters. */
#define SPIN_MUL     1664525U
#define SPIN_ADD     1013904223U
#define SPIN_THREADS 256U /* a block */
#define SPIN_ENTRY   "cede_spin"

/* .target is the oldest architecture that current drivers still translate from. */
#define SPIN_PTX                                                                                   \
    ".version 6.0\n"                                                                               \
    ".target sm_52\n"                                                                              \
    ".address_size 64\n"                                                                           \
    ".visible .entry " SPIN_ENTRY "(.param .u64 p_state, .param .u32 p_iters)\n"                   \
    ".maxntid 256, 1, 1\n"                                                                         \
    "{\n"                                                                                          \
    "    .reg .pred %p;\n"                                                                         \
    "    .reg .b32 %x, %n, %block, %width, %lane, %i;\n"                                           \
    "    .reg .b64 %state, %offset;\n"                                                             \
    "    ld.param.u64 %state, [p_state];\n"                                                        \
    "    ld.param.u32 %n, [p_iters];\n"                                                            \
    "    mov.u32 %block, %ctaid.x;\n"                                                              \
    "    mov.u32 %width, %ntid.x;\n"                                                               \
    "    mov.u32 %lane, %tid.x;\n"                                                                 \
    "    mad.lo.u32 %i, %block, %width, %lane;\n"                                                  \
    "    cvta.to.global.u64 %state, %state;\n"                                                     \
    "    mul.wide.u32 %offset, %i, 4;\n"                                                           \
    "    add.u64 %state, %state, %offset;\n"                                                       \
    "    ld.global.u32 %x, [%state];\n"                                                            \
    "    setp.eq.u32 %p, %n, 0;\n"                                                                 \
    "    @%p bra done;\n"                                                                          \
    "loop:\n"                                                                                      \
    "    mad.lo.u32 %x, %x, 1664525, 1013904223;\n"                                                \
    "    sub.u32 %n, %n, 1;\n"                                                                     \
    "    setp.ne.u32 %p, %n, 0;\n"                                                                 \
    "    @%p bra loop;\n"                                                                          \
    "done:\n"                                                                                      \
    "    st.global.u32 [%state], %x;\n"                                                            \
    "    ret;\n"                                                                                   \
    "}\n"

#endif
