/* The real control socket with a made-up manager behind it: verbs, paging, and clients that
 * misbehave. Other users are in test_users.c. */
#include "server_env.h"

TEST_OF_CLIENT(verbs_of_a_process)
{
    int self = (int)getpid();
    struct job_view *job = &e->m->jobs[0];
    json_t *o = ask(e, fd, "{'op':'set','target':%d,'class':'batch'}", self);
    assert_like(o, "{'job':{'name':'test_server','class':'batch','source':'pid'},'note':null}");
    assert_int_equal(json_get_int(json_object_get(o, "job"), "uid"), geteuid());
    assert_int_equal(json_get_int(json_object_get(o, "job"), "pid"), self);
    json_decref(o);
    assert_true(job->job.root.start_ticks > 0);

    /* What was asked has been applied when the reply is there. */
    unsigned before = e->m->applied;
    assert_code(e, fd, 0, "{'op':'pause','target':'#1'}");
    assert_int_equal(e->m->applied, before + 1);
    assert_int_equal(e->m->applied_paused, 1);
    assert_code(e, fd, 0, "{'op':'resume','target':'test_server'}");
    assert_int_equal(e->m->applied_paused, 0);

    e->m->status = -EBUSY;
    assert_reply(e, fd, EBUSY, "{'error':'*made-up trouble*'}", "{'op':'swap-out','target':'#1'}");
    e->m->status = 0;
    assert_reply(e, fd, 0, "{'job':{'state':'swapping-out'}}", "{'op':'swap-out','target':'#1'}");
    assert_int_equal(job->swap_uid, geteuid());
    assert_code(e, fd, EBUSY, "{'op':'set','target':%d,'class':'none'}", self);
    assert_code(e, fd, 0, "{'op':'swap-in','target':'#1'}");
    assert_string_equal(job->swap, "swapping-in");
    job->swap = "";

    assert_code(e, fd, EEXIST, "{'op':'add','pid':%d}", self);
    e->m->status = -ENODEV;
    assert_reply(e, fd, 0, "{'note':'made-up trouble'}", "{'op':'set','target':'#1','weight':7}");
    assert_int_equal(job->job.weight, 7);
    assert_int_equal(job->job.class, CLASS_BATCH);
    e->m->status = 0;
    assert_code(e, fd, 0, "{'op':'set','target':%d,'class':'none'}", self);
    assert_int_equal(job->number, 0);
    assert_code(e, fd, ESRCH, "{'op':'pause','target':'#1'}");
}

TEST_OF_CLIENT(verbs_of_no_job)
{
    int self = (int)getpid();
    struct job_view *job = &e->m->jobs[0];
    assert_code(e, fd, ESRCH, "{'op':'set','target':%d,'class':'none'}", self);
    assert_code(e, fd, ENODEV, "{'op':'resume','target':%d}", self);
    assert_code(e, fd, ESRCH, "{'op':'swap-in','target':%d}", self);
    assert_code(e, fd, ESRCH, "{'op':'pause','target':'#1'}");
    /* Pausing what is in no job adopts it. */
    assert_code(e, fd, 0, "{'op':'pause','target':%d}", self);
    assert_int_equal(job->job.paused, 1);
    assert_int_equal(job->job.class, CLASS_NORMAL);
    e->m->ends_when_applied = true;
    assert_code(e, fd, ESRCH, "{'op':'pause','target':%d}", self);
    e->m->ends_when_applied = false;
    assert_reply(e, fd, 0, "{'job':{'source':'run','name':'mine'}}",
                 "{'op':'add','pid':%d,'run':true,'name':'mine'}", self);
    /* A name that two jobs have: the reply names both. */
    fake_engine_put(e->m, 2, 0, CLASS_BATCH, 1, "twin");
    fake_engine_put(e->m, 3, 0, CLASS_BATCH, 1, "twin");
    assert_reply(e, fd, ENOTUNIQ, "{'error':'*#3, #4*'}", "{'op':'pause','target':'twin'}");
    assert_code(e, fd, ESRCH, "{'op':'pause','target':'unknown'}");
    /* A process that is gone: a zombie, and then none. */
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    const uint32_t end = e->m->end;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_code(e, fd, ESRCH, "{'op':'add','pid':%d}", (int)pid);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_code(e, fd, ESRCH, "{'op':'add','pid':%d}", (int)pid);
    assert_int_equal(e->m->end, end);
}

