/* Checkpoints in files: every byte flipped, every length, killed at each call that writes, each
 * call failing, and whatever may be in the way. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "../random.h"
#include "base/util.h"
#include "cede/slice.h"
#include "fixture.h"

/* ---- calls that fail, or in which the process is killed -------------------------------------- */

static int calls, kill_at, fail_at, fail_with; /* kill_at, fail_at: the n-th; 0: none */
static bool shorter;                           /* writes take less than they are given */

static bool fails(void)
{
    if (++calls == kill_at)
        kill(getpid(), SIGKILL);
    if (calls != fail_at)
        return false;
    errno = fail_with;
    return true;
}

/* WRAPPED(): a call that may fail; see the tests' link arguments. */
#define WRAPPED(type, name, parameters, ...)                                                       \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails() ? -1 : __real_##name(__VA_ARGS__);                                          \
    }

WRAPPED(ssize_t, write, (int fd, const void *data, size_t n), fd, data, shorter &&n > 7 ? 7 : n)
WRAPPED(int, fsync, (int fd), fd)
WRAPPED(int, rename, (const char *from, const char *to), from, to)
WRAPPED(int, ftruncate, (int fd, off_t n), fd, n)

static void no_faults(void)
{
    calls = kill_at = fail_at = fail_with = 0;
    shorter = false;
}

/* ---- the file -------------------------------------------------------------------------------- */

#define WORK  0x1234567890abcdefULL
#define BYTES 37

static char dir[64], path[96], beside[112];
static struct cede_checkpoint c;
static unsigned char out[4096];

static int begin_test(void **unused)
{
    /* In memory, if that is there: hundreds of syncs take minutes on a busy disk. */
    snprintf(dir, sizeof(dir), "%s/cede-test-checkpoint-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof(path), "%s/state", dir);
    snprintf(beside, sizeof(beside), "%s.new", path);
    c = (struct cede_checkpoint){.path = path, .work = WORK};
    no_faults();
    return 0;
}

static int end_test(void **unused)
{
    char cmd[128];
    snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
    return system(cmd);
}

static void fill(unsigned char *state_bytes, size_t n, unsigned char with)
{
    for (size_t i = 0; i < n; i++)
        state_bytes[i] = (unsigned char)(i * 7 + with);
}

static int try_write(unsigned char with, uint64_t done)
{
    unsigned char data[BYTES];
    fill(data, sizeof(data), with);
    return cede_checkpoint_write(&c, done, data, sizeof(data));
}

static void write_state(unsigned char with, uint64_t done)
{
    assert_int_equal(try_write(with, done), 0);
    assert_string_equal(c.error, "");
}

/* It is there, and whole. */
static bool is_state(unsigned char with, uint64_t done)
{
    unsigned char data[BYTES];
    uint64_t found = 0;
    fill(data, sizeof(data), with);
    return cede_checkpoint_read(&c, &found, out, BYTES) == 0 && found == done &&
           memcmp(out, data, BYTES) == 0;
}

static void put_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    OK(fclose(f));
}

static size_t get_file(const char *name, void *data, size_t size)
{
    FILE *f = fopen(name, "r");
    assert_non_null(f);
    size_t n = fread(data, 1, size, f);
    fclose(f);
    return n;
}

/* Refused, with `done` as it was and a text that names the file and says what to do. */
static void refused(int error, const char *text, size_t bytes)
{
    uint64_t done = 77;
    assert_int_equal(cede_checkpoint_read(&c, &done, out, bytes), error);
    assert_int_equal(done, 77);
    assert_non_null(strstr(c.error, path));
    assert_non_null(strstr(c.error, text));
}

/* ---- tests ----------------------------------------------------------------------------------- */

