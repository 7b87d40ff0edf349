/* Of journal.c and journal_file.c alone. Layout: one page of header, the jobs, the swaps, the
 * members, the groups. The holders (ceded and its restorer) work in memory that they share and
 * nobody can cut short, and keep the file in step with write(2), where an error is one to report:
 * what becomes of the file neither ends them nor takes away what undoing requires. */
#ifndef CEDE_RECOVERY_JOURNAL_IMPL_H
#define CEDE_RECOVERY_JOURNAL_IMPL_H

#include "recovery/journal.h"

#define HEADER_SIZE 4096U
#define ALL_MISSING (JOURNAL_GROUPS_MISSING | JOURNAL_SWAPS_MISSING)

struct header {
    uint64_t magic;
    uint32_t job_size, group_size, jobs, groups; /* an older layout shows here */
    uint32_t swap_size, swaps, member_size, members;
    char boot_id[40];
    _Atomic int32_t holder;
    struct journal_shared shared;
};

struct layout {
    union {
        struct header header;
        char page[HEADER_SIZE];
    };
    struct journal_job jobs[JOURNAL_JOBS];
    struct journal_swap swaps[JOURNAL_SWAPS];
    struct journal_member members[JOURNAL_MEMBERS];
    struct journal_group groups[JOURNAL_GROUPS];
};
#define GROUPS_OFFSET offsetof(struct layout, groups)

struct journal {
    int fd, memory_fd, lock_fd; /* -1: only shown */
    bool damaged, yielded;
    bool stale; /* the file is: something could not be written */
    struct layout *map;
    uint32_t groups_reserved; /* records that the file has room for */
    uint32_t jobs_end, groups_end;
};

/* The one holder that writes drops records that make no sense, and learns where they end. */
void journal_tidy(struct journal *j);

#endif