/* What a request to try something means to the engine, and whose it is. */
TEST_OF_CLIENT(trials)
{
    static const struct {
        const char *asks;
        bool held, ranked;
        enum job_class class;
    } rows[] = {{"'held':true", true, false, CLASS_BATCH},
                {"'first':true", false, true, CLASS_LATENCY},
                {"'last':true", false, true, CLASS_BATCH},
                {"'held':true,'last':true,'together':7", true, true, CLASS_BATCH},
                {"'held':false", false, false, CLASS_BATCH}};
    const struct job_trial *t = &e->m->tried[0];
    assert_reply(e, fd, ESRCH, "{'error':'*`cede set` makes it one*'}",
                 "{'op':'try','target':%d,'for_us':5,'held':true}", (int)getpid());
    assert_int_equal(e->m->jobs[0].number, 0);
    fake_engine_put(e->m, 2, geteuid(), CLASS_NORMAL, 1, "train");
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_code(e, fd, 0, "{'op':'try','target':'#1','for_us':5,%s}", rows[i].asks);
        assert_true(t->held == rows[i].held && t->ranked == rows[i].ranked);
        assert_true(!t->ranked || t->class == rows[i].class);
        assert_int_equal(t->until_ns, 5000);
        assert_int_equal(e->m->together, i == 3 ? 7 : 0);
    }
    e->m->withheld = GPU_CAP_SUSPEND;
    assert_code(e, fd, ENOTSUP, "{'op':'try','target':'#1','for_us':5,'held':true}");
    assert_code(e, fd, 0, "{'op':'try','target':'#1','for_us':5,'last':true}");

    /* Each connection is somebody else, and its end is reported. */
    const uint64_t first = t->connection;
    int other = dial(e->path);
    assert_code(e, other, 0, "{'op':'try','target':'#1','for_us':5}");
    const uint64_t second = t->connection;
    assert_true(first && second && first != second);
    close(other);
    for (int i = 0; i < TURNS_MORE && e->m->untried != second; i++) {
        turns(e, 1);
        usleep(i < TURNS ? 0 : 1000);
    }
    assert_int_equal(e->m->untried, second);
}

/* What a reply says of its job: its user, and the number. */
static void assert_named(struct env *e, int fd, const char *target, unsigned uid, unsigned number)
{
    char want[64];
    snprintf(want, sizeof(want), "{'job':{'uid':%u,'number':%u}}", uid, number);
    assert_reply(e, fd, 0, want, "{'op':'set','target':'%s','class':'latency'}", target);
}

/* By a name alone root raises no other user's job: it may be called so for that. */
static void assert_not_raised(struct env *e, int fd, unsigned uid, unsigned number)
{
    char whose[80], job[48];
    snprintf(whose, sizeof(whose), "{'error':'*name it as %u/train (#%u)*'}", uid, number);
    snprintf(job, sizeof(job), "{'job':{'uid':%u}}", uid);
    assert_reply(e, fd, ENOTUNIQ, whose, "{'op':'set','target':'train','class':'latency'}");
    assert_reply(e, fd, ENOTUNIQ, whose, "{'op':'set','target':'train','weight':9,'gpu_min':50}");
    assert_reply(e, fd, 0, job, "{'op':'set','target':'train','weight':1}");
    assert_reply(e, fd, 0, job, "{'op':'pids','target':'train'}");
    assert_reply(e, fd, 0, job, "{'op':'pause','target':'train'}");
}

/* A name that others took stands between no user and a job, and never makes of root's request one
 * about the wrong job without saying so. */
