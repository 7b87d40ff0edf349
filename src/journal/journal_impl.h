/* Private to journal.c and journal_file.c. The layout is one page of header, the jobs, the swaps,
 * the members, the groups. The holders (ceded and its restorer) work in memory that they share and
 * that cannot be cut short, and copy each change to the file with write(2), which returns errors.
 * So whatever happens to the file, the holders run on and have what undoing requires. */
#ifndef CEDE_JOURNAL_JOURNAL_IMPL_H
#define CEDE_JOURNAL_JOURNAL_IMPL_H

#include <errno.h>
#include <unistd.h>

#include "journal/journal.h"

#define HEADER_SIZE 4096U
#define ALL_MISSING (JOURNAL_GROUPS_MISSING | JOURNAL_SWAPS_MISSING)

struct header {
    uint64_t magic;
    uint32_t job_size, group_size, jobs, groups; /* these and the next differ in other layouts */
    uint32_t swap_size, swaps, member_size, members;
    char boot_id[40];
    _Atomic int32_t holder;
    struct journal_shared shared;
    /* In memory only: 0, or the error of a failed write. Then no change is written to the file
     * until journal_mend() has written all. */
    _Atomic int32_t stale;
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
    int fd, memory_fd, lock_fd; /* lock_fd -1: the journal is only read */
    bool damaged, yielded;
    struct layout *map;
    uint32_t groups_reserved; /* records that the file has room for */
    uint32_t jobs_end, groups_end;
};

/* Writes all bytes. 0 or -errno. */
static inline int journal_write(int fd, const void *what, size_t n, off_t at)
{
    const ssize_t w = pwrite(fd, what, n, at);
    return w == (ssize_t)n ? 0 : w < 0 ? -errno : -EIO;
}

/* Drops invalid records, as the only holder that writes, and finds where the records end. */
void journal_tidy(struct journal *j);

#endif
