/* Whether a journal says that something may be missing from it: over losses of every kind, and over
 * the end of whoever noticed. */
#include "journal/journal.h"
#include "journal/other_cedes.h"
#include "journal/restorers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"

#define ALL (JOURNAL_GROUPS_MISSING | JOURNAL_SWAPS_MISSING)

struct fixture {
    char dir[64], path[96];
    struct journal *j;
    struct proc_id self;
    struct error err;
};

/* Flags of a group on record; -1: there is none. */
static int flags_of(struct journal *j, uint32_t i)
{
    uint32_t flags;
    return journal_group(j, i, &flags) ? (int)flags : -1;
}

static bool has_group(struct journal *j, uint32_t i)
{
    return flags_of(j, i) >= 0;
}

static void let_go(struct fixture *f)
{
    if (f->j)
        journal_close(f->j);
    f->j = NULL;
}

static void reopen(struct fixture *f)
{
    let_go(f);
    if (journal_open(f->dir, 0, &f->j, &f->err) < 0)
        fail_msg("%s", f->err.text);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct proc_stat st;
    snprintf(f->dir, sizeof(f->dir), "/tmp/cede-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/journal", f->dir);
    assert_int_equal(proc_stat_read(getpid(), &st), 0);
    f->self = st.id;
    reopen(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char cmd[128];
    let_go(f);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

#define JOURNAL_TEST(name)                                                                         \
    static void name##_on(struct fixture *f);                                                      \
    TEST_WITH(name, setup, teardown)                                                               \
    {                                                                                              \
        name##_on(*fixture);                                                                       \
    }                                                                                              \
    static void name##_on(struct fixture *f)

/* Some groups and a swap on record, and nothing missing. */
static void fill(struct fixture *f)
{
    struct device_group g = {.proc = f->self, .nchannels = 1, .timeslice_us = 2048};
    journal_complete(f->j, JOURNAL_GROUPS_MISSING);
    journal_complete(f->j, JOURNAL_SWAPS_MISSING);
    for (uint32_t i = 0; i < 300; i++) { /* more than one chunk */
        g.key = i + 1;
        assert_int_equal(journal_put_group(f->j, i, JG_SUSPENDED, &g), 0);
    }
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(journal_put_group(f->j, i, 0, NULL), 0);
    struct journal_swap swap = {.proc = f->self, .arrived = 1};
    journal_put_swap(f->j, 3, &swap);
    swap.arrived = 0;
    journal_put_swap(f->j, 3, &swap);
    assert_int_equal(journal_incomplete(f->j), 0);
}

/* In the file, behind the back of whoever holds it. */
static void overwrite(const struct fixture *f, off_t at, const void *with, size_t n)
{
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, with, n, at), n);
    close(fd);
}

static void write_zeros(const struct fixture *f, off_t at, size_t n)
{
    char *zeros = calloc(1, n);
    assert_non_null(zeros);
    overwrite(f, at, zeros, n);
    free(zeros);
}

/* Preemption modes: of a job, and in force in a group. */
JOURNAL_TEST(preemption_modes)
{
    const struct device_group g = {.key = 1, .proc = f->self, .nchannels = 1};
    struct journal_job job = {.root = f->self, .weight = 1, .preempt = PREEMPT_BLOCK};
    journal_put_job(f->j, 0, &job);
    assert_int_equal(journal_put_group(f->j, 0, JG_PREEMPT, &g), 0);
    reopen(f);
    assert_int_equal(journal_job(f->j, 0)->preempt, PREEMPT_BLOCK);
    assert_int_equal(flags_of(f->j, 0), JG_PREEMPT);
    assert_false(journal_damaged(f->j));
    job.preempt = PREEMPT_COUNT;
    journal_put_job(f->j, 0, &job);
    reopen(f);
    assert_null(journal_job(f->j, 0));
    assert_true(journal_damaged(f->j));
}

/* A writer was killed between what a job has yielded and the class that it had: that is its class,
 * not an earlier one or the first there is. */
