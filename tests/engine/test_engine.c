/* The manager and its journal on a driver without a device: what is set, in which order of events,
 * what stays in the journal, and that whatever fails, nobody stays suspended. */
#include "engine/engine.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "fixture.h"

#include <pthread.h>

static void test_classes_become_timeslices(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, b, 0, 3);
    start(f, "priority", NULL);
    uint32_t ja = add(f, a, CLASS_LATENCY), jb = add(f, b, CLASS_BATCH);
    ticks(f, 1000);
    assert_int_equal(on(f, a)->timeslice_us, 1000000);
    assert_int_equal(on(f, b)->timeslice_us, 1);
    assert_int_equal(changed_groups(f), 8); /* copy groups too */
    assert_int_equal(suspended_groups(f), 0);

    /* Nothing changes: nothing is done. */
    unsigned calls = f->d.timeslice_calls;
    ticks(f, 10000);
    assert_int_equal(f->d.timeslice_calls, calls);

    assert_int_equal(engine_change(f->m, ja, CLASS_NORMAL, 300, 0), 0);
    assert_int_equal(engine_change(f->m, jb, CLASS_NORMAL, 100, 0), 0);
    ticks(f, 1);
    assert_int_equal(on(f, a)->timeslice_us, 60000);
    assert_int_equal(on(f, b)->timeslice_us, 20000);

    engine_release(f->m, jb);
    assert_int_equal(on(f, b)->timeslice_us, 2048);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

/* A library that sets its timeslice late writes over ours: ours is set again, its is restored. */
static void test_program_sets_its_timeslice(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 1);
    mock_context(&f->d, b, 0, 1);
    start(f, "priority", NULL);
    add(f, a, CLASS_LATENCY);
    add(f, b, CLASS_BATCH);
    ticks(f, 20000); /* by now it is looked at rarely */
    on(f, a)->timeslice_us = 3072;
    ticks(f, 2500);
    assert_int_equal(on(f, a)->timeslice_us, 1000000);
    assert_int_equal(on(f, b)->timeslice_us, 1);
    stop(f, true);
    assert_int_equal(on(f, a)->timeslice_us, 3072);
    assert_int_equal(on(f, b)->timeslice_us, 2048);
}

