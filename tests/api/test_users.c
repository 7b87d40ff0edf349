/* The real control socket and other users: what they may not, and how much of the daemon's time
 * they get. They are children of the test, which takes turns with them. */
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>

#include "../lingering.h"
#include "server_env.h"

/* The number of the first step that went wrong. */
#define STEP(cond)                                                                                 \
    do {                                                                                           \
        step++;                                                                                    \
        if (!(cond))                                                                               \
            return step;                                                                           \
    } while (0)

/* In a child: what comes next holds these words. */
static bool told(int fd, const char *words)
{
    char buf[1024];
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    return n > 0 && memmem(buf, (size_t)n, words, strlen(words));
}

/* What another user asks for, and the errno of the answer, 0 for ok. SELF is that user's process,
 * PARENT this one. */
struct step {
    const char *text;
    int code;
};

static const struct step *steps; /* the last one has no text */

static int as_one_that_asks(const char *path, pid_t parent)
{
    int fd = dial(path);
    for (int i = 0; steps[i].text; i++) {
        const char *text = steps[i].text, *self = strstr(text, "SELF"),
                   *whose = self ? self : strstr(text, "PARENT");
        int code = whose ? child_ask(fd, "%.*s%d%s", (int)(whose - text), text,
                                     (int)(self ? getpid() : parent), whose + (self ? 4 : 6))
                         : child_ask(fd, "%s", text);
        if (code != steps[i].code)
            return i + 1;
    }
    return 0;
}

static void check_steps(struct env *e, gid_t group, const struct step *asked, const char *file,
                        int line)
{
    steps = asked;
    int wrong = as_nobody(e, group, as_one_that_asks);
    if (!wrong)
        return;
    print_error("%s: not %d\n", asked[wrong - 1].text, asked[wrong - 1].code);
    _fail(file, line);
}
#define assert_steps(e, group, ...)                                                                \
    check_steps(e, group, (const struct step[]){__VA_ARGS__, {.text = NULL}}, __FILE__, __LINE__)

static const struct step of_a_user[] = {
    {"{'op':'ps'}", 0},
    {"{'op':'policy'}", 0},
    {"{'op':'policy','name':'shares'}", EPERM},
    {"{'op':'policy','params':{'floor':0.1}}", EPERM},
    {"{'op':'pause','target':PARENT}", EPERM},
    {"{'op':'pause','target':'roots'}", EPERM},
    {"{'op':'pause','target':'0/both'}", EPERM},
    {"{'op':'pause','target':'both'}", 0},
    {"{'op':'set','target':SELF,'class':'latency'}", EPERM},
    {"{'op':'set','target':SELF,'weight':50}", 0},
    {"{'op':'set','target':SELF,'weight':51}", EPERM},
    {"{'op':'set','target':SELF,'class':'batch'}", 0},
    {"{'op':'set','target':SELF,'class':'normal'}", EPERM},
    {"{'op':'set','target':SELF,'class':'none'}", EPERM},
    {"{'op':'set','target':'held','deadline_us':2000000}", 0},
    {"{'op':'set','target':'roots','deadline_us':2000000}", EPERM},
    {"{'op':'pause','target':SELF}", 0},
    {"{'op':'resume','target':SELF}", 0},
    /* Root's pause stays root's, also when the user pauses on top of it. */
    {"{'op':'pause','target':'held'}", 0},
    {"{'op':'resume','target':'held'}", EPERM},
    /* So does what root has swapped out. */
    {"{'op':'swap-out','target':'roots'}", EPERM},
    {"{'op':'swap-out','target':'held'}", 0},
    {"{'op':'swap-in','target':'held'}", EPERM},
    {"{'op':'swap-out','target':SELF}", 0},
    {"{'op':'swap-in','target':SELF}", 0},
    {"{'op':'try','target':'roots','for_us':5,'held':true}", EPERM},
    {"{'op':'try','target':SELF,'for_us':5,'held':true}", 0},
    {"{'op':'try','target':SELF,'for_us':5,'last':true}", 0},
    {"{'op':'try','target':SELF,'for_us':5,'first':true}", EPERM},
    {"{'op':'try','target':'urgent','for_us':5,'first':true}", 0},
    {.text = NULL},
};

/* One user cannot take every connection. */
static int with_many_connections(const char *path, pid_t parent)
{
    int step = 0;
    for (int i = 0; i < SERVER_CLIENTS_PER_USER; i++)
        STEP(child_ask(dial(path), "{'op':'policy'}") == 0);
    STEP(told(dial(path), "too many connections already"));
    return 0;
}