JOURNAL_TEST(yielded_half)
{
    struct journal_job job = {.root = f->self, .weight = 1, .class = CLASS_NORMAL}, torn;
    for (uint32_t class = CLASS_NORMAL; class <= CLASS_COUNT; class ++) {
        journal_put_job(f->j, 0, &job);
        torn = *journal_job(f->j, 0);
        torn.yielded = YIELD_CLASS;
        torn.sum = 0;
        if (class > CLASS_NORMAL)
            torn.yielded_class = class;
        overwrite(f, 4096, &torn, sizeof(torn));
        reopen(f);
        assert_int_equal(journal_job(f->j, 0) != NULL, class < CLASS_COUNT);
        if (class < CLASS_COUNT)
            assert_int_equal(journal_job(f->j, 0)->yielded_class, class);
    }
}

JOURNAL_TEST(complete_once_said_so)
{
    assert_int_equal(journal_incomplete(f->j), ALL);
    assert_false(journal_damaged(f->j));
    reopen(f); /* whoever began it was killed before it had looked */
    assert_int_equal(journal_incomplete(f->j), ALL);
    journal_complete(f->j, JOURNAL_GROUPS_MISSING);
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), JOURNAL_SWAPS_MISSING);
    fill(f);
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
    journal_put_swap(f->j, 3, NULL);
    for (uint32_t i = 0; i < 300; i++)
        assert_int_equal(journal_put_group(f->j, i, 0, NULL), 0);
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
}

JOURNAL_TEST(removed)
{
    fill(f);
    assert_int_equal(unlink(f->path), 0);
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), ALL);
}

JOURNAL_TEST(cut_short)
{
    for (int part = 0; part < 8; part++) {
        struct stat st;
        fill(f);
        assert_int_equal(stat(f->path, &st), 0);
        let_go(f);
        assert_int_equal(truncate(f->path, st.st_size * part / 8), 0);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
    }
}

/* One whose number was changed by nobody of us is in no job. */
JOURNAL_TEST(damaged_member)
{
    const off_t at = 4096 + (off_t)(JOURNAL_JOBS * sizeof(struct journal_job) +
                                    JOURNAL_SWAPS * sizeof(struct journal_swap) +
                                    2 * sizeof(struct journal_member));
    struct journal_member member = {.proc = f->self, .job = 7};
    journal_put_member(f->j, 2, &member);
    reopen(f);
    assert_int_equal(journal_member(f->j, 2)->job, 7);
    assert_false(journal_damaged(f->j));
    member = *journal_member(f->j, 2);
    member.job = 8;
    overwrite(f, at, &member, sizeof(member));
    reopen(f);
    assert_null(journal_member(f->j, 2));
    assert_true(journal_damaged(f->j));
    journal_put_member(f->j, 2, &(struct journal_member){.proc = f->self, .job = 8});
    journal_put_member(f->j, 2, NULL);
    assert_null(journal_member(f->j, 2));
}

/* All, or the records alone, which then look free. */
JOURNAL_TEST(zeroed)
{
    const off_t jobs = 4096, swaps = jobs + (off_t)(JOURNAL_JOBS * sizeof(struct journal_job)),
                members = swaps + (off_t)(JOURNAL_SWAPS * sizeof(struct journal_swap)),
                groups = members + (off_t)(JOURNAL_MEMBERS * sizeof(struct journal_member));
    const struct {
        off_t at;
        size_t n;
    } parts[] = {
        {0, 4096},
        {0, (size_t)groups + 300 * sizeof(struct journal_group)},
        {swaps, (size_t)(members - swaps)},
        {groups, 300 * sizeof(struct journal_group)},
        {groups + (off_t)(100 * sizeof(struct journal_group)), sizeof(struct journal_group)}};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        fill(f);
        let_go(f);
        write_zeros(f, parts[i].at, parts[i].n);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
    }
}

