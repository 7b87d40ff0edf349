/* The real control socket with a made-up manager behind it: verbs, paging, and clients that
 * misbehave. Other users are in test_users.c. */
#include "server_env.h"

static void verbs(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path), self = (int)getpid();
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"batch\"}", self);
    json_t *job = json_object_get(o, "job");
    assert_string_equal(json_string_value(json_object_get(job, "name")), "test_server");
    assert_string_equal(json_string_value(json_object_get(job, "class")), "batch");
    assert_string_equal(json_string_value(json_object_get(job, "source")), "pid");
    assert_int_equal(json_integer_value(json_object_get(job, "uid")), geteuid());
    assert_int_equal(json_integer_value(json_object_get(job, "pid")), self);
    assert_null(json_object_get(o, "note"));
    json_decref(o);
    assert_true(e->m->jobs[0].job.root.start_ticks > 0);

    /* What was asked has been applied when the reply is there. */
    unsigned before = e->m->applied;
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"#1\"}")), 0);
    assert_int_equal(e->m->applied, before + 1);
    assert_int_equal(e->m->applied_paused, 1);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"resume\",\"target\":\"test_server\"}")), 0);
    assert_int_equal(e->m->applied_paused, 0);

    e->m->status = -EBUSY;
    o = ask(e, fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"#1\"}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), "made-up trouble"));
    assert_int_equal(code(o), EBUSY);
    e->m->status = 0;
    o = ask(e, fd, "{\"v\":1,\"op\":\"swap-out\",\"target\":\"#1\"}");
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "job"), "state")),
                        "swapping-out");
    assert_int_equal(code(o), 0);
    assert_int_equal(e->m->jobs[0].swap_uid, geteuid());
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"none\"}", self)), EBUSY);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"swap-in\",\"target\":\"#1\"}")), 0);
    assert_string_equal(e->m->jobs[0].swap, "swapping-in");
    e->m->jobs[0].swap = "";

    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", self)), EEXIST);
    e->m->status = -ENODEV;
    o = ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"#1\",\"weight\":7}");
    assert_string_equal(json_string_value(json_object_get(o, "note")), "made-up trouble");
    assert_int_equal(code(o), 0);
    assert_int_equal(e->m->jobs[0].job.weight, 7);
    assert_int_equal(e->m->jobs[0].job.class, CLASS_BATCH);
    e->m->status = 0;

    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"none\"}", self)), 0);
    assert_int_equal(e->m->jobs[0].number, 0);
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"none\"}", self)), ESRCH);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"resume\",\"target\":%d}", self)), ENODEV);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"swap-in\",\"target\":%d}", self)), ESRCH);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"#1\"}")), ESRCH);
    /* Pausing what is in no job adopts it. */
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", self)), 0);
    assert_int_equal(e->m->jobs[0].job.paused, 1);
    assert_int_equal(e->m->jobs[0].job.class, CLASS_NORMAL);
    e->m->ends_when_applied = true;
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":%d}", self)), ESRCH);
    e->m->ends_when_applied = false;
    o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"run\":true,\"name\":\"mine\"}", self);
    job = json_object_get(o, "job");
    assert_string_equal(json_string_value(json_object_get(job, "source")), "run");
    assert_string_equal(json_string_value(json_object_get(job, "name")), "mine");
    assert_int_equal(code(o), 0);
    /* A name that two jobs have: the reply names both. */
    fake_engine_put(e->m, 2, 0, CLASS_BATCH, 1, "twin");
    fake_engine_put(e->m, 3, 0, CLASS_BATCH, 1, "twin");
    o = ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"twin\"}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), "#4, #5"));
    assert_int_equal(code(o), ENOTUNIQ);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"nobody's\"}")), ESRCH);
    close(fd);
}

/* What a reply says of its job: its user, and the number. */
static void assert_named(struct env *e, int fd, const char *target, unsigned uid, unsigned number)
{
    json_t *o =
        ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"%s\",\"class\":\"latency\"}", target);
    const json_t *job = json_object_get(o, "job");
    assert_int_equal(json_integer_value(json_object_get(job, "uid")), uid);
    assert_int_equal(json_integer_value(json_object_get(job, "number")), number);
    assert_int_equal(code(o), 0);
}

