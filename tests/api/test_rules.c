/* Rules against made-up processes, names for jobs, and who may do what: tables. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../test.h"
#include "api/rights.h"
#include "api/rules/job_spec.h"
#include "api/rules/match.h"
#include "daemon/config.h"
#include "fake_engine.h"
#include "rule_of.h"
#include "who/procfs.h"

#define NOBODY 65534
#define ID     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
static const char docker[] = "/system.slice/docker-" ID ".scope";
static const char kube[] = "/kubepods.slice/kubepods-pod12.slice/cri-containerd-" ID ".scope";

#define TEXTS(s)                                                                                   \
    {                                                                                              \
        s, sizeof(s)                                                                               \
    }

#define F(u, e, c, ...)                                                                            \
    {                                                                                              \
        .uid = (u), .exe = (e), .cgroup = (c), ##__VA_ARGS__                                       \
    }
static const gid_t no_group = 0;
static const gid_t some_groups[] = {100, 44};
static const struct workload in_docker = {.container = ID};
static const struct workload in_pod = {.container = ID, .pod = "12-34"};
static const struct workload in_slurm = {.slurm_job = 77, .unit = "slurmstepd.scope"};
#define OF_TRAIN                                                                                   \
    TEXTS("pod\0train-7\0namespace\0research\0priority_class\0low\0label:app\0web\0"               \
          "label:empty\0\0partition\0gpu\0qos\0long")
#define CONTAINERS TEXTS("container:0123456789abcdef\0web\0container:1123456789abcdef\0side")
#define WORDS                                                                                      \
    TEXTS("arguments\0python3 train.py --lr 1\0environment:A\0b=c\0environment:E\0\0"              \
          "container_name\0web\0image\0docker.io/library/nginx:1\0namespace\0prod")

static const struct {
    const char *rule;
    struct rule_facts facts;
    enum verdict verdict;
} table[] = {
    {"uid=7", F(7, "", ""), VERDICT_YES},
    {"uid=7", F(8, "", ""), VERDICT_NO},
    {"uid=0", F(0, "", ""), VERDICT_YES},
    {"uid=no-such-name", F(0, "", ""), VERDICT_NO},

    {"group=44", F(0, "", "", .groups = some_groups, .ngroups = 2), VERDICT_YES},
    {"group=45", F(0, "", "", .groups = some_groups, .ngroups = 2), VERDICT_NO},
    {"group=no-such-name", F(0, "", "", .groups = &no_group, .ngroups = 1), VERDICT_NO},

    {"exe=/usr/bin/python3*", F(0, "/usr/bin/python3.11", ""), VERDICT_YES},
    {"exe=python3*", F(0, "/usr/bin/python3.11", ""), VERDICT_YES},
    {"exe=bin/python3*", F(0, "/usr/bin/python3.11", ""), VERDICT_NO},
    {"exe=/opt/*", F(0, "/opt/a/b/train", ""), VERDICT_YES},
    {"exe=*", F(0, "", ""), VERDICT_NO}, /* not known: a kernel thread, or gone */

    {"cgroup=/user.slice/*", F(0, "", "/user.slice/u/x.scope"), VERDICT_YES},
    {"cgroup=user.slice", F(0, "", "/user.slice"), VERDICT_NO},
    {"cgroup=*", F(0, "", ""), VERDICT_NO},

    {"container=01234567", F(0, "", docker), VERDICT_YES},
    {"container=" ID, F(0, "", kube), VERDICT_YES},
    {"container=12345678", F(0, "", docker), VERDICT_NO},        /* not its start */
    {"container=abcdef01", F(0, "", "/abcdef01/x"), VERDICT_NO}, /* too short */
    {"container=" ID "0", F(0, "", docker), VERDICT_NO},
    {"container=docker-*", F(0, "", docker), VERDICT_YES},
    {"container=docker-*", F(0, "", kube), VERDICT_NO},
    {"container=lxc.payload.web", F(0, "", "/lxc.payload.web/init"), VERDICT_YES},
    {"container=*", F(0, "", ""), VERDICT_NO},

    {"uid=7;exe=train", F(7, "/home/x/train", ""), VERDICT_YES},
    {"uid=7;exe=train", F(7, "/home/x/serve", ""), VERDICT_NO},
    {"uid=7;exe=train", F(8, "/home/x/train", ""), VERDICT_NO},

    {"unit=slurm*", F(0, "", "", .workload = &in_slurm), VERDICT_YES},
    {"unit=*", F(0, "", "", .workload = &in_docker), VERDICT_NO},
    {"unit=*", F(0, "", ""), VERDICT_NO},
    {"slurm_job=77", F(0, "", "", .workload = &in_slurm), VERDICT_YES},
    {"slurm_job=*", F(0, "", "", .workload = &in_slurm), VERDICT_YES},
    {"slurm_job=7", F(0, "", "", .workload = &in_slurm), VERDICT_NO},
    {"slurm_job=*", F(0, "", "", .workload = &in_docker), VERDICT_NO},

    /* What an agent told is there at once, and comes before what is read. */
    {"pod=train-*", F(0, "", "", .told = OF_TRAIN, .pending = true), VERDICT_YES},
    {"pod=12-*", F(0, "", "", .workload = &in_pod), VERDICT_YES}, /* its uid */
    {"namespace=research", F(0, "", "", .told = OF_TRAIN, .read = WORDS), VERDICT_YES},
    {"priority_class=low", F(0, "", "", .told = OF_TRAIN), VERDICT_YES},
    {"priority_class=*", F(0, "", "", .pending = true), VERDICT_NO},
    {"partition=g?u", F(0, "", "", .told = OF_TRAIN), VERDICT_YES},
    {"qos=short", F(0, "", "", .told = OF_TRAIN), VERDICT_NO},
    {"label=app=w*", F(0, "", "", .told = OF_TRAIN), VERDICT_YES},
    {"label=empty=*", F(0, "", "", .told = OF_TRAIN), VERDICT_YES},
    {"label=none=*", F(0, "", "", .told = OF_TRAIN), VERDICT_NO},

    /* What is read comes later, and of a container only what is in one. */
    {"arguments=*train.py*", F(0, "", "", .read = WORDS), VERDICT_YES},
    {"arguments=*train.py*", F(0, "", "", .pending = true), VERDICT_PENDING},
    {"arguments=*", F(0, "", ""), VERDICT_NO},
    {"uid=1;arguments=*", F(0, "", "", .pending = true), VERDICT_NO},
    {"arguments=*;uid=1", F(0, "", "", .pending = true), VERDICT_NO},
    {"environment=A=b=?", F(0, "", "", .read = WORDS), VERDICT_YES},
    {"environment=E=*", F(0, "", "", .read = WORDS), VERDICT_YES},
    {"environment=B=*", F(0, "", "", .read = WORDS), VERDICT_NO},
    {"image=*/nginx:*", F(0, "", "", .workload = &in_docker, .read = WORDS), VERDICT_YES},
    {"image=*/nginx:*", F(0, "", "", .read = WORDS), VERDICT_NO},
    {"container_name=web", F(0, "", "", .workload = &in_docker, .read = WORDS), VERDICT_YES},
    {"container_name=web", F(0, "", "", .workload = &in_docker, .pending = true), VERDICT_PENDING},
    {"container_name=web", F(0, "", "", .pending = true), VERDICT_NO},
    {"pod=x", F(0, "", "", .workload = &in_pod, .pending = true), VERDICT_PENDING},
    /* Of a pod's containers the one whose id the control group has. */
    {"container_name=web", F(0, "", "", .workload = &in_docker, .told = CONTAINERS), VERDICT_YES},
    {"container_name=side", F(0, "", "", .workload = &in_docker, .told = CONTAINERS), VERDICT_NO},
};

