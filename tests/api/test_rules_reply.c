/* What `cede rules` is answered: all rules in pages that fit into a message, of a process what
 * holds and what does not, and nothing of another user's process. */
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../json_like.h"
#include "api/rules/rules_reply.h"
#include "fake_engine.h"
#include "rule_of.h"
#include "who/identify_lookups.h"

static const struct caller root = {.uid = 0, .admin = true};

static json_t *answer(const struct rule_list *l, const struct caller *who, pid_t pid,
                      uint64_t after, int want)
{
    const struct request r = {.op = OP_RULES, .pid = pid, .number = after};
    struct error err = {""};
    struct engine *e = fake_engine_new();
    int code = 1;
    json_t *o = rules_reply(l, e, who, &r, &code, &err);
    free(e);
    if (code != want)
        fail_msg("%d, not %d: %s", code, want, err.text);
    assert_int_equal(!o, want < 0);
    return o;
}

TEST(all_rules_in_pages)
{
    static struct rule v[CONFIG_RULES_MAX + 1];
    const struct rule_list l = {.rules = v, .n = CONFIG_RULES_MAX + 1};
    unsigned pages = 0, rules = 0;
    for (unsigned i = 0; i < CONFIG_RULES_MAX; i++) {
        snprintf(v[i].title, sizeof(v[i].title), "rule %u", i);
        v[i].account = i % 5 == 0;
        v[i].request.class = CLASS_BATCH;
        v[i].n = RULE_CONDITIONS_MAX;
        for (unsigned k = 0; k < RULE_CONDITIONS_MAX; k++) {
            v[i].conditions[k].kind = COND_LABEL;
            snprintf(v[i].conditions[k].key, RULE_KEY_MAX, "%090u", i * 100 + k);
            memset(v[i].conditions[k].pattern, '"', 90);
        }
    }
    v[CONFIG_RULES_MAX].request.class = CLASS_NORMAL; /* `others` */
    for (uint64_t after = 0, more = 1; more; pages++) {
        json_t *o = answer(&l, &root, getpid(), after, 0), *x;
        assert_true(json_dumpb(o, NULL, 0, JSON_COMPACT) <= PROTO_MESSAGE_MAX);
        size_t i;
        json_array_foreach(json_object_get(o, "rules"), i, x)
        {
            assert_int_equal(json_get_int(x, "number"), ++rules);
            assert_true(json_is_false(json_object_get(x, "matches")));
        }
        after = rules;
        more = json_get_true(o, "more");
        assert_string_equal(json_get_text(o, "others"), "normal");
        json_decref(o);
    }
    assert_int_equal(rules, CONFIG_RULES_MAX);
    assert_true(pages > 5);
}

TEST(of_a_process)
{
    const struct rule rules[] = {
        rule_of("[rule a];uid=%u;exe=no*;class=batch", geteuid()),
        rule_of("[rule b];exe=test_rules_re*;class=batch;weight=7"),
    };
    const struct rule_list l = {.rules = rules, .n = 2, .environment = true};
    const struct caller me = {.uid = geteuid()}, other = {.uid = geteuid() + 1};
    json_t *o = answer(&l, &me, getpid(), 0, 0);
    assert_like(o, "{'rules':[{'matches':false,'conditions':[{'holds':true},"
                   "{'holds':false,'seen':'test_rules_reply'}]},{}],"
                   "'outcome':{'by':'rule','rule':'b','weight':7}}");
    json_decref(o);
    (void)answer(&l, &other, getpid(), 0, -EPERM);
    (void)answer(&l, &me, INT32_MAX, 0, -ESRCH);
    const struct caller guest = {
        .uid = geteuid(), .guest = true, .ns = {.id = 1, .level = 2}}; /* elsewhere */
    (void)answer(&l, &guest, getpid(), 0, -EPERM);
    /* All users may see the rules, and a daemon without rules says so. */
    o = answer(&l, &other, 0, 0, 0);
    assert_like(o, "{'rules':[{'matches':null},{'matches':null}]}");
    json_decref(o);
    o = answer(NULL, &me, getpid(), 0, 0);
    assert_like(o, "{'rules':[],'outcome':{'by':'nothing'}}");
    json_decref(o);
}

static void *tell_and_wait(void *arg)
{
    const int *fds = arg;
    const pid_t tid = (pid_t)syscall(SYS_gettid);
    char c;
    (void)!write(fds[1], &tid, sizeof(tid));
    (void)!read(fds[2], &c, 1);
    return NULL;
}