static void test_batch_jobs_take_turns(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), b[3];
    mock_context(&f->d, lat, 0, 3);
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    for (int i = 0; i < 3; i++) {
        b[i] = child(f);
        mock_context(&f->d, b[i], 0, 3);
        add(f, b[i], CLASS_BATCH);
    }
    ticks(f, 500);
    unsigned ran[3] = {0};
    for (int t = 0; t < 600; t++) {
        ticks(f, 10);
        unsigned runs = 0;
        for (int i = 0; i < 3; i++) {
            runs += !on(f, b[i])->suspended;
            ran[i] += !on(f, b[i])->suspended;
        }
        assert_int_equal(runs, 1);
        assert_false(on(f, lat)->suspended);
    }
    for (int i = 0; i < 3; i++)
        assert_in_range(ran[i], 180, 220);
    /* The one whose turn it is ends: another has it at once. */
    for (int i = 0; i < 3; i++) {
        if (!on(f, b[i])->suspended) {
            end(f, b[i]);
            break;
        }
    }
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 4);
    end(f, lat);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_contexts_of_one_job_take_turns(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 3);
    struct mock_group *one = &f->d.g[mock_context(&f->d, a, 0, 1)];
    struct mock_group *two = &f->d.g[mock_context(&f->d, a, 0, 1)];
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    uint32_t j = add(f, a, CLASS_BATCH);
    ticks(f, 100);
    unsigned ran = 0;
    for (int t = 0; t < 400; t++) {
        ticks(f, 10);
        assert_int_equal(suspended_groups(f), 1); /* never both, and copies are left alone */
        ran += two->suspended;
    }
    assert_in_range(ran, 180, 220);
    /* Two contexts count as one job, and need not yield to each other where nothing is better. */
    assert_int_equal(engine_change(f->m, j, CLASS_LATENCY, 100, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
    assert_int_equal(one->timeslice_us, 2000);
    assert_int_equal(on(f, lat)->timeslice_us, 4000);
    assert_int_equal(engine_set_policy(f->m, "shares"), 0);
    ticks(f, 1);
    assert_int_equal(two->timeslice_us, 10000);
    assert_int_equal(on(f, lat)->timeslice_us, 20000);
}

/* A context that was half-built when it was first seen: once its group is known to compute it takes
 * turns with the job's other one. */
static void test_group_turns_out_to_compute(void **state)
{
    struct fixture *f = *state;
    pid_t lat = child(f), a = child(f);
    mock_context(&f->d, lat, 0, 0);
    struct mock_group *one = &f->d.g[mock_context(&f->d, a, 0, 0)];
    struct mock_group *two = &f->d.g[mock_context(&f->d, a, 0, 0)];
    two->dg.kind = GROUP_COPY;
    start(f, "priority", NULL);
    add(f, lat, CLASS_LATENCY);
    add(f, a, CLASS_BATCH);
    ticks(f, 1000);
    assert_false(one->suspended || two->suspended);
    two->dg.kind = GROUP_COMPUTE;
    ticks(f, 5000);
    unsigned ran = 0;
    for (int t = 0; t < 400; t++) {
        ticks(f, 10);
        assert_int_equal(one->suspended + two->suspended, 1);
        ran += two->suspended;
    }
    assert_in_range(ran, 180, 220);
    one->dg.kind = GROUP_COPY; /* and back: nothing is left to take turns with */
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_pause(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f);
    mock_context(&f->d, a, 0, 3);
    mock_context(&f->d, a, 1, 3); /* two GPUs */
    mock_context(&f->d, a, 0, 3); /* a second context */
    start(f, "priority", NULL);
    uint32_t j = add(f, a, CLASS_NORMAL);
    ticks(f, 100);
    assert_int_equal(engine_pause(f->m, j, true, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 12);
    assert_int_equal(f->d.suspend_calls, 2); /* one call a GPU */
    /* A context that appears in a paused job is suspended too, and so is a new channel. */
    mock_context(&f->d, a, 1, 0);
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 13);
    struct mock_group *g = on(f, a);
    g->dg.channels[g->dg.nchannels++] = 77;
    g->suspended = false; /* the new channel runs */
    ticks(f, 3000);
    assert_int_equal(suspended_groups(f), 13);
    assert_int_equal(engine_pause(f->m, j, false, 0), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 0);
}

static void test_follows_processes(void **state)
{
    struct fixture *f = *state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t root = fork();
    if (root == 0) {
        /* Two generations below; the one between ends. */
        pid_t mid = fork();
        if (mid == 0) {
            pid_t leaf = fork();
            if (leaf == 0)
                for (;;)
                    pause();
            (void)!write(fds[1], &leaf, sizeof(leaf));
        }
        wait_to_die();
    }
    f->children[f->n++] = root;
    pid_t leaf;
    assert_int_equal(read(fds[0], &leaf, sizeof(leaf)), sizeof(leaf));
    close(fds[0]);
    close(fds[1]);
    start(f, "priority", NULL);
    uint32_t j = add(f, root, CLASS_BATCH);
    pid_t lat = child(f);
    mock_context(&f->d, lat, 0, 0);
    add(f, lat, CLASS_LATENCY);
    struct error err = {""};
    assert_int_equal(engine_job_status(f->m, j, &err), -ENODEV);
    ticks(f, 500);
    mock_context(&f->d, leaf, 0, 3);
    ticks(f, 200); /* a young job is looked for closely */
    assert_int_equal(on(f, leaf)->timeslice_us, 1);
    assert_int_equal(engine_job_of(f->m, leaf), j);
    assert_int_equal(engine_job_of(f->m, getpid()), SLOT_NONE);
    assert_int_equal(engine_job_status(f->m, j, &err), 0);
    /* The root goes, the job stays while a process of it works, and ends with it. */
    end(f, root);
    ticks(f, 100);
    struct job_view v;
    uint32_t cursor = j;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.processes, 1);
    kill(leaf, SIGKILL);
    for (int i = 0; i < 1000 && kill(leaf, 0) == 0 &&
                    proc_alive((struct proc_id){leaf, on(f, leaf)->dg.proc.start_ticks});
         i++)
        usleep(1000);
    mock_exit(&f->d, leaf);
    ticks(f, 100);
    assert_int_equal(engine_job_by_number(f->m, v.number), SLOT_NONE);
}

