/* See journal.h. Layout: one page of header, the jobs, the swaps, the members, the groups. The
 * space for groups is reserved chunk by chunk with fallocate(2), so that a full file system is an
 * error to report and never a SIGBUS in the middle of a change. */
#include "recovery/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/paths.h"
#include "recovery/job_record.h"
#include "recovery/restorers.h"

#define MAGIC        0x4e524a4544454301ULL /* bytes: 01 C E D E J R N */
#define HEADER_SIZE  4096U
#define GROUPS_CHUNK 256U

/* Its group is being written over: it counts, its sum does not. */
#define JG_MOVING   (1U << 2)
#define FLAGS_ALL   (JG_SUSPENDED | JG_TIMESLICE | JG_STOPPED | JG_PREEMPT | JG_MOVING)
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
    int fd, lock_fd; /* the second -1: not ours */
    bool damaged;
    struct layout *map;
    uint32_t groups_reserved; /* records that the file has room for */
    uint32_t jobs_end, groups_end;
};

/* What a journal of this boot and version begins with. */
static int header_now(struct header *out, struct error *err)
{
    *out = (struct header){
        .magic = MAGIC,
        .job_size = sizeof(struct journal_job),
        .group_size = sizeof(struct journal_group),
        .jobs = JOURNAL_JOBS,
        .groups = JOURNAL_GROUPS,
        .swap_size = sizeof(struct journal_swap),
        .swaps = JOURNAL_SWAPS,
        .member_size = sizeof(struct journal_member),
        .members = JOURNAL_MEMBERS,
        .shared.next_number = 1,
        .shared.incomplete = ALL_MISSING,
    };
    int r = proc_boot_id(out->boot_id);
    return r < 0 ? error_set(err, r, "cannot tell this boot: %s", strerror(-r)) : 0;
}

/* 1: it is of this boot and version; 0: it is not. */
static int header_ok(const struct header *h, struct error *err)
{
    struct header now;
    int r = header_now(&now, err);
    return r < 0 ? r : memcmp(h, &now, offsetof(struct header, holder)) == 0;
}

#define GROUP_SUM(r) sum_of(&(r)->group, sizeof((r)->group))

static bool swap_ok(const struct journal_swap *r)
{
    return r->proc.pid > 0 && r->arrived <= 1 && r->by_user <= 1 && r->swapper.pid >= 0;
}

static bool group_ok(const struct journal_group *r)
{
    return r->group.proc.pid > 0 && r->group.nchannels <= GROUP_CHANNELS_MAX &&
           r->group.gpu < DEVICE_GPUS_MAX;
}

/* One store, so that a writer may be killed before or after it. */
static void set_flags(struct journal_group *r, uint32_t flags)
{
    r->state = flags ? flags | ~flags << 16 : 0;
}

/* Before a record comes to be in use, and after it has ceased to: a writer that is killed in
 * between leaves a number that is too large, and never one that hides a loss. */
static void count_used(struct journal *j, bool was, bool is)
{
    if (is && !was)
        atomic_fetch_add(&j->map->header.shared.used, 1);
    else if (was && !is)
        atomic_fetch_sub(&j->map->header.shared.used, 1);
}

static uint32_t flags_of(const struct journal_group *r)
{
    uint32_t state = r->state, flags = state & FLAGS_ALL;
    return state == (flags | ~flags << 16) ? flags : 0;
}

/* The file is mapped to its greatest size; what counts is how much of it is there. */
int journal_refresh(struct journal *j)
{
    struct stat st;
    if (fstat(j->fd, &st) < 0)
        return -errno;
    if ((size_t)st.st_size < GROUPS_OFFSET)
        return -EIO;
    size_t room = ((size_t)st.st_size - GROUPS_OFFSET) / sizeof(struct journal_group);
    j->groups_end = j->groups_reserved = (uint32_t)min_u64(room, JOURNAL_GROUPS);
    j->jobs_end = JOURNAL_JOBS;
    return 0;
}

/* Takes over both descriptors, after a failure too. -ENOENT: it is no journal of this boot and
 * version. */
