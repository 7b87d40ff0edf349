/* Messages: what is accepted and what it means, what is refused and with what words, names and
 * targets as people type them, and that what is written can be read. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "control/proto.h"
#include "control/replies.h"

static int parse(const char *text, struct request *r, struct error *err)
{
    return proto_parse(text, strlen(text), r, err);
}

static void accepts_each_operation(void **state)
{
    struct request r;
    struct error err = {""};
    assert_int_equal(parse("{\"v\":1,\"op\":\"add\",\"pid\":42,\"class\":\"latency\",\"weight\":7,"
                           "\"name\":\"Zürich\",\"run\":true}",
                           &r, &err),
                     0);
    assert_int_equal(r.op, OP_ADD);
    assert_int_equal(r.pid, 42);
    assert_true(r.has_class && r.has_weight && r.run && !r.release);
    assert_int_equal(r.class, CLASS_LATENCY);
    assert_int_equal(r.weight, 7);
    assert_string_equal(r.name, "Zürich");

    assert_int_equal(parse("{\"op\":\"set\",\"target\":42,\"class\":\"batch\",\"v\":1}", &r, &err),
                     0);
    assert_int_equal(r.pid, 42);
    assert_int_equal(r.class, CLASS_BATCH);
    assert_false(r.has_weight);
    assert_int_equal(
        parse("{\"v\":1,\"op\":\"set\",\"target\":\"#9\",\"class\":\"none\"}", &r, &err), 0);
    assert_int_equal(r.number, 9);
    assert_true(r.release && !r.has_class);

    assert_int_equal(parse("{\"v\":1,\"op\":\"pause\",\"target\":\"17\"}", &r, &err), 0);
    assert_int_equal(r.op, OP_PAUSE);
    assert_int_equal(r.pid, 17);
    assert_int_equal(parse("{\"v\":1,\"op\":\"resume\",\"target\":\"train\"}", &r, &err), 0);
    assert_int_equal(r.op, OP_RESUME);
    assert_string_equal(r.name, "train");

    assert_int_equal(
        parse("{\"v\":1,\"op\":\"room\",\"memory_bytes\":5,\"name\":\"GPU-1\"}", &r, &err), 0);
    assert_int_equal(r.op, OP_ROOM);
    assert_int_equal(r.memory_bytes, 5);
    assert_string_equal(r.name, "GPU-1");
    assert_int_equal(parse("{\"v\":1,\"op\":\"room\"}", &r, &err), 0); /* no longer */
    assert_int_equal(r.memory_bytes, 0);
    assert_int_equal(parse("{\"v\":1,\"op\":\"room\",\"pid\":3}", &r, &err), -EINVAL);

    assert_int_equal(parse("{\"v\":1,\"op\":\"swap-out\",\"target\":\"#7\"}", &r, &err), 0);
    assert_int_equal(r.op, OP_SWAP_OUT);
    assert_int_equal(r.number, 7);
    assert_int_equal(
        parse(
            "{\"v\":1,\"op\":\"add\",\"pid\":3,\"class\":\"latency\",\"memory_bytes\":99999999999,"
            "\"gpu\":2}",
            &r, &err),
        0);
    assert_int_equal(r.memory_bytes, 99999999999);
    assert_int_equal(r.gpu, 2);
    assert_false(r.started);
    assert_int_equal(
        parse("{\"v\":1,\"op\":\"add\",\"pid\":3,\"memory_bytes\":5,\"started\":true}", &r, &err),
        0);
    assert_true(r.started);
    assert_int_equal(parse("{\"v\":1,\"op\":\"swap-in\",\"target\":3}", &r, &err), 0);
    assert_int_equal(r.op, OP_SWAP_IN);
    assert_int_equal(r.pid, 3);
}

static void accepts_looks_and_policies(void **state)
{
    struct request r;
    struct error err = {""};
    assert_int_equal(parse("{\"v\":1,\"op\":\"ps\"}", &r, &err), 0);
    assert_int_equal(r.number, 0);
    assert_int_equal(parse("{\"v\":1,\"op\":\"ps\",\"after\":5}", &r, &err), 0);
    assert_int_equal(r.number, 5);
    assert_int_equal(parse("{\"v\":1,\"op\":\"policy\",\"name\":\"shares\"}", &r, &err), 0);
    assert_int_equal(r.op, OP_POLICY);
    assert_string_equal(r.name, "shares");
    assert_int_equal(r.params, 0);
    assert_int_equal(
        parse("{\"v\":1,\"op\":\"policy\",\"params\":{\"floor\":0.25,\"probe_us\":7}}", &r, &err),
        0);
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        const char *name = param_at(i)->name;
        bool floor = strcmp(name, "floor") == 0, probe = strcmp(name, "probe_us") == 0;
        assert_int_equal(r.params >> i & 1, floor || probe);
        assert_true(r.param[i] == (floor ? 0.25 : probe ? 7 : 0));
    }
}

