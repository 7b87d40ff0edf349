/* What every fuzz target begins with. */
#ifndef CEDE_TESTS_FUZZ_H
#define CEDE_TESTS_FUZZ_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline void require(bool ok)
{
    if (!ok)
        abort();
}

/* The input as a string of its own, to be freed; without memory none. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (text) {
        memcpy(text, data, size);
        text[size] = '\0';
    }
    return text;
}

#endif
