/* What the kernels of the future map do, once, for all that run them: CUDA (cede_future.cu, from
 * which scripts/ptx makes the PTX that libcede has), OpenCL (tests), and the host, for maps without
 * a GPU. So it is written in what the three languages share: fixed types, no headers but stdint.h,
 * no library.
 *
 * A position is a symbol's, -symbol - 1. `place` is two words: the tag of a block's first value,
 * and how many values it has. */
#ifndef CEDE_LIBCEDE_FUTURE_KERNELS_H
#define CEDE_LIBCEDE_FUTURE_KERNELS_H

#if defined(__OPENCL_VERSION__)
#define FUTURE_FN static inline
#define GLOBAL    __global
#define I64       long
#define I32       int
#define U32       uint
#elif defined(__CUDACC__)
#define FUTURE_FN static __device__ __forceinline__
#define GLOBAL
#define I64 long long
#define I32 int
#define U32 unsigned
#else
#include <stdint.h>
#define FUTURE_FN static inline
#define GLOBAL
#define I64 int64_t
#define I32 int32_t
#define U32 uint32_t
#endif

#define FUTURE_POSITION_MASK 0x3fffffffU

struct future_slot {
    I64 value;
    U32 tag; /* the position that it holds, plus 1; 0: none */
    U32 unused;
};

FUTURE_FN void future_place(GLOBAL U32 *place, U32 tag, U32 n)
{
    place[0] = tag;
    place[1] = n;
}

/* Thread i. place: 0: the block begins with `tag` and has n values; else at most n. */
FUTURE_FN void future_store(U32 i, GLOBAL struct future_slot *slots, U32 mask,
                            GLOBAL const U32 *place, U32 tag, U32 n, GLOBAL const char *values,
                            I64 stride, U32 bytes)
{
    if (place) {
        tag = place[0];
        n = place[1] < n ? place[1] : n;
    }
    if (i >= n || tag == 0)
        return;
    GLOBAL const char *at = values + (I64)i * stride * (I64)bytes;
    U32 position = (tag - 1 + i) & FUTURE_POSITION_MASK;
    GLOBAL struct future_slot *s = slots + (position & mask);
    s->value = bytes == 8 ? *(GLOBAL const I64 *)at : (I64) * (GLOBAL const I32 *)at;
    s->tag = position + 1;
}

/* Thread i. missing: gets the tag of a symbol that has no value. */
FUTURE_FN void future_resolve(U32 i, GLOBAL const struct future_slot *slots, U32 mask,
                              GLOBAL U32 *missing, U32 n, GLOBAL char *inputs, I64 stride,
                              U32 bytes)
{
    if (i >= n)
        return;
    GLOBAL char *at = inputs + (I64)i * stride * (I64)bytes;
    I64 symbol = bytes == 8 ? *(GLOBAL const I64 *)at : (I64) * (GLOBAL const I32 *)at;
    if (symbol >= 0)
        return;
    I64 position = -(symbol + 1), value = 0;
    GLOBAL const struct future_slot *s = slots + ((U32)position & mask);
    if (position <= (I64)FUTURE_POSITION_MASK && s->tag == (U32)position + 1)
        value = s->value;
    else
        *missing = position <= (I64)FUTURE_POSITION_MASK ? (U32)position + 1 : 0xffffffffU;
    if (bytes == 8)
        *(GLOBAL I64 *)at = value;
    else
        *(GLOBAL I32 *)at = (I32)value;
}

#undef FUTURE_FN
#undef GLOBAL
#undef I64
#undef I32
#undef U32

#endif