static void accepts_gpus(void **state)
{
    struct request r;
    struct error err = {""};
    assert_int_equal(
        parse("{\"v\":1,\"op\":\"add\",\"pid\":3,\"gpus\":16,\"visible\":\"\"}", &r, &err), 0);
    assert_int_equal(r.gpus, 16);
    assert_true(r.has_visible);
    assert_string_equal(r.visible, "");
    assert_int_equal(request_text(&r, "gpus", "auto", &err), 0);
    assert_int_equal(r.gpus, 1);
}

static void accepts_identities(void **state)
{
    struct request r, again;
    struct error err = {""};
    assert_int_equal(parse("{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/a/b/\",\"facts\":"
                           "{\"pod\":\"x\",\"label:a\":\"\"}}",
                           &r, &err),
                     0);
    assert_string_equal(r.cgroup, "/a/b"); /* as the kernel writes it */
    const struct pairs facts = {r.facts, r.nfacts};
    assert_string_equal(pairs_get(facts, "pod"), "x");
    assert_string_equal(pairs_get(facts, "label:a"), "");
    char *text = proto_format(&r);
    assert_int_equal(parse(text, &again, &err), 0);
    free(text);
    assert_int_equal(again.nfacts, r.nfacts);
    assert_string_equal(again.cgroup, r.cgroup);
    assert_int_equal(parse("{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/a\"}", &r, &err), 0);
    assert_int_equal(r.nfacts, 0);
    assert_int_equal(parse("{\"v\":1,\"op\":\"rules\",\"pid\":7,\"after\":3}", &r, &err), 0);
    assert_true(r.op == OP_RULES && r.pid == 7 && r.number == 3);
}

#define LONG_8(x) x x x x x x x x
#define LONG      LONG_8(LONG_8("GPU-01234567890,")) /* 1024 bytes */

