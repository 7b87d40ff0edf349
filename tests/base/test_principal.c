/* By whom limits are counted: ranges of a file that changes, and namespaces of real processes. */
#include "../idle_child.h"
#include "base/principal.h"

#include <sched.h>

#include "base/util.h"

static char dir[64], subuid[80], passwd[80];

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int begin(void **state)
{
    snprintf(dir, sizeof(dir), "/tmp/cede-principal-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(subuid, sizeof(subuid), "%s/subuid", dir);
    snprintf(passwd, sizeof(passwd), "%s/passwd", dir);
    write_file(passwd, "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n"
                       "bob:x:1001:1001::/:/bin/sh\n");
    return 0;
}

static int end(void **state)
{
    unlink(subuid);
    unlink(passwd);
    rmdir(dir);
    return 0;
}

TEST_WITH(ranges, begin, end)
{
    struct principals a = {.subuid = subuid, .passwd = passwd};
    assert_int_equal(principal_of(&a, 100000, 0), 100000); /* no file */
    write_file(subuid,
               "# comment\nalice:100000:65536\nnonsense\nbob:165536:65536\nalice:500000:10\n"
               "1002:700000:10\nroot:1000000:1000000\nnobody's:3000000:70000\nzero:0:5\n");
    a.checked_ns = 0;
    static const uid_t rows[][2] = {
        {0, 0},
        {1000, 1000},
        {99999, 99999},
        {100000, 1000},
        {165535, 1000},
        {165536, 1001},
        {231071, 1001},
        {231072, 231072},
        {500009, 1000},
        {500010, 500010},
        {700003, 1002},
        {1000000, 1000000},
        {1065535, 1000000},
        {1065536, 1065536},
        {3000009, 3000000},
        {1999999, 1000000 + 999999 / 65536 * 65536},
        {3, 3},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        uid_t want = rows[i][1];
        if (principal_of(&a, rows[i][0], 0) != want)
            fail_msg("uid %u: %u", rows[i][0], principal_of(&a, rows[i][0], 0));
    }
    write_file(subuid, "alice:165536:65536\n");
    a.checked_ns = 0;
    assert_int_equal(principal_of(&a, 165540, 0), 1000);
    assert_int_equal(principal_of(&a, 100000, 0), 100000);
    principals_free(&a);
}

/* However long the file is, what is read of it is bounded. */
TEST_WITH(long_file, begin, end)
{
    struct principals a = {.subuid = subuid, .passwd = passwd};
    FILE *f = fopen(subuid, "w");
    assert_non_null(f);
    for (unsigned i = 0; i < 100000; i++)
        fprintf(f, "alice:%u:1\n", 100000 + i);
    fclose(f);
    assert_int_equal(principal_of(&a, 100000, 0), 1000);
    assert_int_equal(principal_of(&a, 199999, 0), 199999);
    assert_in_range(a.n, 1000, 10000);
    principals_free(&a);
}

/* A process of uid `as` in a user namespace that `maker` made; nested: in one below that. */
static pid_t in_namespace(uid_t maker, uid_t as, bool nested)
{
    int up[2], down[2];
    char c, path[40];
    assert_true(pipe(up) == 0 && pipe(down) == 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setresuid(maker, maker, maker) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ||
            unshare(CLONE_NEWUSER) < 0 || write(up[1], "x", 1) != 1 || read(down[0], &c, 1) != 1 ||
            setresuid(5, 5, 5) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 ||
            (nested && unshare(CLONE_NEWUSER) < 0))
            _exit(1);
        if (write(up[1], "x", 1) != 1)
            _exit(1);
        idle();
    }
    close(up[1]);
    assert_int_equal(read(up[0], &c, 1), 1);
    snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
    write_file(path, "0 0 10\n");
    snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
    char map[64];
    snprintf(map, sizeof(map), "0 %u 1\n5 %u 1\n", maker, as);
    write_file(path, map);
    assert_int_equal(write(down[1], "x", 1), 1);
    assert_int_equal(read(up[0], &c, 1), 1);
    close(up[0]);
    close(down[0]);
    close(down[1]);
    return pid;
}

TEST_WITH(namespaces, begin, end)
{
    needs_user_namespaces();
    struct principals a = {.subuid = subuid, .passwd = passwd};
    write_file(subuid, "alice:60001:1\n");
    for (int nested = 0; nested < 2; nested++) {
        pid_t pid = in_namespace(60002, 300005, nested);
        assert_int_equal(principal_of(&a, 300005, pid), 60002);
        assert_int_equal(principal_of(&a, 0, pid), 0);
        end_child(pid);
        assert_int_equal(principal_of(&a, 300005, pid), 300005); /* gone */
        pid = in_namespace(60001, 300005, nested); /* who made it is in a range as well */
        assert_int_equal(principal_of(&a, 300005, pid), 1000);
        end_child(pid);
        pid = in_namespace(0, 300005, nested); /* root's: a container */
        assert_int_equal(principal_of(&a, 300005, pid), 300005);
        end_child(pid);
    }
    assert_int_equal(principal_of(&a, 60002, getpid()), 60002);
    principals_free(&a);
}