static int read_error, boot_error;
static size_t written_at_most; /* by one call; 0: all */

/* In libc's place. */
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
    errno = read_error;
    return read_error ? -1 : syscall(SYS_pread64, fd, buf, n, at);
}

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
    size_t some = written_at_most && n > written_at_most ? written_at_most : n;
    return syscall(SYS_pwrite64, fd, buf, some, at);
}

int open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if (boot_error && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        errno = boot_error;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* What cannot be read now is neither begun anew nor set aside. */
JOURNAL_TEST(unreadable)
{
    fill(f);
    let_go(f);
    read_error = EIO;
    assert_int_equal(journal_open(f->dir, 0, &f->j, &f->err), -EIO);
    assert_non_null(strstr(f->err.text, "cannot read"));
    read_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_true(has_group(f->j, 299));
}

/* Nor can it be told of which boot it is. */
JOURNAL_TEST(of_which_boot)
{
    fill(f);
    let_go(f);
    for (int i = 0; i < 2; i++) {
        boot_error = i ? EINTR : EMFILE;
        assert_int_equal(journal_open(f->dir, 0, &f->j, &f->err), -boot_error);
        assert_int_equal(journal_open_readonly(f->dir, &f->j, &f->err), -boot_error);
        assert_non_null(strstr(f->err.text, "cannot tell this boot"));
    }
    boot_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_true(has_group(f->j, 299));
    let_go(f);
    assert_int_equal(unlink(f->path), 0);
    boot_error = EMFILE;
    assert_int_equal(journal_open(f->dir, 0, &f->j, &f->err), -EMFILE);
    boot_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), ALL);
}

/* Of a journal whose beginning was cut short, wherever, nobody believes that it is complete. */
JOURNAL_TEST(cut_when_made)
{
    for (size_t n = 1; n < 600; n++) {
        let_go(f);
        assert_int_equal(unlink(f->path), 0);
        written_at_most = n;
        int r = journal_open(f->dir, 0, &f->j, &f->err);
        written_at_most = 0;
        if (r < 0)
            assert_int_equal(r, -EIO);
        else
            let_go(f);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
    }
}

/* What another user has put there neither holds up nor ends who looks, and is not believed. */
JOURNAL_TEST(not_believed)
{
    struct journal *j;
    uint32_t flags;
    fill(f);
    assert_int_equal(journal_open_readonly(f->dir, &j, &f->err), 0);
    assert_int_equal(truncate(f->path, 0), 0);
    for (uint32_t i = 0; i < journal_groups_end(j); i++)
        (void)journal_group(j, i, &flags);
    assert_true(has_group(j, 299));
    journal_close(j);

    let_go(f);
    assert_int_equal(unlink(f->path), 0);
    if (geteuid() == 0) {
        reopen(f);
        assert_int_equal(chown(f->path, 65534, 65534), 0);
        assert_int_equal(journal_open_readonly(f->dir, &j, &f->err), -EPERM);
        assert_non_null(strstr(f->err.text, f->path));
        assert_int_equal(unlink(f->path), 0);
    }
    alarm(60);
    assert_int_equal(mkfifo(f->path, 0644), 0);
    assert_int_equal(journal_open_readonly(f->dir, &j, &f->err), -EPERM);
    alarm(0);
    assert_int_equal(unlink(f->path), 0);
    reopen(f);
}

