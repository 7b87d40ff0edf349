/* Whether a journal says that something may be missing from it: over losses of every kind, and over
 * the end of whoever noticed. */
#include "recovery/journal.h"
#include "recovery/other.h"
#include "recovery/restorers.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define ALL (JOURNAL_GROUPS_MISSING | JOURNAL_SWAPS_MISSING)

struct fixture {
    char dir[64], path[96];
    struct journal *j;
    struct proc_id self;
};

static void reopen(struct fixture *f)
{
    struct error err = {""};
    if (f->j)
        journal_close(f->j);
    f->j = NULL;
    if (journal_open(f->dir, 0, &f->j, &err) < 0)
        fail_msg("%s", err.text);
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
    if (f->j)
        journal_close(f->j);
    snprintf(cmd, sizeof(cmd), "rm -rf %s", f->dir);
    assert_int_equal(system(cmd), 0);
    free(f);
    return 0;
}

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

static void write_zeros(const struct fixture *f, off_t at, size_t n)
{
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    char *zeros = calloc(1, n);
    assert_true(fd >= 0 && zeros);
    assert_int_equal(pwrite(fd, zeros, n, at), n);
    free(zeros);
    close(fd);
}

/* Preemption modes: of a job, and in force in a group. */
static void preemption_modes(void **state)
{
    struct fixture *f = *state;
    const struct device_group g = {.key = 1, .proc = f->self, .nchannels = 1};
    struct journal_job job = {.root = f->self, .weight = 1, .preempt = PREEMPT_BLOCK};
    uint32_t flags;
    journal_put_job(f->j, 0, &job);
    assert_int_equal(journal_put_group(f->j, 0, JG_PREEMPT, &g), 0);
    reopen(f);
    assert_int_equal(journal_job(f->j, 0)->preempt, PREEMPT_BLOCK);
    assert_non_null(journal_group(f->j, 0, &flags));
    assert_int_equal(flags, JG_PREEMPT);
    assert_false(journal_damaged(f->j));
    job.preempt = PREEMPT_COUNT;
    journal_put_job(f->j, 0, &job);
    reopen(f);
    assert_null(journal_job(f->j, 0));
    assert_true(journal_damaged(f->j));
}

/* A writer was killed between what a job has yielded and the class that it had: that is its class,
 * not an earlier one or the first there is. */
static void yielded_half(void **state)
{
    struct fixture *f = *state;
    struct journal_job job = {.root = f->self, .weight = 1, .class = CLASS_NORMAL}, torn;
    for (uint32_t class = CLASS_NORMAL; class <= CLASS_COUNT; class ++) {
        journal_put_job(f->j, 0, &job);
        torn = *journal_job(f->j, 0);
        torn.yielded = YIELD_CLASS;
        torn.sum = 0;
        if (class > CLASS_NORMAL)
            torn.yielded_class = class;
        int fd = open(f->path, O_WRONLY | O_CLOEXEC);
        assert_int_equal(pwrite(fd, &torn, sizeof(torn), 4096), sizeof(torn));
        close(fd);
        reopen(f);
        assert_int_equal(journal_job(f->j, 0) != NULL, class < CLASS_COUNT);
        if (class < CLASS_COUNT)
            assert_int_equal(journal_job(f->j, 0)->yielded_class, class);
    }
}

static void complete_once_said_so(void **state)
{
    struct fixture *f = *state;
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

static void removed(void **state)
{
    struct fixture *f = *state;
    fill(f);
    assert_int_equal(unlink(f->path), 0);
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), ALL);
}

static void cut_short(void **state)
{
    struct fixture *f = *state;
    for (int part = 0; part < 8; part++) {
        struct stat st;
        fill(f);
        assert_int_equal(stat(f->path, &st), 0);
        journal_close(f->j);
        f->j = NULL;
        assert_int_equal(truncate(f->path, st.st_size * part / 8), 0);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
    }
}

/* One whose number was changed by nobody of us is in no job. */
static void damaged_member(void **state)
{
    struct fixture *f = *state;
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
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, &member, sizeof(member), at), sizeof(member));
    close(fd);
    reopen(f);
    assert_null(journal_member(f->j, 2));
    assert_true(journal_damaged(f->j));
    journal_put_member(f->j, 2, &(struct journal_member){.proc = f->self, .job = 8});
    journal_put_member(f->j, 2, NULL);
    assert_null(journal_member(f->j, 2));
}

