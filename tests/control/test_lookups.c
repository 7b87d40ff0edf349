/* What is asked of cede-identify, by a stand-in for it; what agents told; rules that never match;
 * and what the environment gives. Times are made up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/classify.h"
#include "control/identities.h"
#include "control/lookups.h"
#include "control/rule_lint.h"

#define TEXT(s) ((struct pairs){s, sizeof(s)})

/* ---- lookups ---- */

static struct identify_ask sent[512];
static unsigned nsent;
static int send_code;

static int stand_in(void *arg, const void *message, size_t n)
{
    if (send_code < 0)
        return send_code;
    assert_true(nsent < 512 && n <= sizeof(sent[0]));
    memcpy(&sent[nsent++], message, n);
    return 0;
}

static struct lookups *lookups_begin(void)
{
    struct lookups *l = lookups_new(stand_in, NULL);
    assert_non_null(l);
    nsent = 0;
    send_code = 0;
    lookups_want(l, TEXT("arguments\0"));
    return l;
}

static struct lookup_key key(pid_t pid, uid_t account, uint64_t stack)
{
    return (struct lookup_key){
        .proc = {pid, 5}, .image = {1, 2, stack}, .account = account, .container = ""};
}

static bool answer(struct lookups *l, const struct identify_ask *a, uint64_t stack, int code,
                   uint64_t now)
{
    struct identify_answer x = {.id = a->id, .code = code, .image = {1, 2, stack}};
    size_t n = 0;
    if (code == 0)
        assert_int_equal(pairs_put(x.text, sizeof(x.text), &n, "arguments", "train"), 0);
    x.n = (uint32_t)n;
    return lookups_take(l, &x, offsetof(struct identify_answer, text) + n, now);
}

static int get(struct lookups *l, struct lookup_key k, uint64_t now, const char **text)
{
    struct pairs p;
    struct identify_origin origin;
    int r = lookups_get(l, &k, now, &p, &origin);
    if (text)
        *text = pairs_get(p, "arguments");
    return r;
}

static void asks_and_remembers(void **state)
{
    struct lookups *l = lookups_begin();
    const char *text;
    assert_int_equal(get(l, key(1, 7, 9), 10, NULL), -EAGAIN);
    assert_int_equal(get(l, key(1, 7, 9), 11, NULL), -EAGAIN);
    assert_int_equal(nsent, 1); /* once */
    assert_int_equal(sent[0].proc.pid, 1);
    assert_int_equal(sent[0].n, sizeof("arguments\0"));
    assert_false(answer(l, &sent[0], 9, 0, 12));
    assert_int_equal(get(l, key(1, 7, 9), 13, &text), 0);
    assert_string_equal(text, "train");
    assert_int_equal(nsent, 1);
    /* No process: another answer, none of ours, a cut one. */
    struct identify_answer x = {.id = 999, .n = 3};
    assert_false(lookups_take(l, &x, sizeof(x), 14));
    assert_false(lookups_take(l, &x, 3, 14));
    lookups_free(l);
}

/* A program that has become another one by exec(2) since it was read is read again, for a while. */
static void another_program(void **state)
{
    struct lookups *l = lookups_begin();
    const char *text;
    uint64_t stack = 9;
    assert_int_equal(get(l, key(1, 7, stack), 10, NULL), -EAGAIN);
    for (unsigned i = 1; i < 3; i++) {
        answer(l, &sent[nsent - 1], stack, 0, 12);
        assert_int_equal(get(l, key(1, 7, ++stack), 13, &text), -EAGAIN);
        assert_null(text);
        assert_int_equal(nsent, i + 1);
    }
    answer(l, &sent[nsent - 1], stack, 0, 12);
    assert_int_equal(get(l, key(1, 7, stack), 14, &text), 0);
    assert_string_equal(text, "train");
    assert_int_equal(get(l, key(1, 7, ++stack), 15, &text), -ESTALE); /* no more */
    assert_null(text);
    /* Each has its own time to be read in, however old the answer about the one before. */
    const uint64_t later = 17 + LOOKUP_MAX_NS;
    assert_int_equal(get(l, key(3, 7, 1), 15, NULL), -EAGAIN);
    answer(l, &sent[nsent - 1], 1, 0, 16);
    assert_int_equal(get(l, key(3, 7, 2), later, NULL), -EAGAIN);
    assert_true(lookups_waits(l, 3, later));
    assert_int_equal(get(l, key(3, 7, 2), later + 1, NULL), -EAGAIN);
    answer(l, &sent[nsent - 1], 2, 0, later + 2);
    assert_int_equal(get(l, key(3, 7, 2), later + 3, &text), 0);
    assert_string_equal(text, "train");
    /* One that is in a container since then. */
    struct lookup_key k = key(2, 7, 1);
    assert_int_equal(get(l, k, 16, NULL), -EAGAIN);
    answer(l, &sent[nsent - 1], 1, 0, 17);
    k.container = "0123";
    assert_int_equal(get(l, k, 18, NULL), -EAGAIN);
    assert_string_equal(sent[nsent - 1].container, "0123");
    lookups_free(l);
}