/* Each with a word that the text must hold, so that it is refused for the right reason. */
static const struct {
    const char *text;
    int code;
    const char *says;
} refused[] = {
    {"", -EINVAL, "not JSON"},
    {"{", -EINVAL, "not JSON"},
    {"{} x", -EINVAL, "not JSON"},
    {"\xff\xfe", -EINVAL, "not JSON"},
    {"[]", -EINVAL, "JSON object"},
    {"{\"v\":1,\"v\":1,\"op\":\"ps\"}", -EINVAL, "not JSON"},
    {"{\"op\":\"ps\"}", -EPROTO, "field v is missing"},
    {"{\"v\":2,\"op\":\"ps\"}", -EPROTO, "version 1"},
    {"{\"v\":\"1\",\"op\":\"ps\"}", -EPROTO, "version"},
    {"{\"v\":1.0,\"op\":\"ps\"}", -EPROTO, "version"},
    {"{\"v\":1}", -EINVAL, "op:"},
    {"{\"v\":1,\"op\":7}", -EINVAL, "op:"},
    {"{\"v\":1,\"op\":\"reboot\"}", -EINVAL, "'reboot'"},
    {"{\"v\":1,\"op\":\"\\u001b[2J\"}", -EINVAL, "'?[2J'"},
    {"{\"v\":1,\"op\":\"ps\",\"x\":1}", -EINVAL, "'x': ps takes pid, after"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":1,\"weight\":5}", -EINVAL, "unknown field 'weight'"},
    {"{\"v\":1,\"op\":\"rules\",\"target\":1}", -EINVAL, "unknown field 'target'"},
    {"{\"v\":1,\"op\":\"identity\"}", -EINVAL, "cgroup is missing"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"a\"}", -EINVAL, "a path below /"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"//\"}", -EINVAL, "a path below /"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/\"}", -EINVAL, "a path below /"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/a/../b\"}", -EINVAL, "a path below /"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/a\\n\"}", -EINVAL, "a path below /"},
    {"{\"v\":1,\"op\":\"identity\",\"cgroup\":\"/a\",\"facts\":{\"x\":\"y\"}}", -EINVAL,
     "not one of pod"},
    {"{\"v\":1,\"op\":\"add\"}", -EINVAL, "pid is missing"},
    {"{\"v\":1,\"op\":\"pause\"}", -EINVAL, "target is missing"},
    {"{\"v\":1,\"op\":\"swap-in\"}", -EINVAL, "target is missing"},
    {"{\"v\":1,\"op\":\"yield\",\"pause\":1}", -EINVAL, "pause: true or false"},
    {"{\"v\":1,\"op\":\"yield\",\"class\":\"batch\"}", -EINVAL, "unknown field"},
    {"{\"v\":1,\"op\":\"acquire\",\"wait_us\":5000001}", -EINVAL, "wait_us: a whole number"},
    {"{\"v\":1,\"op\":\"acquire\",\"pause\":true}", -EINVAL, "unknown field"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"class\":\"latency\",\"memory_bytes\":0}", -EINVAL,
     "memory_bytes: a whole number from 1"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpu\":0}", -EINVAL, "gpu and started need memory_bytes"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"slurm_job\":7,\"name\":\"a\"}", -EINVAL,
     "slurm_job takes no name"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"started\":true}", -EINVAL, "need memory_bytes"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpu\":16}", -EINVAL, "gpu: a whole number from 0 to 15"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":0}", -EINVAL, "gpus: a whole number from 1 to 16"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":17}", -EINVAL,
     "gpus: a whole number from 1 to 16"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":\"auto\"}", -EINVAL, "gpus: a whole number"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"visible\":\"0\"}", -EINVAL, "visible needs gpus"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":1,\"visible\":[0]}", -EINVAL,
     "visible: a list of GPUs of less than 1024 bytes"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":1,\"visible\":\"" LONG "\"}", -EINVAL,
     "visible: a list of GPUs of less than 1024 bytes"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":1,\"memory_bytes\":5,\"gpu\":0}", -EINVAL,
     "leave out its number"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpus\":2,\"memory_bytes\":5}", -EINVAL, "one GPU only"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"gpus\":1}", -EINVAL, "unknown field 'gpus'"},
    {"{\"v\":1,\"op\":\"swap-out\",\"target\":1,\"weight\":5}", -EINVAL, "unknown field"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1}", -EINVAL,
     "class, weight, budget_us, gpu_min, gpu_max, preempt, min_speed or deadline_us"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"gpu_max\":101}", -EINVAL, "gpu_max: a whole number"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"gpu_min\":60,\"gpu_max\":50}", -EINVAL,
     "gpu-min is 60%, more than gpu-max, which is 50%"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"class\":\"none\",\"gpu_max\":5}", -EINVAL, "no limit"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"class\":\"none\",\"preempt\":\"block\"}", -EINVAL,
     "no preemption mode"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"preempt\":\"kernel\"}", -EINVAL,
     "'kernel' is not block or instruction"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"min_speed\":101}", -EINVAL, "min_speed"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"preempt\":1}", -EINVAL, "not block or instruction"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"budget_us\":1000001}", -EINVAL, "budget_us"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"class\":\"none\",\"budget_us\":5}", -EINVAL,
     "no budget"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":1,\"budget_us\":5}", -EINVAL, "unknown field"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"deadline_us\":199999}", -EINVAL, "at least 200000"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"deadline_us\":3600000001}", -EINVAL, "deadline_us"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"laxity_us\":5}", -EINVAL, "give the deadline too"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"deadline_us\":500000,\"laxity_us\":500000}", -EINVAL,
     "shorter"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"class\":\"latency\",\"deadline_us\":500000}", -EINVAL,
     "latency job"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"class\":\"none\",\"deadline_us\":500000}", -EINVAL,
     "no deadline"},
    {"{\"v\":1,\"op\":\"set\",\"target\":1,\"class\":\"none\",\"weight\":5}", -EINVAL, "no weight"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"class\":\"none\"}", -EINVAL, "class:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":0}", -EINVAL, "pid: a whole number from 1"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":-1}", -EINVAL, "pid:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":2147483648}", -EINVAL, "to 2147483647"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1.5}", -EINVAL, "pid:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":\"1\"}", -EINVAL, "pid:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":99999999999999999999}", -EINVAL, "not JSON"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"class\":\"fast\"}", -EINVAL, "latency, normal or batch"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"class\":null}", -EINVAL, "class:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"weight\":0}", -EINVAL, "weight: a whole number from 1"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"weight\":10001}", -EINVAL, "to 10000"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"name\":\"\"}", -EINVAL, "name:"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"name\":\"a\\u0000b\"}", -EINVAL, "not JSON"},
    {"{\"v\":1,\"op\":\"add\",\"pid\":1,\"run\":1}", -EINVAL, "true or false"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":true}", -EINVAL, "target:"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"#0\"}", -EINVAL, "job's number"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"0\"}", -EINVAL, "a pid is"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"a/b\"}", -EINVAL, "number of a user"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"/b\"}", -EINVAL, "number of a user"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"1/\"}", -EINVAL, "1000/train"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"1/2\"}", -EINVAL, "1000/train"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"4294967295/b\"}", -EINVAL, "number of a user"},
    {"{\"v\":1,\"op\":\"pause\",\"target\":\"00000000000000001/b\"}", -EINVAL, "number of a user"},
    {"{\"v\":1,\"op\":\"policy\",\"params\":7}", -EINVAL, "an object"},
    {"{\"v\":1,\"op\":\"policy\",\"params\":{\"x\":7}}", -EINVAL, "no parameter x; there are"},
    {"{\"v\":1,\"op\":\"policy\",\"params\":{\"probe_us\":0.5}}", -EINVAL, "probe_us: a whole"},
    {"{\"v\":1,\"op\":\"policy\",\"params\":{\"probe_us\":\"7\"}}", -EINVAL, "probe_us: a whole"},
    {"{\"v\":1,\"op\":\"policy\",\"params\":{\"probe_us\":-7}}", -EINVAL, "probe_us: a whole"},
    {"{\"v\":1,\"op\":\"ps\",\"params\":{}}", -EINVAL, "unknown field 'params'"},
    {"{\"v\":1,\"op\":\"ps\",\"after\":-1}", -EINVAL, "after:"},
};

