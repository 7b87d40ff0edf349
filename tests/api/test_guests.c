/* Callers by the socket for containers that attack: with uids that they may choose, with many
 * requests at once, and with a link where the socket is made. */
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "server_env.h"

static const char *link_to; /* what stands in the socket's place as soon as it is bound */

int bind(int fd, __CONST_SOCKADDR_ARG at, socklen_t size)
{
    const struct sockaddr_un *a = (const void *)at.__sockaddr__;
    int r = (int)syscall(SYS_bind, fd, a, size);
    if (r == 0 && link_to && (unlink(a->sun_path) < 0 || symlink(link_to, a->sun_path) < 0))
        return -1;
    return r;
}

/* Root in a container that has the directory and may write to it. */
TEST_OF_SERVER(mode_of_no_other_file)
{
    struct error err = {""};
    char path[96], file[96];
    snprintf(path, sizeof(path), "%s/guests", e->dir);
    snprintf(file, sizeof(file), "%s/secret", e->dir);
    int made = open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600), listening;
    assert_true(made >= 0);
    close(made);
    link_to = file;
    listening = server_listen(path, &err);
    link_to = NULL;
    assert_true(listening >= 0);
    close(listening);
    assert_int_equal(mode_of(file), 0600);
    unlink(path);
    unlink(file);
    const mode_t mask = umask(077);
    listening = server_listen(path, &err); /* every user may connect, whatever the umask */
    umask(mask);
    assert_true(listening >= 0);
    close(listening);
    assert_int_equal(mode_of(path), 0666);
    unlink(path);
}

static unsigned queued(const struct engine *m)
{
    unsigned n = 0;
    for (const struct command *c = m->first; c; c = c->next)
        n++;
    return n;
}

#define MANY 12

/* Each may take the daemon 20 ms and more: so others' do not stand behind all of them. */
TEST_OF_SERVER(requests_at_once)
{
    int fd[MANY];
    listen_guests(e);
    for (int i = 0; i < MANY; i++) {
        fd[i] = dial(e->guests);
        send_request(fd[i], "{'op':'policy'}");
    }
    for (int i = 0; i < 20; i++) {
        uv_run(&e->loop, UV_RUN_NOWAIT);
        assert_in_range(queued(e->m), i ? 1 : 0, 4);
    }
    assert_served(e);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(code(reply(e, fd[i])), 0);
        close(fd[i]);
    }
}

/* The part of the tables that is root's is the root's outside. */
TEST_OF_SERVER(jobs_of_root_inside)
{
    needs_root();
    listen_guests(e);
    for (unsigned i = 0; i < USERS_JOBS_MAX; i++) {
        uint32_t job = fake_engine_put(e->m, 100000 + (pid_t)i, 0, CLASS_BATCH, 100, "one of many");
        e->m->jobs[job].job.principal = 1 + i;
    }
    _cleanup_close_ int fd = dial(e->guests), outside = dial(e->path);
    assert_code(e, fd, ENOSPC, "{'op':'add','pid':%d}", (int)getpid());
    assert_code(e, outside, 0, "{'op':'add','pid':%d}", (int)getpid());
}

/* It may take any uid, also those that stand for something here. */
TEST(uids_with_a_meaning)
{
    struct error err = {""};
    const struct caller who = {.uid = UID_OUTSIDE, .guest = true, .ns = {.id = 1, .level = 2}};
    const struct subject paused = {.owner = UID_OUTSIDE,
                                   .managed = true,
                                   .class = CLASS_BATCH,
                                   .paused = true,
                                   .paused_by = UID_OUTSIDE};
    const struct request resume = {.op = OP_RESUME};
    assert_int_equal(rights_check(&who, &resume, &paused, &err), -EPERM);
}

/* In a pid namespace, as any user: takes all connections of a user, and waits. */
static void take_connections(const char *path, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWPID) < 0)
        _exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        bool all = setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
        for (int i = 0; i < SERVER_CLIENTS_PER_USER; i++)
            all &= dial(path) >= 0;
        if (write(ready, all ? "y" : "n", 1) == 1)
            pause();
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    _exit(0);
}

static int as_nobody_outside(const char *path, pid_t parent)
{
    return child_ask(dial(path), "{'op':'policy'}");
}

TEST_OF_SERVER(users_outside_keep_their_part)
{
    char c = 0;
    int ready[2];
    needs_root();
    listen_guests(e);
    assert_int_equal(pipe2(ready, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t inside = fork();
    if (inside == 0)
        take_connections(e->guests, ready[1]);
    for (int i = 0; i < 20000 && read(ready[0], &c, 1) != 1; i++) {
        turns(e, 1);
        usleep(1000);
    }
    assert_int_equal(c, 'y');
    turns(e, TURNS);
    assert_int_equal(as_nobody(e, NOBODY, as_nobody_outside), 0);
    kill(inside, SIGKILL);
    assert_int_equal(waitpid(inside, NULL, 0), inside);
    close(ready[0]);
    close(ready[1]);
}