static void test_rules(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f), b = child(f);
    mock_context(&f->d, a, 0, 0);
    mock_context(&f->d, b, 0, 0);
    start(f, "priority", &b);
    ticks(f, 600);
    assert_int_equal(engine_job_of(f->m, a), SLOT_NONE);
    uint32_t j = engine_job_of(f->m, b), cursor = 0;
    assert_int_not_equal(j, SLOT_NONE);
    struct job_view v;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_int_equal(v.job.weight, 50);
    assert_int_equal(v.job.source, JOB_RULE);
    assert_false(engine_next_job(f->m, &cursor, &v));
    /* Let go, it stays so: the rule is older than what a person says. */
    engine_release(f->m, j);
    ticks(f, 1500);
    assert_int_equal(engine_set_params(f->m, engine_params(f->m)), 0);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), SLOT_NONE);
    j = add(f, b, CLASS_BATCH);
    ticks(f, 1500);
    assert_int_equal(engine_job_of(f->m, b), j);
}

/* One latency job, two batch jobs: one of them is suspended. */
static void test_crash_and_undo(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    crash(f);
    assert_int_equal(suspended_groups(f), 4);
    /* What the restorer does. */
    struct journal *j;
    assert_int_equal(journal_open(f->dir, 0, &j, NULL), 0);
    assert_int_equal(journal_undo(j, &f->d.base, NULL, NULL), 0);
    assert_int_equal(changed_groups(f), 0);
    for (uint32_t i = 0; i < journal_groups_end(j); i++) {
        uint32_t flags;
        assert_null(journal_group(j, i, &flags));
    }
    journal_close(j);
    /* A restarted daemon takes its jobs back. */
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void test_crash_and_take_over(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    crash(f);
    /* Nobody undid anything; meanwhile the suspended job's owner may be gone or not. */
    start(f, "priority", NULL);
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 4);
    /* What it had before the first of us came is not forgotten. */
    stop(f, true);
    assert_int_equal(changed_groups(f), 0);
}

static void *second_thread(void *arg)
{
    wait_to_die();
    return arg;
}

/* A program may end its first thread and go on: the kernel shows it as a zombie. */
static void test_undo_without_first_thread(void **state)
{
    struct fixture *f = *state;
    struct proc_stat st = {.state = '?'};
    pid_t p = fork();
    if (p == 0) {
        pthread_t t;
        pthread_create(&t, NULL, second_thread, NULL);
        pthread_exit(NULL);
    }
    f->children[f->n++] = p;
    for (int i = 0; i < 10000 && st.state != 'Z'; i++) {
        usleep(1000);
        assert_int_equal(proc_stat_read(p, &st), 0);
    }
    assert_int_equal(st.state, 'Z');
    assert_true(proc_alive(st.id));
    mock_context(&f->d, p, 0, 3);
    start(f, "priority", NULL);
    engine_pause(f->m, add(f, p, CLASS_NORMAL), true, 0);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    stop(f, true);
    assert_int_equal(suspended_groups(f), 0);
    kill(p, SIGKILL);
    for (int i = 0; i < 10000 && proc_alive(st.id); i++)
        usleep(1000);
    assert_false(proc_alive(st.id)); /* now it is one */
}

/* Killed between the record and what it speaks of. */
static void test_crash_before_the_change(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    uint32_t j = one_job(f, CLASS_NORMAL, &p);
    ticks(f, 100);
    engine_pause(f->m, j, true, 0);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    crash(f);
    for (size_t i = 0; i < MOCK_GROUPS; i++)
        f->d.g[i].suspended = false;
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
}

static void test_orphaned_records_are_undone(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    crash(f);
    struct journal *j;
    assert_int_equal(journal_open(f->dir, 0, &j, NULL), 0);
    for (uint32_t i = 0; i < JOURNAL_JOBS; i++)
        journal_put_job(j, i, NULL);
    journal_close(j);
    start(f, "priority", NULL);
    ticks(f, 100);
    assert_int_equal(suspended_groups(f), 4);
    ticks(f, 3000);
    assert_int_equal(changed_groups(f), 0);
}

