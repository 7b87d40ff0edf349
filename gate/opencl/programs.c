/* Programs and kernels: what a program was built from, until its last kernel is gone, and which of
 * its kernels may be cut. That is proven when it is first asked, because most programs are never
 * asked. */
#include <stdlib.h>
#include <string.h>

#include "gate/estimate.h"
#include "gate/opencl/layer.h"
#include "gate/opencl/proof.h"
#include "gate/opencl/table.h"

/* A program's text and how it is built; shared by the program and its kernels. */
struct build {
    unsigned users;
    bool built;              /* and not only being built */
    char *options;           /* NULL: not built */
    struct proving *reading; /* NULL: not needed yet */
    char source[];
};

struct kernel {
    uint64_t hash; /* of its name and program */
    bool sliceable, needs_local_size;
    struct build *of; /* NULL: there is nothing left to prove */
    char *name;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all builds */
static struct table programs = TABLE(struct build *);
static struct table kernels = TABLE(struct kernel);

void programs_in_child(void)
{
    table_reset(&programs);
    table_reset(&kernels);
    pthread_mutex_init(&lock, NULL);
}

static void build_drop(struct build *b)
{
    if (!b || --b->users)
        return;
    proof_free(b->reading);
    free(b->options);
    free(b);
}

static struct build *build_new(size_t bytes)
{
    struct build *b = calloc(1, sizeof(*b) + bytes + 1);
    if (b)
        b->users = 1;
    return b;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* NULL: nothing is known of it. */
static void program_set(cl_program p, struct build *b)
{
    struct build *old = NULL;
    pthread_mutex_lock(&lock);
    table_remove(&programs, p, &old);
    build_drop(old);
    if (b && !table_put(&programs, p, &b))
        build_drop(b);
    pthread_mutex_unlock(&lock);
}

/* Programs without a text. A new one may have the handle of one whose end was not seen (kernels
 * keep programs). */
#define X(name, params, ...)                                                                       \
    cl_program CL_API_CALL my_##name params                                                        \
    {                                                                                              \
        cl_program p = next->name(__VA_ARGS__);                                                    \
        program_set(p, NULL);                                                                      \
        return p;                                                                                  \
    }
X(clCreateProgramWithBinary,
  (cl_context c, cl_uint n, const cl_device_id *devices, const size_t *sizes,
   const unsigned char **binaries, cl_int *status, cl_int *ret),
  c, n, devices, sizes, binaries, status, ret)
X(clCreateProgramWithBuiltInKernels,
  (cl_context c, cl_uint n, const cl_device_id *devices, const char *names, cl_int *ret), c, n,
  devices, names, ret)
X(clCreateProgramWithIL, (cl_context c, const void *il, size_t size, cl_int *ret), c, il, size, ret)
X(clLinkProgram,
  (cl_context c, cl_uint n, const cl_device_id *devices, const char *options, cl_uint ninput,
   const cl_program *input, void(CL_CALLBACK *f)(cl_program, void *), void *arg, cl_int *ret),
  c, n, devices, options, ninput, input, f, arg, ret)
#undef X

cl_program CL_API_CALL my_clCreateProgramWithSource(cl_context context, cl_uint n,
                                                    const char **texts, const size_t *sizes,
                                                    cl_int *ret)
{
    cl_program p = next->clCreateProgramWithSource(context, n, texts, sizes, ret);
    size_t total = 0, at = 0;
    for (cl_uint i = 0; p && i < n; i++)
        total += sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
    struct build *b = p ? build_new(total) : NULL;
    for (cl_uint i = 0; b && i < n; i++) {
        size_t k = sizes && sizes[i] ? sizes[i] : strlen(texts[i]);
        memcpy(b->source + at, texts[i], k);
        at += k;
    }
    if (b && strlen(b->source) != total) {
        free(b);
        b = NULL;
    }
    program_set(p, b);
    return p;
}

/* A build of the same text by these options takes the place of *old. Both are the caller's to drop.
 */
static struct build *build_begin(cl_program p, const char *options, struct build **old)
{
    struct build *b = NULL;
    pthread_mutex_lock(&lock);
    if (table_get(&programs, p, old)) {
        size_t n = strlen((*old)->source);
        b = build_new(n);
        if (b) {
            memcpy(b->source, (*old)->source, n);
            b->options = strdup(options ? options : "");
        }
        if (b && b->options && table_put(&programs, p, &b)) {
            b->users++; /* and the program's use of *old is the caller's */
        } else {
            table_remove(&programs, p, NULL);
            build_drop(b);
            b = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return b;
}

/* A program that could not be built anew stays what it was. */
static void build_end(cl_program p, struct build *b, struct build *old, bool ok)
{
    struct build *now = NULL;
    pthread_mutex_lock(&lock);
    if (b && ok)
        b->built = true;
    else if (b && table_get(&programs, p, &now) && now == b && table_put(&programs, p, &old)) {
        old = NULL;
        build_drop(b);
    }
    build_drop(old);
    build_drop(b);
    pthread_mutex_unlock(&lock);
}

cl_int CL_API_CALL my_clBuildProgram(cl_program p, cl_uint n, const cl_device_id *devices,
                                     const char *options, void(CL_CALLBACK *f)(cl_program, void *),
                                     void *arg)
{
    struct build *old = NULL, *b = build_begin(p, options, &old);
    cl_int r = next->clBuildProgram(p, n, devices, options, f, arg);
    build_end(p, b, old, r == CL_SUCCESS);
    return r;
}

cl_int CL_API_CALL my_clReleaseProgram(cl_program p)
{
    cl_uint count = 0;
    if (next->clGetProgramInfo(p, CL_PROGRAM_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        program_set(p, NULL);
    return next->clReleaseProgram(p);
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void kernel_drop_locked(struct kernel *k)
{
    free(k->name);
    build_drop(k->of);
    k->name = NULL;
    k->of = NULL;
}

static void kernel_forget(cl_kernel k)
{
    struct kernel old;
    pthread_mutex_lock(&lock);
    if (table_remove(&kernels, k, &old))
        kernel_drop_locked(&old);
    pthread_mutex_unlock(&lock);
}

uint64_t kernel_hash(cl_kernel k)
{
    struct kernel x;
    return table_get(&kernels, k, &x) ? x.hash : 0;
}

bool kernel_sliceable(cl_kernel k, bool *needs_local_size)
{
    struct kernel x = {.of = NULL};
    pthread_mutex_lock(&lock);
    if (table_get(&kernels, k, &x) && x.of && x.of->built) {
        struct proof proof;
        if (!x.of->reading)
            x.of->reading = proof_read(x.of->source, x.of->options);
        proof_judge(x.of->reading, x.name, &proof);
        x.sliceable = proof.sliceable;
        x.needs_local_size = proof.needs_local_size;
        kernel_drop_locked(&x);
        table_put(&kernels, k, &x);
    }
    pthread_mutex_unlock(&lock);
    *needs_local_size = x.needs_local_size;
    return x.sliceable;
}

static void kernel_add(cl_kernel k)
{
    char name[256] = "";
    cl_program p = NULL;
    struct kernel x = {.of = NULL};
    kernel_forget(k);
    if (!k || next->clGetKernelInfo(k, CL_KERNEL_FUNCTION_NAME, sizeof(name) - 1, name, NULL) !=
                  CL_SUCCESS)
        return;
    for (const char *c = name; *c; c++)
        x.hash = estimate_key(x.hash, (uint64_t)*c, 3);
    next->clGetKernelInfo(k, CL_KERNEL_PROGRAM, sizeof(cl_program), &p, NULL);
    /* Programs of one source and other options have kernels of other lengths. */
    x.hash = estimate_key(x.hash, (uintptr_t)p, 4);
    pthread_mutex_lock(&lock);
    if (table_get(&programs, p, &x.of) && x.of->options && (x.name = strdup(name)))
        x.of->users++;
    else
        x.of = NULL;
    if (!table_put(&kernels, k, &x))
        kernel_drop_locked(&x);
    pthread_mutex_unlock(&lock);
}

cl_kernel CL_API_CALL my_clCreateKernel(cl_program p, const char *name, cl_int *ret)
{
    cl_kernel k = next->clCreateKernel(p, name, ret);
    kernel_add(k);
    return k;
}

cl_int CL_API_CALL my_clCreateKernelsInProgram(cl_program p, cl_uint n, cl_kernel *v,
                                               cl_uint *n_ret)
{
    cl_uint made = 0;
    cl_int r = next->clCreateKernelsInProgram(p, n, v, &made);
    for (cl_uint i = 0; r == CL_SUCCESS && v && i < made && i < n; i++)
        kernel_add(v[i]);
    if (n_ret)
        *n_ret = made;
    return r;
}

cl_kernel CL_API_CALL my_clCloneKernel(cl_kernel from, cl_int *ret)
{
    cl_kernel k = next->clCloneKernel(from, ret);
    kernel_add(k);
    return k;
}

cl_int CL_API_CALL my_clReleaseKernel(cl_kernel k)
{
    cl_uint count = 0;
    if (next->clGetKernelInfo(k, CL_KERNEL_REFERENCE_COUNT, sizeof(count), &count, NULL) ==
            CL_SUCCESS &&
        count == 1)
        kernel_forget(k);
    return next->clReleaseKernel(k);
}