/* One principal with a range of uids. */
static int with_many_uids(const char *path, pid_t parent)
{
    int step = 0, ready[2], mapped[2], n = SERVER_CLIENTS_PER_USER;
    char c;
    STEP(pipe(ready) == 0 && pipe(mapped) == 0);
    pid_t helper = fork();
    if (helper == 0) {
        char command[160];
        const pid_t self = getppid();
        snprintf(command, sizeof(command),
                 "echo 0 0 10 >/proc/%d/gid_map; printf '0 %d 1\\n1 300001 9\\n' >/proc/%d/uid_map",
                 (int)self, NOBODY, (int)self);
        _exit(read(ready[0], &c, 1) == 1 && system(command) == 0 && write(mapped[1], "x", 1) == 1
                  ? 0
                  : 1);
    }
    alarm(10);
    STEP(setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0);
    STEP(unshare(CLONE_NEWUSER) == 0 && write(ready[1], "x", 1) == 1);
    STEP(read(mapped[0], &c, 1) == 1);
    for (int i = 0; i < n; i++) {
        STEP(seteuid((uid_t)(1 + i % 9)) == 0);
        int fd = dial(path);
        STEP(seteuid(0) == 0 && child_ask(fd, "{'op':'policy'}") == 0);
    }
    STEP(seteuid(7) == 0);
    STEP(told(dial(path), "too many connections already"));
    return 0;
}

TEST_OF_SERVER(uids_of_one_principal)
{
    needs_user_namespaces();
    assert_int_equal(as_nobody(e, KEEP_ROOT, with_many_uids), 0);
    assert_served(e);
}

/* However many users there are: root finds room. */
TEST_OF_CLIENT(users_together)
{
    needs_root();
    for (unsigned i = 0; i < USERS_JOBS_MAX; i++)
        fake_engine_put(e->m, 100000 + (pid_t)i, 1000 + i % 5, CLASS_BATCH, 100, "one of many");
    assert_steps(e, NOBODY, {"{'op':'add','pid':SELF}", ENOSPC});
    assert_code(e, fd, 0, "{'op':'add','pid':%d}", (int)getpid());
}

#define ADD_SELF(more) "{'op':'add','run':true,'pid':SELF" more "}"
#define GIB1           ",'memory_bytes':1073741824"

static void made_latency(void *arg)
{
    struct engine *m = arg;
    for (uint32_t i = 0; i < m->end; i++)
        m->jobs[i].job.class = CLASS_LATENCY;
}

/* Users wait for memory in line, as many as are allowed; others are swapped out for nobody but
 * those whom an administrator has it done for. */
TEST_OF_CLIENT(memory_of_users)
{
    needs_root();
    assert_steps(e, NOBODY, {ADD_SELF(",'class':'latency'" GIB1), EPERM}, {ADD_SELF(GIB1), 0},
                 {ADD_SELF(",'memory_bytes':5"), 0}); /* asks again */
    assert_int_equal(e->m->end, 1);
    assert_int_equal(e->m->jobs[0].job.memory_bytes, 1 << 30);
    e->m->jobs[0].number = 0;
    e->m->on_apply = made_latency;
    e->m->arg = e->m;
    /* By an administrator, after which its user says what it takes. */
    assert_steps(e, NOBODY, {ADD_SELF(""), 0}, {ADD_SELF(GIB1), 0});
    assert_int_equal(e->m->jobs[0].job.memory_bytes, 0);
    e->m->jobs[0].number = 0;
    e->m->on_apply = NULL;
    e->m->waits_full = true;
    assert_steps(e, NOBODY, {ADD_SELF(GIB1), EDQUOT}, {ADD_SELF(""), 0});
    assert_code(e, fd, 0, "{'op':'add','run':true,'pid':%d" GIB1 "}", (int)getpid());
}

/* Connects and says nothing, again and again: served at first, then told that there are too many,
 * and then that it connects too often. */
static int as_a_flood(const char *path, pid_t parent)
{
    int step = 0;
    for (int i = 0; i < SERVER_CLIENTS_PER_USER; i++)
        STEP(dial(path) >= 0);
    int often = 0;
    for (uint64_t end = monotonic_ns() + 60 * NSEC_PER_SEC; often < 50 && monotonic_ns() < end;) {
        int fd[100];
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
            fd[i] = dial(path);
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
            char buf[256];
            ssize_t n = recv(fd[i], buf, sizeof(buf), 0);
            often += n > 0 && memmem(buf, (size_t)n, "connect so often", 16);
            close(fd[i]);
        }
    }
    step = 100; /* at first there are too many of them; for how long is the machine's speed */
    STEP(often >= 50);
    return 0;
}

