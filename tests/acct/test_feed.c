/* ceded's end of accounts on the mock driver, with the recorder behind it: rows of one job put
 * together are what it had, over changes of class, minutes and a recorder that is killed. This
 * program is that recorder, too. */
#include "../engine/fixture.h"
#include "../test.h"
#include "acct/database.h"
#include "acct/days.h"
#include "acct/feed.h"
#include "acct/recorder.h"
#include "who/procfs.h"

#define TEST_OF_FEED(name) TEST_IN(name, struct fixture *f, setup, teardown)

static struct acct *feed;

static void feed_start(struct fixture *f)
{
    struct error err = {""};
    if (!(feed = acct_new(&f->loop, f->dir, f->dir, ADMIN_NO_GROUP, 90, &err)))
        fail_msg("%s", err.text);
}

static void accounts_start(struct fixture *f, pid_t *p)
{
    feed_start(f);
    f->d.has_usage = true;
    f->job_changed = acct_job_changed;
    f->job_arg = feed;
    one_job(f, CLASS_BATCH, p);
    on(f, *p)->busy = 0.5;
}

static void feed_tick(struct fixture *f)
{
    (void)acct_tick(feed, f->m, f->now);
    uv_run(&f->loop, UV_RUN_NOWAIT);
    usleep(2000);
}

/* Of virtual time, with the recorder's answers in between. */
static void run_for(struct fixture *f, unsigned ms)
{
    for (unsigned k = 0; k < ms; k += 500) {
        ticks(f, 500);
        feed_tick(f);
    }
}

struct sum {
    size_t rows;
    uint64_t gpu_ns, known_ns, ended;
    uint64_t class_ns[CLASS_COUNT];
};

static int add_row(void *arg, const struct acct_row *r)
{
    struct sum *s = arg;
    s->rows++;
    s->gpu_ns += r->sums[ACCT_GPU_NS];
    s->known_ns += r->sums[ACCT_KNOWN_NS];
    s->class_ns[r->class] += r->sums[ACCT_KNOWN_NS];
    s->ended += r->ended;
    return 0;
}

static struct sum rows_of(struct fixture *f)
{
    const struct acct_query q = {
        .end_s = INT64_MAX / 2, .uid = ACCT_ANYBODY, .class = CLASS_COUNT, .by = ACCT_BY_ROW};
    struct error err = {""};
    struct acct_db *db;
    struct sum s = {.rows = 0};
    uint64_t dropped = 0;
    if (acct_db_open_readonly(f->dir, &db, &err) < 0 ||
        acct_db_query(db, &q, ACCT_ANYBODY, add_row, &s, &dropped, &err) < 0)
        fail_msg("%s", err.text);
    acct_db_close(db);
    assert_int_equal(dropped, 0);
    return s;
}

static void reclass(struct fixture *f, enum job_class class)
{
    struct job_view v;
    struct error err = {""};
    assert_true(engine_view(f->m, 0, &v));
    struct job_terms t = {.class = class, .weight = v.job.weight};
    if (engine_change(f->m, 0, &t, &err) < 0)
        fail_msg("%s", err.text);
}

TEST_OF_FEED(rows_are_whole)
{
    pid_t p;
    accounts_start(f, &p);
    run_for(f, 130000);
    reclass(f, CLASS_NORMAL);
    run_for(f, 130000);
    reclass(f, CLASS_BATCH);
    run_for(f, 130000);
    struct job_view v;
    acct_finish(feed, f->m);
    assert_true(engine_view(f->m, 0, &v));
    const uint64_t known = v.counts.where_ns[WHERE_HERE], gpu = v.counts.on[0].sampled_ns;
    acct_free(feed);
    const struct sum s = rows_of(f);
    /* One for each class that it had, and one more if an hour ended meanwhile. */
    assert_in_range(s.rows, 3, 4);
    assert_int_equal(s.known_ns, known);
    assert_int_equal(s.gpu_ns, gpu);
    assert_true(gpu > known / 3);
    assert_int_equal(s.ended, 0);
    /* A change is seen within a minute. */
    assert_true(s.class_ns[CLASS_NORMAL] > known / 5 && s.class_ns[CLASS_NORMAL] < known / 2);
}

