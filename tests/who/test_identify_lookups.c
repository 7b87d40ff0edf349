/* What is asked of cede-identify, by a stand-in for it; and what agents told. Times are made up. */
#include "../test.h"
#include "who/agent_reports.h"
#include "who/identify_lookups.h"

#define TEXT(s) ((struct pairs){s, sizeof(s)})

/* ---- lookups ---- */

static struct lookups *lookups;
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

static int begin(void **state)
{
    lookups = lookups_new(stand_in, NULL);
    assert_non_null(lookups);
    nsent = 0;
    send_code = 0;
    lookups_want(lookups, TEXT("arguments\0"));
    return 0;
}

static int end(void **state)
{
    lookups_free(lookups);
    return 0;
}

#define TEST_OF_LOOKUPS(name) TEST_WITH(name, begin, end)

static struct lookup_key key(pid_t pid, uid_t principal, uint64_t stack)
{
    return (struct lookup_key){
        .proc = {pid, 5}, .image = {1, 2, stack}, .principal = principal, .container = ""};
}

/* Of the latest question, unless it is said of which. */
static bool answer_to(const struct identify_ask *a, uint64_t stack, int code, uint64_t now)
{
    struct identify_answer x = {.id = a->id, .code = code, .image = {1, 2, stack}};
    size_t n = 0;
    if (code == 0)
        assert_int_equal(pairs_put(x.text, sizeof(x.text), &n, "arguments", "train"), 0);
    x.n = (uint32_t)n;
    return lookups_take(lookups, &x, offsetof(struct identify_answer, text) + n, now);
}

static bool answer(uint64_t stack, int code, uint64_t now)
{
    return answer_to(&sent[nsent - 1], stack, code, now);
}

/* With an answer there is what the program says, else not. */
static int get(struct lookup_key k, uint64_t now)
{
    struct pairs p;
    struct identify_origin origin;
    int r = lookups_get(lookups, &k, now, &p, &origin);
    const char *text = pairs_get(p, "arguments");
    if (r == 0)
        assert_string_equal(text, "train");
    else
        assert_null(text);
    return r;
}

TEST_OF_LOOKUPS(asks_and_remembers)
{
    assert_int_equal(get(key(1, 7, 9), 10), -EAGAIN);
    assert_int_equal(get(key(1, 7, 9), 11), -EAGAIN);
    assert_int_equal(nsent, 1); /* once */
    assert_int_equal(sent[0].proc.pid, 1);
    assert_int_equal(sent[0].n, sizeof("arguments\0"));
    assert_false(answer_to(&sent[0], 9, 0, 12));
    assert_int_equal(get(key(1, 7, 9), 13), 0);
    assert_int_equal(nsent, 1);
    /* No process: another answer, none of ours, a cut one. */
    struct identify_answer x = {.id = 999, .n = 3};
    assert_false(lookups_take(lookups, &x, sizeof(x), 14));
    assert_false(lookups_take(lookups, &x, 3, 14));
}

/* A program that has become another one by exec(2) since it was read is read again, for a while. */
TEST_OF_LOOKUPS(another_program)
{
    uint64_t stack = 9;
    assert_int_equal(get(key(1, 7, stack), 10), -EAGAIN);
    for (unsigned i = 1; i < 3; i++) {
        answer(stack, 0, 12);
        assert_int_equal(get(key(1, 7, ++stack), 13), -EAGAIN);
        assert_int_equal(nsent, i + 1);
    }
    answer(stack, 0, 12);
    assert_int_equal(get(key(1, 7, stack), 14), 0);
    assert_int_equal(get(key(1, 7, ++stack), 15), -ESTALE); /* no more */
    /* Each has its own time to be read in, however old the answer about the one before. */
    const uint64_t later = 17 + LOOKUP_MAX_NS;
    assert_int_equal(get(key(3, 7, 1), 15), -EAGAIN);
    answer(1, 0, 16);
    assert_int_equal(get(key(3, 7, 2), later), -EAGAIN);
    assert_true(lookups_waits(lookups, 3, later));
    assert_int_equal(get(key(3, 7, 2), later + 1), -EAGAIN);
    answer(2, 0, later + 2);
    assert_int_equal(get(key(3, 7, 2), later + 3), 0);
    /* One that is in a container since then. */
    struct lookup_key k = key(2, 7, 1);
    assert_int_equal(get(k, 16), -EAGAIN);
    answer(1, 0, 17);
    k.container = "0123";
    assert_int_equal(get(k, 18), -EAGAIN);
    assert_string_equal(sent[nsent - 1].container, "0123");
}

/* A look that fails for want of descriptors or memory says nothing about the program: it is read
 * again, but not without end. */