/* Connects and closes, and never has more than one connection. */
static int as_a_visitor(const char *path, pid_t parent)
{
    int step = 0;
    bool often = false;
    for (uint64_t end = monotonic_ns() + 60 * NSEC_PER_SEC; !often && monotonic_ns() < end;) {
        for (int i = 0; i < 500; i++)
            close(dial(path));
        int fd = dial(path);
        often = poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 400) == 1 &&
                told(fd, "connect so often");
        close(fd);
    }
    STEP(often);
    return 0;
}

static uint64_t slow_clock(void)
{
    static uint64_t now;
    return now += 200 * NSEC_PER_USEC;
}

TEST_OF_SERVER(connections_are_paid_for)
{
    needs_root();
    e->v.cpu_ns = slow_clock;
    assert_int_equal(as_nobody(e, NOBODY, as_a_visitor), 0);
    assert_served(e);
}

TEST_OF_SERVER(flood_of_connections)
{
    needs_root();
    e->v.cpu_ns = monotonic_ns; /* a busy machine leaves the server too little for a flood */
    assert_int_equal(as_nobody(e, NOBODY, as_a_flood), 0);
    assert_served(e); /* an administrator */
}

TEST_OF_SERVER(other_users)
{
    needs_root();
    fake_engine_put(e->m, 1, 0, CLASS_BATCH, 100, "roots");
    fake_engine_put(e->m, 3, 0, CLASS_BATCH, 100, "both");
    fake_engine_put(e->m, 4, NOBODY, CLASS_BATCH, 100, "both");
    fake_engine_put(e->m, 5, NOBODY, CLASS_LATENCY, 100, "urgent");
    uint32_t held = fake_engine_put(e->m, 2, NOBODY, CLASS_BATCH, 100, "held");
    e->m->jobs[held].job.paused = 1;
    e->m->jobs[held].swap = "swapped";
    e->m->jobs[held].swap_by_user = true;
    check_steps(e, NOBODY, of_a_user, __FILE__, __LINE__);
    assert_int_equal(as_nobody(e, NOBODY, with_many_connections), 0);
    assert_string_equal(e->m->policy, "priority");
    assert_int_equal(e->m->jobs[held].job.deadline_us, 2000000);
    assert_false(e->m->jobs[held].job.may_promote);
    assert_int_equal(e->m->jobs[held].job.paused, 1);
    assert_int_equal(e->m->jobs[held].job.paused_by, 0);

    server_set_group(e->s, 12345);
    assert_steps(e, 12344, {"{'op':'policy','name':'shares'}", EPERM});
    assert_steps(e, 12345, {"{'op':'policy','name':'shares'}", 0},
                 {"{'op':'set','target':PARENT,'class':'latency'}", 0},
                 {"{'op':'try','target':'roots','for_us':5,'first':true}", 0},
                 {"{'op':'resume','target':'held'}", 0});
    assert_string_equal(e->m->policy, "shares");
    assert_int_equal(e->m->jobs[held].job.paused, 0);
}

#define ASKED 6

static int asks_at_once(const char *path, pid_t parent)
{
    int step = 0, fd = dial(path), self = (int)getpid();
    for (int i = 0; i < ASKED; i++)
        send_request(fd, "{'op':'pause','target':%d}", self);
    for (int i = 0; i < ASKED; i++)
        STEP(told(fd, "ok"));
    return 0;
}

static uint64_t slow_ns;

static void apply_slowly(void *arg)
{
    uint64_t started = thread_cpu_ns(), took;
    do
        took = thread_cpu_ns() - started;
    while (took < 20 * NSEC_PER_MSEC);
    slow_ns += took;
}

/* Nobody keeps the daemon busy: who makes it work waits for four times as long, and others do not.
 */
TEST_OF_SERVER(flood)
{
    needs_root();
    e->m->on_apply = apply_slowly;
    slow_ns = 0;
    uint64_t started = monotonic_ns();
    assert_int_equal(as_nobody(e, NOBODY, asks_at_once), 0);
    /* The last one is not waited for. */
    assert_true(monotonic_ns() - started > slow_ns * 5 * (ASKED - 1) / ASKED / 2);
    slow_ns = 0;
    int fd = dial(e->path);
    for (int i = 0; i < ASKED; i++)
        assert_code(e, fd, 0, "{'op':'pause','target':%d}", (int)getpid());
    close(fd);
    assert_true(slow_ns >= ASKED * 20 * NSEC_PER_MSEC);
}

static void apply_without_processor(void *arg)
{
    usleep(50000);
}

static void verb_is_done(struct verb *v, char *reply)
{
    free(reply);
}

