/* Inside libcede: why a call failed, in words, and the one check of time-outs. */
#ifndef CEDE_LIBCEDE_ERROR_H
#define CEDE_LIBCEDE_ERROR_H

#include "cede/cede.h"

/* Sets what cede_error_text() gives this thread; NULL: nothing. Returns r. */
int cede_fail(int r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The first call of every function that takes a time-out. 0, and there is no text; or -EINVAL, with
 * one. */
int cede_timeout_check(cede_timeout t);

#endif