/* All, or the records alone, which then look free. */
static void zeroed(void **state)
{
    struct fixture *f = *state;
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
        journal_close(f->j);
        f->j = NULL;
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
static void unreadable(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    uint32_t flags;
    fill(f);
    journal_close(f->j);
    f->j = NULL;
    read_error = EIO;
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), -EIO);
    assert_non_null(strstr(err.text, "cannot read"));
    read_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_non_null(journal_group(f->j, 299, &flags));
}

/* Nor can it be told of which boot it is. */
static void of_which_boot(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    uint32_t flags;
    fill(f);
    journal_close(f->j);
    f->j = NULL;
    for (int i = 0; i < 2; i++) {
        boot_error = i ? EINTR : EMFILE;
        assert_int_equal(journal_open(f->dir, 0, &f->j, &err), -boot_error);
        assert_int_equal(journal_open_readonly(f->dir, &f->j, &err), -boot_error);
        assert_non_null(strstr(err.text, "cannot tell this boot"));
    }
    boot_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_non_null(journal_group(f->j, 299, &flags));
    journal_close(f->j);
    f->j = NULL;
    assert_int_equal(unlink(f->path), 0);
    boot_error = EMFILE;
    assert_int_equal(journal_open(f->dir, 0, &f->j, &err), -EMFILE);
    boot_error = 0;
    reopen(f);
    assert_int_equal(journal_incomplete(f->j), ALL);
}