static int journal_map(int fd, int lock_fd, int prot, struct journal **out, struct error *err)
{
    struct journal *j = calloc(1, sizeof(*j));
    if (!j) {
        close(fd);
        close_p(&lock_fd);
        return error_set(err, -ENOMEM, "out of memory");
    }
    *j = (struct journal){.fd = fd, .lock_fd = lock_fd};
    int r = 0;
    void *map = mmap(NULL, sizeof(*j->map), prot, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        r = error_set(err, -errno, "cannot map the journal: %s", strerror(errno));
    else
        j->map = map;
    if (r == 0 && (journal_refresh(j) < 0 || (r = header_ok(map, err)) == 0))
        r = error_set(err, -ENOENT, "the journal is from another boot or version, or cut short");
    if (r < 0)
        journal_close(j);
    *out = r < 0 ? NULL : j;
    return r < 0 ? r : 0;
}

/* The one holder that writes drops records that make no sense, and learns where they end. */
static void tidy(struct journal *j)
{
    struct journal_shared *shared = &j->map->header.shared;
    uint64_t next = shared->next_number - 1 < NUMBER_MAX ? shared->next_number : 1;
    j->jobs_end = j->groups_end = 0;
    for (uint32_t i = 0; i < JOURNAL_JOBS; i++) {
        const struct journal_job *job = &j->map->jobs[i];
        if (!job->root.pid)
            continue;
        if (job_ok(job)) {
            struct journal_job whole = *job;
            whole.laxity_us = (uint32_t)min_u64(whole.laxity_us, whole.deadline_us);
            if (job->sum == JOB_CHANGING)
                journal_put_job(j, i, &whole);
            j->jobs_end = i + 1;
            next = max_u64(next, job->number + 1);
        } else {
            j->damaged = true;
            journal_put_job(j, i, NULL);
        }
    }
    shared->next_number = next;
    for (uint32_t i = 0; i < JOURNAL_MEMBERS; i++) {
        const bool is_used = j->map->members[i].proc.pid != 0;
        if (is_used && !journal_member(j, i)) {
            j->damaged = true;
            journal_put_member(j, i, NULL);
        }
    }
    uint32_t used = 0, were_used = shared->used;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        bool is_used = j->map->swaps[i].proc.pid != 0;
        if (is_used && !swap_ok(&j->map->swaps[i])) {
            j->damaged = true;
            journal_put_swap(j, i, NULL);
        } else {
            used += is_used;
        }
    }
    for (uint32_t i = 0; i < j->groups_reserved; i++) {
        struct journal_group *g = &j->map->groups[i];
        uint32_t flags = flags_of(g);
        if (flags && group_ok(g) && ((flags & JG_MOVING) || g->sum == GROUP_SUM(g))) {
            j->groups_end = i + 1;
            used++;
        } else if (g->state) {
            j->damaged = true;
            set_flags(g, 0);
        }
    }
    /* Fewer than there were: the end was cut off, or some are zero. More, or one fewer, is also
     * what a writer leaves that is killed in mid-change; then looking once costs little. */
    j->damaged |= shared->reserved > j->groups_reserved;
    if (j->damaged || used != were_used)
        shared->incomplete |= ALL_MISSING;
    atomic_signal_fence(memory_order_seq_cst);
    shared->reserved = j->groups_reserved;
    shared->used = used;
}

/* The lock holder begins a file anew. */
static int format_file(int fd, const char *path, struct error *err)
{
    struct header h;
    int r = header_now(&h, err);
    if (r < 0)
        return r;
    h.magic = 0; /* it comes last: a header that is cut short is none */
    r = ftruncate(fd, 0) < 0 ? -errno : -posix_fallocate(fd, 0, (off_t)GROUPS_OFFSET);
    errno = EIO; /* of a write that is cut short */
    if (r == 0 && (pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) ||
                   pwrite(fd, &(uint64_t){MAGIC}, 8, 0) != 8))
        r = -errno;
    return r < 0 ? error_set(err, r, "cannot write %s: %s%s", path, strerror(-r),
                             r == -ENOSPC ? " (make room there, or set CEDE_DIR)" : "")
                 : 0;
}