TEST_OF_FEED(recorder_is_replaced)
{
    pid_t p, *all = NULL;
    size_t n;
    unsigned kills = 0;
    accounts_start(f, &p);
    for (int i = 0; i < 10; i++) {
        run_for(f, 20000);
        assert_int_equal(proc_list(&all, &n), 0);
        for (size_t k = 0; k < n; k++) {
            struct proc_stat st;
            if (proc_stat_read(all[k], &st) == 0 && st.ppid == getpid() &&
                strcmp(st.comm, "cede-acct") == 0 && kill(all[k], SIGKILL) == 0) {
                kills++;
                siginfo_t si;
                waitid(P_PID, (id_t)all[k], &si, WEXITED | WNOWAIT);
            }
        }
        free(all);
        acct_reap(feed, f->now);
    }
    assert_true(kills >= 2);
    end(f, p);
    ticks(f, 1000);
    for (int i = 0; i < 100; i++) { /* later than any backoff of so few kills */
        f->now += 10 * NSEC_PER_SEC;
        feed_tick(f);
    }
    acct_finish(feed, f->m);
    acct_free(feed);
    const struct sum s = rows_of(f);
    assert_in_range(s.rows, 1, 2);
    assert_int_equal(s.ended, 1);
    assert_true(s.known_ns > 190 * NSEC_PER_SEC);
}

/* Rows of 90 days, and a clock that is eleven years ahead for some hours. */
TEST_OF_FEED(wrong_clock)
{
    enum { DAY = 86400, DAYS = 90, HOURS = 5 };
    const int64_t start = 20000LL * DAY, ahead = start + (DAYS + 11 * 365LL) * DAY;
    struct error err, note;
    struct acct_db *db;
    if (acct_db_open(f->dir, ACCT_VERSION, &db, &note, &err) < 0)
        fail_msg("%s", err.text);
    for (int d = 0; d <= DAYS; d++) {
        const int64_t at = d < DAYS ? start + (int64_t)d * DAY : ahead;
        const struct acct_row r = {.number = 1, .piece = (uint64_t)d, .begin_s = at, .end_s = at};
        assert_int_equal(acct_db_put(db, &r, 1, &err), 0);
    }
    for (int h = 0; h < HOURS; h++)
        assert_int_equal(acct_db_prune(db, ahead - (int64_t)DAYS * DAY, &err), 0);
    assert_int_equal(rows_of(f).rows, DAYS + 1 - HOURS);
    for (int h = HOURS; h < DAYS + 1; h++)
        assert_int_equal(acct_db_prune(db, ahead - (int64_t)DAYS * DAY, &err), 0);
    assert_int_equal(rows_of(f).rows, 1); /* it was right */
    acct_db_close(db);
}

static struct acct_row sums[4];
static unsigned nsums;

static void take_sum(void *arg, const struct acct_row *sum)
{
    (void)arg;
    assert_true(nsums < ARRAY_SIZE(sums));
    sums[nsums++] = *sum;
}