/* By a name alone root raises no other user's job: it may be called so for that. */
static void assert_not_raised(struct env *e, int fd, unsigned uid, unsigned number)
{
    char whose[48];
    snprintf(whose, sizeof(whose), "name it as %u/train (#%u)", uid, number);
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"train\",\"class\":\"latency\"}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), whose));
    assert_int_equal(code(o), ENOTUNIQ);
    o = ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"train\",\"weight\":9}");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "job"), "uid")), uid);
    assert_int_equal(code(o), 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"train\"}");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(o, "job"), "uid")), uid);
    assert_int_equal(code(o), 0);
}

/* A name that others took stands between no user and a job, and never makes of root's request one
 * about the wrong job without saying so. */
static void names_of_users(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    const unsigned self = geteuid(), alice = self + 1000, mallory = self + 1001;
    fake_engine_put(e->m, 2, alice, CLASS_BATCH, 1, "train");
    assert_not_raised(e, fd, alice, 1);
    assert_int_equal(e->m->jobs[0].job.class, CLASS_BATCH);
    fake_engine_put(e->m, 3, mallory, CLASS_BATCH, 1, "train");
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"train\"}");
    char both[64], name[32];
    snprintf(both, sizeof(both), "%u/train (#1), %u/train (#2)", alice, mallory);
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), both));
    assert_int_equal(code(o), ENOTUNIQ);
    snprintf(name, sizeof(name), "%u/train", alice);
    assert_named(e, fd, name, alice, 1);
    snprintf(name, sizeof(name), "%u/train", mallory + 1);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"%s\"}", name)), ESRCH);
    fake_engine_put(e->m, 4, self, CLASS_BATCH, 1, "train");
    assert_named(e, fd, "train", self, 3);
    o = ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"train\"}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "note")), both));
    assert_int_equal(code(o), 0);
    /* What is left is another's, and the reply says whose. */
    e->m->jobs[0].number = e->m->jobs[2].number = 0;
    assert_not_raised(e, fd, mallory, 2);
    close(fd);
}

static void a_process_that_is_gone(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* a zombie now */
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", (int)pid)), ESRCH);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", (int)pid)), ESRCH);
    assert_int_equal(e->m->end, 0);
    close(fd);
}

static void policies(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"policy\"}");
    assert_string_equal(json_string_value(json_object_get(o, "policy")), "priority");
    assert_true(json_array_size(json_object_get(o, "policies")) >= 2);
    json_decref(o);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}")), 0);
    assert_string_equal(e->m->policy, "shares");
    o = ask(e, fd, "{\"v\":1,\"op\":\"policy\",\"name\":\"best\"}");
    assert_non_null(strstr(json_string_value(json_object_get(o, "error")), "priority"));
    assert_int_equal(code(o), EINVAL);
    assert_string_equal(e->m->policy, "shares");

#define POLICY(rest) "{\"v\":1,\"op\":\"policy\"," rest "}"
    o = ask(e, fd, POLICY("\"params\":{\"rotation_us\":500000,\"floor\":0.25}"));
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(o, "params"), "rotation_us")), 500000);
    assert_int_equal(code(o), 0);
    assert_int_equal(e->m->params.rotation_us, 500000);
    assert_true(e->m->params.floor == 0.25);
    /* What is refused changes nothing: neither the one nor the other. */
    static const char *const bad[] = {
        POLICY("\"params\":{\"floor\":0.1,\"rotation_us\":1}"),
        POLICY("\"params\":{\"floor\":null}"),
        POLICY("\"params\":{\"floor\":0.1},\"name\":\"best\""),
        POLICY("\"params\":{\"floor\":0.7},\"name\":\"priority\""),
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(code(ask(e, fd, "%s", bad[i])), EINVAL);
        assert_int_equal(e->m->params.rotation_us, 500000);
        assert_true(e->m->params.floor == 0.25);
        assert_string_equal(e->m->policy, "shares");
    }
    close(fd);
}