/* Whoever holds it goes on with all that is on record, and makes the file anew. */
JOURNAL_TEST(cut_while_held)
{
    struct journal *second;
    fill(f);
    assert_int_equal(journal_mend(f->j), 0);
    assert_int_equal(journal_from_fd(dup(journal_fd(f->j)), dup(journal_memory_fd(f->j)),
                                     dup(journal_lock_fd(f->j)), &second, &f->err),
                     0);
    assert_int_equal(truncate(f->path, 0), 0);
    for (int i = 0; i < 2; i++) {
        struct journal *j = i ? second : f->j;
        assert_int_equal(journal_reclaim(j), 0); /* held by the other as well */
        assert_int_equal(journal_incomplete(j), 0);
        assert_int_equal(flags_of(j, 299), JG_SUSPENDED);
        assert_false(has_group(j, 5));
        assert_non_null(journal_swap(j, 3));
    }
    journal_close(second);
    assert_int_equal(journal_mend(f->j), 1);
    assert_int_equal(journal_mend(f->j), 0);
    reopen(f);
    assert_false(journal_damaged(f->j));
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_true(has_group(f->j, 299));
    write_zeros(f, 0, 8); /* or written over */
    assert_int_equal(journal_mend(f->j), 1);
    reopen(f);
    assert_false(journal_damaged(f->j));
}

/* No file may be longer. */
static void limit_files(rlim_t bytes)
{
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY}), 0);
}

/* What cannot be written did not happen: nobody is to touch the device. What has happened already
 * is known to both holders all the same. */
JOURNAL_TEST(cannot_be_written)
{
    struct device_group g = {.proc = f->self, .nchannels = 1, .timeslice_us = 2048, .key = 1};
    struct journal *shown;
    fill(f);
    limit_files(4096);
    int fresh = journal_put_group(f->j, 0, JG_SUSPENDED, &g);
    g.key = 300;
    int more = journal_put_group(f->j, 299, JG_SUSPENDED | JG_TIMESLICE, &g);
    g.key = 301;
    int changed = journal_put_group(f->j, 298, JG_SUSPENDED, &g);
    g.key = 302;
    int kept = journal_keep_group(f->j, 297, JG_STOPPED, &g);
    journal_put_job(f->j, 4, &(struct journal_job){.root = f->self, .weight = 7});
    assert_int_equal(journal_mend(f->j), -EFBIG);
    limit_files(RLIM_INFINITY);
    assert_int_equal(fresh, -EFBIG);
    assert_int_equal(more, -EFBIG);
    assert_int_equal(changed, -EFBIG);
    assert_int_equal(kept, 0);
    assert_int_equal(flags_of(f->j, 297), JG_STOPPED);
    /* Nor is anything later: the file is as it was when a step failed, until all is written. */
    assert_int_equal(journal_put_group(f->j, 0, JG_SUSPENDED, &g), -EFBIG);
    journal_put_member(f->j, 2, &(struct journal_member){.proc = f->self, .job = 1});
    journal_put_swap(f->j, 3, NULL);
    assert_int_equal(journal_open_readonly(f->dir, &shown, &f->err), 0);
    assert_null(journal_member(shown, 2));
    assert_non_null(journal_swap(shown, 3));
    journal_close(shown);
    assert_false(has_group(f->j, 0));
    assert_int_equal(flags_of(f->j, 299), JG_SUSPENDED);
    assert_int_equal(journal_mend(f->j), 1); /* as soon as it can */
    assert_int_equal(journal_put_group(f->j, 0, JG_SUSPENDED, &g), 0);
    reopen(f);
    assert_false(journal_damaged(f->j));
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_non_null(journal_member(f->j, 2));
    assert_null(journal_swap(f->j, 3));
    assert_int_equal(journal_job(f->j, 4)->weight, 7);
    assert_true(has_group(f->j, 0));
    assert_true(has_group(f->j, 299));
    assert_int_equal(flags_of(f->j, 297), JG_STOPPED);
}

