/* System calls that fail at random, in processes that have the library of faults.c preloaded. A
 * file that the test maps as well says how often; the processes count in it. */
#ifndef CEDE_TESTS_CAMPAIGN_FAULTS_H
#define CEDE_TESTS_CAMPAIGN_FAULTS_H

#include <stdatomic.h>
#include <stdint.h>

#define FAULTS_ENV "CEDE_FAULTS" /* the file's path */
#define TITLE_ENV  "CEDE_TITLE"  /* what a program writes over its arguments and environment */

/* What may fail, and how: all with EINTR where the kernel may be interrupted. */
#define FAULT_KINDS(X)                                                                             \
    X(OPEN, "open")       /* files, directories, sockets, pipes: no descriptors, no memory */      \
    X(READ, "read")       /* interrupted, an error, or fewer bytes than there are */               \
    X(WRITE, "write")     /* the same, or no room */                                               \
    X(WAIT, "wait")       /* accept, poll, waitpid: interrupted, no descriptors */                 \
    X(CONTROL, "control") /* ioctl, fcntl, stat, rename, locks */                                  \
    X(PROCESS, "process") /* fork: no room */                                                      \
    X(MEMORY, "memory")   /* mmap, malloc */

enum fault_kind {
#define X(name, text) FAULT_##name,
    FAULT_KINDS(X)
#undef X
        FAULT_COUNT
};

struct faults {
    _Atomic uint64_t seed;
    _Atomic uint32_t per_million; /* of the calls of these kinds fail; 0: none */
    _Atomic uint32_t kinds;       /* bit for each enum fault_kind */
    _Atomic uint32_t full;        /* no file grows */
    _Atomic int64_t clock_ahead_s;
    _Atomic uint64_t calls[FAULT_COUNT], failed[FAULT_COUNT];
};

#endif
