/* Whether this is built with AddressSanitizer, which looks for faults in the code: what only
 * repeats may be shorter then. */
#ifndef CEDE_TESTS_SANITIZED_H
#define CEDE_TESTS_SANITIZED_H

#include <stdbool.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define SANITIZED true
#else
#define SANITIZED false
#endif

#endif
