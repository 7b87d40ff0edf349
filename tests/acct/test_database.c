/* The file with the accounts: sums, what others may see, an older version, age, damage, a full
 * disk; and the process that keeps it, killed again and again. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "acct/recorder.h"
#include "acct_env.h"

static struct error err, note;

static struct acct_db *open_db(void)
{
    return open_version(ACCT_VERSION, &note);
}

/* Of one job: each sum is `gpu` and its index. */
static struct acct_row row(uint64_t number, uint64_t piece, int64_t begin_s, int64_t end_s,
                           uint64_t gpu)
{
    struct acct_row r = {.boot = 7,
                         .number = number,
                         .start_ticks = 1000 + number,
                         .session = 5,
                         .piece = piece,
                         .begin_s = begin_s,
                         .end_s = end_s,
                         .uid = 1000 + number % 2,
                         .class = (uint32_t)number % 3,
                         .workload.slurm_job = number % 3,
                         .gpus = 1};
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        r.sums[i] = gpu + i;
    snprintf(r.name, sizeof(r.name), "job%llu", (unsigned long long)number / 2);
    snprintf(r.workload.unit, sizeof(r.workload.unit), "u%llu.service",
             (unsigned long long)number % 2);
    r.pod = (struct pod_names){.namespace = "prod", .pod = "web-0", .container = "main"};
    return r;
}

static void put(struct acct_db *db, struct acct_row r)
{
    if (acct_db_put(db, &r, 1, &err) < 0)
        fail_msg("%s", err.text);
}

struct got {
    struct acct_row v[512];
    size_t n;
    uint64_t dropped;
};

static int take(void *arg, const struct acct_row *r)
{
    struct got *g = arg;
    assert_true(g->n < ARRAY_SIZE(g->v));
    g->v[g->n++] = *r;
    return 0;
}

static const struct acct_query all = {
    .end_s = INT64_MAX / 2, .uid = ACCT_ANYBODY, .class = CLASS_COUNT};

static struct got *ask(struct acct_query q, uint32_t only)
{
    static struct got g;
    struct acct_db *db;
    g.n = 0;
    if (acct_db_open_readonly(dir, &db, &err) < 0 ||
        acct_db_query(db, &q, only, take, &g, &g.dropped, &err) < 0)
        fail_msg("%s", err.text);
    acct_db_close(db);
    return &g;
}

static uint64_t total(struct acct_query q, uint32_t only)
{
    const struct got *g = ask(q, only);
    uint64_t sum = 0;
    for (size_t i = 0; i < g->n; i++)
        sum += g->v[i].sums[ACCT_GPU_NS];
    return sum;
}

/* Six jobs with three rows each: 0 to 1 h, 1 to 2 h, and half an hour. */
static void fill(struct acct_db *db)
{
    for (uint64_t n = 1; n <= 6; n++) {
        for (uint64_t p = 0; p < 3; p++) {
            struct acct_row r = row(n, p, (int64_t)p * 3600,
                                    (int64_t)p * 3600 + (p < 2 ? 3600 : 1800), n * 100 + p);
            r.ended = p == 2;
            put(db, r);
        }
    }
}

TEST_OF_ACCOUNTS(sums)
{
    static const struct {
        enum acct_by by;
        size_t n;
        uint64_t jobs, rows;
    } kinds[] = {{ACCT_BY_JOB, 6, 1, 3},   {ACCT_BY_ROW, 18, 1, 1}, {ACCT_BY_USER, 2, 3, 9},
                 {ACCT_BY_CLASS, 3, 2, 6}, {ACCT_BY_UNIT, 2, 3, 9}, {ACCT_BY_POD, 1, 6, 18},
                 {ACCT_BY_SLURM, 3, 2, 6}};
    struct acct_db *db = open_db();
    fill(db);
    fill(db); /* takes its own place */
    for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
        struct acct_query q = all;
        q.by = kinds[k].by;
        const struct got *g = ask(q, ACCT_ANYBODY);
        assert_int_equal(g->n, kinds[k].n);
        for (size_t i = 0; i < g->n; i++) {
            assert_int_equal(g->v[i].jobs, kinds[k].jobs);
            assert_int_equal(g->v[i].rows, kinds[k].rows);
        }
        assert_int_equal(total(q, ACCT_ANYBODY), 3 * 2100 + 6 * 3);
    }
    struct acct_query fourth = all;
    fourth.number = 4;
    assert_int_equal(ask(fourth, ACCT_ANYBODY)->n, 1);
    const struct got *g = ask(all, ACCT_ANYBODY);
    for (size_t i = 0; i < g->n; i++) {
        const struct acct_row *r = &g->v[i];
        assert_int_equal(r->number, i + 1);
        assert_int_equal(r->begin_s, 0);
        assert_int_equal(r->end_s, 9000);
        assert_int_equal(r->ended, 1);
        for (size_t s = 0; s < ACCT_SUMS_COUNT; s++)
            assert_int_equal(r->sums[s], 3 * (100 * r->number + s) + 3);
    }

    struct acct_query q = all;
    assert_int_equal(total(q, 1001), 3 * 900 + 9); /* jobs 1, 3, 5 */
    q.uid = 1000;
    assert_int_equal(total(q, ACCT_ANYBODY), 3 * 1200 + 9);
    assert_int_equal(ask(q, 1001)->n, 0); /* who may see that is decided by `only` */
    q = all;
    q.class = 1;
    assert_int_equal(ask(q, ACCT_ANYBODY)->n, 2);
    q = all;
    snprintf(q.name, sizeof(q.name), "job1");
    assert_int_equal(ask(q, ACCT_ANYBODY)->n, 2);
    memset(q.name, 'x', sizeof(q.name)); /* not terminated, as a hostile asker sends it */
    assert_int_equal(ask(q, ACCT_ANYBODY)->n, 0);
    q = all;
    q.by = 77;
    struct got none = {.n = 0};
    assert_int_equal(acct_db_query(db, &q, 0, take, &none, &none.dropped, &err), -EIO);
    acct_db_close(db);
}

