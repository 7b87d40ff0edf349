/* What an engine leaves behind and the next one takes over: the journal, and that whatever fails,
 * nobody stays suspended. */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "fixture.h"

/* One latency job, two batch jobs: one of them is suspended. */
ENGINE_TEST(test_crash_and_undo)
{
    three_jobs(f);
    crash(f);
    assert_int_equal(suspended_groups(f), 4);
    /* What the restorer does. */
    struct journal *journal = journal_of(f);
    assert_int_equal(journal_undo(journal, &f->d.base, NULL, NULL), 0);
    assert_int_equal(changed_groups(f), 0);
    for (uint32_t i = 0; i < journal_groups_end(journal); i++) {
        uint32_t flags;
        assert_null(journal_group(journal, i, &flags));
    }
    journal_close(journal);
    /* A restarted daemon takes its jobs back. */
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
}

ENGINE_TEST(test_crash_and_take_over)
{
    three_jobs(f);
    /* Nobody undid anything; meanwhile the suspended job's owner may be gone or not. */
    restart(f, "priority");
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 4);
    /* What it had before the first of us came is not forgotten. */
}

static void *second_thread(void *arg)
{
    wait_to_die();
    return arg;
}

/* A program may end its first thread and go on: the kernel shows it as a zombie. */
ENGINE_TEST(test_undo_without_first_thread)
{
    struct proc_stat st = {.state = '?'};
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        pthread_create(&t, NULL, second_thread, NULL);
        pthread_exit(NULL);
    }
    f->children[f->n++] = pid;
    for (int i = 0; i < 10000 && st.state != 'Z'; i++) {
        usleep(1000);
        assert_int_equal(proc_stat_read(pid, &st), 0);
    }
    assert_int_equal(st.state, 'Z');
    assert_true(proc_alive(st.id));
    mock_context(&f->d, pid, 0, 3);
    start(f, "priority", NULL);
    engine_pause(f->m, add(f, pid, CLASS_NORMAL), true, 0);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    stop(f, true);
    assert_int_equal(suspended_groups(f), 0);
    kill(pid, SIGKILL);
    for (int i = 0; i < 10000 && proc_alive(st.id); i++)
        usleep(1000);
    assert_false(proc_alive(st.id)); /* now it is one */
}

/* Without a descriptor to spare nobody can be looked at, which says nothing about anybody: what is
 * on record stays there, and is undone later. */
ENGINE_TEST(test_no_descriptors)
{
    three_jobs(f);
    crash(f);
    struct journal *journal = journal_of(f);
    const rlim_t before = limit(RLIMIT_NOFILE, 0);
    bool alive = proc_alive(f->d.g[0].dg.proc);
    int pidfd = proc_pidfd(f->d.g[0].dg.proc);
    journal_undo(journal, &f->d.base, NULL, NULL);
    limit(RLIMIT_NOFILE, before);
    assert_true(alive);
    assert_int_equal(pidfd, -EMFILE);
    journal_undo(journal, &f->d.base, NULL, NULL);
    assert_int_equal(changed_groups(f), 0);
    journal_close(journal);
}

static int no_directory;

/* In libc's place. */
DIR *opendir(const char *path)
{
    int fd = no_directory ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    errno = no_directory ? no_directory : errno;
    return fd < 0 ? NULL : fdopendir(fd);
}