TEST_OF_CLIENT(names_of_users)
{
    const unsigned self = geteuid(), alice = self + 1000, mallory = self + 1001;
    char error[80], note[80], name[32];
    snprintf(error, sizeof(error), "{'error':'*%u/train (#1), %u/train (#2)*'}", alice, mallory);
    snprintf(note, sizeof(note), "{'note':'*%u/train (#1), %u/train (#2)*'}", alice, mallory);
    fake_engine_put(e->m, 2, alice, CLASS_BATCH, 1, "train");
    assert_not_raised(e, fd, alice, 1);
    assert_int_equal(e->m->jobs[0].job.class, CLASS_BATCH);
    fake_engine_put(e->m, 3, mallory, CLASS_BATCH, 1, "train");
    assert_reply(e, fd, ENOTUNIQ, error, "{'op':'pause','target':'train'}");
    snprintf(name, sizeof(name), "%u/train", alice);
    assert_named(e, fd, name, alice, 1);
    assert_code(e, fd, ESRCH, "{'op':'pause','target':'%u/train'}", mallory + 1);
    fake_engine_put(e->m, 4, self, CLASS_BATCH, 1, "train");
    assert_named(e, fd, "train", self, 3);
    assert_reply(e, fd, 0, note, "{'op':'pause','target':'train'}");
    /* What is left is another's, and the reply says whose. */
    e->m->jobs[0].number = e->m->jobs[2].number = 0;
    assert_not_raised(e, fd, mallory, 2);
}

TEST_OF_CLIENT(policies)
{
    json_t *o = ask(e, fd, "{'op':'policy'}");
    assert_string_equal(json_get_text(o, "policy"), "priority");
    assert_true(json_array_size(json_object_get(o, "policies")) >= 2);
    json_decref(o);
    assert_code(e, fd, 0, "{'op':'policy','name':'shares'}");
    assert_string_equal(e->m->policy, "shares");
    assert_reply(e, fd, 0, "{'params':{'rotation_us':500000}}",
                 "{'op':'policy','params':{'rotation_us':500000,'floor':0.25}}");
    /* What is refused changes nothing: neither the one nor the other. */
    static const char *const bad[] = {
        "'name':'best'",
        "'params':{'floor':0.1,'rotation_us':1}",
        "'params':{'floor':null}",
        "'params':{'floor':0.1},'name':'best'",
        "'params':{'floor':0.7},'name':'priority'",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *error = i == 0 ? "{'error':'*priority*'}" : "{'error':'*'}";
        assert_reply(e, fd, EINVAL, error, "{'op':'policy',%s}", bad[i]);
        assert_int_equal(e->m->params.rotation_us, 500000);
        assert_true(e->m->params.floor == 0.25);
        assert_string_equal(e->m->policy, "shares");
    }
}

/* GPUs for a program that is about to start; where they cannot be had it is no job. */
TEST_OF_CLIENT(places)
{
    int self = (int)getpid();
    assert_reply(e, fd, E2BIG, "{'error':'3 GPUs are wanted, and there are 2 (GPU-0, GPU-1)'}",
                 "{'op':'add','run':true,'pid':%d,'gpus':3}", self);
    assert_int_equal(e->m->jobs[0].number, 0);
    assert_reply(e, fd, 0, "{'visible':'1','job':{'placed':{'gpus':[1],'why':'no job is there'}}}",
                 "{'op':'add','run':true,'pid':%d,'gpus':1,'visible':'1'}", self);
    assert_reply(e, fd, 0, "{'visible':null}", "{'op':'set','target':'#2','weight':7}");
}

/* The numbers of the jobs on a page rise from `last`, the last one. Returns how many there are. */
static size_t jobs_of_page(const json_t *o, json_int_t *last)
{
    const json_t *jobs = json_object_get(o, "jobs"), *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        assert_true(json_get_int(job, "number") > *last);
        *last = json_get_int(job, "number");
    }
    assert_true(i > 0);
    return i;
}