TEST_WITH(comes_back, begin_test, end_test)
{
    unsigned char data[sizeof(out)];
    uint64_t done = 77;
    assert_int_equal(cede_checkpoint_read(&c, &done, out, BYTES), -ENOENT);
    assert_int_equal(done, 77);
    for (size_t n = 0; n < 100; n++) {
        fill(data, n, 3);
        shorter = n % 2;
        OK(cede_checkpoint_write(&c, UINT64_MAX - n, n ? data : NULL, n));
        OK(cede_checkpoint_read(&c, &done, out, n));
        assert_true(done == UINT64_MAX - n);
        assert_memory_equal(out, data, n);
        assert_int_equal(access(beside, F_OK), -1);
    }
    fill(data, sizeof(data), 1);
    OK(cede_checkpoint_write(&c, 5, data, sizeof(data)));
    OK(cede_checkpoint_read(&c, &done, out, sizeof(out)));
    assert_memory_equal(out, data, sizeof(out));
    /* In the current directory. */
    c.path = "state";
    OK(chdir(dir));
    write_state(9, 6);
    assert_true(is_state(9, 6));
    OK(chdir("/"));
}

TEST_WITH(damaged, begin_test, end_test)
{
    unsigned char good[256], bad[256];
    write_state(1, 1000);
    size_t n = get_file(path, good, sizeof(good));
    assert_in_range(n, BYTES + 16, sizeof(good) - 1);
    for (size_t i = 0; i < n; i++) {
        for (int bit = 0; bit < 9; bit++) { /* each bit, and all of the byte's */
            memcpy(bad, good, n);
            bad[i] ^= (unsigned char)(bit < 8 ? 1 << bit : 255);
            put_file(path, bad, n);
            refused(i >= 8 && i < 12 ? -EPROTO : -EBADMSG, i >= 8 && i < 12 ? "format" : "damaged",
                    BYTES);
            assert_non_null(strstr(c.error, "remove it"));
        }
    }
    for (size_t cut = 0; cut < n; cut++) {
        put_file(path, good, cut);
        refused(-EBADMSG, "damaged", BYTES);
    }
    good[n] = 0;
    put_file(path, good, n + 1);
    refused(-EBADMSG, "damaged", BYTES);
    put_file(path, good, n);
    assert_true(is_state(1, 1000));
    for (unsigned i = 0; i < 20000; i++) { /* anything */
        state = i;
        size_t size = rnd(sizeof(bad));
        bool head = rnd(2);
        for (size_t k = 0; k < size; k++)
            bad[k] = (unsigned char)(head && k < 16 ? good[k] : rnd(256));
        put_file(path, bad, size);
        uint64_t done = 77;
        int r = cede_checkpoint_read(&c, &done, out, BYTES);
        assert_true(r == -EBADMSG || r == -EPROTO);
    }
}

TEST_WITH(of_other_work, begin_test, end_test)
{
    write_state(1, 1000);
    c.work++;
    refused(-ESTALE, "other work", BYTES);
    c.work--;
    refused(-ESTALE, "bytes", BYTES - 1);
    refused(-ESTALE, "bytes", BYTES + 1);
    refused(-ESTALE, "bytes", 0);
    assert_true(is_state(1, 1000));
}

/* The process is killed at each call that changes something: the file is the former one or the new
 * one, and the next process is not disturbed by what is left. */
