/* Finds the functions of a library that is opened at run time, by a table. */
#ifndef CEDE_BASE_SYMBOLS_H
#define CEDE_BASE_SYMBOLS_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

struct symbol {
    const char *name;
    size_t offset; /* of the pointer to it in the caller's struct */
};

/* Sets the pointers in the struct at `base`. NULL, or the first name that the library lacks. */
static inline const char *symbols_find(void *lib, const struct symbol *s, size_t n, void *base)
{
    for (size_t i = 0; i < n; i++) {
        void *p = dlsym(lib, s[i].name);
        if (!p)
            return s[i].name;
        memcpy((char *)base + s[i].offset, &p, sizeof(p));
    }
    return NULL;
}

#endif
