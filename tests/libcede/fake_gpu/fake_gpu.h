/* What tests see and set of the stand-ins for libcuda and libnvidia-ml: two GPUs of 4 SMs with 1024
 * threads each and 1000 bytes of memory; they run nothing. */
#ifndef CEDE_TESTS_LIBCEDE_FAKE_GPU_FAKE_GPU_H
#define CEDE_TESTS_LIBCEDE_FAKE_GPU_FAKE_GPU_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Begins a function of a driver, which no header declares. */
#define CALL(name, ...)                                                                            \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)
/* A whole one, that returns this; that does this and succeeds; that returns this, found while the
 * file's lock is held. */
#define GIVES(name, parameters, ...)                                                               \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        return (__VA_ARGS__);                                                                      \
    }
#define DOES(name, parameters, ...)                                                                \
    int name parameters;                                                                           \
    int name parameters                                                                            \
    {                                                                                              \
        __VA_ARGS__;                                                                               \
        return 0;                                                                                  \
    }
#define LOCKED(name, parameters, ...)                                                              \
    GIVES(name, parameters, pthread_mutex_lock(&lock), unlocked((__VA_ARGS__)))

struct fake_launch {
    char kernel[16];
    void *context, *stream;
    volatile uint32_t *words; /* of a lead: as its other parameters */
    uint32_t number;
    uint64_t limit_ns, keep_ns, at_ns;
};

struct fake_cuda {
    void *current; /* of every thread that has pushed none */
    atomic_int streams, streams_made, contexts, modules, pinned, pushed, events, memory;
    atomic_int occupancy_asked, last_priority, fail_streams;
    atomic_int bad;                    /* calls that a real driver would refuse or die of */
    atomic_int busy;                   /* nothing that is launched ends */
    atomic_int fail_launch;            /* the n-th from now; 0: none */
    atomic_int fail_make;              /* the n-th event or memory from now; 0: none */
    atomic_int fail_work;              /* the n-th event that is waited for or asked for; 0: none */
    atomic_int memory_asked, free_now; /* of each GPU's 1000 bytes */
    atomic_int registers, static_bytes; /* of every kernel */
    atomic_int unmanaged;               /* no concurrent managed access */
    unsigned n;                         /* launches */
    struct fake_launch launch[256];
    /* fake_graph.c: what there is now, and what was done */
    atomic_int allocated, graphs, execs, begun, instantiated, uploads, graph_launches, added;
    /* the CUresult that such calls give; 0: as it should be */
    atomic_int fail_instantiate, fail_upload, fail_graph_launch, fail_update;
    atomic_int lazy;                         /* the next launch of a kernel has to load it */
    _Atomic uint64_t free_bytes, node_bytes; /* of memory; that each node of a graph takes */
    /* of graphs that were destroyed while `busy`, until they are synchronized with; of a pool */
    _Atomic uint64_t running_bytes, running_pool_bytes, pool_bytes;
};

struct fake_capture;
struct fake_stream {
    void *context;
    int blocking;                 /* synchronizes with the legacy default stream */
    struct fake_capture *capture; /* NULL: none */
};

struct fake_nvml {
    atomic_int percent[2], asked;
    unsigned processes; /* on the first GPU */
    struct fake_process {
        unsigned pid;
        unsigned long long bytes;
    } process[8];
};

/* fake_memory.c: the first GPU's 1000 bytes */
struct fake_memory {
    _Atomic uint64_t others; /* that other processes have */
    _Atomic uint64_t allocated_bytes, prefetched;
    atomic_int asked, refused, synchronized, advised, old_calls;
    atomic_int fail_allocations; /* so many more fail */
};

/* ---- fake_streams.c: what is in streams runs later, in order, on the thread that lets it ----- */

/* Runs the next n things in all streams. What an event is waited for runs too, and each query of
 * an event runs one. */
void fake_run(unsigned n);
/* From now on, until fake_capture_end(), what is put into streams becomes a graph. */
struct fake_graph;
struct fake_graph *fake_capture(void);
void fake_capture_end(void);
void fake_replay(const struct fake_graph *g);
void fake_graph_free(struct fake_graph *g);
/* For fake_cuda.c. True: it is a kernel of the future map. */
int fake_launch_future(const char *text, unsigned blocks, unsigned threads, void **params);
void fake_drain(void);
int fake_fails_to_make(void);

/* ---- fake_ptx.c: kernels, from the text of their module -------------------------------------- */

/* Copies the parameters; how many there are. text: the module's, from the kernel's name on. */
unsigned fake_ptx_params(const char *text, void **params, uint64_t *out);
/* Of a kernel that had its parameters copied. */
void fake_ptx_run(const char *name, const uint64_t *params, unsigned blocks, unsigned threads);

/* The driver's, for tests' own work. */
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream);
int cuCtxGetCurrent(void **c);
int cuLaunchHostFunc(void *stream, void (*call)(void *), void *arg);

extern struct fake_cuda fake_cuda;
extern char fake_contexts[2]; /* of the GPUs */

/* A launch of a kernel that fake_graph.c knows: a CUresult; else -1. */
int fake_graph_launch(void *f, void *stream, void **params);
/* Of a test that has another kernel with an address and a number: what it does. */
__attribute__((weak)) void fake_graph_run(uint32_t *words, uint32_t number);

#endif