/* From one full hour to another each row counts once. */
TEST_OF_ACCOUNTS(times)
{
    struct acct_db *db = open_db();
    fill(db);
    struct acct_row r = row(9, 0, 3600, 3600, 5); /* began and ended in one second */
    put(db, r);
    acct_db_close(db);
    uint64_t sum = 0;
    for (int64_t h = -1; h < 4; h++) {
        struct acct_query q = all;
        q.start_s = h * 3600;
        q.end_s = q.start_s + 3600;
        uint64_t t = total(q, ACCT_ANYBODY);
        assert_int_equal(t, h < 0 || h > 2 ? 0 : 2100 + 6 * (uint64_t)h + (h == 1 ? 5 : 0));
        sum += t;
    }
    assert_int_equal(sum, total(all, ACCT_ANYBODY));
    struct acct_query q = all;
    q.start_s = 5400;
    q.end_s = 5401;
    assert_int_equal(total(q, ACCT_ANYBODY), 2106); /* in the middle: the whole row */
}

TEST_OF_ACCOUNTS(newer)
{
    struct acct_db *db = open_db();
    fill(db);
    acct_db_close(db);
    assert_int_equal(acct_db_open(dir, 1, &db, &note, &err), -EPROTO);
    assert_non_null(strstr(err.text, "newer cede"));
    assert_int_equal(files_like("*damaged*", false), 0);
    assert_int_equal(ask(all, ACCT_ANYBODY)->n, 6);
}

TEST_OF_ACCOUNTS(age)
{
    struct acct_db *db = open_db();
    fill(db);
    assert_int_equal(acct_db_prune(db, 3601, &err), 0);
    struct acct_query q = all;
    q.by = ACCT_BY_ROW;
    assert_int_equal(ask(q, ACCT_ANYBODY)->n, 12);
    assert_int_equal(acct_db_prune(db, 100000, &err), 0);
    assert_int_equal(ask(q, ACCT_ANYBODY)->n, 0);
    acct_db_close(db);
}

