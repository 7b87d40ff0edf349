/* Rules that never match, and what the environment and labels of pods give. */
#include "api/rules/match.h"
#include "api/rules/rule_lint.h"
#include "rule_of.h"

TEST(rules_that_never_match)
{
    /* The second of two. */
    static const struct {
        const char *first, *second;
        const char *why; /* "": it may */
    } rows[] = {
        {"uid=1", "uid=2", ""},
        {"uid=1", "uid=1", "rule r before it"},
        {"uid=1", "uid=1;exe=x", "rule r before it"},
        {"uid=1;exe=x", "uid=1", ""},
        {"exe=*", "exe=python*", "before it"},
        {"exe=py*", "exe=python3*", "before it"},
        {"exe=python3*", "exe=py*", ""},
        {"exe=python3*", "exe=/usr/bin/python3.11", "before it"},
        {"exe=/usr/*", "exe=usr", ""},
        {"exe=py*", "exe=/usr/*", ""},
        {"cgroup=/a/*", "cgroup=/a/b*", "before it"},
        {"cgroup=/a/?", "cgroup=/a/b", "before it"},
        {"cgroup=/a/?", "cgroup=/a/*", ""},
        {"container=01234567", "container=0123456789", "before it"},
        {"container=0123456789", "container=01234567", ""},
        {"container=*", "container=01234567", ""}, /* cannot be told */
        {"label=a=*", "label=a=x", "before it"},
        {"label=a=*", "label=b=x", ""},
        {"uid=1", "exe=bin/x", "paths begin with /"},
        {"uid=1", "cgroup=a.slice", "paths begin with /"},
        {"uid=1", "slurm_job=abc", "has a number"},
        {"uid=1", "uid=alcie", "no such user"},
        {"uid=1", "group=gpu", "no such group"},
        /* What takes nobody is no reason. */
        {"uid=no-such-name", "uid=0", ""},
        {"uid=1", "label=a=x;label=a=y", "exclude each other"},
        {"uid=1", "label=a=x*;label=a=y", "exclude each other"},
        {"uid=1", "label=a=x*;label=a=xy", ""},
        {"uid=1", "environment=a=x;environment=b=y", ""},
        {"uid=1;class=environment", "uid=1", ""},
        {"[account r];uid=1", "uid=1", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct rule two[] = {
            rule_of("%s", rows[i].first), rule_of("%s", rows[i].second), {.title = ""}};
        const struct rule_list l = {.rules = two, .n = 3};
        char why[LINT_TEXT];
        rule_lint(&l, 1, why);
        if (!why[0] != !rows[i].why[0] || !strstr(why, rows[i].why))
            fail_msg("%s, %s: '%s', not '%s'", rows[i].first, rows[i].second, why, rows[i].why);
        assert_string_equal(rule_lint(&l, 2, why), ""); /* `others` */
    }
}

#define CLASS  "environment:CEDE_CLASS\0"
#define WEIGHT "environment:CEDE_WEIGHT\0"
#define NAME   "environment:CEDE_NAME\0"

#define SAID(text)                                                                                 \
    {                                                                                              \
        text, sizeof(text)                                                                         \
    }

static const struct {
    uid_t uid;
    unsigned rules; /* of both: none, the first, all */
    struct pairs said;
    enum outcome_by by;
    enum job_class class;
    uint32_t weight; /* 0: not said */
    const char *name, *note;
} said[] = {
    {1, 0, {0}, BY_NONE, 0, 0, "", ""},
    {1, 0, SAID(CLASS "batch"), BY_ENVIRONMENT, CLASS_BATCH, 0, "", ""},
    {1, 0, SAID(CLASS "normal"), BY_ENVIRONMENT, CLASS_NORMAL, 0, "", ""},
    {1, 0, SAID(CLASS "latency"), BY_ENVIRONMENT, CLASS_NORMAL, 0, "", "only lowers"},
    {1, 0, SAID(CLASS "Batch"), BY_NONE, 0, 0, "", "neither latency"},
    {1, 0, SAID(CLASS ""), BY_NONE, 0, 0, "", "neither latency"},
    {1, 0, SAID(WEIGHT "50"), BY_NONE, 0, 0, "", ""},
    {1, 0, SAID(CLASS "batch\0" WEIGHT "50"), BY_ENVIRONMENT, CLASS_BATCH, 50, "", ""},
    {1, 0, SAID(CLASS "batch\0" WEIGHT "101"), BY_ENVIRONMENT, CLASS_BATCH, 100, "", "only lowers"},
    {1, 0, SAID(CLASS "batch\0" WEIGHT "-1"), BY_ENVIRONMENT, CLASS_BATCH, 0, "", "no number"},
    {1, 0, SAID(CLASS "batch\0" NAME "a/b"), BY_ENVIRONMENT, CLASS_BATCH, 0, "a_b", ""},
    {1, 0, SAID(CLASS "batch\0" NAME "12"), BY_ENVIRONMENT, CLASS_BATCH, 0, "", "no name"},
    /* It comes before `others`, which it may lower too. */
    {1, 2, {0}, BY_OTHERS, CLASS_BATCH, 0, "", ""},
    {1, 2, SAID(CLASS "normal"), BY_ENVIRONMENT, CLASS_NORMAL, 0, "", ""},
    {1, 2, SAID(WEIGHT "7"), BY_OTHERS, CLASS_BATCH, 7, "", ""},
    /* A rule may allow all of it, and takes only who asks. */
    {5, 1, SAID(CLASS "latency"), BY_RULE, CLASS_LATENCY, 0, "", ""},
    {5, 1, SAID(CLASS "latency\0" WEIGHT "900"), BY_RULE, CLASS_LATENCY, 900, "", ""},
    {5, 1, SAID(CLASS "best"), BY_NONE, 0, 0, "", "neither latency"},
    {5, 2, {0}, BY_OTHERS, CLASS_BATCH, 0, "", ""},
};

TEST(environment)
{
    const struct rule rules[] = {rule_of("[rule own];uid=5;class=environment"),
                                 {.request = {.given = TERM(class), .class = CLASS_BATCH}}};
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        struct rule_list l = {.rules = rules, .n = said[i].rules, .environment = true};
        struct rule_facts f = {.uid = said[i].uid, .exe = "", .cgroup = "", .read = said[i].said};
        struct outcome o;
        classify(&l, &f, &o);
        if (o.by != said[i].by || o.pending ||
            (o.by != BY_NONE && o.request.class != said[i].class) ||
            (o.request.given & TERM(weight) ? o.request.weight : 0) != said[i].weight ||
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

TEST(pods_only_lower)
{
    const struct rule rules[] = {
        rule_of("uid=5;class=latency;weight=200;budget=500us;gpu_min=40%%;gpu_max=80%%"),
        {.request = {.given = TERM(class), .class = CLASS_BATCH}}};
    for (size_t i = 0; i < ARRAY_SIZE(pod_words); i++) {
        char text[128], key[64];
        size_t n = 0;
        snprintf(key, sizeof(key), "label:cede.io/%s", pod_words[i].key);
        assert_int_equal(pairs_put(text, sizeof(text), &n, key, pod_words[i].value), 0);
        struct rule_list l = {.rules = rules, .n = pod_words[i].rules, .environment = true};
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

#define GIB (1024U * 1024 * 1024)
/* A promise to a pod, on GPUs of 80 GiB: of a rule that lets it raise all, of one with fixed terms,
 * of one that says what happens above its limit, of others = batch, and of no rule. */
static const struct {
    uid_t uid;
    unsigned rules;
    const char *key, *value;
    enum outcome_by by;
    enum job_class class;
    uint32_t weight, gpu_min, gpu_max, memory_gib, max_gib;
} promised[] = {
    {5, 5, "class", "latency", BY_RULE, CLASS_LATENCY, 0, 0, 0, 0, 0},
    {5, 5, "class", "batch", BY_RULE, CLASS_BATCH, 0, 0, 0, 0, 0},
    {5, 5, "class", "best", BY_OTHERS, CLASS_BATCH, 0, 0, 0, 0, 0},
    {5, 5, "gpu-max", "50", BY_OTHERS, CLASS_BATCH, 0, 0, 50, 0, 0}, /* no class, no match */
    {6, 5, "weight", "300", BY_RULE, CLASS_LATENCY, 300, 0, 0, 0, 0},
    {6, 5, "weight", "0", BY_RULE, CLASS_LATENCY, 0, 0, 0, 0, 0},
    {6, 5, "gpu-min", "30", BY_RULE, CLASS_LATENCY, 0, 30, 0, 0, 0},
    {6, 5, "gpu-min", "101", BY_RULE, CLASS_LATENCY, 0, 0, 0, 0, 0},
    {6, 5, "gpu-max", "30", BY_RULE, CLASS_LATENCY, 0, 0, 30, 0, 0},
    {6, 5, "memory", "42949672960", BY_RULE, CLASS_LATENCY, 0, 0, 0, 40, 0},
    {6, 5, "memory", "50%", BY_RULE, CLASS_LATENCY, 0, 0, 0, 40, 0},
    {6, 5, "memory", "150%", BY_RULE, CLASS_LATENCY, 0, 0, 0, 0, 0},
    {6, 5, "memory-max", "25%", BY_RULE, CLASS_LATENCY, 0, 0, 0, 0, 20},
    {6, 5, "class", "batch", BY_RULE, CLASS_BATCH, 0, 0, 0, 0, 0},
    {7, 5, "class", "latency", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "weight", "300", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "gpu-min", "30", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "gpu-min", "10", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "gpu-max", "50", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "gpu-max", "10", BY_RULE, CLASS_NORMAL, 50, 10, 10, 0, 8},
    {7, 5, "memory", "50%", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "memory-max", "25%", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 8},
    {7, 5, "memory-max", "4294967296", BY_RULE, CLASS_NORMAL, 50, 20, 40, 0, 4},
    {1, 5, "gpu-min", "30", BY_OTHERS, CLASS_BATCH, 0, 0, 0, 0, 0},
    {1, 5, "memory-max", "25%", BY_OTHERS, CLASS_BATCH, 0, 0, 0, 0, 20},
    {1, 0, "class", "latency", BY_ENVIRONMENT, CLASS_NORMAL, 0, 0, 0, 0, 0},
    {1, 0, "class", "batch", BY_ENVIRONMENT, CLASS_BATCH, 0, 0, 0, 0, 0},
    {1, 0, "gpu-max", "30", BY_ENVIRONMENT, CLASS_NORMAL, 0, 0, 30, 0, 0},
    {1, 0, "gpu-min", "30", BY_ENVIRONMENT, CLASS_NORMAL, 0, 0, 0, 0, 0},
    {8, 5, "memory-max", "25%", BY_RULE, CLASS_NORMAL, 0, 0, 0, 0, 20},
    {8, 5, "memory", "25%", BY_RULE, CLASS_NORMAL, 0, 0, 0, 0, 0}, /* of no limit */
};

TEST(promises_raise_by_rules)
{
    const struct rule rules[] = {
        rule_of("uid=5;class=promised"),
        rule_of("uid=6;class=latency;weight=promised;gpu_min=promised;memory=promised"),
        rule_of("uid=7;class=normal;weight=50;gpu_min=20%%;gpu_max=40%%;memory_max=8G"),
        rule_of("uid=8;class=normal;memory_max=promised, kill"),
        {.request = {.given = TERM(class), .class = CLASS_BATCH}}};
    for (size_t i = 0; i < ARRAY_SIZE(promised); i++) {
        char text[128], key[64];
        size_t n = 0;
        snprintf(key, sizeof(key), "promise:%s", promised[i].key);
        assert_int_equal(pairs_put(text, sizeof(text), &n, key, promised[i].value), 0);
        struct rule_list l = {.rules = rules,
                              .n = promised[i].rules,
                              .environment = true,
                              .gpu_memory_bytes = 80ULL * GIB};
        struct rule_facts f = {.uid = promised[i].uid, .exe = "", .cgroup = "", .told = {text, n}};
        struct outcome o;
        classify(&l, &f, &o);
        const struct request *r = &o.request;
        if (o.by != promised[i].by || r->class != promised[i].class ||
            r->weight != promised[i].weight || r->gpu_min != promised[i].gpu_min ||
            r->gpu_max != promised[i].gpu_max || o.note[0] ||
            r->memory_bytes != (uint64_t)promised[i].memory_gib * GIB ||
            r->memory_max_mib != promised[i].max_gib * 1024 ||
            r->memory_over != (promised[i].uid == 8 ? MEMORY_KILL : MEMORY_WARN))
            fail_msg("row %zu: by %d, class %d, weight %u, %u to %u, memory %llu, %u MiB, '%s'", i,
                     o.by, r->class, r->weight, r->gpu_min, r->gpu_max,
                     (unsigned long long)r->memory_bytes, r->memory_max_mib, o.note);
        l.environment = false; /* then a promise makes no job */
        classify(&l, &f, &o);
        assert_int_equal(o.by, promised[i].rules ? promised[i].by : BY_NONE);
    }
}

/* Of the rule's limit of 4 GiB, which pauses, and of none. */
TEST(pods_limit_memory)
{
    static const struct {
        uid_t uid;
        const char *value;
        uint32_t mib;
        enum memory_over over;
        const char *note;
    } words[] = {
        {5, "2G", 2048, MEMORY_PAUSE, ""},
        {5, "2G,kill", 2048, MEMORY_KILL, ""},
        {5, "8G,warn", 4096, MEMORY_PAUSE, "only lowers"},
        {5, "4G,kill", 4096, MEMORY_KILL, ""},
        {5, "0", 4096, MEMORY_PAUSE, "no size"},
        {5, "big", 4096, MEMORY_PAUSE, "no size"},
        {1, "8G,kill", 8192, MEMORY_KILL, ""},
        {1, "8G", 8192, MEMORY_WARN, ""},
    };
    const struct rule rules[] = {rule_of("uid=5;class=batch;memory_max=4G,pause"),
                                 {.request = {.given = TERM(class), .class = CLASS_BATCH}}};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        char text[128];
        size_t n = 0;
        struct outcome o;
        pairs_put(text, sizeof(text), &n, "label:cede.io/memory-max", words[i].value);
        const struct rule_list l = {.rules = rules, .n = 2};
        const struct rule_facts f = {
            .uid = words[i].uid, .exe = "", .cgroup = "", .told = {text, n}};
        classify(&l, &f, &o);
        assert_int_equal(o.request.memory_max_mib, words[i].mib);
        assert_int_equal(o.request.memory_over, words[i].over);
        assert_true(words[i].note[0] ? strstr(o.note, words[i].note) != NULL : !o.note[0]);
    }
}
