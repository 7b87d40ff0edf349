/* The model on an NVIDIA GPU: CUDA's driver, opened at run time, and kernels.ptx. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "model.h"

#ifndef KERNELS_PTX /* where it is when this is compiled */
#define KERNELS_PTX "kernels.ptx"
#endif
__asm__(".section .rodata\n"
        "decode_ptx: .incbin \"" KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".text\n");
extern const char decode_ptx[];

#define ROWS 8 /* as in kernels.cu */
#define CALLS(X)                                                                                   \
    X(init, "cuInit", (unsigned))                                                                  \
    X(error_name, "cuGetErrorName", (int, const char **))                                          \
    X(device_get, "cuDeviceGet", (int *, int))                                                     \
    X(device_name, "cuDeviceGetName", (char *, int, int))                                          \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                          \
    X(set_current, "cuCtxSetCurrent", (void *))                                                    \
    X(drop, "cuDevicePrimaryCtxRelease_v2", (int))                                                 \
    X(stream_create, "cuStreamCreate", (void **, unsigned))                                        \
    X(stream_wait, "cuStreamSynchronize", (void *))                                                \
    X(load, "cuModuleLoadData", (void **, const void *))                                           \
    X(function, "cuModuleGetFunction", (void **, void *, const char *))                            \
    X(alloc, "cuMemAlloc_v2", (unsigned long long *, size_t))                                      \
    X(release, "cuMemFree_v2", (unsigned long long))                                               \
    X(clear, "cuMemsetD8Async", (unsigned long long, unsigned char, size_t, void *))               \
    X(host, "cuMemHostAlloc", (void **, size_t, unsigned))                                         \
    X(host_release, "cuMemFreeHost", (void *))                                                     \
    X(write, "cuMemcpyHtoDAsync_v2", (unsigned long long, const void *, size_t, void *))           \
    X(read, "cuMemcpyDtoHAsync_v2", (void *, unsigned long long, size_t, void *))                  \
    X(launch, "cuLaunchKernel",                                                                    \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,       \
       void **, void **))

static struct {
#define X(field, symbol, args) int(*field) args;
    CALLS(X)
#undef X
} cu;
static void *functions[KERNELS];
static int device_number;

#define NON_BLOCKING 1
#define DEVICE_MAP   2

static int load_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    if (!lib)
        return -1;
#define X(field, symbol, args)                                                                     \
    cu.field = (int(*) args)dlsym(lib, symbol);                                                    \
    if (!cu.field)                                                                                 \
        return -1;
    CALLS(X)
#undef X
    return 0;
}

/* Says which call failed. */
static int checked(int r, const char *call)
{
    const char *name = "an error without a name";
    if (r) {
        cu.error_name(r, &name);
        fprintf(stderr, "decode: %s: %s (%d)\n", call, name, r);
    }
    return r;
}

static int cuda_alloc(struct device *d, size_t bytes, uint64_t *out)
{
    unsigned long long address = 0;
    int r = checked(cu.alloc(&address, bytes), "cuMemAlloc");
    *out = address;
    /* In the stream of what comes after it: the default stream would not be waited for. */
    return r ? r : checked(cu.clear(address, 0, bytes, d->stream), "cuMemsetD8Async");
}

static void cuda_release(struct device *d, uint64_t address)
{
    (void)d;
    if (address)
        cu.release(address);
}

static void *cuda_host(size_t bytes)
{
    void *p;
    return checked(cu.host(&p, bytes, DEVICE_MAP), "cuMemHostAlloc") ? NULL : p;
}

static void cuda_host_release(void *p)
{
    if (p)
        cu.host_release(p);
}

static int cuda_write(void *stream, uint64_t to, const void *from, size_t bytes)
{
    return checked(cu.write(to, from, bytes, stream), "cuMemcpyHtoDAsync");
}

static int cuda_read(void *stream, void *to, uint64_t from, size_t bytes)
{
    return checked(cu.read(to, from, bytes, stream), "cuMemcpyDtoHAsync");
}

static int cuda_launch(void *stream, enum kernel k, unsigned blocks, unsigned rows,
                       const struct work *w)
{
    static const unsigned threads[KERNELS] = {128, 32, 256, 256, 256, 256, 256};
    struct work copy = *w;
    int n = (int)rows;
    void *params[] = {&copy, &n};
    return checked(cu.launch(functions[k], blocks, k == LINEAR ? (rows + ROWS - 1) / ROWS : rows, 1,
                             threads[k], 1, 1, 0, stream, params, NULL),
                   kernel_names[k]);
}

static int cuda_wait(void *stream)
{
    return checked(cu.stream_wait(stream), "cuStreamSynchronize");
}

/* The module and the stream go with the context. */
static void cuda_close(struct device *d)
{
    (void)d;
    cu.drop(device_number);
}

int cuda_open(struct device *d)
{
    void *context, *module;
    *d = (struct device){.alloc = cuda_alloc,
                         .release = cuda_release,
                         .host = cuda_host,
                         .host_release = cuda_host_release,
                         .write = cuda_write,
                         .read = cuda_read,
                         .launch = cuda_launch,
                         .wait = cuda_wait,
                         .close = cuda_close};
    if (load_driver() < 0)
        return -1;
    if (checked(cu.init(0), "cuInit") || checked(cu.device_get(&device_number, 0), "cuDeviceGet") ||
        checked(cu.device_name(d->name, sizeof(d->name), device_number), "cuDeviceGetName") ||
        checked(cu.retain(&context, device_number), "cuDevicePrimaryCtxRetain") ||
        checked(cu.set_current(context), "cuCtxSetCurrent") ||
        checked(cu.stream_create(&d->stream, NON_BLOCKING), "cuStreamCreate") ||
        checked(cu.load(&module, decode_ptx), "cuModuleLoadData"))
        return -1;
    for (int k = 0; k < KERNELS; k++) {
        if (checked(cu.function(&functions[k], module, kernel_names[k]), kernel_names[k]))
            return -1;
    }
    return 0;
}