/* A look that fails for want of descriptors or memory says nothing about the program: it is read
 * again, but not without end. */
static void looks_that_fail(void **state)
{
    static const int codes[] = {-EMFILE, -ENOMEM, -EINTR, -EBUSY};
    struct lookups *l = lookups_begin();
    const char *text;
    uint64_t now = 10;
    assert_int_equal(get(l, key(1, 7, 9), now, NULL), -EAGAIN);
    for (unsigned i = 0; i < ARRAY_SIZE(codes); i++) {
        answer(l, &sent[nsent - 1], 9, codes[i], ++now);
        assert_int_equal(get(l, key(1, 7, 9), ++now, NULL), -EAGAIN);
        assert_int_equal(nsent, i + 1); /* not at once */
        now += NSEC_PER_SEC;
        assert_int_equal(get(l, key(1, 7, 9), now, NULL), -EAGAIN);
        assert_int_equal(nsent, i + 2);
    }
    answer(l, &sent[nsent - 1], 9, 0, ++now);
    assert_int_equal(get(l, key(1, 7, 9), ++now, &text), 0);
    assert_string_equal(text, "train");
    assert_int_equal(get(l, key(2, 7, 9), now, NULL), -EAGAIN);
    int r = -EAGAIN;
    for (unsigned i = 0; i < 500 && r == -EAGAIN; i++) {
        answer(l, &sent[nsent - 1], 9, -EMFILE, now);
        now += NSEC_PER_SEC;
        r = get(l, key(2, 7, 9), now, NULL);
    }
    assert_int_equal(r, -EMFILE);
    lookups_free(l);
}

/* A user whose programs do not let themselves be read delays those of that user, and only for so
 * long. */
static void users_apart(void **state)
{
    struct lookups *l = lookups_begin();
    for (pid_t pid = 1; pid <= LOOKUPS_PER_ACCOUNT + 5; pid++)
        assert_int_equal(get(l, key(pid, 7, 1), 10, NULL), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH);
    assert_true(lookups_waits(l, LOOKUPS_PER_ACCOUNT, 10));
    assert_false(lookups_waits(l, LOOKUPS_PER_ACCOUNT + 1, 10)); /* no room yet */
    assert_int_equal(get(l, key(1000, 8, 1), 11, NULL), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH + 1);
    assert_int_equal(sent[nsent - 1].proc.pid, 1000);
    /* One answers: the next is sent. */
    answer(l, &sent[0], 1, 0, 12);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH + 2);
    assert_int_equal(sent[nsent - 1].proc.pid, 5);
    const uint64_t late = 10 + LOOKUP_MAX_NS + 1;
    const char *text;
    assert_int_equal(get(l, key(2, 7, 1), late, NULL), -ETIMEDOUT);
    assert_int_equal(get(l, key(2, 7, 1), late, NULL), -ETIMEDOUT);
    assert_false(lookups_waits(l, 2, late));
    assert_true(answer(l, &sent[1], 1, 0, late)); /* after all */
    assert_int_equal(get(l, key(2, 7, 1), late, &text), 0);
    assert_string_equal(text, "train");
    assert_int_equal(get(l, key(LOOKUPS_PER_ACCOUNT + 1, 7, 1), late, NULL), -EAGAIN);
    assert_true(lookups_waits(l, LOOKUPS_PER_ACCOUNT + 1, late));
    lookups_free(l);
}

/* Several users' programs do so, and have all places: another user has one all the same, and its
 * turn before theirs. */