static void test_pause_survives(void **state)
{
    struct fixture *f = *state;
    pid_t a = child(f);
    mock_context(&f->d, a, 0, 1);
    start(f, "static", NULL);
    uint32_t j = add(f, a, CLASS_NORMAL);
    engine_pause(f->m, j, true, 1234);
    ticks(f, 1);
    stop(f, false); /* how `cede pause` without a daemon ends */
    assert_int_equal(suspended_groups(f), 2);
    start(f, "static", NULL);
    ticks(f, 5000);
    assert_int_equal(suspended_groups(f), 2);
    struct job_view v;
    uint32_t cursor = 0;
    assert_true(engine_next_job(f->m, &cursor, &v));
    assert_true(v.job.paused);
    assert_int_equal(v.job.paused_by, 1234);
    engine_pause(f->m, engine_job_of(f->m, a), false, 0);
    ticks(f, 1);
    assert_int_equal(changed_groups(f), 0);
}

/* A driver that has to search for long does so in many scans, which is no failure. */
static void test_long_search(void **state)
{
    struct fixture *f = *state;
    pid_t p;
    struct error err = {""};
    uint32_t j = one_job(f, CLASS_LATENCY, &p);
    f->d.fail_scan = EAGAIN;
    ticks(f, 10000);
    assert_true(f->d.scans > 100);
    assert_true(engine_searching(f->m));
    assert_int_equal(engine_job_status(f->m, j, &err), -EAGAIN);
    f->d.fail_scan = 0;
    ticks(f, 100);
    assert_int_equal(engine_job_status(f->m, j, &err), 0);
    assert_false(engine_searching(f->m));
    assert_int_equal(on(f, p)->timeslice_us, 1000000);
}

static void test_hung_daemon(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    /* The restorer undoes while this daemon hangs; when it wakes up it starts over. */
    journal_undo(f->j, &f->d.base, NULL, NULL);
    atomic_fetch_add(&journal_shared(f->j)->restored, 1);
    assert_int_equal(changed_groups(f), 0);
    ticks(f, 1);
    assert_int_equal(suspended_groups(f), 4);
    assert_int_equal(on(f, p[0])->timeslice_us, 1000000);
}

static void test_nested_job(void **state)
{
    struct fixture *f = *state;
    pid_t p[3];
    three_jobs(f, p);
    /* Adopting a process again is refused and tells the job. */
    struct proc_stat st;
    struct error err = {""};
    uint32_t job = 0;
    proc_stat_read(p[1], &st);
    struct job_spec spec = {.class = CLASS_BATCH, .weight = 100};
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), -EEXIST);
    assert_int_equal(job, engine_job_of(f->m, p[1]));
    st.id.start_ticks++;
    assert_int_equal(engine_add(f->m, st.id, &spec, &job, &err), -ESRCH);
    assert_non_null(strstr(err.text, "no such process"));
}

static void *tell_tid(void *pipes)
{
    const int *fd = pipes;
    pid_t tid = gettid();
    char c;
    if (write(fd[1], &tid, sizeof(tid)) == (ssize_t)sizeof(tid) && read(fd[2], &c, 1) < 0)
        abort();
    return NULL;
}

