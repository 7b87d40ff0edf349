/* Inside the proof (proof.c): what the names of OpenCL C mean to it. */
#ifndef CEDE_GATE_OPENCL_NAMES_H
#define CEDE_GATE_OPENCL_NAMES_H

#include <stdbool.h>
#include <stddef.h>

enum name_kind {
    NAME_UNKNOWN,  /* the program's own, or one that is in no list */
    NAME_HARMLESS, /* OpenCL's; the same in every part of an ND-range */
    NAME_LOCAL,    /* so, as long as work-groups have the same size */
    NAME_BAD,      /* refused wherever it stands */
};

/* name need not be terminated. why: of NAME_BAD, what follows "it uses NAME, ". */
enum name_kind name_kind(const char *name, size_t n, const char **why);

#endif