static void write_file(const char *file, const void *bytes, size_t n)
{
    int fd = open(path_of(file), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
}

static size_t read_file(char *buf, size_t size)
{
    int fd = open(path_of(ACCT_FILE), O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, buf, size);
    assert_true(n > 0 && (size_t)n < size);
    close(fd);
    return (size_t)n;
}

TEST_OF_ACCOUNTS(not_there)
{
    struct acct_db *db;
    assert_int_equal(acct_db_open_readonly(dir, &db, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no accounting records in"));
    assert_int_equal(acct_db_open("/no-such-directory", ACCT_VERSION, &db, &note, &err), -ENOENT);
    assert_int_equal(symlink("elsewhere", path_of(ACCT_FILE)), 0);
    assert_true(acct_db_open(dir, ACCT_VERSION, &db, &note, &err) < 0);
    assert_int_equal(files_like("elsewhere", false), 0);
}

/* What cannot be read is set aside and what follows works; what can be is all there. */
TEST_OF_ACCOUNTS(damage)
{
    static char good[300000], bad[300000];
    struct acct_db *db = open_db();
    fill(db);
    for (uint64_t n = 100; n < 400; n++)
        put(db, row(n, 0, 10, 20, 1));
    acct_db_close(db);
    const size_t size = read_file(good, sizeof(good));
    unsigned aside = 0, kept = 0;
    uint64_t seed = 11;
    for (unsigned i = 0; i < 60; i++) {
        size_t n = size;
        memcpy(bad, good, size);
        for (unsigned k = 0; k < 1 + i % 5 * 200; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            if (i > 2)
                bad[(seed >> 33) % size] = (char)(seed >> 25);
        }
        if (i == 0)
            memset(bad, 'x', n = 5000);
        else if (i % 7 == 1)
            n = size / (1 + i % 13);
        write_file(ACCT_FILE, bad, n);
        write_file(ACCT_FILE "-wal", bad, i % 3 * 500);
        db = open_db();
        const size_t was = files_like(ACCT_FILE ".damaged-*Z", false);
        assert_int_equal(was > 0, note.text[0] != '\0');
        if (was) {
            aside++;
            assert_non_null(strstr(note.text, ".damaged-"));
            assert_int_equal(ask(all, ACCT_ANYBODY)->n, 0);
        } else {
            kept++;
        }
        put(db, row(1000, 0, 10, 20, 1));
        acct_db_close(db);
        db = open_db();
        assert_string_equal(note.text, "");
        acct_db_close(db);
        files_like("*", true);
    }
    print_message("%u set aside, %u read\n", aside, kept);
    assert_true(aside > 10 && kept > 2);
}

/* In a process of its own, as limits stay: writes until it cannot, and ends with how many rows were
 * written. */
static int fill_disk(rlim_t bytes)
{
    const struct rlimit l = {bytes, bytes};
    struct acct_db *db;
    int n = 0;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &l);
    if (acct_db_open(dir, ACCT_VERSION, &db, &note, &err) < 0)
        return 255;
    for (; n < 250; n++) {
        struct acct_row r = row((uint64_t)n, 0, 10, 20, 1);
        if (acct_db_put(db, &r, 1, &err) < 0)
            break;
    }
    acct_db_close(db);
    return n;
}

TEST_OF_ACCOUNTS(full_disk)
{
    unsigned partly = 0;
    for (unsigned i = 0; i < 20; i++) {
        int st;
        pid_t pid = fork();
        if (pid == 0)
            _exit(fill_disk(2048U << (i / 2)));
        assert_int_equal(waitpid(pid, &st, 0), pid);
        assert_true(WIFEXITED(st));
        struct acct_db *db = open_db();
        assert_string_equal(note.text, "");
        size_t n = WEXITSTATUS(st) == 255 ? 0 : (size_t)WEXITSTATUS(st);
        assert_int_equal(ask(all, ACCT_ANYBODY)->n, n);
        partly += n > 0 && n < 250;
        put(db, row(1000, 0, 10, 20, 1));
        assert_int_equal(ask(all, ACCT_ANYBODY)->n, n + 1);
        acct_db_close(db);
        files_like("*", true);
    }
    assert_true(partly > 0);
}

/* ---- the recorder ---- */

struct recorder {
    pid_t pid;
    int link;
};

/* Files of it may not be longer; RLIM_INFINITY: any. */
static struct recorder recorder_start(rlim_t bytes)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        int link = fcntl(fds[1], F_DUPFD, 10);
        dup2(listener, ACCT_LISTEN_FD);
        dup2(link, ACCT_LINK_FD);
        close_range(5, ~0U, 0);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){bytes, RLIM_INFINITY});
        execl(getenv("CEDE_EXE"), "cede-acct", dir, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    return (struct recorder){pid, fds[0]};
}

static bool send_row(const struct recorder *k, uint64_t seq, struct acct_row r)
{
    const struct acct_message m = {.kind = ACCT_ROW, .seq = seq, .row = r};
    return send(k->link, &m, sizeof(m), MSG_NOSIGNAL) == sizeof(m);
}

/* As when ceded has ended. */
static void recorder_end(struct recorder *k)
{
    int status;
    close(k->link);
    assert_int_equal(waitpid(k->pid, &status, 0), k->pid);
    assert_int_equal(status, 0);
}

/* Answers until `seq`, for `ms` at most. Returns the last one. */
static uint64_t answers(const struct recorder *k, uint64_t seq, int ms)
{
    uint64_t got = 0, last = 0;
    struct pollfd p = {.fd = k->link, .events = POLLIN};
    while (last < seq && poll(&p, 1, ms) > 0 && read(k->link, &got, sizeof(got)) == sizeof(got))
        last = got;
    return last;
}