static void users_together(void **state)
{
    struct lookups *l = lookups_begin();
    for (pid_t pid = 0; pid < LOOKUPS_MAX; pid++)
        assert_int_equal(get(l, key(1 + pid, 10 + (uid_t)pid % 4, 1), 10, NULL), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT);
    assert_int_equal(get(l, key(1000, 8, 1), 11, NULL), -EAGAIN);
    assert_true(lookups_waits(l, 1000, 11));
    assert_false(lookups_waits(l, LOOKUPS_MAX - 3, 11)); /* the last of one that has most */
    answer(l, &sent[0], 1, 0, 12);
    assert_int_equal(nsent, LOOKUPS_SENT + 1);
    assert_int_equal(sent[nsent - 1].proc.pid, 1000);
    lookups_free(l);
}

static void helper_ends(void **state)
{
    struct lookups *l = lookups_begin();
    assert_int_equal(get(l, key(1, 7, 1), 10, NULL), -EAGAIN);
    lookups_again(l);
    assert_int_equal(get(l, key(1, 7, 1), 11, NULL), -EAGAIN);
    assert_int_equal(nsent, 2);
    assert_int_equal(sent[1].proc.pid, 1);
    /* There is none for a while. */
    send_code = -EAGAIN;
    assert_int_equal(get(l, key(2, 7, 1), 12, NULL), -EAGAIN);
    send_code = 0;
    assert_int_equal(get(l, key(2, 7, 1), 13, NULL), -EAGAIN);
    assert_int_equal(nsent, 2);
    assert_int_equal(get(l, key(2, 7, 1), 13 + NSEC_PER_SEC, NULL), -EAGAIN);
    assert_int_equal(nsent, 3);
    /* It may not read the process. */
    answer(l, &sent[2], 1, -EACCES, 14);
    assert_int_equal(get(l, key(2, 7, 1), 15, NULL), -EACCES);
    lookups_free(l);
}

static void answers_make_room(void **state)
{
    struct lookups *l = lookups_begin();
    for (pid_t pid = 1; pid <= 3 * LOOKUPS_MAX / 2; pid++) {
        nsent = 0;
        assert_int_equal(get(l, key(pid, 7, 1), (uint64_t)pid, NULL), -EAGAIN);
        answer(l, &sent[0], 1, 0, (uint64_t)pid);
    }
    nsent = 0;
    assert_int_equal(get(l, key(3 * LOOKUPS_MAX / 2, 7, 1), 500, NULL), 0);
    assert_int_equal(get(l, key(1, 7, 1), 500, NULL), -EAGAIN); /* forgotten: asked again */
    assert_int_equal(nsent, 1);
    lookups_free(l);
}

/* ---- identities ---- */