static void test_thread_is_no_process(void **state)
{
    struct fixture *f = *state;
    start(f, "priority", NULL);
    int fd[4];
    pthread_t thread;
    struct proc_stat st;
    assert_int_equal(pipe(fd), 0);
    assert_int_equal(pipe(fd + 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_tid, fd), 0);
    pid_t tid;
    assert_int_equal(read(fd[0], &tid, sizeof(tid)), sizeof(tid));
    assert_int_equal(proc_stat_read(tid, &st), 0);
    struct job_spec spec = {.class = CLASS_NORMAL, .weight = 100, .name = "t"};
    struct error err = {""};
    uint32_t job;
    assert_true(engine_add(f->m, st.id, &spec, &job, &err) < 0);
    assert_non_null(strstr(err.text, "a thread"));
    close(fd[3]);
    pthread_join(thread, NULL);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static void test_journal_files(void **state)
{
    struct fixture *f = *state;
    struct journal *j, *second;
    struct error err = {""};
    char path[128], bad[136];
    snprintf(path, sizeof(path), "%s/journal", f->dir);
    snprintf(bad, sizeof(bad), "%s.bad", path);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    assert_int_equal(journal_open(f->dir, 20, &second, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another cede"));
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    journal_close(j);

    /* Whoever can only read has nothing that keeps us out. */
    int reader = open(path, O_RDONLY);
    assert_int_equal(flock(reader, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    journal_close(j);
    close(reader);
    char lock[128];
    snprintf(lock, sizeof(lock), "%s/lock", f->dir);
    assert_int_equal(stat(lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);

    /* Another version or boot: set aside. Cut short: begun anew. Nonsense records: dropped. */
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "nonsense", 8, 0), 8);
    close(fd);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    assert_int_equal(stat(bad, &st), 0);
    journal_close(j);
    assert_int_equal(truncate(path, 4096), 0); /* or of a version with a shorter one */
    assert_int_equal(journal_open_readonly(f->dir, &j, &err), -ENOENT);
    assert_int_equal(truncate(path, 10), 0);
    assert_int_equal(journal_open_readonly(f->dir, &j, &err), -ENOENT);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    struct device_group g = {.proc = {getpid(), 1}, .key = 1};
    assert_int_equal(journal_put_group(j, 3, JG_SUSPENDED, &g), 0);
    g.gpu = 9999;
    assert_int_equal(journal_put_group(j, 700, JG_SUSPENDED, &g), 0);
    assert_int_equal(journal_put_group(j, JOURNAL_GROUPS, JG_SUSPENDED, &g), -EINVAL);
    journal_put_job(j, 5, &(struct journal_job){.root = {7, 7}, .class = 99, .weight = 100});
    assert_null(journal_job(j, 5));
    journal_close(j);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    uint32_t flags;
    assert_non_null(journal_group(j, 3, &flags));
    assert_int_equal(flags, JG_SUSPENDED);
    assert_null(journal_group(j, 700, &flags));
    assert_int_equal(journal_groups_end(j), 4);
    journal_close(j);

    /* A link or a file that others may write to is refused. */
    assert_int_equal(chmod(path, 0666), 0);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(journal_open(f->dir, 0, &j, &err), -ELOOP);
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
static void test_killed_while_writing(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    struct journal *j;
    uint32_t flags;
    assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
    journal_put_job(j, 5,
                    &(struct journal_job){.root = {7, 7}, .class = CLASS_BATCH, .weight = 100});
    struct device_group g = {.proc = {getpid(), 1}, .key = 1, .nchannels = 1, .channels = {70}};
    assert_int_equal(journal_put_group(j, 3, JG_SUSPENDED, &g), 0);
    for (int round = 0; round < 100; round++) {
        pid_t pid = fork();
        if (pid == 0)
            change_for_ever(j);
        usleep(500 + (useconds_t)round * 7);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        journal_close(j);
        assert_int_equal(journal_open(f->dir, 0, &j, &err), 0);
        assert_false(journal_damaged(j));
        const struct journal_job *job = journal_job(j, 5);
        assert_true(job && job->root.pid == 7 && job->class == CLASS_BATCH);
        const struct device_group *now = journal_group(j, 3, &flags);
        assert_true(now && (flags & JG_SUSPENDED) && now->channels[0] == 70);
        /* What the last change that came to its end said. */
        g.timeslice_us = 4321;
        journal_put_group(j, 3, flags, &g);
        assert_int_equal(journal_group(j, 3, &flags)->timeslice_us, 4321);
    }
    journal_close(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_classes_become_timeslices),
        T(test_program_sets_its_timeslice),
        T(test_batch_jobs_take_turns),
        T(test_contexts_of_one_job_take_turns),
        T(test_group_turns_out_to_compute),
        T(test_pause),
        T(test_follows_processes),
        T(test_rules),
        T(test_thread_is_no_process),
        T(test_crash_and_undo),
        T(test_crash_and_take_over),
        T(test_crash_before_the_change),
        T(test_undo_without_first_thread),
        T(test_orphaned_records_are_undone),
        T(test_pause_survives),
        T(test_long_search),
        T(test_hung_daemon),
        T(test_nested_job),
        T(test_journal_files),
        T(test_killed_while_writing),
    };
    return cmocka_run_group_tests_name("manager", tests, NULL, NULL);
}