TEST(matching)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        const struct rule r = rule_of("%s", table[i].rule);
        if (rule_matches(&r, &table[i].facts) != table[i].verdict)
            fail_msg("row %zu: %s", i, table[i].rule);
    }
}

/* Of what each rule of the list says, the first that takes a process counts; behind one that cannot
 * be told yet none does. */
TEST(the_first_wins)
{
    const struct rule rules[] = {rule_of("uid=5"), rule_of("exe=*"), rule_of("arguments=x"),
                                 rule_of("uid=6")};
    const struct rule_list l = {.rules = rules, .n = ARRAY_SIZE(rules)};
    static const struct {
        struct rule_facts f;
        int found; /* -1: none; -2: not known yet */
    } rows[] = {{F(5, "/a", ""), 0},
                {F(6, "/a", ""), 1},
                {F(6, "", ""), 3},
                {F(7, "", ""), -1},
                {F(6, "", "", .pending = true), -2},
                {F(5, "", "", .pending = true), 0}};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct outcome o;
        classify(&l, &rows[i].f, &o);
        assert_int_equal(o.pending, rows[i].found == -2);
        assert_int_equal(o.by, rows[i].found >= 0 ? BY_RULE : BY_NONE);
        if (rows[i].found >= 0)
            assert_ptr_equal(o.rule, &rules[rows[i].found]);
    }
}

