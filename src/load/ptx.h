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

/* What --memory holds: word i of the block is HOLD_WORD(i), other words than its neighbours' and,
 * within 16 GiB, than any other's, so that a page that came back elsewhere is seen. Both kernels go
 * over the words in steps of the grid; the second counts the words that differ into *wrong. */
#define HOLD_MUL     2654435761U
#define HOLD_WORD(i) ((uint32_t)(i)*HOLD_MUL + (uint32_t)((uint64_t)(i) >> 32) + 1)
#define HOLD_FILL    "cede_fill"
#define HOLD_CHECK   "cede_check"

#define HOLD_HEAD(name, params)                                                                    \
    ".visible .entry " name "(.param .u64 p_words, .param .u64 p_n" params ")\n"                   \
    ".maxntid 256, 1, 1\n"                                                                         \
    "{\n"                                                                                          \
    "    .reg .pred %p, %q;\n"                                                                     \
    "    .reg .b32 %a, %b, %c, %want, %got;\n"                                                     \
    "    .reg .b64 %words, %n, %i, %step, %at, %high, %wrong;\n"                                   \
    "    ld.param.u64 %words, [p_words];\n"                                                        \
    "    ld.param.u64 %n, [p_n];\n"                                                                \
    "    cvta.to.global.u64 %words, %words;\n"                                                     \
    "    mov.u32 %a, %ctaid.x;\n"                                                                  \
    "    mov.u32 %b, %ntid.x;\n"                                                                   \
    "    mov.u32 %c, %tid.x;\n"                                                                    \
    "    mad.lo.u32 %a, %a, %b, %c;\n"                                                             \
    "    cvt.u64.u32 %i, %a;\n"                                                                    \
    "    mov.u32 %a, %nctaid.x;\n"                                                                 \
    "    mul.wide.u32 %step, %a, %b;\n"
#define HOLD_LOOP                                                                                  \
    "loop:\n"                                                                                      \
    "    setp.ge.u64 %p, %i, %n;\n"                                                                \
    "    @%p bra done;\n"                                                                          \
    "    cvt.u32.u64 %a, %i;\n"                                                                    \
    "    shr.u64 %high, %i, 32;\n"                                                                 \
    "    cvt.u32.u64 %b, %high;\n"                                                                 \
    "    mad.lo.u32 %want, %a, 2654435761, %b;\n"                                                  \
    "    add.u32 %want, %want, 1;\n"                                                               \
    "    shl.b64 %at, %i, 2;\n"                                                                    \
    "    add.u64 %at, %words, %at;\n"
#define HOLD_END                                                                                   \
    "    add.u64 %i, %i, %step;\n"                                                                 \
    "    bra loop;\n"                                                                              \
    "done:\n"                                                                                      \
    "    ret;\n"                                                                                   \
    "}\n"

#define HOLD_PTX                                                                                   \
    ".version 6.0\n"                                                                               \
    ".target sm_52\n"                                                                              \
    ".address_size 64\n" HOLD_HEAD(HOLD_FILL, "") HOLD_LOOP                                        \
        "    st.global.u32 [%at], %want;\n" HOLD_END                                               \
        HOLD_HEAD(HOLD_CHECK,                                                                      \
                  ", .param .u64 p_wrong") "    ld.param.u64 %wrong, [p_wrong];\n"                 \
                                           "    cvta.to.global.u64 %wrong, %wrong;\n" HOLD_LOOP    \
                                           "    ld.global.u32 %got, [%at];\n"                      \
                                           "    setp.ne.u32 %q, %got, %want;\n"                    \
                                           "    @%q red.global.add.u32 [%wrong], 1;\n" HOLD_END

#endif