/* GPUs for a program that is about to start; where they cannot be had it is no job. */
static void places(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path), self = (int)getpid();
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"run\":true,\"pid\":%d,\"gpus\":3}", self);
    assert_string_equal(json_string_value(json_object_get(o, "error")),
                        "3 GPUs are wanted, and there are 2 (GPU-0, GPU-1)");
    assert_int_equal(code(o), E2BIG);
    assert_int_equal(e->m->jobs[0].number, 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"run\":true,\"pid\":%d,\"gpus\":1,\"visible\":\"1\"}",
            self);
    assert_string_equal(json_string_value(json_object_get(o, "visible")), "1");
    json_t *placed = json_object_get(json_object_get(o, "job"), "placed");
    assert_int_equal(json_array_size(json_object_get(placed, "gpus")), 1);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(placed, "gpus"), 0)), 1);
    assert_string_equal(json_string_value(json_object_get(placed, "why")), "no job is there");
    assert_int_equal(code(o), 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"#2\",\"weight\":7}");
    assert_null(json_object_get(o, "visible"));
    assert_int_equal(code(o), 0);
    close(fd);
}

static void pages(void **state)
{
    struct env *e = *state;
    enum { JOBS = 2000 };
    char name[JOB_NAME_MAX];
    for (int i = 0; i < JOBS; i++) {
        snprintf(name, sizeof(name), "\"%0*d\"", 1 + i % 60, i);
        fake_engine_put(e->m, 10 + i, 0, CLASS_BATCH, 100, name);
    }
    int fd = dial(e->path), n = 0, count = 0;
    json_int_t last = 0;
    for (bool more = true; more; n++) {
        json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"ps\",\"after\":%lld}", (long long)last);
        assert_int_equal(json_array_size(json_object_get(o, "gpus")), 2);
        json_t *jobs = json_object_get(o, "jobs"), *job;
        size_t i;
        assert_true(json_array_size(jobs) > 0);
        json_array_foreach(jobs, i, job)
        {
            json_int_t number = json_integer_value(json_object_get(job, "number"));
            assert_true(number > last);
            last = number;
            count++;
        }
        more = json_is_true(json_object_get(o, "more"));
        json_decref(o);
        if (n == 0) {
            /* Slot 0 ends and is used again: the new job comes last, and nothing is missed. */
            e->m->jobs[0].number = 0;
            assert_int_equal(fake_engine_put(e->m, 5, 0, CLASS_BATCH, 100, "late"), 0);
        }
    }
    assert_int_equal(last, JOBS + 1);
    assert_int_equal(count, JOBS + 1);
    assert_true(n > 2);
    close(fd);
}

static void malformed(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    assert_int_equal(code(ask(e, fd, "{")), EINVAL);
    assert_int_equal(code(ask(e, fd, "{\"v\":9,\"op\":\"ps\"}")), EPROTO);
    /* Such a mistake costs the sender nothing but the reply. */
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"ps\"}")), 0);

    uint32_t x = 12345;
    for (int i = 0; i < 500; i++) {
        unsigned char buf[300];
        for (size_t k = 0; k < sizeof(buf); k++)
            buf[k] = (unsigned char)((x = x * 1664525U + 1013904223U) >> 24);
        size_t n = 1 + x % sizeof(buf);
        assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
        assert_int_equal(code(reply(e, fd)), EINVAL);
    }
    close(fd);
    assert_served(e);
}

static void too_long(void **state)
{
    struct env *e = *state;
    static const size_t sizes[] = {PROTO_MESSAGE_MAX + 1, 100000, 1 << 20, 10 << 20};
    char *text = malloc(10 << 20);
    assert_non_null(text);
    memset(text, ' ', 10 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        int fd = dial(e->path), room = 32 << 20;
        /* The kernel may refuse 10 MB in one message, and 1 MB from anyone but root. */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
        if (send(fd, text, sizes[i], MSG_NOSIGNAL) < 0) {
            assert_true(errno == EMSGSIZE || errno == ENOBUFS);
            assert_true(sizes[i] > 100000);
            close(fd);
            continue;
        }
        assert_int_equal(code(reply(e, fd)), EMSGSIZE);
        assert_hung_up(e, fd);
    }
    free(text);
    assert_served(e);
}