static int open_checked(const char *path, int flags, mode_t mode, struct error *err)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        (st.st_uid != geteuid() && (flags & O_ACCMODE) != O_RDONLY) || (st.st_mode & 022)) {
        close(fd);
        return error_set(err, -EPERM,
                         "%s is not a plain file of this user that others cannot write to; remove "
                         "it",
                         path);
    }
    return fd;
}

#define CONTINUE_MS 100 /* between looks for holders that were stopped: the whole of /proc */

static int lock(int fd, int wait_ms)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    for (int look_ms = 0;; look_ms -= 10) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (look_ms <= 0) {
            restorers_continue(st.st_dev, st.st_ino);
            look_ms = CONTINUE_MS;
        }
        if (wait_ms <= 0)
            return -EBUSY;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        wait_ms -= 10;
    }
}

/* A file of its own: whoever may read a file may lock it, and anybody may read the journal. */
static int lock_dir(const char *dir, const char *journal, int wait_ms, struct error *err)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/lock", dir);
    _cleanup_close_ int fd = open_checked(path, O_RDWR | O_CREAT, 0600, err);
    int r = fd < 0 ? fd : lock(fd, wait_ms);
    if (fd < 0 || r == 0)
        return fd < 0 ? r : TAKE_FD(fd);
    if (r != -EBUSY)
        return error_set(err, r, "cannot lock %s: %s", path, strerror(-r));
    _cleanup_close_ int held = open(journal, O_RDONLY | O_CLOEXEC);
    struct header h = {0};
    if (held < 0 || pread(held, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
        h.holder = 0;
    return error_set(err, r,
                     "another cede (pid %d) is scheduling here and holds %s; use its socket, or "
                     "stop it",
                     (int)h.holder, path);
}

int journal_open(const char *dir, int wait_ms, struct journal **out, struct error *err)
{
    int r = cede_dir_make(dir, err);
    if (r < 0)
        return r;
    char path[512], bad[520];
    snprintf(path, sizeof(path), "%s/journal", dir);
    snprintf(bad, sizeof(bad), "%s.bad", path);
    bool set_aside = false;
    _cleanup_close_ int lock_fd = lock_dir(dir, path, wait_ms, err);
    if (lock_fd < 0)
        return lock_fd;

    for (;;) {
        _cleanup_close_ int fd = open_checked(path, O_RDWR | O_CREAT, 0644, err);
        if (fd < 0)
            return fd;
        struct header h = {0};
        struct stat st;
        ssize_t n = fstat(fd, &st) < 0 ? -1 : pread(fd, &h, sizeof(h), 0);
        if (n < 0 || n < (ssize_t)min_u64((uint64_t)st.st_size, sizeof(h))) {
            r = n < 0 ? -errno : -EINTR;
            return error_set(err, r, "cannot read %s: %s (if that stays so, remove it)", path,
                             strerror(-r));
        }
        if ((r = header_ok(&h, err)) < 0)
            return r;
        if (n == (ssize_t)sizeof(h) && (!r || st.st_size < (off_t)GROUPS_OFFSET)) {
            if (set_aside || rename(path, bad) < 0)
                return error_set(err, -EIO, "cannot set %s aside; remove it", path);
            set_aside = true;
            continue;
        }
        if (n != (ssize_t)sizeof(h) && (r = format_file(fd, path, err)) < 0)
            return r;
        r = journal_map(TAKE_FD(fd), TAKE_FD(lock_fd), PROT_READ | PROT_WRITE, out, err);
        if (r < 0)
            return r;
        struct journal *j = *out;
        j->damaged = set_aside || (n > 0 && n < (ssize_t)sizeof(h));
        tidy(j);
        j->map->header.holder = (int32_t)getpid();
        return 0;
    }
}

int journal_open_readonly(const char *dir, struct journal **out, struct error *err)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/journal", dir);
    int fd = open_checked(path, O_RDONLY, 0, err);
    if (fd < 0)
        return fd;
    return journal_map(fd, -1, PROT_READ, out, err);
}