/* A tick in which another program has the processor costs the user nothing, work does. */
TEST_OF_SERVER(charges_processor_time)
{
    const struct caller who = {.uid = geteuid(), .pid = getpid(), .admin = true};
    static const struct {
        void (*apply)(void *arg);
        uint64_t least_ns, most_ns;
    } rows[] = {{apply_without_processor, 0, 25 * NSEC_PER_MSEC},
                {apply_slowly, 20 * NSEC_PER_MSEC, UINT64_MAX}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct verb v;
        verb_init(&v, &e->v, &who, &(struct request){.op = OP_PAUSE, .pid = getpid()});
        v.done = verb_is_done;
        e->m->on_apply = rows[i].apply;
        engine_submit(e->m, &v.command);
        fake_engine_tick(e->m);
        assert_int_equal(v.command.code, 0);
        assert_in_range(v.took_ns, rows[i].least_ns, rows[i].most_ns);
    }
}

/* By the socket for containers even the daemon's own user is an ordinary one. That a guest reaches
 * its pid namespace alone is in tests/containers. */
TEST_OF_SERVER(guests)
{
    listen_guests(e);
    fake_engine_put(e->m, getpid(), geteuid(), CLASS_BATCH, 50, "train");
    _cleanup_close_ int fd = dial(e->guests), outside = dial(e->path);
    assert_true(fd >= 0 && outside >= 0);
#define VERB(op, rest) "{'op':'" op "','target':'train'" rest "}"
    assert_code(e, fd, EPERM, VERB("set", ",'class':'latency'"));
    assert_code(e, fd, EPERM, VERB("set", ",'weight':60"));
    assert_code(e, fd, EPERM, "{'op':'policy','name':'shares'}");
    assert_code(e, fd, EPERM, "{'op':'trace'}");
    assert_code(e, fd, 0, VERB("set", ",'weight':40"));
    assert_reply(e, fd, 0, "{'guest':true}", "{'op':'ps'}");
    /* Its own pauses it ends, and its user outside; those from outside it does not. */
    assert_code(e, fd, 0, VERB("pause", ""));
    assert_code(e, fd, 0, VERB("resume", ""));
    assert_code(e, fd, 0, VERB("pause", ""));
    assert_code(e, outside, 0, VERB("resume", ""));
    assert_code(e, outside, 0, VERB("pause", ""));
    assert_code(e, fd, EPERM, VERB("resume", ""));
    assert_code(e, outside, 0, VERB("set", ",'class':'latency'"));
    assert_code(e, outside, 0, VERB("resume", ""));
    assert_code(e, fd, 0, VERB("yield", ""));
    assert_code(e, fd, 0, VERB("acquire", ""));
    assert_code(e, fd, 0, "{'op':'yield'}"); /* its own */
    assert_code(e, outside, 0, VERB("acquire", ""));
    assert_code(e, outside, 0, VERB("yield", ""));
    assert_code(e, fd, EPERM, VERB("acquire", ""));
    assert_int_equal(e->m->jobs[0].job.class, CLASS_BATCH);
#undef VERB
    /* One that has ended has no namespace any more, and its number may be another's. */
    const struct sockaddr_un a = address_of(e->guests);
    int left = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    pid_t child = fork();
    if (child == 0)
        _exit(connect(left, (const struct sockaddr *)&a, sizeof(a)) < 0);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(code(reply(e, left)), EUSERS);
    assert_hung_up(e, left);
    stop_server(e);
    assert_int_equal(access(e->guests, F_OK), -1);
}

/* What comes along and is not wanted takes its time to go: in a request, in one behind others on a
 * connection that ends, and on one that is not accepted when the server stops. */
TEST_OF_SERVER(descriptors_unasked)
{
    static const char text[] = "{\"v\":1,\"op\":\"ps\"}";
    struct lingering l = lingering_new();
    int fd = dial(e->path);
    lingering_send(&l, fd, text, strlen(text));
    check_reply(reply(e, fd), EBADMSG, "{'error':'*descriptors*'}", __FILE__, __LINE__);
    assert_hung_up(e, fd);
    assert_served(e);
    lingering_end(&l);

    l = lingering_new();
    fd = dial(e->path);
    assert_int_equal(send(fd, text, strlen(text), 0), strlen(text));
    lingering_send(&l, fd, text, strlen(text));
    close(fd);
    assert_served(e);
    lingering_end(&l);

    l = lingering_new();
    fd = dial(e->path);
    lingering_send(&l, fd, text, strlen(text));
    stop_server(e);
    close(fd);
    lingering_end(&l);
}