static void innermost_group(void **state)
{
    struct identities *t = identities_new();
    assert_int_equal(identities_put(t, "/kubepods/pod1", TEXT("pod\0a")), 0);
    assert_int_equal(identities_put(t, "/kubepods/pod1/c", TEXT("pod\0b")), 0);
    static const struct {
        const char *lines, *pod;
    } rows[] = {
        {"0::/kubepods/pod1\n", "a"},
        {"0::/kubepods/pod1/x/y\n", "a"},
        {"0::/kubepods/pod1/c\n", "b"},
        {"0::/kubepods/pod1/c/d\n", "b"},
        {"9:name=systemd:/\n8:pids:/kubepods/pod1/c/d\n0::/\n", "b"},
        {"0::/kubepods/pod10\n", NULL},
        {"0::/kubepods\n", NULL},
        {"0::/x/kubepods/pod1\n", NULL},
        {"nonsense\n\n/kubepods/pod1", "a"},
        {"", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const char *pod = pairs_get(identities_find(t, rows[i].lines, NULL), "pod");
        if (!pod != !rows[i].pod || (pod && strcmp(pod, rows[i].pod) != 0))
            fail_msg("%s: %s", rows[i].lines, pod ? pod : "none");
    }
    assert_null(identities_find(NULL, "0::/kubepods/pod1", NULL).text);
    assert_int_equal(identities_put(t, "/kubepods/pod1/c", TEXT("pod\0c")), 0); /* another */
    assert_string_equal(pairs_get(identities_find(t, "0::/kubepods/pod1/c", NULL), "pod"), "c");
    assert_int_equal(identities_put(t, "/kubepods/pod1/c", (struct pairs){.n = 0}), 0); /* gone */
    assert_string_equal(pairs_get(identities_find(t, "0::/kubepods/pod1/c", NULL), "pod"), "a");
    /* Each report that says anything new has a number of its own. */
    uint64_t first, second;
    assert_int_equal(identities_put(t, "/kubepods/pod1/c", TEXT("pod\0d")), 0);
    identities_find(t, "0::/kubepods/pod1", &first);
    identities_find(t, "0::/kubepods/pod1/c", &second);
    assert_true(first > 0 && second > first && second == identities_number(t));
    assert_int_equal(identities_put(t, "/kubepods/pod1/c", TEXT("pod\0d")), 0);
    assert_int_equal(identities_number(t), second);
    identities_find(t, "0::/x", &first);
    assert_int_equal(first, 0);
    /* Full of groups that are no more: these make room. */
    for (int i = 0; i < 3 * IDENTITIES_MAX / 2; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/no-such-group-%d", i);
        assert_int_equal(identities_put(t, path, TEXT("qos\0x")), 0);
    }
    identities_free(t);
}

static void facts_of_a_message(void **state)
{
    static const struct {
        const char *json;
        const char *says; /* NULL: it is taken */
    } rows[] = {
        {"{\"pod\":\"a\",\"priority_class\":\"low\",\"label:app.io/x\":\"\"}", NULL},
        {"{}", NULL},
        {"[]", "an object"},
        {"{\"podd\":\"a\"}", "not one of pod"},
        {"{\"label:\":\"a\"}", "not one of pod"},
        {"{\"pod\":\"\"}", "a text"},
        {"{\"pod\":7}", "a text"},
        {"{\"pod\":\"a\\nb\"}", "a text"},
    };
    char facts[IDENTITY_FACTS];
    uint32_t n;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct error err = {""};
        json_t *o = json_loads(rows[i].json, 0, NULL);
        int r = identities_parse(o, facts, &n, &err);
        json_decref(o);
        if ((r < 0) != !!rows[i].says || (r < 0 && !strstr(err.text, rows[i].says)))
            fail_msg("%s: %d %s", rows[i].json, r, err.text);
        assert_true(r < 0 || pairs_valid((struct pairs){facts, n}));
    }
    json_t *much = json_object();
    for (int i = 0; i < 20; i++) {
        char name[32], value[240];
        snprintf(name, sizeof(name), "label:%d", i);
        memset(value, 'x', sizeof(value) - 1);
        value[sizeof(value) - 1] = '\0';
        json_object_set_new(much, name, json_string(value));
    }
    assert_int_equal(identities_parse(much, facts, &n, NULL), -EINVAL);
    json_decref(much);
}

/* ---- rules that never match ---- */

#define C(k, p)                                                                                    \
    {                                                                                              \
        .kind = (k), .pattern = (p)                                                                \
    }
#define KC(k, name, p)                                                                             \
    {                                                                                              \
        .kind = (k), .key = (name), .pattern = (p)                                                 \
    }