int journal_devices(int fd, char driver[16], char where[256])
{
    struct header h;
    if (pread(fd, &h, sizeof(h), 0) != sizeof(h) || header_ok(&h, NULL) <= 0)
        return -ENOENT;
    snprintf(driver, 16, "%.*s", (int)sizeof(h.shared.driver) - 1, h.shared.driver);
    snprintf(where, 256, "%.*s", (int)sizeof(h.shared.where) - 1, h.shared.where);
    return 0;
}

int journal_from_fd(int fd, int lock_fd, struct journal **out, struct error *err)
{
    return journal_map(fd, lock_fd, PROT_READ | PROT_WRITE, out, err);
}

void journal_yield(struct journal *j)
{
    flock(j->lock_fd, LOCK_UN);
}

int journal_reclaim(struct journal *j)
{
    int r = lock(j->lock_fd, 0);
    if (r == 0)
        j->map->header.holder = (int32_t)getpid();
    return r == 0 ? journal_refresh(j) : r;
}

void journal_close(struct journal *j)
{
    if (!j)
        return;
    if (j->map)
        munmap(j->map, sizeof(*j->map));
    close(j->fd);
    close_p(&j->lock_fd);
    free(j);
}

int journal_fd(const struct journal *j)
{
    return j->fd;
}

int journal_lock_fd(const struct journal *j)
{
    return j->lock_fd;
}

struct journal_place journal_place(const struct journal *j)
{
    struct stat st;
    return fstat(j->lock_fd, &st) < 0 ? (struct journal_place){0, 0}
                                      : (struct journal_place){st.st_dev, st.st_ino};
}

struct journal_shared *journal_shared(struct journal *j)
{
    return &j->map->header.shared;
}

void journal_put_job(struct journal *j, uint32_t slot, const struct journal_job *job)
{
    struct journal_job *r = &j->map->jobs[slot];
    bool same = job && r->root.pid == job->root.pid && r->number == job->number &&
                r->root.start_ticks == job->root.start_ticks;
    /* The pid says whether the record counts: it goes first and comes last. But a job that is only
     * changed never stops counting. */
    if (same)
        r->sum = JOB_CHANGING;
    else
        r->root.pid = 0;
    atomic_signal_fence(memory_order_seq_cst);
    if (!job)
        return;
    struct journal_job copy;
    job_copy(&copy, job);
    uint32_t sum = job_sum(&copy);
    copy.sum = JOB_CHANGING;
    copy.root.pid = same ? job->root.pid : 0;
    memcpy(r, &copy, sizeof(*r));
    atomic_signal_fence(memory_order_seq_cst);
    r->sum = sum;
    atomic_signal_fence(memory_order_seq_cst);
    r->root.pid = job->root.pid;
    if (slot >= j->jobs_end)
        j->jobs_end = slot + 1;
}

const struct journal_job *journal_job(const struct journal *j, uint32_t slot)
{
    return slot < JOURNAL_JOBS && job_ok(&j->map->jobs[slot]) ? &j->map->jobs[slot] : NULL;
}

void journal_put_member(struct journal *j, uint32_t slot, const struct journal_member *member)
{
    struct journal_member *r = &j->map->members[slot];
    r->proc.pid = 0; /* goes first and comes last, as of jobs */
    atomic_signal_fence(memory_order_seq_cst);
    if (!member)
        return;
    r->proc.start_ticks = member->proc.start_ticks;
    r->job = member->job;
    r->sum = member_sum(member);
    atomic_signal_fence(memory_order_seq_cst);
    r->proc.pid = member->proc.pid;
}

const struct journal_member *journal_member(const struct journal *j, uint32_t slot)
{
    const struct journal_member *r = &j->map->members[slot];
    return r->proc.pid > 0 && r->sum == member_sum(r) ? r : NULL;
}

