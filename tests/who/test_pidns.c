/* Which pid namespace a process is in, whatever it does to be taken for another, and by whom it is
 * counted there. */
#include "../test.h"
#include "who/pidns.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/principal.h"
#include "base/util.h"
#include "who/procfs.h"

#define GROUPS_MAX 65536

struct inside {
    pid_t pid; /* process 1 there */
    int in, out;
};

static void groups_on_command(int in, int out)
{
    static gid_t groups[GROUPS_MAX];
    size_t n;
    for (size_t i = 0; i < GROUPS_MAX; i++)
        groups[i] = (gid_t)(4000000000U + i);
    while (read(in, &n, sizeof(n)) == sizeof(n)) {
        const char c = setgroups(n, groups) == 0;
        if (write(out, &c, 1) != 1)
            break;
    }
    _exit(0);
}

/* maker: root, or who made a user namespace around it. */
static struct inside enter(uid_t maker, uid_t uid, unsigned levels)
{
    int in[2], out[2];
    struct inside x = {.pid = 0};
    assert_true(pipe(in) == 0 && pipe(out) == 0);
    pid_t first = fork();
    if (first == 0) {
        close(in[1]);
        if (maker && (setresuid(maker, maker, maker) < 0 || unshare(CLONE_NEWUSER) < 0))
            _exit(1);
        for (unsigned i = 0; i < levels; i++) {
            if (unshare(CLONE_NEWPID) < 0)
                _exit(1);
            if (fork() > 0)
                _exit(wait(NULL) < 0);
        }
        if (uid && setresuid(uid, uid, uid) < 0)
            _exit(1);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char c = 0;
        if (write(out[1], &c, 1) == 1)
            groups_on_command(in[0], out[1]);
        _exit(1);
    }
    close(in[0]);
    close(out[1]);
    char c;
    assert_int_equal(read(out[0], &c, 1), 1);
    for (x.pid = first; levels > 0; levels--) {
        char path[64], buf[32] = "";
        snprintf(path, sizeof(path), "task/%d/children", (int)x.pid);
        assert_true(proc_read(x.pid, path, buf, sizeof(buf)) > 0);
        x.pid = atoi(buf);
    }
    x.in = in[1];
    x.out = out[0];
    return x;
}

static void leave(struct inside *x)
{
    close(x->in);
    close(x->out);
    while (waitpid(-1, NULL, 0) > 0)
        ;
}

/* The line "NSpid:" is behind the groups: there it is neither cut nor missed. */
TEST(groups)
{
    if (geteuid() != 0)
        skip();
    struct inside x = enter(0, 0, 1);
    struct pidns ns, now;
    assert_int_equal(pidns_of(x.pid, &ns), 0);
    assert_int_equal(ns.level, 2);
    for (size_t i = 330; i <= 400; i++) {
        const size_t n = i < 400 ? i : GROUPS_MAX;
        char c = 0;
        pid_t found = 0;
        assert_int_equal(write(x.in, &n, sizeof(n)), sizeof(n));
        assert_int_equal(read(x.out, &c, 1), 1);
        assert_int_equal(c, 1);
        assert_int_equal(pidns_of(x.pid, &now), 0);
        assert_int_equal(now.level, 2);
        assert_true(now.id == ns.id);
        assert_int_equal(pidns_number(ns, x.pid), 1);
        assert_int_equal(pidns_number(ns, getpid()), 0);
        assert_int_equal(pidns_translate(x.pid, 1, &found), 0);
        assert_int_equal(found, x.pid);
    }
    leave(&x);
}

/* Uids inside are anybody's choice, a namespace and who made it are not. */
TEST(accounts)
{
    needs_user_namespaces();
    struct principals a = {.subuid = "/nonexistent"};
    struct pidns ns;
    struct inside x = enter(0, 4321, 1);
    assert_int_equal(pidns_of(x.pid, &ns), 0);
    assert_int_equal(principal_of_guest(&a, 4321, x.pid), (uid_t)ns.id);
    assert_int_equal(principal_of_guest(&a, 0, x.pid), (uid_t)ns.id);
    assert_true((uid_t)ns.id >= 0xf0000000U);
    leave(&x);
    x = enter(0, 0, 2); /* in one that the container has made */
    struct pidns outer;
    struct proc_stat st;
    assert_int_equal(proc_stat_read(x.pid, &st), 0);
    assert_int_equal(pidns_of(st.ppid, &outer), 0);
    assert_int_equal(pidns_of(x.pid, &ns), 0);
    assert_int_equal(ns.level, 3);
    assert_int_equal(principal_of_guest(&a, 0, x.pid), (uid_t)outer.id);
    leave(&x);
    x = enter(4322, 0, 1); /* rootless */
    assert_int_equal(principal_of_guest(&a, 4322, x.pid), 4322);
    leave(&x);
    assert_int_equal(principal_of_guest(&a, 4323, getpid()), 4323); /* in ours */
    assert_int_equal(principal_of_guest(&a, 0, getpid()), 0);
    principals_free(&a);
}