static void refuses_with_a_reason(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct request r;
        struct error err = {""};
        int got = parse(refused[i].text, &r, &err);
        if (got != refused[i].code || !strstr(err.text, refused[i].says))
            fail_msg("%s: %d '%s', expected %d '%s'", refused[i].text, got, err.text,
                     refused[i].code, refused[i].says);
        assert_int_equal(r.pid, 0); /* nothing of a refused message is left to be used */
    }
}

static void refuses_size_and_depth(void **state)
{
    struct request r;
    struct error err = {""};
    size_t n = PROTO_MESSAGE_MAX + 1;
    char *text = malloc(n);
    assert_non_null(text);
    memset(text, ' ', n);
    memcpy(text, "{\"v\":1,\"op\":\"ps\"}", 17);
    assert_int_equal(proto_parse(text, n - 1, &r, &err), 0);
    assert_int_equal(proto_parse(text, n, &r, &err), -EMSGSIZE);
    memset(text, '[', n);
    assert_int_equal(proto_parse(text, n - 1, &r, &err), -EINVAL);
    free(text);
}

static void knows_good_names(void **state)
{
    static const struct {
        const char *name;
        bool ok;
    } names[] = {
        {"a", true},
        {"train 2", true},
        {"12a", true},
        {"日本語", true},
        {"\xf0\x9f\x98\x80", true},
        {"", false},
        {"12", false},
        {"#x", false},
        {"%12", false},
        {"%", true},
        {"%a", true},
        {"12%", true},
        {"a b", true},
        {" a", false},
        {"a ", false},
        {" ", false},
        {"-x", false},
        {"-", false},
        {"a-", true},
        {"a/b", false},
        {"a\nb", false},
        {"\x7f", false},
        {"\xc2\x85", false}, /* next line, a C1 control */
        {"\xe2\x80\xae"
         "x",
         false}, /* right-to-left override */
        {"\xff", false},
        {"\xc0\xaf", false},          /* overlong */
        {"\xed\xa0\x80", false},      /* surrogate */
        {"\xf4\x90\x80\x80", false},  /* past the last code point */
        {"a\xe2\x82", false},         /* cut */
        {"train\xe2\x80\x8b", false}, /* zero width space */
        {"train\xef\xb8\x8f", false}, /* variation selector */
        {"\xf3\xa0\x81\x81", false},  /* tag */
        {"\xee\x80\x80", false},      /* private use */
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (proto_name_ok(names[i].name) != names[i].ok)
            fail_msg("name %zu '%s'", i, names[i].name);
    }
    char name[JOB_NAME_MAX + 1];
    memset(name, 'a', sizeof(name));
    name[JOB_NAME_MAX] = '\0';
    assert_false(proto_name_ok(name));
    name[JOB_NAME_MAX - 1] = '\0';
    assert_true(proto_name_ok(name));
    assert_true(proto_name_from(name, "-x y"));
    assert_string_equal(name, "_x_y");
    assert_true(proto_name_from(name, "a "));
    assert_string_equal(name, "a_");
}