/* /proc has both, and no rule is asked about them. */
TEST(of_a_thread_and_a_zombie)
{
    int fds[4];
    pthread_t thread;
    pid_t tid;
    siginfo_t si;
    assert_true(pipe(fds) == 0 && pipe(fds + 2) == 0);
    assert_int_equal(pthread_create(&thread, NULL, tell_and_wait, fds), 0);
    assert_int_equal(read(fds[0], &tid, sizeof(tid)), sizeof(tid));
    (void)answer(NULL, &root, tid, 0, -EINVAL);
    assert_int_equal(write(fds[3], "", 1), 1);
    pthread_join(thread, NULL);
    pid_t zombie = fork();
    if (zombie == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)zombie, &si, WEXITED | WNOWAIT), 0);
    (void)answer(NULL, &root, zombie, 0, -ESRCH);
    waitpid(zombie, NULL, 0);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
}

static uint64_t asked;

static int stand_in(void *arg, const void *message, size_t n)
{
    asked = ((const struct identify_ask *)message)->id;
    return 0;
}

/* What a program says of itself may take six times the bytes in JSON. */
TEST(of_a_hostile_process)
{
    static struct rule v[3];
    static struct identify_answer a;
    struct lookups *lookups = lookups_new(stand_in, NULL);
    const struct rule_list l = {.rules = v, .n = ARRAY_SIZE(v), .lookups = lookups};
    struct proc_stat self;
    char value[CONDITION_SEEN];
    size_t n = 0;
    memset(value, 1, sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(v); i++) {
        snprintf(v[i].title, sizeof(v[i].title), "rule %zu", i);
        v[i].n = RULE_CONDITIONS_MAX;
        for (unsigned k = 0; k < RULE_CONDITIONS_MAX; k++)
            v[i].conditions[k] =
                (struct condition){.kind = COND_ENVIRONMENT, .key = "X", .pattern = "x"};
    }
    assert_int_equal(pairs_put(a.text, sizeof(a.text), &n, "environment:X", value), 0);
    json_decref(answer(&l, &root, getpid(), 0, 0)); /* asks */
    a.id = asked;
    a.n = (uint32_t)n;
    assert_int_equal(proc_stat_read(getpid(), &self), 0);
    assert_int_equal(proc_image_read(self.id, &a.image), 0);
    lookups_take(lookups, &a, offsetof(struct identify_answer, text) + n, monotonic_ns());
    uint64_t after = 0;
    for (bool more = true; more;) {
        json_t *o = answer(&l, &root, getpid(), after, 0), *rules = json_object_get(o, "rules");
        const json_t *rule = json_array_get(rules, 0);
        const json_t *condition = json_array_get(json_object_get(rule, "conditions"), 0);
        assert_string_equal(json_get_text(condition, "seen"), value);
        assert_true(json_dumpb(o, NULL, 0, JSON_COMPACT) <= PROTO_MESSAGE_MAX);
        assert_int_equal(json_get_int(rule, "number"), after + 1);
        after += json_array_size(rules);
        more = json_get_true(o, "more");
        json_decref(o);
    }
    assert_int_equal(after, ARRAY_SIZE(v));
    lookups_free(lookups);
}

TEST(identities)
{
    struct identities *t = identities_new();
    const struct rule_list l = {.identities = t}, none = {.rules = NULL};
    struct request r = {.op = OP_IDENTITY, .cgroup = "/a", .facts = "pod\0x", .nfacts = 6};
    const struct caller user = {.uid = 1000};
    struct engine *e = fake_engine_new();
    struct error err = {""};
    assert_int_equal(rules_identify(&l, e, &user, &r, &err), -EPERM);
    assert_int_equal(e->facts_came, 0);
    assert_null(identities_find(t, "0::/a", NULL).text);
    for (int i = 0; i < 3; i++) /* what is known already is no news */
        assert_int_equal(rules_identify(&l, e, &root, &r, &err), 0);
    assert_int_equal(e->facts_came, 1);
    assert_string_equal(pairs_get(identities_find(t, "0::/a", NULL), "pod"), "x");
    r.facts[4] = 'y';
    assert_int_equal(rules_identify(&l, e, &root, &r, &err), 0);
    assert_int_equal(e->facts_came, 2);
    r.nfacts = 0; /* nor is it what is withdrawn: jobs keep what they have */
    assert_int_equal(rules_identify(&l, e, &root, &r, &err), 0);
    assert_int_equal(e->facts_came, 2);
    assert_int_equal(e->looks, 0);
    assert_int_equal(rules_identify(&none, e, &root, &r, &err), -ENOTSUP);
    free(e);
    identities_free(t);
}
