/* libcede: a future map, for programs that schedule a step of work before the step in front of it
 * has run. The values that a step will produce get symbols, which are negative numbers. The program
 * writes symbols into the inputs of the next step; on the GPU, cede_future_store() puts the values
 * into a ring of slots, and cede_future_resolve() replaces symbols by values. See
 * cede_future_open(3); cede/step.h has a loop that does the bookkeeping.
 *
 * Symbols name positions in a ring. Each slot remembers the position that it holds, so a symbol
 * whose value was never stored, or was replaced meanwhile, resolves to 0 and is reported
 * (cede_future_get_statistics()) rather than to another request's value.
 *
 * A map needs no daemon. libcuda is opened at run time. The calls that take a stream put one kernel
 * into it and do not wait; they may be captured in a CUDA graph. A map has no thread, and allocates
 * nothing after cede_future_open().
 *
 * Thread-safe: all functions may be called from several threads at once, except
 * cede_future_close(), which no other call on the map may overlap. The CUDA context in which the
 * map was opened has to be current. No function may be called from a signal handler, or in a forked
 * child on its parent's map. Functions that return int return 0 or a negative errno, and none
 * changes errno. */
#ifndef CEDE_FUTURE_H
#define CEDE_FUTURE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cede_futures;

#define CEDE_FUTURE_SLOTS_MAX 1048576
#define CEDE_FUTURE_POSITIONS INT64_C(0x40000000) /* symbols are -1 to -CEDE_FUTURE_POSITIONS */

enum cede_future_flags {
    CEDE_FUTURE_NO_GPU = 1, /* addresses are the host's, streams are ignored, and values are stored
                               and resolved before the call returns */
};

/* Settings, which cede_future_defaults() fills in. The comments give the defaults. */
struct cede_future_config {
    size_t size;    /* of this struct; set by cede_future_defaults() */
    unsigned flags; /* 0 */
    unsigned slots; /* 4096; a power of two, at most CEDE_FUTURE_SLOTS_MAX. 16 bytes each */
};
/* config must not be NULL. */
void cede_future_defaults(struct cede_future_config *config);

/* Opens a map in the calling thread's current CUDA context. config: NULL for the defaults. On
 * failure *out is NULL. -EINVAL: a setting out of range, or out is NULL. -EIO: the driver refused
 * (no GPU memory, or too old for the kernels). -ENOMEM. -ENOSYS: there is no CUDA, or no context is
 * current: create one first, or set CEDE_FUTURE_NO_GPU. */
int cede_future_open(const struct cede_future_config *config, struct cede_futures **out);

/* Frees a map. Work that uses it has to have ended, and graphs that use it must not be launched
 * again. NULL is allowed. */
void cede_future_close(struct cede_futures *f);

/* Reserves slots for n values. *symbol: that of the first value; cede_future_symbol() has the
 * others. -EAGAIN: fewer than n slots are free: release some first. -EINVAL: n is 0 or more than
 * the map's slots, or symbol is NULL. */
int cede_future_reserve(struct cede_futures *f, unsigned n, int64_t *symbol);

/* Frees the slots that cede_future_reserve() reserved with this symbol. All work that names its
 * symbols has to have run. Slots are used again in the order of reservations, so a released one
 * stays occupied until all earlier ones are released. -ENOENT: no reservation has this symbol. */
int cede_future_release(struct cede_futures *f, int64_t symbol);

/* The symbol of the i-th value of a reservation. Symbols count down from the first, and after
 * -CEDE_FUTURE_POSITIONS go on at -1. */
static inline int64_t cede_future_symbol(int64_t first, unsigned i)
{
    return -(((-first - 1 + i) & (CEDE_FUTURE_POSITIONS - 1)) + 1);
}

/* Integers in GPU memory, or in any memory that the GPU reads and writes at this address. */
struct cede_future_array {
    uint64_t address; /* of the first integer */
    int64_t stride;   /* from one to the next, counted in integers; 0: 1 */
    unsigned n;
    unsigned bytes; /* of an integer: 4 or 8 */
};

/* Puts a kernel into the stream (a CUstream) that stores the values. The first gets `symbol`, the
 * next cede_future_symbol(symbol, 1) and so on. -EINVAL: the array or the symbol is not valid.
 * -EIO: the driver refused; cede_future_get_statistics() has its message. */
int cede_future_store(struct cede_futures *f, void *stream, const struct cede_future_array *values,
                      int64_t symbol);

/* As cede_future_store(), for a CUDA graph that stores to other slots at each launch: the symbol
 * and the number of values, at most values->n, are those that cede_future_place() put into the
 * stream last. */
int cede_future_store_placed(struct cede_futures *f, void *stream,
                             const struct cede_future_array *values);
/* Puts symbol and number into the stream before each launch of such a graph. Errors as above. */
int cede_future_place(struct cede_futures *f, void *stream, int64_t symbol, unsigned n);

/* Puts a kernel into the stream that replaces each symbol in the array, a negative integer, by its
 * value; other integers stay. In a CUDA graph the array is read when the graph runs. Errors as
 * above. */
int cede_future_resolve(struct cede_futures *f, void *stream,
                        const struct cede_future_array *inputs);

struct cede_future_statistics {
    unsigned slots, free;
    int64_t missing; /* a symbol that had no value when it was resolved; 0: none so far */
    char error[128]; /* the driver's latest error; "": none */
};
/* size: sizeof(*out). -EINVAL: this library does not know the size. */
int cede_future_get_statistics(struct cede_futures *f, struct cede_future_statistics *out,
                               size_t size);

#ifdef __cplusplus
}
#endif

#endif