TEST(of_a_real_process)
{
    struct rule r = rule_of("uid=%u;exe=test_rules;weight=9;name=self", geteuid());
    struct rule_list l = {.rules = &r, .n = 1};
    struct job_spec spec = {.again = false};
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
    assert_int_equal(spec.terms.class, CLASS_BATCH);
    assert_int_equal(spec.terms.weight, 9);
    assert_int_equal(spec.source, JOB_RULE);
    assert_int_equal(spec.uid, geteuid());
    assert_string_equal(spec.name, "self");
    assert_false(spec.terms.may_promote); /* without a deadline there is nothing to rise for */
    r.request.given |= TERM(deadline_us);
    r.request.deadline_us = 3000000;
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
    assert_true(spec.terms.may_promote && spec.terms.deadline_us == 3000000);
    assert_int_equal(spec.memory_bytes, 0);
    r.request.memory_bytes = 7;
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
    assert_int_equal(spec.memory_bytes, 7);
    r.request.name[0] = '\0';
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
    assert_string_equal(spec.name, "test_rules");
    assert_string_equal(spec.account, "");
    assert_int_equal(spec.principal, geteuid());
    const struct rule two[] = {r, rule_of("[account others];uid=%u", geteuid() + 1),
                               rule_of("[account mine];uid=%u", geteuid()),
                               rule_of("[account later];uid=%u", geteuid())};
    struct rule_list all = {.rules = two, .n = ARRAY_SIZE(two)};
    assert_int_equal(rules_fn(&all, getpid(), &spec), 1);
    assert_string_equal(spec.account, "mine");
    spec.account[0] = '\0';
    rules_account(&all, getpid(), &spec);
    assert_string_equal(spec.account, "mine");
    struct engine *e = fake_engine_new();
    rules_use_engine(&all, e);
    assert_int_equal(e->naccounts, 3);
    assert_string_equal(e->account, "later");
    all.n = 1;
    rules_use_engine(&all, e);
    assert_int_equal(e->naccounts, 0);
    free(e);
    r.conditions[0].id++;
    assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
    l.n = 0;
    assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
}

/* Without descriptors nothing is known of a process, and that is not that no rule takes it. */
TEST(of_a_process_that_cannot_be_read)
{
    const struct rule r = rule_of("exe=test_rules");
    struct rule_list l = {.rules = &r, .n = 1};
    struct rlimit all, none;
    struct job_spec spec = {.again = false};
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
    none = all;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int code = rules_fn(&l, getpid(), &spec);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
    assert_int_equal(code, -EMFILE);
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
}

