/* Inside libcede: marks a function that the shared library exports; all others are hidden. */
#ifndef CEDE_LIBCEDE_API_H
#define CEDE_LIBCEDE_API_H

#define CEDE_API __attribute__((visibility("default")))

#endif