/* Of a journal whose beginning was cut short, wherever, nobody believes that it is complete. */
static void cut_when_made(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    for (size_t n = 1; n < 600; n++) {
        journal_close(f->j);
        f->j = NULL;
        assert_int_equal(unlink(f->path), 0);
        written_at_most = n;
        int r = journal_open(f->dir, 0, &f->j, &err);
        written_at_most = 0;
        if (r < 0)
            assert_int_equal(r, -EIO);
        else
            journal_close(f->j);
        f->j = NULL;
        reopen(f);
        assert_int_equal(journal_incomplete(f->j), ALL);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* What another user has put there neither holds up nor ends who looks, and is not believed. */
static void not_believed(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    struct journal *j;
    uint32_t flags;
    fill(f);
    assert_int_equal(journal_open_readonly(f->dir, &j, &err), 0);
    assert_int_equal(truncate(f->path, 0), 0);
    for (uint32_t i = 0; i < journal_groups_end(j); i++)
        (void)journal_group(j, i, &flags);
    assert_non_null(journal_group(j, 299, &flags));
    journal_close(j);

    journal_close(f->j);
    f->j = NULL;
    assert_int_equal(unlink(f->path), 0);
    if (geteuid() == 0) {
        reopen(f);
        assert_int_equal(chown(f->path, 65534, 65534), 0);
        assert_int_equal(journal_open_readonly(f->dir, &j, &err), -EPERM);
        assert_non_null(strstr(err.text, f->path));
        assert_int_equal(unlink(f->path), 0);
    }
    alarm(60);
    assert_int_equal(mkfifo(f->path, 0644), 0);
    assert_int_equal(journal_open_readonly(f->dir, &j, &err), -EPERM);
    alarm(0);
    assert_int_equal(unlink(f->path), 0);
    reopen(f);
}

/* Whoever holds it goes on with all that is on record, and makes the file anew. */
static void cut_while_held(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    struct journal *second;
    uint32_t flags;
    fill(f);
    assert_int_equal(journal_mend(f->j), 0);
    assert_int_equal(journal_from_fd(dup(journal_fd(f->j)), dup(journal_memory_fd(f->j)),
                                     dup(journal_lock_fd(f->j)), &second, &err),
                     0);
    assert_int_equal(truncate(f->path, 0), 0);
    for (int i = 0; i < 2; i++) {
        struct journal *j = i ? second : f->j;
        assert_int_equal(journal_reclaim(j), 0); /* held by the other as well */
        assert_int_equal(journal_incomplete(j), 0);
        assert_non_null(journal_group(j, 299, &flags));
        assert_int_equal(flags, JG_SUSPENDED);
        assert_null(journal_group(j, 5, &flags));
        assert_non_null(journal_swap(j, 3));
    }
    journal_close(second);
    assert_int_equal(journal_mend(f->j), 1);
    assert_int_equal(journal_mend(f->j), 0);
    reopen(f);
    assert_false(journal_damaged(f->j));
    assert_int_equal(journal_incomplete(f->j), 0);
    assert_non_null(journal_group(f->j, 299, &flags));
    write_zeros(f, 0, 8); /* or written over */
    assert_int_equal(journal_mend(f->j), 1);
    reopen(f);
    assert_false(journal_damaged(f->j));
}

/* What cannot be written did not happen: nobody is to touch the device. */
static void cannot_be_written(void **state)
{
    struct fixture *f = *state;
    struct device_group g = {.proc = f->self, .nchannels = 1, .timeslice_us = 2048, .key = 1};
    struct rlimit was, few = {4096, RLIM_INFINITY};
    uint32_t flags;
    fill(f);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int fresh = journal_put_group(f->j, 0, JG_SUSPENDED, &g);
    g.key = 300;
    int more = journal_put_group(f->j, 299, JG_SUSPENDED | JG_TIMESLICE, &g);
    g.key = 301;
    int changed = journal_put_group(f->j, 298, JG_SUSPENDED, &g);
    journal_put_job(f->j, 4, &(struct journal_job){.root = f->self, .weight = 7});
    assert_int_equal(journal_mend(f->j), -EFBIG);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(fresh, -EFBIG);
    assert_int_equal(more, -EFBIG);
    assert_int_equal(changed, -EFBIG);
    assert_null(journal_group(f->j, 0, &flags));
    assert_non_null(journal_group(f->j, 299, &flags));
    assert_int_equal(flags, JG_SUSPENDED);
    assert_int_equal(journal_put_group(f->j, 0, JG_SUSPENDED, &g), 0);
    assert_int_equal(journal_mend(f->j), 1); /* as soon as it can */
    reopen(f);
    assert_int_equal(journal_job(f->j, 4)->weight, 7);
    assert_non_null(journal_group(f->j, 0, &flags));
    assert_non_null(journal_group(f->j, 299, &flags));
}

/* The one who goes on knows only the memory: the file gets that, whatever could not be written. */
static void goes_on_with_memory(void **state)
{
    struct fixture *f = *state;
    struct rlimit was, few = {4096, RLIM_INFINITY};
    struct error err;
    uint32_t flags;
    fill(f);
    assert_non_null(journal_group(f->j, 299, &flags));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    journal_put_group(f->j, 299, 0, NULL);
    assert_true(journal_stale(f->j));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    struct journal *second;
    if (journal_from_fd(dup(journal_fd(f->j)), dup(journal_memory_fd(f->j)),
                        dup(journal_lock_fd(f->j)), &second, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(journal_mend(second), 1);
    journal_close(second);
    reopen(f);
    assert_null(journal_group(f->j, 299, &flags));
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
static void restorers_by_descriptors(void **state)
{
    struct fixture *f = *state;
    struct other_cedes o;
    pid_t pids[OTHERS_MAX + 1];
    const struct journal_place theirs = journal_place(f->j), own = {1, 2};
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
static void restorer_with_a_lease(void **state)
{
    struct fixture *f = *state;
    struct other_cedes o;
    char path[96];
    int status = 0;
    const struct journal_place own = {1, 2};
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

int main(void)
{
    const struct CMUnitTest tests[] = {T(complete_once_said_so),
                                       T(removed),
                                       T(cut_short),
                                       T(zeroed),
                                       T(damaged_member),
                                       T(unreadable),
                                       T(of_which_boot),
                                       T(cut_when_made),
                                       T(preemption_modes),
                                       T(yielded_half),
                                       T(not_believed),
                                       T(cut_while_held),
                                       T(cannot_be_written),
                                       T(goes_on_with_memory),
                                       T(restorers_by_descriptors),
                                       T(restorer_with_a_lease)};
    return cmocka_run_group_tests_name("journal", tests, NULL, NULL);
}