/* Asked again, it answers only if an agent has reported something new since. */
TEST(of_reports)
{
    struct rule r = rule_of("uid=%u", geteuid());
    struct identities *t = identities_new();
    struct rule_list l = {.rules = &r, .n = 1, .identities = t};
    const struct pairs one = {"pod\0a", 6}, other = {"pod\0b", 6}, none = {.n = 0};
    struct job_spec spec = {.again = false};
    char lines[8192];
    assert_true(proc_read(getpid(), "cgroup", lines, sizeof(lines)) > 0);
    char *group = strchr(lines, '/');
    group[strcspn(group, "\n")] = '\0';
    assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
    assert_int_equal(spec.facts, 0);
    assert_int_equal(identities_put(t, "/no-such-group", one), 0);
    spec.again = true;
    assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
    uint64_t last = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(identities_put(t, group, i ? other : one), 0);
        spec.again = true;
        assert_int_equal(rules_fn(&l, getpid(), &spec), 1);
        assert_true(spec.facts > last);
        last = spec.facts;
        spec.again = true;
        assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
    }
    assert_int_equal(identities_put(t, group, none), 0);
    assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
    r.conditions[0].id++; /* no rule takes it any more, and the report is known */
    assert_int_equal(identities_put(t, group, one), 0);
    assert_int_equal(rules_fn(&l, getpid(), &spec), 0);
    assert_true(spec.facts > last);
    identities_free(t);
}

/* Nobody has another user's rules, or rights over another user's program, by running a program with
 * the set-user-ID bit, or because one of root's works as that user for a moment. */
TEST(of_two_users)
{
    static const struct {
        uid_t real, effective;
    } rows[] = {{NOBODY, 0}, {0, NOBODY}};
    if (geteuid() != 0)
        skip();
    const struct rule rules[] = {rule_of("uid=0;class=latency"), rule_of("uid=%d", NOBODY)};
    struct rule_list l = {.rules = rules, .n = ARRAY_SIZE(rules)};
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        int ready[2];
        char c = 0;
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        if (pid == 0) {
            bool ok = setresuid(rows[i].real, rows[i].effective, 0) == 0 &&
                      prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
            (void)!write(ready[1], ok ? "y" : "n", 1);
            for (;;)
                pause();
        }
        (void)!read(ready[0], &c, 1);
        struct job_spec spec = {.uid = 12345};
        uid_t owner = 12345;
        bool found = rules_fn(&l, pid, &spec) == 1 && proc_owner(pid, &owner) == 0;
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(ready[0]);
        close(ready[1]);
        assert_int_equal(c, 'y');
        assert_true(found);
        assert_int_equal(owner, rows[i].real);
        assert_int_equal(spec.uid, rows[i].real);
        assert_int_equal(spec.terms.class, rows[i].real == 0 ? CLASS_LATENCY : CLASS_BATCH);
    }
}

TEST(names_for_jobs)
{
    static const struct {
        const char *comm, *name;
    } names[] = {{"python3", "python3"}, {"pt main thread", "pt main thread"},
                 {"12", "pid-7"},        {"", "pid-7"},
                 {"#x", "_x"},           {"%12", "_12"},
                 {"a\033[2J", "a_[2J"},  {"\xff", "_"}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char name[JOB_NAME_MAX];
        rules_job_name(name, names[i].comm, 7);
        assert_string_equal(name, names[i].name);
        assert_true(proto_name_ok(name));
    }
}

TEST(administrators)
{
    static const gid_t groups[] = {20, 30};
    assert_true(rights_admin(0, 100, ADMIN_NO_GROUP, 0, NULL, 0));
    assert_true(rights_admin(100, 100, ADMIN_NO_GROUP, 5, NULL, 0));
    assert_false(rights_admin(101, 100, ADMIN_NO_GROUP, 5, groups, 2));
    assert_true(rights_admin(101, 0, 30, 5, groups, 2));
    assert_true(rights_admin(101, 0, 5, 5, groups, 2));
    assert_false(rights_admin(101, 0, 40, 5, groups, 2));
    /* "No group" is no group, even to a process that has it. */
    assert_false(rights_admin(101, 0, ADMIN_NO_GROUP, ADMIN_NO_GROUP, NULL, 0));
}