/* What a user has beyond so many rows a day is one row; root's rows are all kept. */
TEST(rows_of_a_day)
{
    struct acct_days *d = calloc(1, sizeof(*d));
    struct acct_row r = {.boot = 1, .session = 2, .class = 1, .gpus = 1, .uid = 1000};
    unsigned listed = 0, roots = 0;
    d->put = take_sum;
    for (unsigned i = 0; i < 3 * ACCT_ROWS_PER_DAY; i++) {
        struct acct_day *user = acct_day_of(d, 1000, "", 20000);
        r.number = i + 1;
        r.begin_s = 20000LL * 86400 + i;
        r.end_s = r.begin_s + 2;
        r.sums[ACCT_GPU_NS] = 1;
        if (acct_day_takes(user))
            listed++;
        else
            acct_day_add(d, user, &r, i % 2);
        roots += acct_day_takes(acct_day_of(d, 0, "", 20000));
    }
    assert_int_equal(listed, ACCT_ROWS_PER_DAY);
    assert_int_equal(roots, 3 * ACCT_ROWS_PER_DAY);
    acct_days_put(d);
    acct_days_put(d); /* not twice */
    assert_int_equal(nsums, 1);
    assert_int_equal(sums[0].sums[ACCT_GPU_NS], 2 * ACCT_ROWS_PER_DAY);
    assert_int_equal(sums[0].uid, 1000);
    assert_int_equal(sums[0].end_s - sums[0].begin_s, 2 * ACCT_ROWS_PER_DAY + 1);

    /* Other users push out neither that nor the other way round, and another day begins anew. */
    acct_day_add(d, acct_day_of(d, 1000, "", 20000), &r, true);
    for (unsigned i = 0; i < 3 * ACCT_DAYS; i++)
        assert_true(acct_day_takes(acct_day_of(d, 2000 + i, "", 20000)));
    assert_false(acct_day_takes(acct_day_of(d, 1000, "", 20000)));
    assert_true(acct_day_takes(acct_day_of(d, 1000, "", 20001)));
    assert_int_equal(nsums, 2);
    assert_int_equal(sums[1].piece, sums[0].piece); /* it takes the place of the one before */
    assert_int_equal(sums[1].sums[ACCT_GPU_NS], 2 * ACCT_ROWS_PER_DAY + 1);
    free(d);
}

/* Of jobs that come and go, all of their time is in the accounts. */
TEST_OF_FEED(more_jobs_than_rows)
{
    feed_start(f);
    enum { JOBS = ACCT_ROWS_PER_DAY + 500 };
    for (unsigned i = 0; i < JOBS; i++) {
        struct job_view v = {.number = i + 1};
        v.job.principal = v.job.uid = 1000;
        v.job.number = i + 1;
        v.job.root.pid = getpid();
        acct_job_changed(feed, 0, &v, false);
        v.counts.where_ns[WHERE_HERE] = NSEC_PER_SEC;
        acct_job_changed(feed, 0, &v, true);
    }
    start(f, "priority", NULL);
    run_for(f, 200000);
    acct_finish(feed, f->m);
    acct_free(feed);
    const struct sum s = rows_of(f);
    assert_int_equal(s.known_ns, JOBS * NSEC_PER_SEC);
    assert_int_equal(s.rows, ACCT_ROWS_PER_DAY + 1);
}

/* Whoever's socket is removed ends, and leaves alone what a successor has put there meanwhile. */
TEST(socket_of_a_successor)
{
    char dir[] = "/tmp/cede-acct-XXXXXX", path[64], aside[64];
    struct error err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/" ACCT_SOCKET, dir);
    snprintf(aside, sizeof(aside), "%s/aside", dir);
    struct acct *first = acct_new(NULL, dir, dir, ADMIN_NO_GROUP, 90, &err);
    assert_non_null(first);
    assert_int_equal(rename(path, aside), 0); /* its inode stays taken */
    struct acct *next = acct_new(NULL, dir, dir, ADMIN_NO_GROUP, 90, &err);
    assert_non_null(next);
    acct_free(first);
    assert_int_equal(access(path, F_OK), 0);
    acct_free(next);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(unlink(aside), 0);
    assert_int_equal(rmdir(dir), 0);
}

int main(int argc, char **argv)
{
    if (strcmp(argv[0], "cede-acct") == 0)
        return acct_recorder_main(argc, argv);
    return acct_db_built() ? test_run(NULL, NULL) : 77;
}
