/* For tests that look for descriptors left open. */
#ifndef CEDE_TESTS_DESCRIPTORS_H
#define CEDE_TESTS_DESCRIPTORS_H

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include <cmocka.h>

/* How many a process has open; of the caller's own, the one that looks is among them. */
static inline size_t descriptors(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

#endif