static void half_open(void **state)
{
    struct env *e = *state;
    int a = dial(e->path), b = dial(e->path), c = dial(e->path), d = dial(e->path);
    turns(e, 2);
    close(a);
    shutdown(b, SHUT_WR);
    assert_hung_up(e, b);
    assert_int_equal(send(c, "", 0, MSG_NOSIGNAL), 0);
    assert_hung_up(e, c);
    /* Asks, and is gone before the answer. */
    assert_int_equal(send(d, "{\"v\":1,\"op\":\"ps\"}", 17, MSG_NOSIGNAL), 17);
    close(d);
    close(dial(e->path)); /* gone before it was accepted */
    turns(e, 5);
    assert_served(e);
}

/* A transient daemon stops when its last job is let go of: before the answer, which this client
 * does not wait for. */
static void stops_while_answering(void **state)
{
    struct env *e = *state;
    fake_engine_put(e->m, 10, 0, CLASS_NORMAL, 100, "last");
    int waits = dial(e->path), gone = dial(e->path);
    static const char text[] = "{\"v\":1,\"op\":\"pause\",\"target\":\"last\"}";
    turns(e, 2);
    assert_int_equal(send(waits, "{\"v\":1,\"op\":\"ps\"}", 17, MSG_NOSIGNAL), 17);
    assert_int_equal(code(reply(e, waits)), 0);
    e->m->on_apply = stop_server;
    e->m->arg = e;
    assert_int_equal(send(gone, text, sizeof(text) - 1, MSG_NOSIGNAL), sizeof(text) - 1);
    close(gone);
    turns(e, 5);
    assert_null(e->s);
    assert_hung_up(e, waits);
}

static void many_clients(void **state)
{
    struct env *e = *state;
    int fds[300], refused = 0;
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = dial(e->path);
        assert_true(fds[i] >= 0);
        turns(e, 2);
    }
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        char buf[256];
        ssize_t n = recv(fds[i], buf, sizeof(buf), MSG_DONTWAIT);
        if (n > 0) {
            json_t *o = json_loadb(buf, (size_t)n, 0, NULL);
            assert_int_equal(code(o), EUSERS);
            assert_int_equal(recv(fds[i], buf, sizeof(buf), MSG_DONTWAIT), 0);
            refused++;
        } else {
            assert_int_equal(n, -1);
            assert_int_equal(code(ask(e, fds[i], "{\"v\":1,\"op\":\"ps\"}")), 0);
        }
    }
    assert_int_equal(refused, 300 - SERVER_CLIENTS_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    turns(e, 5);
    assert_served(e);
}

