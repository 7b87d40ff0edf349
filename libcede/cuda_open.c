/* libcede: finds libcuda's calls; see cuda.h. A file of its own so that tests can put a GPU in
 * virtual time in its place. */
#include <errno.h>
#include <stdio.h>

#include "base/symbols.h"
#include "base/util.h"
#include "libcede/cuda.h"

static int cuda_find(struct cuda *cu, unsigned use, int how, struct gpu_error *e)
{
    static const struct {
        unsigned uses;
        struct symbol symbol;
    } calls[] = {
#define X(uses, field, symbol, args) {uses, {symbol, offsetof(struct cuda, field)}},
        CUDA_CALLS(X)
#undef X
    };
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | how);
    e->text[0] = '\0';
    for (size_t i = 0; lib && i < ARRAY_SIZE(calls); i++) {
        unsigned uses = calls[i].uses;
        if (uses && !(uses & use))
            continue;
        const char *missing = symbols_find(lib, &calls[i].symbol, 1, cu);
        if (missing && uses) {
            snprintf(e->text, sizeof(e->text), "libcuda.so.1 has no %s: the driver is too old",
                     missing);
            return -ENODEV;
        }
    }
    return lib ? 0 : -ENODEV;
}

int cede_cuda_open(struct cuda *cu, unsigned use, struct gpu_error *e)
{
    return cuda_find(cu, use, RTLD_LOCAL, e);
}

int cede_cuda_here(struct cuda *cu, unsigned use, void **context)
{
    struct gpu_error why;
    *context = NULL;
    return cuda_find(cu, use, RTLD_NOLOAD, &why) || cu->ctx_current(context) || !*context ? -ENOSYS
                                                                                          : 0;
}
