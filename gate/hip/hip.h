/* The part of HIP's binary interface that the gate uses, declared here so that no ROCm is needed to
 * build (source: hip_runtime_api.h of 5.2; all are C symbols of libamdhip64), and what the gate's
 * files share. */
#ifndef CEDE_GATE_HIP_HIP_H
#define CEDE_GATE_HIP_HIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef int hipError_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef void *hipDeviceptr_t;
typedef struct {
    uint32_t x, y, z;
} dim3;
typedef struct {
    size_t width, height, depth;
} hipExtent;
typedef struct {
    void *ptr;
    size_t pitch, xsize, ysize;
} hipPitchedPtr;

enum {
    HIP_OK = 0,
    HIP_NOT_READY = 600,
    HIP_NOT_SUPPORTED = 801,
    HIP_CAPTURE_NONE = 0,
};
#define HIP_STREAM_PER_THREAD ((hipStream_t)2)

/* ---- real.c: the library's own functions ---- */

/* The real function behind a name, or NULL. Remembered in *slot. */
void *hip_real(const char *name, void **slot);

/* What the gate itself calls. hip_calls() is NULL if the library lacks one of them. */
#define HIP_CALLS(X)                                                                               \
    X(event_create, "hipEventCreateWithFlags", (hipEvent_t * event, unsigned flags))               \
    X(event_record, "hipEventRecord", (hipEvent_t event, hipStream_t stream))                      \
    X(event_query, "hipEventQuery", (hipEvent_t event))                                            \
    X(event_elapsed, "hipEventElapsedTime", (float *ms, hipEvent_t start, hipEvent_t stop))        \
    X(is_capturing, "hipStreamIsCapturing", (hipStream_t stream, int *status))                     \
    X(peek_error, "hipPeekAtLastError", (void))                                                    \
    X(get_error, "hipGetLastError", (void))                                                        \
    X(get_device, "hipGetDevice", (int *device))
struct hip_calls {
#define X(field, symbol, params) hipError_t(*field) params;
    HIP_CALLS(X)
#undef X
};
const struct hip_calls *hip_calls(void);

typedef void *(*hip_dlsym)(void *handle, const char *name);
/* The C library's dlsym(); NULL: not found. */
hip_dlsym hip_real_dlsym(void);
/* A file name is that of HIP's library. */
bool hip_is_library(const char *path);

/* ---- calls.c ---- */

/* The wrapper of that name, or NULL. */
void *hip_wrapper(const char *name);

/* ---- track.c ---- */

/* One submission, from before the real call until after it. */
struct ticket {
    void *stream; /* NULL: not tracked */
    uint64_t key, cost_ns;
};
/* key: the same for work that takes the same time. guess_ns: until it was measured. */
void track_enter(struct ticket *t, hipStream_t stream, uint64_t key, uint64_t guess_ns);
void track_leave(struct ticket *t, hipError_t result);
/* The host has waited for a stream, or for everything. */
void track_drained(hipStream_t stream, bool all);
void track_capture(int change);        /* a stream began (1) or ended (-1) to capture */
void track_forget(hipStream_t stream); /* it is being destroyed */

#endif