TEST_WITH(killed_anywhere, begin_test, end_test)
{
    int killed = 0, new = 0, status = 1;
    for (int at = 1; status; at++) {
        no_faults();
        write_state(1, 1000);
        assert_int_equal(access(beside, F_OK), -1);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            no_faults();
            shorter = true;
            kill_at = at;
            _exit(try_write(2, 2000) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        bool has_new = is_state(2, 2000);
        assert_true(has_new || (status && is_state(1, 1000)));
        assert_true(!status || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
        new += has_new;
        killed += status != 0;
    }
    assert_true(killed >= 10);
    assert_int_equal(new, 2); /* at the sync of the directory, and not killed */
}

TEST_WITH(calls_fail, begin_test, end_test)
{
    static const int errors[] = {ENOSPC, EDQUOT, EIO, EFBIG, EINTR};
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        for (int at = 1; at < 30; at++) {
            no_faults();
            write_state(1, 1000);
            no_faults();
            shorter = true;
            fail_at = at;
            fail_with = errors[i];
            int r = try_write(2, 2000);
            bool reached = calls >= at;
            no_faults();
            if (r == 0) {
                assert_true(!reached || errors[i] == EINTR);
                assert_true(is_state(2, 2000));
                continue;
            }
            assert_int_equal(r, -errors[i]);
            assert_non_null(strstr(c.error, path));
            assert_non_null(strstr(c.error, "former checkpoint"));
            bool renamed = strstr(c.error, "directory") != NULL;
            assert_true(renamed ? is_state(2, 2000) : is_state(1, 1000));
            assert_int_equal(access(beside, F_OK), -1); /* takes no room */
        }
    }
}

static void not_written(int error, const char *text)
{
    assert_int_equal(try_write(0, 1), error);
    assert_non_null(strstr(c.error, text));
}

/* Files in the place of the checkpoint, and beside it in that of the next one. */
TEST_WITH(in_the_way, begin_test, end_test)
{
    enum { SYMLINK, LINK, FIFO, DIRECTORY };
    static const struct {
        int what;
        bool beside;
        int write;
        const char *text;
        int read;
    } rows[] = {{SYMLINK, false, -ELOOP, "symbolic link", -ELOOP},
                {DIRECTORY, false, -EEXIST, "no file", -EBADMSG},
                {FIFO, false, -EEXIST, "no file", -EBADMSG},
                {SYMLINK, true, -ELOOP, "symbolic link", -ENOENT},
                {LINK, true, -EEXIST, "remove it", -ENOENT},
                {FIFO, true, -ENXIO, ".new", -ENOENT}}; /* nobody reads it: this does not wait */
    char elsewhere[112], text[16] = "";
    uint64_t done = 0;
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", dir);
    put_file(elsewhere, "precious", 8);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *at = rows[i].beside ? beside : path;
        OK(rows[i].what == SYMLINK ? symlink(elsewhere, at)
           : rows[i].what == LINK  ? link(elsewhere, at)
           : rows[i].what == FIFO  ? mkfifo(at, 0600)
                                   : mkdir(at, 0700));
        not_written(rows[i].write, rows[i].text);
        assert_int_equal(cede_checkpoint_read(&c, &done, out, BYTES), rows[i].read);
        if (i + 1 < ARRAY_SIZE(rows))
            OK(remove(at));
    }
    int reader = open(beside, O_RDONLY | O_NONBLOCK);
    not_written(-EEXIST, "remove it");
    close(reader);
    assert_int_equal(get_file(elsewhere, text, sizeof(text)), 8);
    assert_string_equal(text, "precious");
    c.path = "/nowhere-at-all/state";
    not_written(-ENOTDIR, "/nowhere-at-all/state.new");
}

/* Without the right to write, or read; as a user, where this runs as root. */
TEST_WITH(no_permission, begin_test, end_test)
{
    write_state(1, 1000);
    OK(chmod(path, 0600));
    OK(chmod(dir, 0555));
    pid_t pid = fork();
    if (pid == 0) {
        uint64_t done;
        bool user = getuid() == 0;
        if (user && setuid(65534) < 0)
            _exit(1);
        if (try_write(0, 2) != -EACCES || !strstr(c.error, "cannot create"))
            _exit(2);
        _exit(user && (cede_checkpoint_read(&c, &done, out, BYTES) != -EACCES ||
                       !strstr(c.error, "cannot open")));
    }
    child_ends_well(pid);
    OK(chmod(dir, 0755));
    assert_true(is_state(1, 1000));
}

/* Two processes with one path by mistake: one is told so, or each file is whole. */
TEST_WITH(two_writers, begin_test, end_test)
{
    write_state(1, 1000);
    int fd = open(beside, O_WRONLY | O_CREAT, 0600);
    OK(flock(fd, LOCK_EX));
    not_written(-EBUSY, "path of its own");
    assert_true(is_state(1, 1000));
    close(fd);
    pid_t pids[2];
    for (unsigned i = 0; i < 2; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i])
            continue;
        int r = 0;
        for (int k = 0; k < 300 && (r == 0 || r == -EBUSY); k++)
            r = try_write((unsigned char)i, 1000 + i);
        _exit(r != 0 && r != -EBUSY);
    }
    for (unsigned i = 0, seen = 0; i < 2 || seen < 100; seen++) {
        unsigned char data[BYTES];
        uint64_t done = 0;
        int status = 0;
        OK(cede_checkpoint_read(&c, &done, out, BYTES));
        fill(data, BYTES, out[0]);
        assert_memory_equal(out, data, BYTES);
        assert_true(out[0] < 2 && (done == 1000 || (done == 1001 && out[0] == 1)));
        if (i < 2 && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
            OK(status);
            i++;
        }
    }
}