#define R(...)                                                                                     \
    {                                                                                              \
        .title = "r", .n = ARRAY_SIZE(((struct condition[]){__VA_ARGS__})), .conditions = {        \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define USER(i)                                                                                    \
    {                                                                                              \
        .kind = COND_UID, .id = (i), .pattern = #i                                                 \
    }

static void rules_that_never_match(void **state)
{
    /* The second of two. */
    static const struct {
        struct rule first, second;
        const char *why; /* "": it may */
    } rows[] = {
        {R(USER(1)), R(USER(2)), ""},
        {R(USER(1)), R(USER(1)), "rule r before it"},
        {R(USER(1)), R(USER(1), C(COND_EXE, "x")), "rule r before it"},
        {R(USER(1), C(COND_EXE, "x")), R(USER(1)), ""},
        {R(C(COND_EXE, "*")), R(C(COND_EXE, "python*")), "before it"},
        {R(C(COND_EXE, "py*")), R(C(COND_EXE, "python3*")), "before it"},
        {R(C(COND_EXE, "python3*")), R(C(COND_EXE, "py*")), ""},
        {R(C(COND_EXE, "python3*")), R(C(COND_EXE, "/usr/bin/python3.11")), "before it"},
        {R(C(COND_EXE, "/usr/*")), R(C(COND_EXE, "usr")), ""},
        {R(C(COND_EXE, "py*")), R(C(COND_EXE, "/usr/*")), ""},
        {R(C(COND_CGROUP, "/a/*")), R(C(COND_CGROUP, "/a/b*")), "before it"},
        {R(C(COND_CGROUP, "/a/?")), R(C(COND_CGROUP, "/a/b")), "before it"},
        {R(C(COND_CGROUP, "/a/?")), R(C(COND_CGROUP, "/a/*")), ""},
        {R(C(COND_CONTAINER, "01234567")), R(C(COND_CONTAINER, "0123456789")), "before it"},
        {R(C(COND_CONTAINER, "0123456789")), R(C(COND_CONTAINER, "01234567")), ""},
        {R(C(COND_CONTAINER, "*")), R(C(COND_CONTAINER, "01234567")), ""}, /* cannot be told */
        {R(KC(COND_LABEL, "a", "*")), R(KC(COND_LABEL, "a", "x")), "before it"},
        {R(KC(COND_LABEL, "a", "*")), R(KC(COND_LABEL, "b", "x")), ""},
        {R(USER(1)), R(C(COND_EXE, "bin/x")), "paths begin with /"},
        {R(USER(1)), R(C(COND_CGROUP, "a.slice")), "paths begin with /"},
        {R(USER(1)), R(C(COND_SLURM_JOB, "abc")), "has a number"},
        {R(USER(1)), R({.kind = COND_UID, .nobody = true, .pattern = "alcie"}), "no such user"},
        {R(USER(1)), R({.kind = COND_GROUP, .nobody = true, .pattern = "gpu"}), "no such group"},
        /* What takes nobody is no reason. */
        {R({.kind = COND_UID, .nobody = true}), R(USER(0)), ""},
        {R(USER(1)), R(KC(COND_LABEL, "a", "x"), KC(COND_LABEL, "a", "y")), "exclude each other"},
        {R(USER(1)), R(KC(COND_LABEL, "a", "x*"), KC(COND_LABEL, "a", "y")), "exclude each other"},
        {R(USER(1)), R(KC(COND_LABEL, "a", "x*"), KC(COND_LABEL, "a", "xy")), ""},
        {R(USER(1)), R(KC(COND_ENVIRONMENT, "a", "x"), KC(COND_ENVIRONMENT, "b", "y")), ""},
        {{.title = "r", .class_said = true, .n = 1, .conditions = {USER(1)}}, R(USER(1)), ""},
        {{.title = "r", .account = true, .n = 1, .conditions = {USER(1)}}, R(USER(1)), ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct rule two[] = {rows[i].first, rows[i].second, {.title = ""}};
        const struct rule_list l = {.rules = two, .n = 3};
        char why[LINT_TEXT];
        rule_lint(&l, 1, why);
        if (!why[0] != !rows[i].why[0] || !strstr(why, rows[i].why))
            fail_msg("row %zu: '%s', not '%s'", i, why, rows[i].why);
        assert_string_equal(rule_lint(&l, 2, why), ""); /* `others` */
    }
}

/* ---- what the environment gives ---- */

#define CLASS  "environment:CEDE_CLASS\0"
#define WEIGHT "environment:CEDE_WEIGHT\0"
#define NAME   "environment:CEDE_NAME\0"

static const struct rule said_rules[] = {{.title = "own",
                                          .class_said = true,
                                          .request = {.has_class = true, .class = CLASS_NORMAL},
                                          .n = 1,
                                          .conditions = {USER(5)}},
                                         {.request = {.has_class = true, .class = CLASS_BATCH}}};
static const struct {
    uid_t uid;
    unsigned rules; /* of both: none, the first, all */
    struct pairs said;
    enum outcome_by by;
    enum job_class class;
    uint32_t weight; /* 0: not said */
    const char *name, *note;
} said[] = {
    {1, 0, {.n = 0}, BY_NONE, 0, 0, "", ""},
    {1, 0, {CLASS "batch", sizeof(CLASS "batch")}, BY_ENVIRONMENT, CLASS_BATCH, 0, "", ""},
    {1, 0, {CLASS "normal", sizeof(CLASS "normal")}, BY_ENVIRONMENT, CLASS_NORMAL, 0, "", ""},
    {1,
     0,
     {CLASS "latency", sizeof(CLASS "latency")},
     BY_ENVIRONMENT,
     CLASS_NORMAL,
     0,
     "",
     "only lowers"},
    {1, 0, {CLASS "Batch", sizeof(CLASS "Batch")}, BY_NONE, 0, 0, "", "neither latency"},
    {1, 0, {CLASS "", sizeof(CLASS "")}, BY_NONE, 0, 0, "", "neither latency"},
    {1, 0, {WEIGHT "50", sizeof(WEIGHT "50")}, BY_NONE, 0, 0, "", ""},
    {1,
     0,
     {CLASS "batch\0" WEIGHT "50", sizeof(CLASS "batch\0" WEIGHT "50")},
     BY_ENVIRONMENT,
     CLASS_BATCH,
     50,
     "",
     ""},
    {1,
     0,
     {CLASS "batch\0" WEIGHT "101", sizeof(CLASS "batch\0" WEIGHT "101")},
     BY_ENVIRONMENT,
     CLASS_BATCH,
     100,
     "",
     "only lowers"},
    {1,
     0,
     {CLASS "batch\0" WEIGHT "-1", sizeof(CLASS "batch\0" WEIGHT "-1")},
     BY_ENVIRONMENT,
     CLASS_BATCH,
     0,
     "",
     "no number"},
    {1,
     0,
     {CLASS "batch\0" NAME "a/b", sizeof(CLASS "batch\0" NAME "a/b")},
     BY_ENVIRONMENT,
     CLASS_BATCH,
     0,
     "a_b",
     ""},
    {1,
     0,
     {CLASS "batch\0" NAME "12", sizeof(CLASS "batch\0" NAME "12")},
     BY_ENVIRONMENT,
     CLASS_BATCH,
     0,
     "",
     "no name"},
    /* It comes before `others`, which it may lower too. */
    {1, 2, {.n = 0}, BY_OTHERS, CLASS_BATCH, 0, "", ""},
    {1, 2, {CLASS "normal", sizeof(CLASS "normal")}, BY_ENVIRONMENT, CLASS_NORMAL, 0, "", ""},
    {1, 2, {WEIGHT "7", sizeof(WEIGHT "7")}, BY_OTHERS, CLASS_BATCH, 7, "", ""},
    /* A rule may allow all of it, and takes only who asks. */
    {5, 1, {CLASS "latency", sizeof(CLASS "latency")}, BY_RULE, CLASS_LATENCY, 0, "", ""},
    {5,
     1,
     {CLASS "latency\0" WEIGHT "900", sizeof(CLASS "latency\0" WEIGHT "900")},
     BY_RULE,
     CLASS_LATENCY,
     900,
     "",
     ""},
    {5, 1, {CLASS "best", sizeof(CLASS "best")}, BY_NONE, 0, 0, "", "neither latency"},
    {5, 2, {.n = 0}, BY_OTHERS, CLASS_BATCH, 0, "", ""},
};

static void environment(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        struct rule_list l = {.rules = said_rules, .n = said[i].rules, .environment = true};
        struct rule_facts f = {.uid = said[i].uid, .exe = "", .cgroup = "", .read = said[i].said};
        struct outcome o;
        classify(&l, &f, &o);
        if (o.by != said[i].by || o.pending ||
            (o.by != BY_NONE && o.request.class != said[i].class) ||
            (o.request.has_weight ? o.request.weight : 0) != said[i].weight ||
            strcmp(o.request.name, said[i].name) != 0 || !o.note[0] != !said[i].note[0] ||
            !strstr(o.note, said[i].note))
            fail_msg("row %zu: by %d, class %d, weight %u, name '%s', note '%s'", i, o.by,
                     o.request.class, o.request.weight, o.request.name, o.note);
        f.pending = true;
        classify(&l, &f, &o);
        assert_true(o.pending && o.by == BY_NONE);
        l.environment = false; /* then only a rule can ask for it */
        classify(&l, &f, &o);
        assert_int_equal(o.pending, said[i].uid == 5 && said[i].rules > 0);
    }
}

/* Of a latency rule with a weight of 200 and limits, of others = batch, and of no rule. */
static const struct rule pod_rules[] = {{.title = "serving",
                                         .request = {.has_class = true,
                                                     .class = CLASS_LATENCY,
                                                     .has_weight = true,
                                                     .weight = 200,
                                                     .has_budget = true,
                                                     .budget_us = 500,
                                                     .has_gpu_min = true,
                                                     .gpu_min = 40,
                                                     .has_gpu_max = true,
                                                     .gpu_max = 80},
                                         .n = 1,
                                         .conditions = {USER(5)}},
                                        {.request = {.has_class = true, .class = CLASS_BATCH}}};
static const struct {
    uid_t uid;
    unsigned rules;
    const char *key, *value;
    enum outcome_by by;
    enum job_class class;
    uint32_t weight, gpu_min, gpu_max;
    const char *note;
} pod_words[] = {
    {5, 2, "class", "batch", BY_RULE, CLASS_BATCH, 200, 40, 80, ""},
    {5, 2, "class", "latency", BY_RULE, CLASS_LATENCY, 200, 40, 80, ""},
    {5, 2, "class", "best", BY_RULE, CLASS_LATENCY, 200, 40, 80, "neither latency"},
    {5, 2, "weight", "7", BY_RULE, CLASS_LATENCY, 7, 40, 80, ""},
    {5, 2, "weight", "201", BY_RULE, CLASS_LATENCY, 200, 40, 80, "only lowers"},
    {5, 2, "weight", "-1", BY_RULE, CLASS_LATENCY, 200, 40, 80, "out of range"},
    {5, 2, "gpu-max", "81", BY_RULE, CLASS_LATENCY, 200, 40, 80, "only lowers"},
    {5, 2, "gpu-max", "30", BY_RULE, CLASS_LATENCY, 200, 30, 30, ""},
    {5, 2, "gpu-min", "20", BY_RULE, CLASS_LATENCY, 200, 20, 80, ""},
    {5, 2, "gpu-min", "50", BY_RULE, CLASS_LATENCY, 200, 40, 80, "only lowers"},
    {5, 2, "pool", "1", BY_RULE, CLASS_LATENCY, 200, 40, 80, "cannot enter a pool"},
    {1, 2, "class", "normal", BY_OTHERS, CLASS_BATCH, 0, 0, 0, "only lowers"},
    {1, 2, "gpu-min", "20", BY_OTHERS, CLASS_BATCH, 0, 0, 0, "taken from others"},
    {1, 2, "gpu-max", "20", BY_OTHERS, CLASS_BATCH, 0, 0, 20, ""},
    {1, 0, "class", "batch", BY_ENVIRONMENT, CLASS_BATCH, 0, 0, 0, ""},
    {1, 0, "class", "latency", BY_ENVIRONMENT, CLASS_NORMAL, 0, 0, 0, "only lowers"},
    {1, 0, "class", "best", BY_NONE, 0, 0, 0, 0, ""},
    {1, 0, "weight", "7", BY_NONE, 0, 0, 0, 0, ""},
};

static void pods_only_lower(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(pod_words); i++) {
        char text[128], key[64];
        size_t n = 0;
        snprintf(key, sizeof(key), "label:cede.io/%s", pod_words[i].key);
        assert_int_equal(pairs_put(text, sizeof(text), &n, key, pod_words[i].value), 0);
        struct rule_list l = {.rules = pod_rules, .n = pod_words[i].rules, .environment = true};
        struct rule_facts f = {.uid = pod_words[i].uid, .exe = "", .cgroup = "", .told = {text, n}};
        struct outcome o;
        classify(&l, &f, &o);
        const struct request *r = &o.request;
        if (o.by != pod_words[i].by || (o.by != BY_NONE && r->class != pod_words[i].class) ||
            r->weight != pod_words[i].weight || r->gpu_min != pod_words[i].gpu_min ||
            r->gpu_max != pod_words[i].gpu_max || !o.note[0] != !pod_words[i].note[0] ||
            !strstr(o.note, pod_words[i].note))
            fail_msg("row %zu: by %d, class %d, weight %u, %u to %u, note '%s'", i, o.by, r->class,
                     r->weight, r->gpu_min, r->gpu_max, o.note);
        assert_int_equal(r->budget_us, o.by == BY_RULE && r->class == CLASS_LATENCY ? 500 : 0);
        l.environment = false; /* then a pod makes no job of its programs */
        classify(&l, &f, &o);
        assert_int_equal(o.by, pod_words[i].rules ? pod_words[i].by : BY_NONE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks_and_remembers), cmocka_unit_test(another_program),
        cmocka_unit_test(looks_that_fail),    cmocka_unit_test(users_apart),
        cmocka_unit_test(users_together),     cmocka_unit_test(helper_ends),
        cmocka_unit_test(answers_make_room),  cmocka_unit_test(innermost_group),
        cmocka_unit_test(facts_of_a_message), cmocka_unit_test(rules_that_never_match),
        cmocka_unit_test(environment),        cmocka_unit_test(pods_only_lower),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
