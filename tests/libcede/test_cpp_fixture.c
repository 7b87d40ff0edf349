/* What test_cpp.cpp sets of the stand-in for libcuda, whose header is C. */
#include <dlfcn.h>
#include <stdlib.h>

#include "fake_gpu/fake_gpu.h"

void fixture_fail_streams(int fail);

void fixture_fail_streams(int fail)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    struct fake_cuda *cuda = lib ? dlsym(lib, "fake_cuda") : NULL;
    if (!cuda)
        abort();
    cuda->fail_streams = fail;
}