TEST_OF_LOOKUPS(looks_that_fail)
{
    static const int codes[] = {-EMFILE, -ENOMEM, -EINTR, -EBUSY};
    uint64_t now = 10;
    assert_int_equal(get(key(1, 7, 9), now), -EAGAIN);
    for (unsigned i = 0; i < ARRAY_SIZE(codes); i++) {
        answer(9, codes[i], ++now);
        assert_int_equal(get(key(1, 7, 9), ++now), -EAGAIN);
        assert_int_equal(nsent, i + 1); /* not at once */
        now += NSEC_PER_SEC;
        assert_int_equal(get(key(1, 7, 9), now), -EAGAIN);
        assert_int_equal(nsent, i + 2);
    }
    answer(9, 0, ++now);
    assert_int_equal(get(key(1, 7, 9), ++now), 0);
    assert_int_equal(get(key(2, 7, 9), now), -EAGAIN);
    int r = -EAGAIN;
    for (unsigned i = 0; i < 500 && r == -EAGAIN; i++) {
        answer(9, -EMFILE, now);
        now += NSEC_PER_SEC;
        r = get(key(2, 7, 9), now);
    }
    assert_int_equal(r, -EMFILE);
}

/* A user whose programs do not let themselves be read delays those of that user, and only for so
 * long. */
TEST_OF_LOOKUPS(users_apart)
{
    for (pid_t pid = 1; pid <= LOOKUPS_PER_PRINCIPAL + 5; pid++)
        assert_int_equal(get(key(pid, 7, 1), 10), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH);
    assert_true(lookups_waits(lookups, LOOKUPS_PER_PRINCIPAL, 10));
    assert_false(lookups_waits(lookups, LOOKUPS_PER_PRINCIPAL + 1, 10)); /* no room yet */
    assert_int_equal(get(key(1000, 8, 1), 11), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH + 1);
    assert_int_equal(sent[nsent - 1].proc.pid, 1000);
    /* One answers: the next is sent. */
    answer_to(&sent[0], 1, 0, 12);
    assert_int_equal(nsent, LOOKUPS_SENT_EACH + 2);
    assert_int_equal(sent[nsent - 1].proc.pid, 5);
    const uint64_t late = 10 + LOOKUP_MAX_NS + 1;
    assert_int_equal(get(key(2, 7, 1), late), -ETIMEDOUT);
    assert_int_equal(get(key(2, 7, 1), late), -ETIMEDOUT);
    assert_false(lookups_waits(lookups, 2, late));
    assert_true(answer_to(&sent[1], 1, 0, late)); /* after all */
    assert_int_equal(get(key(2, 7, 1), late), 0);
    assert_int_equal(get(key(LOOKUPS_PER_PRINCIPAL + 1, 7, 1), late), -EAGAIN);
    assert_true(lookups_waits(lookups, LOOKUPS_PER_PRINCIPAL + 1, late));
}

/* Several users' programs do so, and have all places: another user has one all the same, and its
 * turn before theirs. */
TEST_OF_LOOKUPS(users_together)
{
    for (pid_t pid = 0; pid < LOOKUPS_MAX; pid++)
        assert_int_equal(get(key(1 + pid, 10 + (uid_t)pid % 4, 1), 10), -EAGAIN);
    assert_int_equal(nsent, LOOKUPS_SENT);
    assert_int_equal(get(key(1000, 8, 1), 11), -EAGAIN);
    assert_true(lookups_waits(lookups, 1000, 11));
    assert_false(lookups_waits(lookups, LOOKUPS_MAX - 3, 11)); /* the last of one that has most */
    answer_to(&sent[0], 1, 0, 12);
    assert_int_equal(nsent, LOOKUPS_SENT + 1);
    assert_int_equal(sent[nsent - 1].proc.pid, 1000);
}

TEST_OF_LOOKUPS(helper_ends)
{
    assert_int_equal(get(key(1, 7, 1), 10), -EAGAIN);
    lookups_again(lookups, LOOKUP_MAX_NS);
    assert_int_equal(get(key(1, 7, 1), LOOKUP_MAX_NS + 11), -EAGAIN);
    assert_int_equal(nsent, 2);
    answer_to(&sent[1], 1, 0, LOOKUP_MAX_NS + 11);
    /* There is none for a while. */
    send_code = -EAGAIN;
    assert_int_equal(get(key(2, 7, 1), 12), -EAGAIN);
    send_code = 0;
    assert_int_equal(get(key(2, 7, 1), 13), -EAGAIN);
    assert_int_equal(get(key(2, 7, 1), 13 + NSEC_PER_SEC), -EAGAIN);
    assert_int_equal(nsent, 3);
    /* It may not read the process. */
    answer_to(&sent[2], 1, -EACCES, 14);
    assert_int_equal(get(key(2, 7, 1), 15), -EACCES);
    assert_int_equal(get(key(2, 7, 2), 14 + NSEC_PER_SEC), -EAGAIN); /* another program now */
}

TEST_OF_LOOKUPS(answers_make_room)
{
    for (pid_t pid = 1; pid <= 3 * LOOKUPS_MAX / 2; pid++) {
        nsent = 0;
        assert_int_equal(get(key(pid, 7, 1), (uint64_t)pid), -EAGAIN);
        answer_to(&sent[0], 1, 0, (uint64_t)pid);
    }
    nsent = 0;
    assert_int_equal(get(key(3 * LOOKUPS_MAX / 2, 7, 1), 500), 0);
    assert_int_equal(get(key(1, 7, 1), 500), -EAGAIN); /* forgotten: asked again */
    assert_int_equal(nsent, 1);
}

/* ---- identities ---- */

TEST(innermost_group)
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

TEST(facts_of_a_message)
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