/* A journal is lost, and what the next engine does about it fails at first. */
ENGINE_TEST(test_lost_and_failing)
{
    const struct {
        int *fails, code;
    } rows[] = {{&f->d.fail_processes, EMFILE}, {&f->d.fail_scan, EMFILE},
                {&f->d.fail_resume, EIO},       {&f->d.fail_resume, ENOMEM},
                {&f->d.fail_timeslice, EIO},    {&no_directory, EMFILE}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        three_jobs(f);
        crash(f);
        lose_journal(f);
        *rows[i].fails = rows[i].code;
        start(f, "priority", NULL);
        ticks(f, 1000);
        assert_true(changed_groups(f) > 0);
        assert_true(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
        *rows[i].fails = 0;
        ticks(f, 6000);
        assert_int_equal(changed_groups(f), 0);
        assert_false(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
        stop(f, true);
        for (int k = 0; k < 3; k++)
            end(f, p[k]);
    }
}

/* Killed between the record and what it speaks of. */
ENGINE_TEST(test_crash_before_the_change)
{
    uint32_t job = one_job(f, CLASS_NORMAL, p);
    ticks(f, 100);
    engine_pause(f->m, job, true, 0);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    crash(f);
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        f->d.g[i].suspended = false;
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

ENGINE_TEST(test_orphaned_records_are_undone)
{
    three_jobs(f);
    crash(f);
    forget_jobs(f);
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    ticks(f, 3000);
    assert_int_equal(changed_groups(f), 0);
}

ENGINE_TEST(test_pause_survives)
{
    pid_t a = child(f);
    mock_context(&f->d, a, 0, 1);
    start(f, "priority", NULL);
    uint32_t job = add(f, a, CLASS_NORMAL);
    engine_pause(f->m, job, true, 1234);
    ticks(f, 1);
    stop(f, false); /* as after kill -9 */
    assert_int_equal(suspended_groups(f), 2);
    start(f, "priority", NULL);
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 2);
    assert_true(view(f, 0).job.paused);
    assert_int_equal(view(f, 0).job.paused_by, 1234);
    engine_pause(f->m, engine_job_of(f->m, a), false, 0);
    ticks(f, 1);
    assert_int_equal(changed_groups(f), 0);
}

/* -EPERM says that this call has done nothing, not that nobody was suspended before. */
ENGINE_TEST(test_right_is_lost_for_a_while)
{
    uint32_t job = one_job(f, CLASS_BATCH, p);
    ticks(f, 50);
    engine_pause(f->m, job, true, 0);
    ticks(f, 50);
    crash(f);
    f->d.fail_suspend = f->d.fail_resume = EPERM;
    start(f, "priority", NULL);
    ticks(f, 2000);
    f->d.fail_suspend = f->d.fail_resume = 0;
}

/* By a cede that did not know that suspensions are counted. */
ENGINE_TEST(test_left_suspended_twice)
{
    programs(f, p, 1, 2);
    mock_compute(&f->d, p[0], 0)->suspended = 2;
    start(f, "priority", NULL);
    assert_int_equal(engine_resume_unmanaged(f->m, id_of(p[0]), NULL), 0);
    assert_int_equal(suspended_groups(f), 0);
}

/* A driver that has to search for long does so in many scans, which is no failure. */
ENGINE_TEST(test_long_search)
{
    uint32_t job = one_job(f, CLASS_LATENCY, p);
    f->d.fail_scan = EAGAIN;
    ticks(f, 10000);
    assert_true(f->d.scans > 100);
    assert_int_equal(engine_job_status(f->m, job, &f->err), -EAGAIN);
    f->d.fail_scan = 0;
    ticks(f, 100);
    assert_int_equal(engine_job_status(f->m, job, &f->err), 0);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
}

ENGINE_TEST(test_hung_daemon)
{
    three_jobs(f);
    /* The restorer undoes while this daemon hangs; when it wakes up it starts over. */
    journal_undo(f->j, &f->d.base, NULL, NULL);
    atomic_fetch_add(&journal_shared(f->j)->restored, 1);
    assert_int_equal(changed_groups(f), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 4);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
}

ENGINE_TEST(test_journal_files)
{
    struct journal *journal = journal_of(f), *second;
    char path[128], bad[136];
    snprintf(path, sizeof(path), "%s/journal", f->dir);
    snprintf(bad, sizeof(bad), "%s.bad", path);
    FAILS(-EBUSY, "another cede", journal_open(f->dir, 20, &second, &f->err));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    journal_close(journal);

    /* Whoever can only read has nothing that keeps us out. */
    int reader = open(path, O_RDONLY);
    assert_int_equal(flock(reader, LOCK_EX | LOCK_NB), 0);
    journal_close(journal_of(f));
    close(reader);
    char lock[128];
    snprintf(lock, sizeof(lock), "%s/lock", f->dir);
    assert_int_equal(stat(lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* Another version or boot: set aside. Cut short: begun anew. Nonsense records: dropped. */
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "nonsense", 8, 0), 8);
    close(fd);
    journal = journal_of(f);
    assert_int_equal(stat(bad, &st), 0);
    journal_close(journal);
    assert_int_equal(truncate(path, 4096), 0); /* or of a version with a shorter one */
    assert_int_equal(journal_open_readonly(f->dir, &journal, &f->err), -ENOENT);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(journal_open_readonly(f->dir, &journal, &f->err), -ENOENT);
    journal = journal_of(f);
    struct device_group g = {.proc = {getpid(), 1}, .key = 1};
    assert_int_equal(journal_put_group(journal, 3, JG_SUSPENDED, &g), 0);
    g.gpu = 9999;
    assert_int_equal(journal_put_group(journal, 700, JG_SUSPENDED, &g), 0);
    assert_int_equal(journal_put_group(journal, JOURNAL_GROUPS, JG_SUSPENDED, &g), -EINVAL);
    journal_put_job(journal, 5, &(struct journal_job){.root = {7, 7}, .class = 99, .weight = 100});
    assert_null(journal_job(journal, 5));
    journal_close(journal);
    journal = journal_of(f);
    uint32_t flags;
    assert_non_null(journal_group(journal, 3, &flags));
    assert_int_equal(flags, JG_SUSPENDED);
    assert_null(journal_group(journal, 700, &flags));
    assert_int_equal(journal_groups_end(journal), 4);
    journal_close(journal);

    /* A link or a file that others may write to is refused. */
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(journal_open(f->dir, 0, &journal, &f->err), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(journal_open(f->dir, 0, &journal, &f->err), -ELOOP);
}

/* Changes a job and a group all the time, until it is killed. */
static void change_for_ever(struct journal *j)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct journal_job job = *journal_job(j, 5);
    uint32_t flags;
    struct device_group g = *journal_group(j, 3, &flags);
    for (uint32_t i = 0;; i++) {
        job.weight = 1 + i % 100;
        job.paused = i % 2;
        journal_put_job(j, 5, &job);
        g.nchannels = 1 + i % 2;
        g.channels[1] = i % 2 ? 77 : 0;
        g.timeslice_us = 1000 + i % 3;
        journal_put_group(j, 3, i % 5 ? JG_SUSPENDED : JG_SUSPENDED | JG_TIMESLICE, &g);
    }
}

/* At whatever instruction: neither record is lost or takes others with it. */
ENGINE_TEST(test_killed_while_writing)
{
    struct journal *journal = journal_of(f);
    uint32_t flags;
    journal_put_job(journal, 5,
                    &(struct journal_job){.root = {7, 7}, .class = CLASS_BATCH, .weight = 100});
    struct device_group g = {.proc = {getpid(), 1}, .key = 1, .nchannels = 1, .channels = {70}};
    assert_int_equal(journal_put_group(journal, 3, JG_SUSPENDED, &g), 0);
    for (int round = 0; round < 100; round++) {
        pid_t pid = fork();
        if (pid == 0)
            change_for_ever(journal);
        usleep(500 + (useconds_t)round * 7);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        journal_close(journal);
        journal = journal_of(f);
        assert_false(journal_damaged(journal));
        const struct journal_job *job = journal_job(journal, 5);
        assert_true(job && job->root.pid == 7 && job->class == CLASS_BATCH);
        const struct device_group *now = journal_group(journal, 3, &flags);
        assert_true(now && (flags & JG_SUSPENDED) && now->channels[0] == 70);
        /* What the last change that came to its end said. */
        g.timeslice_us = 4321;
        journal_put_group(journal, 3, flags, &g);
        assert_int_equal(journal_group(journal, 3, &flags)->timeslice_us, 4321);
    }
    journal_close(journal);
}

/* What an earlier ceded may have suspended is on record before it is resumed, where its records are
 * lost: a ceded that is killed at that moment leaves it to the next one. */
ENGINE_TEST(test_lost_is_recorded)
{
    programs(f, p, 2, 3);
    for_each_context (&f->d, g)
        g->suspended = 1;
    start(f, "priority", NULL);
    engine_withhold(f->m, 0, GPU_CAP_TIMESLICE, "made-up"); /* or its record has that, too */
    f->d.resumes_recorded = true;
    add(f, p[0], CLASS_BATCH);
    add(f, p[1], CLASS_NORMAL);
    ticks(f, 100);
    f->d.resumes_recorded = false;
    assert_false(journal_incomplete(f->j) & JOURNAL_GROUPS_MISSING);
    engine_withhold(f->m, 0, 0, "");
    assert_true(f->d.resume_calls > 0);
}