static void no_descriptors_left(void **state)
{
    struct env *e = *state;
    struct rlimit old, now;
    int fd = dial(e->path), lowest = dup(fd);
    assert_true(fd >= 0 && lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    now = old;
    now.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
    json_t *o = reply(e, fd); /* refused, rather than left waiting in the queue */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(code(o), EMFILE);
    assert_hung_up(e, fd);
    assert_served(e);
}

static void never_reads(void **state)
{
    struct env *e = *state;
    for (int i = 0; i < 400; i++)
        fake_engine_put(e->m, 10 + i, 0, CLASS_BATCH, 100, "one of many");
    int fd = dial(e->path), sent = 0;
    while (sent < 100 &&
           send(fd, "{\"v\":1,\"op\":\"ps\"}", 17, MSG_NOSIGNAL | MSG_DONTWAIT) == 17) {
        sent++;
        turns(e, 2);
    }
    assert_true(sent < 100); /* it was disconnected, and the replies it got are few */
    static char buf[PROTO_MESSAGE_MAX];
    int got = 0;
    while (recv(fd, buf, sizeof(buf), MSG_DONTWAIT) > 0)
        got++;
    assert_true(got > 0 && got < sent);
    assert_hung_up(e, fd);
    assert_served(e);
}

static void old_sockets(void **state)
{
    struct env *e = *state;
    struct error err = {""};
    struct server *s;
    char path[96];
    snprintf(path, sizeof(path), "%s/other", e->dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(server_start(&e->loop, path, &e->v, ADMIN_NO_GROUP, &s, &err), -EEXIST);
    assert_int_equal(access(path, F_OK), 0); /* not ours to remove */
    unlink(path);

    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd); /* its name stays, as after kill -9 */
    assert_int_equal(dial(path), -1);
    assert_int_equal(server_start(&e->loop, path, &e->v, ADMIN_NO_GROUP, &s, &err), 0);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666);
    fd = dial(path);
    assert_true(fd >= 0);
    assert_int_equal(code(ask(e, fd, "{\"v\":1,\"op\":\"ps\"}")), 0);
    server_stop(s);
    assert_hung_up(e, fd);
}

/* An administrator's deadline may bring a job above latency jobs. */
static void deadlines(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path), self = (int)getpid();
    assert_int_equal(code(ask(e, fd,
                              "{\"v\":1,\"op\":\"set\",\"target\":%d,\"deadline_us\":3000000,"
                              "\"laxity_us\":1000000}",
                              self)),
                     0);
    uint32_t job = engine_job_of(e->m, getpid());
    const struct journal_job *j = &e->m->jobs[job].job;
    assert_true(j->deadline_us == 3000000 && j->laxity_us == 1000000 && j->may_promote);
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"deadline_us\":0}", self)), 0);
    assert_true(!j->deadline_us && !j->laxity_us && !j->may_promote);
    /* Not for a latency job. */
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"class\":\"latency\"}", self)), 0);
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":%d,\"deadline_us\":3000000}", self)),
        EINVAL);
    close(fd);
}

static void put_unmanaged(struct env *e, pid_t pid, uid_t uid, bool detached, const char *comm)
{
    struct unmanaged *u = &e->m->unmanaged[e->m->nunmanaged++];
    *u = (struct unmanaged){.id = {.pid = pid}, .uid = uid, .gpus = 5, .detached = detached};
    snprintf(u->comm, sizeof(u->comm), "%s", comm);
}

static long long number_of(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* Which GPU programs no job owns goes with the first page, and with the answer to `cede run`. */
static void unmanaged(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    uid_t other = geteuid() + 1;
    json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"ps\"}");
    assert_int_equal(json_array_size(json_object_get(o, "unmanaged")), 0);
    assert_true(json_is_array(json_object_get(o, "unmanaged")));
    json_decref(o);

    put_unmanaged(e, 10, geteuid(), true, "detached");
    put_unmanaged(e, 11, other, false, "theirs");
    put_unmanaged(e, 12, geteuid(), false, "\033[2J\n\"x\377");
    o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d,\"run\":true}", (int)getpid());
    assert_int_equal(json_array_size(json_object_get(o, "unmanaged")), 3);
    json_decref(o);
    assert_int_equal(
        code(ask(e, fd, "{\"v\":1,\"op\":\"set\",\"target\":\"#1\",\"class\":\"none\"}")), 0);
    o = ask(e, fd, "{\"v\":1,\"op\":\"add\",\"pid\":%d}", (int)getpid());
    assert_null(json_object_get(o, "unmanaged"));
    json_decref(o);
    o = ask(e, fd, "{\"v\":1,\"op\":\"ps\",\"after\":1}");
    assert_null(json_object_get(o, "unmanaged"));
    json_decref(o);

    /* Those that the caller may set come first, those that a person detached last. */
    o = ask(e, fd, "{\"v\":1,\"op\":\"ps\"}");
    const json_t *list = json_object_get(o, "unmanaged"), *u = json_array_get(list, 0);
    static const int pids_of_root[] = {11, 12, 10}, pids_of_user[] = {12, 11, 10};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(number_of(json_array_get(list, i), "pid"),
                         (geteuid() == 0 ? pids_of_root : pids_of_user)[i]);
    assert_true(json_is_true(json_object_get(u, "may_set")));
    assert_true(json_is_false(json_object_get(u, "detached")));
    assert_true(json_is_true(json_object_get(json_array_get(list, 2), "detached")));
    u = json_array_get(list, geteuid() == 0 ? 1 : 0);
    assert_string_equal(json_string_value(json_object_get(u, "name")), "_[2J_\"x_");
    assert_int_equal(number_of(u, "uid"), geteuid());
    assert_int_equal(json_array_size(json_object_get(u, "gpus")), 2);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(u, "gpus"), 1)), 2);
    assert_null(json_object_get(o, "unmanaged_more"));
    json_decref(o);
    close(fd);
}