void journal_put_swap(struct journal *j, uint32_t slot, const struct journal_swap *swap)
{
    struct journal_swap *r = &j->map->swaps[slot];
    const bool was_used = r->proc.pid != 0;
    if (swap)
        count_used(j, was_used, true);
    /* As for jobs, but a record that is in use never stops counting while it is changed: what it
     * says before and after leads to the same, asking the process where it is. */
    if (!swap || r->proc.pid != swap->proc.pid || r->proc.start_ticks != swap->proc.start_ticks) {
        r->proc.pid = 0;
        atomic_signal_fence(memory_order_seq_cst);
    }
    if (!swap) {
        count_used(j, was_used, false);
        return;
    }
    struct journal_swap copy = *swap;
    copy.proc.pid = r->proc.pid;
    *r = copy;
    atomic_signal_fence(memory_order_seq_cst);
    r->proc.pid = swap->proc.pid;
}

const struct journal_swap *journal_swap(const struct journal *j, uint32_t slot)
{
    return slot < JOURNAL_SWAPS && swap_ok(&j->map->swaps[slot]) ? &j->map->swaps[slot] : NULL;
}

int journal_reserve(struct journal *j, uint32_t slot)
{
    if (slot >= JOURNAL_GROUPS)
        return -EINVAL;
    if (slot < j->groups_reserved)
        return 0;
    uint32_t want = (uint32_t)min_u64((slot / GROUPS_CHUNK + 1) * GROUPS_CHUNK, JOURNAL_GROUPS);
    int r =
        -posix_fallocate(j->fd, 0, (off_t)(GROUPS_OFFSET + want * sizeof(struct journal_group)));
    if (r < 0)
        return r;
    j->groups_reserved = want;
    j->map->header.shared.reserved = want;
    return 0;
}

int journal_put_group(struct journal *j, uint32_t slot, uint32_t flags,
                      const struct device_group *g)
{
    if (slot >= j->groups_reserved && !flags)
        return 0;
    int code = journal_reserve(j, slot);
    if (code < 0)
        return code;
    struct journal_group *r = &j->map->groups[slot];
    const bool was_used = r->state != 0;
    if (flags)
        count_used(j, was_used, true);
    if (flags && was_used && !journal_same(&r->group, g)) /* the slot has changed hands */
        set_flags(r, 0);
    uint32_t moving = flags ? flags_of(r) & JG_MOVING : 0; /* its sum is not right yet */
    if (flags && !r->state) {
        r->group = *g;
        r->sum = GROUP_SUM(r); /* with whatever is between its members */
        atomic_signal_fence(memory_order_seq_cst);
    } else if (flags && (r->group.timeslice_us != g->timeslice_us ||
                         memcmp(r->group.channels, g->channels, sizeof(g->channels)) != 0)) {
        /* A living group whose channels changed, or what its program gave it: the list first, its
         * length last. */
        set_flags(r, flags | JG_MOVING);
        r->group.timeslice_us = g->timeslice_us;
        memcpy(r->group.channels, g->channels, sizeof(r->group.channels));
        atomic_signal_fence(memory_order_seq_cst);
        r->group.nchannels = g->nchannels;
        r->sum = GROUP_SUM(r);
        moving = 0;
        atomic_signal_fence(memory_order_seq_cst);
    }
    set_flags(r, flags | moving);
    if (!flags)
        count_used(j, was_used, false);
    if (flags && slot >= j->groups_end)
        j->groups_end = slot + 1;
    return 0;
}

const struct device_group *journal_group(const struct journal *j, uint32_t slot, uint32_t *flags)
{
    if (slot >= j->groups_reserved)
        return NULL;
    const struct journal_group *r = &j->map->groups[slot];
    *flags = flags_of(r) & ~JG_MOVING;
    return *flags && group_ok(r) ? &r->group : NULL;
}

bool journal_damaged(const struct journal *j)
{
    return j->damaged;
}

uint32_t journal_incomplete(const struct journal *j)
{
    return j->map->header.shared.incomplete & ALL_MISSING;
}

void journal_complete(struct journal *j, enum journal_missing what)
{
    atomic_fetch_and(&j->map->header.shared.incomplete, ~(uint32_t)what);
}

uint32_t journal_jobs_end(const struct journal *j)
{
    return j->jobs_end;
}

uint32_t journal_groups_end(const struct journal *j)
{
    return j->groups_end;
}
