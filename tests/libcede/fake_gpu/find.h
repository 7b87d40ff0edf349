/* What the stand-ins for the vendor's libraries export, for tests that have opened none. */
#ifndef CEDE_TESTS_LIBCEDE_FAKE_GPU_FIND_H
#define CEDE_TESTS_LIBCEDE_FAKE_GPU_FIND_H

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails the test where there is none. The library stays open. */
static inline void *find(const char *library, const char *symbol)
{
    void *lib = dlopen(library, RTLD_NOW);
    assert_non_null(lib);
    void *p = dlsym(lib, symbol);
    assert_non_null(p);
    return p;
}

#endif