/* However many there are, the first page has room for jobs. */
static void many_unmanaged(void **state)
{
    struct env *e = *state;
    int fd = dial(e->path);
    for (int i = 0; i < 100; i++) {
        put_unmanaged(e, INT32_MAX - i, geteuid(), false, "\\\\\\\\\"\"\"\"\"\"\"\"\"\"\"");
        e->m->unmanaged[i].gpus = 0xffff;
    }
    for (int i = 0; i < 300; i++)
        fake_engine_put(e->m, 1000 + i, 0, CLASS_BATCH, 1, "some job with a name of some length");
    long long last = 0;
    size_t jobs = 0, pages = 0;
    for (bool more = true; more; pages++) {
        json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"ps\",\"after\":%lld}", last);
        const json_t *page = json_object_get(o, "jobs");
        size_t n = json_array_size(page);
        assert_true(n > 0);
        last = number_of(json_array_get(page, n - 1), "number");
        jobs += n;
        more = json_is_true(json_object_get(o, "more"));
        assert_int_equal(json_array_size(json_object_get(o, "unmanaged")), pages ? 0 : 64);
        assert_int_equal(number_of(o, "unmanaged_more"), pages ? 0 : 36);
        json_decref(o);
    }
    assert_int_equal(jobs, 300);
    assert_true(pages > 1);
    close(fd);
}

/* What is withheld on a GPU is said of it, and a pause that could not be is refused. */
static void withheld(void **state)
{
    struct env *e = *state;
    pid_t self = getpid();
    fake_engine_put(e->m, self, getuid(), CLASS_BATCH, 100, "job");
    int fd = dial(e->path);
    for (int off = 0; off < 2; off++) {
        e->m->withheld = off ? GPU_CAP_SUSPEND | GPU_CAP_PLACE : 0;
        json_t *o = ask(e, fd, "{\"v\":1,\"op\":\"ps\"}");
        const json_t *gpu = json_array_get(json_object_get(o, "gpus"), 1);
        const json_t *which = json_object_get(gpu, "off"), *why = json_object_get(gpu, "off_why");
        assert_int_equal(json_array_size(which), off ? 2 : 0);
        assert_int_equal(json_array_size(json_object_get(gpu, "caps")), off ? 0 : 1);
        assert_int_equal(!why, !off);
        if (off)
            assert_string_equal(json_string_value(why), "made-up");
        json_decref(o);
        o = ask(e, fd, "{\"v\":1,\"op\":\"pause\",\"target\":\"job\"}");
        assert_int_equal(code(o), off ? ENOTSUP : 0);
    }
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(verbs),
        TEST(names_of_users),
        TEST(unmanaged),
        TEST(many_unmanaged),
        TEST(a_process_that_is_gone),
        TEST(policies),
        TEST(deadlines),
        TEST(places),
        TEST(pages),
        TEST(withheld),
        TEST(malformed),
        TEST(too_long),
        TEST(half_open),
        TEST(many_clients),
        TEST(no_descriptors_left),
        TEST(never_reads),
        TEST(old_sockets),
        TEST(stops_while_answering),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