/* The one who goes on knows only the memory: the file gets that, whatever could not be written. */
JOURNAL_TEST(goes_on_with_memory)
{
    uint32_t flags;
    fill(f);
    assert_true(has_group(f->j, 299));
    limit_files(4096);
    struct device_group g = *journal_group(f->j, 299, &flags);
    assert_int_equal(journal_put_group(f->j, 299, JG_SUSPENDED | JG_TIMESLICE, &g), -EFBIG);
    assert_true(journal_stale(f->j));
    journal_put_group(f->j, 299, 0, NULL);
    limit_files(RLIM_INFINITY);
    struct journal *second;
    if (journal_from_fd(dup(journal_fd(f->j)), dup(journal_memory_fd(f->j)),
                        dup(journal_lock_fd(f->j)), &second, &f->err) < 0)
        fail_msg("%s", f->err.text);
    assert_int_equal(journal_mend(second), 1);
    /* But nothing of it once another holds the file. */
    journal_yield(second);
    reopen(f);
    assert_false(has_group(f->j, 299));
    g.key = 7;
    assert_int_equal(journal_put_group(f->j, 299, JG_SUSPENDED, &g), 0);
    assert_int_equal(journal_reclaim(second), -EBUSY);
    journal_put_swap(second, 3, NULL);
    assert_int_equal(journal_mend(second), -EBUSY);
    journal_close(second);
    reopen(f);
    assert_true(has_group(f->j, 299));
    assert_non_null(journal_swap(f->j, 3));
}

/* The descriptors and the name of a restorer, in a process of this test's. */
static pid_t looks_like_a_restorer(const struct journal *j)
{
    struct proc_stat st = {.comm = ""};
    pid_t pid = fork();
    if (pid == 0) {
        const int above[] = {fcntl(journal_fd(j), F_DUPFD, 10),
                             fcntl(journal_lock_fd(j), F_DUPFD, 10)};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(above[0], RESTORE_JOURNAL_FD);
        dup2(above[1], RESTORE_LOCK_FD);
        prctl(PR_SET_NAME, "cede-restore");
        for (;;)
            pause();
    }
    for (int i = 0; i < 40000 && strcmp(st.comm, "cede-restore") != 0; i++) {
        usleep(1000);
        assert_int_equal(proc_stat_read(pid, &st), 0);
    }
    return pid;
}

/* A restorer is known by what it has open: its arguments, which a process can keep from being read,
 * are not looked at. And any number of a user's are no more than one. */
JOURNAL_TEST(restorers_by_descriptors)
{
    struct other_cedes o;
    pid_t pids[OTHERS_MAX + 1];
    const struct journal_lock_id theirs = journal_lock_id(f->j), own = {1, 2};
    snprintf(journal_shared(f->j)->driver, sizeof(journal_shared(f->j)->driver), "soft");
    snprintf(journal_shared(f->j)->where, sizeof(journal_shared(f->j)->where), "%s", f->dir);
    journal_store_shared(f->j);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++)
        pids[i] = looks_like_a_restorer(f->j);
    other_cedes_find(&o, "soft", f->dir, &own);
    assert_int_equal(o.n, 1);
    assert_false(o.unsure);
    assert_int_equal(o.owners[0], geteuid());
    assert_true(other_cedes_have(&o, getpid()));
    other_cedes_find(&o, "soft", "/elsewhere", &own);
    assert_int_equal(o.n, 0);
    other_cedes_find(&o, "soft", f->dir, &theirs);
    assert_int_equal(o.n, 0);
    for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
        kill(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
}

/* Nor is a file waited for that its owner keeps from being opened. */
JOURNAL_TEST(restorer_with_a_lease)
{
    struct other_cedes o;
    char path[96];
    int status = 0;
    const struct journal_lock_id own = {1, 2};
    snprintf(path, sizeof(path), "%s/leased", f->dir);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGIO, SIG_IGN);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "cede-restore");
        close(RESTORE_JOURNAL_FD);
        if (open(path, O_RDWR | O_CREAT, 0600) != RESTORE_JOURNAL_FD ||
            fcntl(RESTORE_JOURNAL_FD, F_SETLEASE, F_WRLCK) < 0)
            _exit(77);
        raise(SIGSTOP);
        for (;;)
            pause();
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    if (WIFEXITED(status))
        skip(); /* there are no leases here */
    assert_true(WIFSTOPPED(status));
    other_cedes_find(&o, "soft", f->dir, &own);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(o.n, 1); /* it may be one, of that user */
}