/* What ceded does: all rows that were not answered for are sent again to the next one. */
TEST_OF_ACCOUNTS(killed_again_and_again)
{
    enum { ROWS = 1000, KILLS = 80, A_TIME = 12 }; /* some are left for the last */
    uint64_t written = 0, seed = 3;
    unsigned in_the_middle = 0;
    for (unsigned i = 0; i <= KILLS; i++) {
        struct recorder k = recorder_start(RLIM_INFINITY);
        const uint64_t was = written, most = i == KILLS ? ROWS : was + A_TIME;
        for (uint64_t n = was; n < most && n < ROWS; n++)
            assert_true(send_row(&k, n + 1, row(n / 2, n % 2, 10, 20, 1)));

        if (i == KILLS) {
            assert_int_equal(answers(&k, ROWS, 40000), ROWS);
            recorder_end(&k);
            break;
        }
        seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
        usleep((useconds_t)((seed >> 33) % 25000));
        kill(k.pid, SIGKILL);
        waitpid(k.pid, NULL, 0);
        uint64_t last = answers(&k, ROWS, 0);
        written = last > written ? last : written;
        in_the_middle += last > was && last < ROWS;
        close(k.link);
    }
    assert_int_equal(files_like("*damaged*", false), 0);
    struct acct_query q = all;
    const struct got *g = ask(q, ACCT_ANYBODY);
    assert_int_equal(g->n, ROWS / 2);
    for (size_t i = 0; i < g->n; i++) {
        assert_int_equal(g->v[i].rows, 2);
        assert_int_equal(g->v[i].sums[ACCT_GPU_NS], 2);
    }
    print_message("%u of %u had written something\n", in_the_middle, (unsigned)KILLS);
}

/* Rows wait until there is room again. */
TEST_OF_ACCOUNTS(recorder_waits_for_room)
{
    enum { ROWS = 300 };
    struct recorder k = recorder_start(60000);
    uint64_t sent = 0, written = 0;
    struct timeval wait = {.tv_sec = 1};
    setsockopt(k.link, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    for (int full = 0; sent < ROWS && !full;) {
        full = !send_row(&k, sent + 1, row(sent, 0, 10, 20, 1));
        sent += !full;
    }
    written = answers(&k, ROWS, 500);
    assert_true(written < sent);
    assert_int_equal(
        prlimit(k.pid, RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}, NULL), 0);
    assert_int_equal(answers(&k, sent, 40000), sent);
    recorder_end(&k);
    assert_int_equal(ask(all, ACCT_ANYBODY)->n, sent);
}

/* What was sent before ceded died is written, whether or not it had read the answers. */
TEST_OF_ACCOUNTS(recorder_outlives)
{
    enum { ROWS = 100 };
    struct recorder k = recorder_start(RLIM_INFINITY);
    struct pollfd p = {.fd = k.link, .events = POLLIN};
    for (uint64_t n = 0; n < ROWS; n++) {
        assert_true(send_row(&k, n + 1, row(n, 0, 10, 20, 1)));
        if (n == ROWS / 2)
            assert_int_equal(poll(&p, 1, 40000), 1);
    }
    recorder_end(&k);
    assert_int_equal(ask(all, ACCT_ANYBODY)->n, ROWS);
}

/* By a message that is none, and with ceded; settings on the way. */
TEST_OF_ACCOUNTS(recorder_ends)
{
    int st;
    struct recorder k = recorder_start(RLIM_INFINITY);
    assert_int_equal(send(k.link, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(waitpid(k.pid, &st, 0), k.pid);
    assert_int_equal(WEXITSTATUS(st), 1);
    close(k.link);

    k = recorder_start(RLIM_INFINITY);
    const struct acct_message settings = {.kind = ACCT_SETTINGS,
                                          .settings = {.keep_days = 1, .dropped = 2}};
    assert_true(send_row(&k, 1, row(1, 0, 10, 20, 1)));
    assert_int_equal(answers(&k, 1, 40000), 1);
    send(k.link, &settings, sizeof(settings), MSG_NOSIGNAL);
    for (uint64_t n = 2; n <= 3; n++)
        assert_true(send_row(&k, n, row(n, 0, time(NULL), time(NULL), 1)));
    send(k.link, &settings, sizeof(settings), MSG_NOSIGNAL); /* it answers for what was before */
    assert_int_equal(answers(&k, 3, 40000), 3);
    recorder_end(&k);
    /* Whatever the clock says in the first hour, nothing is forgotten by it. */
    assert_int_equal(ask(all, ACCT_ANYBODY)->n, 3);
    assert_int_equal(ask(all, ACCT_ANYBODY)->dropped, 2);
}

int main(void)
{
    return acct_db_built() ? test_run(NULL, NULL) : 77;
}