static void what_is_written_can_be_read(void **state)
{
    static const struct request all[] = {
        {.op = OP_ADD, .pid = 5, .has_class = true, .class = CLASS_BATCH, .run = true, .name = "x"},
        {.op = OP_ADD, .pid = INT32_MAX},
        {.op = OP_ADD, .pid = 5, .gpus = 2, .has_visible = true, .visible = "0,GPU-é"},
        {.op = OP_SET, .pid = 5, .has_budget = true, .budget_us = 1000000},
        {.op = OP_SET, .pid = 5, .has_weight = true, .weight = 10000},
        {.op = OP_SET, .pid = 5, .has_gpu_min = true, .has_gpu_max = true, .gpu_max = 50},
        {.op = OP_SET, .pid = 5, .has_deadline = true},
        {.op = OP_SET,
         .pid = 5,
         .has_deadline = true,
         .deadline_us = DEADLINE_MAX_US,
         .has_laxity = true,
         .laxity_us = 1000000},
        {.op = OP_SET, .pid = 5, .has_preempt = true, .preempt = PREEMPT_BLOCK},
        {.op = OP_SET, .pid = 5, .has_min_speed = true, .min_speed = 90},
        {.op = OP_ADD, .pid = 5, .has_preempt = true, .preempt = PREEMPT_INSTRUCTION},
        {.op = OP_SET, .number = 12, .release = true},
        {.op = OP_PAUSE, .name = "a \"b\" \\"},
        {.op = OP_PAUSE, .name = "x", .has_owner = true, .owner = UINT32_MAX - 1},
        {.op = OP_RESUME, .number = INT64_MAX},
        {.op = OP_PS},
        {.op = OP_PS, .number = 77},
        {.op = OP_PS, .brief = true},
        {.op = OP_POLICY, .name = "shares"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        struct request r;
        struct error err = {""};
        char *text = proto_format(&all[i]);
        assert_non_null(text);
        if (parse(text, &r, &err) < 0)
            fail_msg("%s: %s", text, err.text);
        assert_int_equal(r.op, all[i].op);
        assert_int_equal(r.pid, all[i].pid);
        assert_int_equal(r.number, all[i].number);
        assert_string_equal(r.name, all[i].name);
        assert_int_equal(r.has_owner, all[i].has_owner);
        assert_int_equal(r.owner, all[i].owner);
        assert_int_equal(r.has_class, all[i].has_class);
        assert_int_equal(r.class, all[i].class);
        assert_int_equal(r.weight, all[i].weight);
        assert_true(r.has_gpu_min == all[i].has_gpu_min && r.gpu_min == all[i].gpu_min);
        assert_true(r.has_gpu_max == all[i].has_gpu_max && r.gpu_max == all[i].gpu_max);
        assert_int_equal(r.has_budget, all[i].has_budget);
        assert_int_equal(r.budget_us, all[i].budget_us);
        assert_int_equal(r.has_deadline, all[i].has_deadline);
        assert_int_equal(r.deadline_us, all[i].deadline_us);
        assert_true(r.has_preempt == all[i].has_preempt && r.preempt == all[i].preempt);
        assert_true(r.has_min_speed == all[i].has_min_speed && r.min_speed == all[i].min_speed);
        assert_int_equal(r.has_laxity, all[i].has_laxity);
        assert_int_equal(r.laxity_us, all[i].laxity_us);
        assert_int_equal(r.release, all[i].release);
        assert_int_equal(r.run, all[i].run);
        assert_int_equal(r.brief, all[i].brief);
        free(text);
    }
}

static void shows_sums_and_reasons(void **state)
{
    (void)state;
    struct job_view v = {.number = 3, .busy = -1};
    v.counts =
        (struct job_counts){.where_ns = {[WHERE_HERE] = 1500000000, [WHERE_PAUSED] = 500000000},
                            .swaps = 1,
                            .swapped_bytes = 7};
    v.counts.on[2] = (struct gpu_counts){.ran_ns = 250000000, .turns = 3};
    v.exact_ns[2] = 125000000;
    v.sampled_ns[2] = 125000000;
    v.count_age_ns[2] = 500000000;
    v.why[2] = (struct job_why){.why = WHY_NEXT, .other = 5, .gpu = 1, .ahead = 2, .for_ns = 9000};
    json_t *o = job_json(&v, false);
    char *sums = json_dumps(json_object_get(o, "counts"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(sums, "{\"gpus\":[{\"allowed_s\":0.25,\"counted_s\":1.5,\"exact_s\":0.125,"
                              "\"gpu\":2,\"gpu_s\":0.25,"
                              "\"preempted\":0,\"turns\":3,\"waited_s\":0.0}],\"known_s\":2.0,"
                              "\"paused_s\":0.5,\"queued_s\":0.0,\"swapped_out_bytes\":7,"
                              "\"swapped_s\":0.0,\"swaps\":1}");
    free(sums);
    sums = json_dumps(json_object_get(o, "why"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(sums, "[{\"ahead\":2,\"for_us\":9,\"gpu\":2,\"job\":5,\"on_gpu\":1,"
                              "\"reason\":\"next\",\"text\":\"another has its turn\"}]");
    free(sums);
    json_decref(o);
}

/* What a brief job has is what the whole one has, but for sums of GPUs that say nothing. */
static void brief_is_a_part(void **state)
{
    struct job_view v = {
        .number = 3,
        .job = {.root = {.pid = 9}, .weight = 50, .uid = 7, .deadline_us = 5, .memory_bytes = 9},
        .busy = 0.5,
        .gpus = 1,
        .due = true,
        .is_client = true,
        .counts.where_ns = {[WHERE_HERE] = 2000000000},
        .exact_ns = {125000000},
        .count_age_ns = {500000000},
    };
    json_t *whole = job_json(&v, false), *brief = job_json(&v, true), *part;
    const char *key;
    assert_true(json_object_size(brief) < json_object_size(whole));
    json_object_foreach(brief, key, part)
    {
        if (strcmp(key, "counts") != 0 && !json_equal(part, json_object_get(whole, key)))
            fail_msg("%s differs", key);
    }
    assert_null(json_object_get(brief, "why"));
    json_t *of[] = {json_object_get(whole, "counts"), json_object_get(brief, "counts")};
    assert_true(json_equal(json_object_get(of[0], "known_s"), json_object_get(of[1], "known_s")));
    json_object_foreach(json_array_get(json_object_get(of[1], "gpus"), 0), key, part) assert_true(
        json_equal(part, json_object_get(json_array_get(json_object_get(of[0], "gpus"), 0), key)));
    json_decref(whole);
    json_decref(brief);
}

static void shows_its_state(struct job_view v)
{
    static const struct {
        uint32_t paused, groups, runnable, rests, signalled;
        const char *state;
    } states[] = {
        {0, 0, 0, 0, 0, "starting"}, {0, 4, 0, 0, 0, "waiting"},   {0, 4, 4, 0, 0, "running"},
        {1, 4, 0, 0, 0, "paused"},   {0, 4, 0, 1, 0, "throttled"}, {1, 4, 0, 1, 0, "paused"},
        {1, 0, 0, 0, 0, "paused"},   {1, 4, 4, 0, 0, "running"},   {1, 4, 4, 0, 1, "paused"}};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
        v.job.paused = states[i].paused;
        v.groups = states[i].groups;
        v.runnable_groups = states[i].runnable;
        v.throttled = states[i].rests;
        v.signalled = states[i].signalled;
        json_t *o = job_json(&v, false);
        assert_string_equal(json_string_value(json_object_get(o, "state")), states[i].state);
        json_decref(o);
    }
}

static void shows_a_job(void **state)
{
    struct job_view v = {
        .number = 3,
        .job = {.root = {.pid = 9},
                .class = CLASS_BATCH,
                .weight = 50,
                .uid = 1000,
                .source = JOB_RULE,
                .name = "bad \xff byte"},
        .gpus = 5,
        .level = {LEVEL_QUEUE, LEVEL_GATE, LEVEL_SLICE},
        .groups = 4,
        .busy = 0.5,
        .error = "no \xc3 right",
    };
    shows_its_state(v);
    v.job.paused = 1;
    json_t *o = job_json(&v, false);
    assert_null(json_object_get(o, "deadline_us"));
    assert_null(json_object_get(o, "due"));
    v.job.deadline_us = 3000000000;
    v.due = v.due_first = true;
    v.due_in_ns = -1500000;
    v.due_needs_ns = TIME_NEVER;
    json_t *due = job_json(&v, false), *now = json_object_get(due, "due");
    assert_int_equal(json_integer_value(json_object_get(now, "in_us")), -1500);
    assert_true(json_is_null(json_object_get(now, "needs_us")));
    assert_true(json_is_true(json_object_get(now, "first")));
    assert_true(json_is_false(json_object_get(now, "promoted")));
    v.due = false;
    assert_int_equal(json_integer_value(json_object_get(due, "deadline_us")), 3000000000);
    json_decref(due);
    v.job.deadline_us = 0;
    char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(
        text, "{\"budget_us\":0,\"busy\":0.5,\"class\":\"batch\",\"counts\":{\"gpus\":[],\"know"
              "n_s\":0.0,\"paused_s\":0.0,\"queued_s\":0.0,\"swapped_out_bytes\":0,\"swapped_s"
              "\":0.0,\"swaps\":0},\"error\":\"no ? right\",\"gpus\":[0,2],\"level\":2,\"level_"
              "name\":\"slice\",\"levels\":[3,2],\"memory_bytes\":0,\"name\":\"bad ? byte\",\"n"
              "umber\":3,\"pid\":9,\"processes\":0,\"source\":\"rule\",\"state\":\"paused\",\"t"
              "imeslice_us\":0,\"uid\":1000,\"weight\":50,\"why\":[]}");
    free(text);
    json_decref(o);
    v.busy = -1;
    v.error[0] = '\0';
    o = job_json(&v, false);
    assert_true(json_is_null(json_object_get(o, "busy")));
    assert_null(json_object_get(o, "error"));
    assert_null(json_object_get(o, "swap_error"));
    assert_null(json_object_get(o, "room"));
    assert_null(json_object_get(o, "swapped_bytes"));
    json_decref(o);

    v.job.memory_bytes = 70;
    v.swap = "swapped"; /* rather than paused */
    v.swapped_bytes = 5;
    snprintf(v.swap_error, sizeof(v.swap_error), "no room");
    o = job_json(&v, false);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "swapped");
    assert_string_equal(json_string_value(json_object_get(o, "error")), "no room");
    assert_string_equal(json_string_value(json_object_get(o, "swap_error")), "no room");
    assert_true(json_is_false(json_object_get(o, "room")));
    assert_int_equal(json_integer_value(json_object_get(o, "swapped_bytes")), 5);
    json_decref(o);
}

/* What it said that it takes, and whether it waits for that. */
static void shows_memory(void **state)
{
    (void)state;
    struct job_view v = {.number = 3, .busy = -1, .memory_held = 80};
    v.job.memory_bytes = 70;
    v.job.memory_gpu = 2;
    v.job.room = ROOM_KEPT;
    json_t *o = job_json(&v, false);
    char *text = json_dumps(json_object_get(o, "memory"), JSON_COMPACT | JSON_SORT_KEYS);
    assert_string_equal(text, "{\"gpu\":2,\"held_bytes\":80,\"said_bytes\":70}");
    assert_string_equal(json_string_value(json_object_get(o, "state")), "starting");
    assert_true(json_is_true(json_object_get(o, "room")));
    free(text);
    json_decref(o);

    v.job.room = ROOM_AWAITED;
    v.queued = true;
    v.place = 4;
    o = job_json(&v, false);
    assert_string_equal(json_string_value(json_object_get(o, "state")), "queued");
    assert_true(json_is_false(json_object_get(o, "room")));
    const json_t *place = json_object_get(json_object_get(o, "memory"), "place");
    assert_int_equal(json_integer_value(place), 4);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_each_operation), cmocka_unit_test(accepts_looks_and_policies),
        cmocka_unit_test(accepts_gpus),           cmocka_unit_test(accepts_identities),
        cmocka_unit_test(refuses_with_a_reason),  cmocka_unit_test(refuses_size_and_depth),
        cmocka_unit_test(knows_good_names),       cmocka_unit_test(what_is_written_can_be_read),
        cmocka_unit_test(brief_is_a_part),        cmocka_unit_test(shows_a_job),
        cmocka_unit_test(shows_sums_and_reasons), cmocka_unit_test(shows_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