TEST_OF_CLIENT(pages)
{
    enum { JOBS = 2000 };
    char name[JOB_NAME_MAX];
    for (int i = 0; i < JOBS; i++) {
        snprintf(name, sizeof(name), "\"%0*d\"", 1 + i % 60, i);
        fake_engine_put(e->m, 10 + i, 0, CLASS_BATCH, 100, name);
    }
    size_t n = 0, count = 0;
    json_int_t last = 0;
    for (bool more = true; more; n++) {
        json_t *o = ask(e, fd, "{'op':'ps','after':%lld}", (long long)last);
        assert_int_equal(json_array_size(json_object_get(o, "gpus")), 2);
        count += jobs_of_page(o, &last);
        more = json_get_true(o, "more");
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

TEST_OF_SERVER(malformed)
{
    int fd = dial(e->path);
    assert_code(e, fd, EINVAL, "{");
    assert_code(e, fd, EPROTO, "{'v':9,'op':'ps'}");
    /* Such a mistake costs the sender nothing but the reply. */
    assert_code(e, fd, 0, "{'op':'ps'}");

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

TEST_OF_SERVER(too_long)
{
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

TEST_OF_SERVER(half_open)
{
    int a = dial(e->path), b = dial(e->path), c = dial(e->path), d = dial(e->path);
    turns(e, 2);
    close(a);
    shutdown(b, SHUT_WR);
    assert_hung_up(e, b);
    assert_int_equal(send(c, "", 0, MSG_NOSIGNAL), 0);
    assert_hung_up(e, c);
    /* Asks, and is gone before the answer. */
    send_request(d, "{'op':'ps'}");
    close(d);
    close(dial(e->path)); /* gone before it was accepted */
    turns(e, 5);
    assert_served(e);
}

/* A transient daemon stops when its last job is let go of: before the answer, which this client
 * does not wait for. */
TEST_OF_SERVER(stops_while_answering)
{
    fake_engine_put(e->m, 10, 0, CLASS_NORMAL, 100, "last");
    int waits = dial(e->path), gone = dial(e->path);
    turns(e, 2);
    send_request(waits, "{'op':'ps'}");
    assert_int_equal(code(reply(e, waits)), 0);
    e->m->on_apply = stop_server;
    e->m->arg = e;
    send_request(gone, "{'op':'pause','target':'last'}");
    close(gone);
    turns(e, 5);
    assert_null(e->s);
    assert_hung_up(e, waits);
}

TEST_OF_SERVER(many_clients)
{
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
            assert_code(e, fds[i], 0, "{'op':'ps'}");
        }
    }
    assert_int_equal(refused, 300 - SERVER_CLIENTS_MAX);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        close(fds[i]);
    turns(e, 5);
    assert_served(e);
}

TEST_OF_SERVER(no_descriptors_left)
{
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

TEST_OF_SERVER(never_reads)
{
    for (int i = 0; i < 400; i++)
        fake_engine_put(e->m, 10 + i, 0, CLASS_BATCH, 100, "one of many");
    static const char ps[] = "{\"v\":1,\"op\":\"ps\"}";
    int fd = dial(e->path), sent = 0;
    while (sent < 100 && send(fd, ps, strlen(ps), MSG_NOSIGNAL | MSG_DONTWAIT) > 0) {
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

TEST_OF_SERVER(old_sockets)
{
    struct error err = {""};
    struct server *s;
    char path[96];
    snprintf(path, sizeof(path), "%s/other", e->dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    assert_int_equal(server_start(&e->loop, path, &e->v, ADMIN_NO_GROUP, &s, &err), -EEXIST);
    assert_int_equal(access(path, F_OK), 0); /* not ours to remove */
    unlink(path);

    const struct sockaddr_un a = address_of(path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&a, sizeof(a)), 0);
    close(fd); /* its name stays, as after kill -9 */
    assert_int_equal(dial(path), -1);
    assert_int_equal(server_start(&e->loop, path, &e->v, ADMIN_NO_GROUP, &s, &err), 0);
    assert_int_equal(mode_of(path), 0666);
    fd = dial(path);
    assert_true(fd >= 0);
    assert_code(e, fd, 0, "{'op':'ps'}");
    server_stop(s);
    assert_hung_up(e, fd);
}

/* An administrator's deadline may bring a job above latency jobs. */
TEST_OF_CLIENT(deadlines)
{
    int self = (int)getpid();
    assert_code(e, fd, 0, "{'op':'set','target':%d,'deadline_us':3000000,'laxity_us':1000000}",
                self);
    uint32_t job = engine_job_of(e->m, getpid());
    const struct journal_job *j = &e->m->jobs[job].job;
    assert_true(j->deadline_us == 3000000 && j->laxity_us == 1000000 && j->may_promote);
    assert_code(e, fd, 0, "{'op':'set','target':%d,'deadline_us':0}", self);
    assert_true(!j->deadline_us && !j->laxity_us && !j->may_promote);
    /* Not for a latency job. */
    assert_code(e, fd, 0, "{'op':'set','target':%d,'class':'latency'}", self);
    assert_code(e, fd, EINVAL, "{'op':'set','target':%d,'deadline_us':3000000}", self);
    close(fd);
}

static void put_unmanaged(struct env *e, pid_t pid, uid_t uid, bool detached, const char *comm)
{
    struct unmanaged *u = &e->m->unmanaged[e->m->nunmanaged++];
    *u = (struct unmanaged){.id = {.pid = pid}, .uid = uid, .gpus = 5, .detached = detached};
    snprintf(u->comm, sizeof(u->comm), "%s", comm);
}

/* Which GPU programs no job owns goes with the first page, and with the answer to `cede run`. */
TEST_OF_SERVER(unmanaged)
{
    int fd = dial(e->path);
    const bool root = geteuid() == 0;
    assert_reply(e, fd, 0, "{'unmanaged':[]}", "{'op':'ps'}");
    put_unmanaged(e, 10, geteuid(), true, "detached");
    put_unmanaged(e, 11, geteuid() + 1, false, "theirs");
    put_unmanaged(e, 12, geteuid(), false, "\033[2J\n\"x\377");
    assert_reply(e, fd, 0, "{'unmanaged':[{},{},{}]}", "{'op':'add','pid':%d,'run':true}",
                 (int)getpid());
    assert_code(e, fd, 0, "{'op':'set','target':'#1','class':'none'}");
    assert_reply(e, fd, 0, "{'unmanaged':null}", "{'op':'add','pid':%d}", (int)getpid());
    assert_reply(e, fd, 0, "{'unmanaged':null}", "{'op':'ps','after':1}");

    /* Those that the caller may set come first, those that a person detached last. */
    json_t *o = ask(e, fd, "{'op':'ps'}");
    const json_t *mine = json_array_get(json_object_get(o, "unmanaged"), root ? 1 : 0);
    assert_like(o, root ? "{'unmanaged':[{'pid':11},{'pid':12},{'pid':10}]}"
                        : "{'unmanaged':[{'pid':12},{'pid':11},{'pid':10}]}");
    assert_like(o, "{'unmanaged':[{'may_set':true,'detached':false},{},{'detached':true}],"
                   "'unmanaged_more':null}");
    assert_like(mine, "{'gpus':[0,2]}");
    assert_string_equal(json_get_text(mine, "name"), "_[2J_\"x_");
    assert_int_equal(json_get_int(mine, "uid"), geteuid());
    json_decref(o);
}

/* However many there are, the first page has room for jobs. */
TEST_OF_CLIENT(many_unmanaged)
{
    for (int i = 0; i < 100; i++) {
        put_unmanaged(e, INT32_MAX - i, geteuid(), false, "\\\\\\\\\"\"\"\"\"\"\"\"\"\"\"");
        e->m->unmanaged[i].gpus = 0xffff;
    }
    for (int i = 0; i < 300; i++)
        fake_engine_put(e->m, 1000 + i, 0, CLASS_BATCH, 1, "some job with a name of some length");
    json_int_t last = 0;
    size_t jobs = 0, pages = 0;
    for (bool more = true; more; pages++) {
        json_t *o = ask(e, fd, "{'op':'ps','after':%lld}", (long long)last);
        jobs += jobs_of_page(o, &last);
        more = json_get_true(o, "more");
        assert_int_equal(json_array_size(json_object_get(o, "unmanaged")), pages ? 0 : 64);
        assert_int_equal(json_get_int(o, "unmanaged_more"), pages ? 0 : 36);
        json_decref(o);
    }
    assert_int_equal(jobs, 300);
    assert_true(pages > 1);
}

/* What is withheld on a GPU is said of it, and a pause that could not be is refused. */
TEST_OF_CLIENT(withheld)
{
    pid_t self = getpid();
    fake_engine_put(e->m, self, getuid(), CLASS_BATCH, 100, "job");
    for (int off = 0; off < 2; off++) {
        e->m->withheld = off ? GPU_CAP_SUSPEND | GPU_CAP_PLACE : 0;
        assert_reply(e, fd, 0,
                     off ? "{'gpus':[{},{'off':['suspend','place'],'off_why':'made-up','caps':[]}]}"
                         : "{'gpus':[{},{'off_why':null,'caps':['*']}]}",
                     "{'op':'ps'}");
        assert_code(e, fd, off ? ENOTSUP : 0, "{'op':'pause','target':'job'}");
    }
}