#define ME    1000
#define OTHER 1001
/* Initializers in braces. */
#define OF(...)                                                                                    \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define TERMS(c, w)                                                                                \
    .given = GIVEN(c, w), .class = (enum job_class)((c) < 0 ? 0 : (c)), .weight = (w)
#define GIVEN(c, w)      (((c) >= 0 ? TERM(class) : 0) | ((w) > 0 ? TERM(weight) : 0))
#define SET(c, w)        OF(.op = OP_SET, TERMS(c, w))
#define ADD(c, w)        OF(.op = OP_ADD, TERMS(c, w))
#define SET_ONE(term, v) OF(.op = OP_SET, .given = TERM(term), .term = (v))
#define RELEASE          OF(.op = OP_SET, .release = true)
#define JOB_WITH(c, w, ...)                                                                        \
    OF(.owner = ME, .managed = true, .class = (c), .weight = (w), ##__VA_ARGS__)
#define JOB(c, w)         JOB_WITH(c, w)
#define PAUSED(c, w, who) JOB_WITH(c, w, .paused = true, .paused_by = (who))
#define BUDGET(us)        JOB_WITH(CLASS_LATENCY, 100, .budget_us = (us))
#define LIMITS(min, max)  JOB_WITH(CLASS_NORMAL, 100, .gpu_min = (min), .gpu_max = (max))
#define SWAPPED(by_user, who)                                                                      \
    JOB_WITH(CLASS_LATENCY, 100, .swapped = true, .swapped_by_user = (by_user), .swapped_by = (who))
#define SPEED(percent) JOB_WITH(CLASS_LATENCY, 100, .min_speed = (percent), .default_speed = 90)
#define MEMORY(over)   JOB_WITH(CLASS_BATCH, 100, .memory_max_mib = 10, .memory_over = (over))
#define YIELDED(by)    JOB_WITH(CLASS_LATENCY, 100, .yielded = true, .yielded_by = (by))
#define NO_JOB         OF(.owner = ME)
#define OTHERS         OF(.owner = OTHER)

/* As user ME, who is no administrator. */
static const struct {
    struct request want;
    struct subject now;
    bool allowed;
} rights[] = {
    {{.op = OP_PS}, {.owner = 0}, true},
    {{.op = OP_POLICY}, {.owner = 0}, true},
    {{.op = OP_POLICY, .name = "shares"}, {.owner = ME}, false},
    {{.op = OP_RULES}, {.owner = 0}, true},
    {{.op = OP_IDENTITY, .cgroup = "/a"}, {.owner = ME}, false},

    {{.op = OP_PAUSE}, OTHERS, false},
    {{.op = OP_RESUME}, {.owner = OTHER, .managed = true, .paused = true, .paused_by = ME}, false},
    {SET(CLASS_BATCH, 0), OTHERS, false},
    {ADD(CLASS_BATCH, 0), OTHERS, false},
    {RELEASE, {.owner = OTHER, .managed = true, .class = CLASS_NORMAL, .weight = 100}, false},

    {ADD(CLASS_BATCH, 100), NO_JOB, true},
    {ADD(CLASS_NORMAL, 0), NO_JOB, true},
    {ADD(-1, 0), NO_JOB, true},
    {ADD(CLASS_LATENCY, 0), NO_JOB, false},
    {ADD(-1, 101), NO_JOB, false},
    {SET(CLASS_BATCH, 0), NO_JOB, true},
    {SET(CLASS_LATENCY, 0), NO_JOB, false},
    {SET(-1, 100), NO_JOB, true},
    {SET(-1, 101), NO_JOB, false},

    {SET(CLASS_BATCH, 0), JOB(CLASS_LATENCY, 500), true},
    {SET(CLASS_LATENCY, 0), JOB(CLASS_LATENCY, 500), true},
    {SET(CLASS_NORMAL, 0), JOB(CLASS_BATCH, 100), false},
    {SET(-1, 500), JOB(CLASS_LATENCY, 500), true},
    {SET(-1, 501), JOB(CLASS_LATENCY, 500), false},
    {SET(-1, 60), JOB(CLASS_BATCH, 50), false},
    {SET(CLASS_BATCH, 200), JOB(CLASS_NORMAL, 100), false}, /* lower one to raise the other */

    /* Taking one's process out of its job, or the job apart, must not raise it. */
    {ADD(CLASS_BATCH, 50), JOB(CLASS_BATCH, 50), true},
    {ADD(CLASS_NORMAL, 50), JOB(CLASS_BATCH, 50), false},
    {ADD(-1, 50), JOB(CLASS_BATCH, 50), false},
    {ADD(CLASS_BATCH, 0), JOB(CLASS_BATCH, 50), false},
    {ADD(CLASS_BATCH, 100), PAUSED(CLASS_BATCH, 100, 0), false},
    {ADD(CLASS_BATCH, 100), PAUSED(CLASS_BATCH, 100, ME), true},
    {RELEASE, JOB(CLASS_LATENCY, 500), true},
    {RELEASE, JOB(CLASS_NORMAL, 100), true},
    {RELEASE, JOB(CLASS_BATCH, 100), false},
    {RELEASE, JOB(CLASS_NORMAL, 99), false},
    {RELEASE, PAUSED(CLASS_NORMAL, 100, 0), false},
    {RELEASE, PAUSED(CLASS_NORMAL, 100, ME), true},

    /* A larger budget asks for less. */
    {SET_ONE(budget_us, 2000), BUDGET(1000), true},
    {SET_ONE(budget_us, 999), BUDGET(1000), false},
    {SET_ONE(min_speed, 50), SPEED(50), true},
    {SET_ONE(min_speed, 51), SPEED(50), false},
    {{.op = OP_SET, .given = TERM(min_speed)}, SPEED(50), false}, /* none: the default, 90 % */
    {{.op = OP_ADD, .given = TERM(class)}, SPEED(50), false},
    /* A limit of memory only falls, and what happens above it only becomes stricter. */
    {SET_ONE(memory_max_mib, 10), MEMORY(MEMORY_PAUSE), true},
    {SET_ONE(memory_max_mib, 11), MEMORY(MEMORY_PAUSE), false},
    {{.op = OP_SET, .given = TERM(memory_max_mib)}, MEMORY(MEMORY_PAUSE), false},
    {SET_ONE(memory_over, MEMORY_KILL), MEMORY(MEMORY_PAUSE), true},
    {SET_ONE(memory_over, MEMORY_WARN), MEMORY(MEMORY_PAUSE), false},
    {SET_ONE(memory_max_mib, 11), JOB(CLASS_BATCH, 100), true},

    {ADD(CLASS_LATENCY, 100), BUDGET(1000), false}, /* a part of the job without one */
    {ADD(CLASS_LATENCY, 100), BUDGET(0), true},
    {{.op = OP_ADD, .given = TERM(class), .memory_bytes = 1}, BUDGET(0), false}, /* others leave */
    {{.op = OP_ADD, .given = TERM(class) | TERM(budget_us), .budget_us = 999}, BUDGET(1000), false},
    {{.op = OP_ADD, .given = TERM(class) | TERM(budget_us), .budget_us = 1000}, BUDGET(1000), true},
    {ADD(CLASS_BATCH, 100), BUDGET(1000), true},

    /* A floor takes from others; a ceiling can be lowered. */
    {SET_ONE(gpu_min, 1), LIMITS(0, 0), false},
    {SET_ONE(gpu_min, 20), LIMITS(30, 0), true},
    {SET_ONE(gpu_max, 50), LIMITS(0, 0), true},
    {SET_ONE(gpu_max, 40), LIMITS(0, 50), true},
    {SET_ONE(gpu_max, 51), LIMITS(0, 50), false},
    {SET_ONE(gpu_max, 0), LIMITS(0, 50), false},
    {RELEASE, LIMITS(0, 50), false},
    {ADD(CLASS_BATCH, 100), LIMITS(0, 50), false}, /* a part of the job without it */

    /* A deadline changes the order among one's like. */
    {SET_ONE(deadline_us, 3000000), JOB(CLASS_BATCH, 100), true},
    {SET_ONE(deadline_us, 3000000), OTHERS, false},

    /* When it may be switched out is its owner's to say, in no job and in one. */
    {SET_ONE(preempt, PREEMPT_BLOCK), JOB(CLASS_BATCH, 100), true},
    {SET_ONE(preempt, PREEMPT_BLOCK), OTHERS, false},
    {{.op = OP_ADD, .given = TERM(preempt), .preempt = PREEMPT_BLOCK}, OTHERS, false},

    {{.op = OP_ADD, .slurm_job = 7}, NO_JOB, false},

    {{.op = OP_PAUSE}, NO_JOB, true},
    {{.op = OP_PAUSE}, JOB(CLASS_BATCH, 1), true},
    {{.op = OP_RESUME}, JOB(CLASS_BATCH, 1), true}, /* runs: nothing to do */
    {{.op = OP_RESUME}, PAUSED(CLASS_BATCH, 1, ME), true},
    {{.op = OP_RESUME}, PAUSED(CLASS_BATCH, 1, 0), false},
    {{.op = OP_RESUME}, PAUSED(CLASS_BATCH, 1, OTHER), false},

    {{.op = OP_SWAP_OUT}, OTHERS, false},
    {{.op = OP_SWAP_OUT}, NO_JOB, true},
    {{.op = OP_SWAP_OUT}, JOB(CLASS_LATENCY, 500), true},
    /* Its work has to come to an end before it is moved: so it would run. */
    {{.op = OP_SWAP_OUT}, PAUSED(CLASS_BATCH, 1, 0), false},
    {{.op = OP_SWAP_OUT}, PAUSED(CLASS_BATCH, 1, ME), true},
    {{.op = OP_SWAP_IN}, {.owner = OTHER, .managed = true}, false},
    {{.op = OP_SWAP_IN}, JOB(CLASS_BATCH, 1), true}, /* is there: nothing to do */
    {{.op = OP_SWAP_IN}, SWAPPED(true, ME), true},
    {{.op = OP_SWAP_IN}, SWAPPED(true, 0), false},
    {{.op = OP_SWAP_IN}, SWAPPED(false, ME), false}, /* for a latency job */

    {{.op = OP_YIELD}, {.owner = OTHER, .managed = true}, false},
    {{.op = OP_YIELD}, JOB(CLASS_LATENCY, 500), true},
    {{.op = OP_YIELD}, YIELDED(0), true}, /* which does not make it this user's */
    {{.op = OP_YIELD, .yields_memory = true}, PAUSED(CLASS_BATCH, 1, 0), false},
    {{.op = OP_YIELD, .yields_pause = true}, PAUSED(CLASS_BATCH, 1, 0), true},
    {{.op = OP_ACQUIRE}, {.owner = OTHER, .managed = true}, false},
    {{.op = OP_ACQUIRE}, JOB(CLASS_BATCH, 1), true}, /* has all that it had */
    {{.op = OP_ACQUIRE}, YIELDED(ME), true},
    {{.op = OP_ACQUIRE}, YIELDED(0), false},

    {{.op = OP_TRY, .held = true}, OTHERS, false},
    {{.op = OP_TRY, .last = true}, {.owner = OTHER, .managed = true}, false},
    {{.op = OP_TRY, .held = true}, JOB(CLASS_LATENCY, 500), true},
    {{.op = OP_TRY}, PAUSED(CLASS_BATCH, 1, 0), true}, /* which stays paused */
};

TEST(users)
{
    const struct caller me = {.uid = ME}, admin = {.uid = ME, .admin = true};
    for (size_t i = 0; i < ARRAY_SIZE(rights); i++) {
        struct error err = {""};
        int r = rights_check(&me, &rights[i].want, &rights[i].now, &err);
        if (r != (rights[i].allowed ? 0 : -EPERM) || (r < 0) != (err.text[0] != '\0'))
            fail_msg("row %zu: %d '%s'", i, r, err.text);
        assert_int_equal(rights_check(&admin, &rights[i].want, &rights[i].now, NULL), 0);
    }
}
