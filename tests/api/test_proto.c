/* Messages: what is accepted and what it means, what is refused and with what words, names and
 * targets as people type them, and that what is written can be read. */
#include "../json_like.h"
#include "api/proto.h"
#include "api/replies.h"
#include "base/link_proto.h"

static int parse(const char *text, struct request *r, struct error *err)
{
    char message[4096];
    size_t n = json_request(message, sizeof(message), text);
    return proto_parse(message, n, r, err);
}

#define SET_ONE(term, value)                                                                       \
    {                                                                                              \
        .op = OP_SET, .pid = 5, .given = TERM(term), .term = (value)                               \
    }

/* What each means. Whole requests are compared: what is not named here is 0. */
static const struct {
    const char *text;
    struct request means;
} accepted[] = {
    {"{'op':'add','pid':42,'class':'latency','weight':7,'name':'Zürich','run':true}",
     {.op = OP_ADD,
      .pid = 42,
      .given = TERM(class) | TERM(weight),
      .class = CLASS_LATENCY,
      .weight = 7,
      .name = "Zürich",
      .run = true}},
    {"{'op':'set','target':42,'class':'batch'}",
     {.op = OP_SET, .pid = 42, .given = TERM(class), .class = CLASS_BATCH}},
    {"{'op':'set','target':42,'class':'batch','v':1}",
     {.op = OP_SET, .pid = 42, .given = TERM(class), .class = CLASS_BATCH}},
    {"{'op':'set','target':'a','rename':'b'}", {.op = OP_SET, .name = "a", .rename = "b"}},
    {"{'op':'set','target':'#9','class':'none'}", {.op = OP_SET, .number = 9, .release = true}},
    {"{'op':'pause','target':'17'}", {.op = OP_PAUSE, .pid = 17}},
    {"{'op':'pause','target':'4294967294/x'}",
     {.op = OP_PAUSE, .name = "x", .has_owner = true, .owner = UINT32_MAX - 1}},
    {"{'op':'resume','target':'train'}", {.op = OP_RESUME, .name = "train"}},
    {"{'op':'resume','target':'#9223372036854775807'}", {.op = OP_RESUME, .number = INT64_MAX}},
    {"{'op':'swap-out','target':'#7'}", {.op = OP_SWAP_OUT, .number = 7}},
    {"{'op':'swap-in','target':3}", {.op = OP_SWAP_IN, .pid = 3}},
    {"{'op':'add','pid':3,'class':'latency','memory_bytes':99999999999,'gpu':2}",
     {.op = OP_ADD,
      .pid = 3,
      .given = TERM(class),
      .class = CLASS_LATENCY,
      .memory_bytes = 99999999999,
      .has_gpu = true,
      .gpu = 2}},
    {"{'op':'add','pid':3,'memory_bytes':5,'started':true}",
     {.op = OP_ADD, .pid = 3, .memory_bytes = 5, .started = true}},
    {"{'op':'add','pid':3,'gpus':16,'visible':''}",
     {.op = OP_ADD, .pid = 3, .gpus = 16, .has_visible = true}},
    {"{'op':'add','pid':5,'gpus':2,'visible':'0,GPU-é'}",
     {.op = OP_ADD, .pid = 5, .gpus = 2, .has_visible = true, .visible = "0,GPU-é"}},
    {"{'op':'add','pid':2147483647}", {.op = OP_ADD, .pid = INT32_MAX}},
    {"{'op':'set','target':5,'budget_us':1000000}", SET_ONE(budget_us, 1000000)},
    {"{'op':'set','target':5,'weight':10000}", SET_ONE(weight, 10000)},
    {"{'op':'set','target':5,'gpu_min':0,'gpu_max':50}",
     {.op = OP_SET, .pid = 5, .given = TERM(gpu_min) | TERM(gpu_max), .gpu_max = 50}},
    {"{'op':'set','target':5,'deadline_us':0}",
     {.op = OP_SET, .pid = 5, .given = TERM(deadline_us)}},
    {"{'op':'set','target':5,'deadline_us':3600000000,'laxity_us':1000000}",
     {.op = OP_SET,
      .pid = 5,
      .given = TERM(deadline_us) | TERM(laxity_us),
      .deadline_us = DEADLINE_MAX_US,
      .laxity_us = 1000000}},
    {"{'op':'set','target':5,'preempt':'block'}", SET_ONE(preempt, PREEMPT_BLOCK)},
    {"{'op':'add','pid':5,'preempt':'instruction'}",
     {.op = OP_ADD, .pid = 5, .given = TERM(preempt), .preempt = PREEMPT_INSTRUCTION}},
    {"{'op':'set','target':5,'min_speed':90}", SET_ONE(min_speed, 90)},
    {"{'op':'set','target':5,'memory_max_mib':8192}", SET_ONE(memory_max_mib, 8192)},
    {"{'op':'ps'}", {.op = OP_PS}},
    {"{'op':'ps','after':77}", {.op = OP_PS, .number = 77}},
    {"{'op':'ps','brief':true,'sums':true}", {.op = OP_PS, .brief = true, .sums = true}},
    {"{'op':'ps','after':3,'summed':true}", {.op = OP_PS, .number = 3, .summed = true}},
    {"{'op':'policy','name':'shares'}", {.op = OP_POLICY, .name = "shares"}},
    /* A cgroup is kept as the kernel writes it. */
    {"{'op':'identity','cgroup':'/a/b/','facts':{'pod':'x','label:a':''}}",
     {.op = OP_IDENTITY, .cgroup = "/a/b", .facts = "pod\0x\0label:a\0", .nfacts = 15}},
    {"{'op':'identity','cgroup':'/a'}", {.op = OP_IDENTITY, .cgroup = "/a"}},
    {"{'op':'rules','pid':7,'after':3}", {.op = OP_RULES, .pid = 7, .number = 3}},
    {"{'op':'yield'}", {.op = OP_YIELD}},
    {"{'op':'yield','target':'#7','pause':true,'memory':true,'look':true}",
     {.op = OP_YIELD, .number = 7, .yields_pause = true, .yields_memory = true, .look = true}},
    {"{'op':'acquire'}", {.op = OP_ACQUIRE}},
    {"{'op':'try','target':'#7','for_us':1}", {.op = OP_TRY, .number = 7, .for_us = 1}},
    {"{'op':'try','target':'#7','for_us':5000000,'held':true,'last':true,'together':8000}",
     {.op = OP_TRY, .number = 7, .for_us = 5000000, .held = true, .last = true, .together = 8000}},
    {"{'op':'try','target':3,'for_us':9,'first':true,'together':1}",
     {.op = OP_TRY, .pid = 3, .for_us = 9, .first = true, .together = 1}},
    {"{'op':'pids','target':'#7','from':5}", {.op = OP_PIDS, .number = 7, .from = 5}},
    {"{'op':'acquire','target':3,'wait_us':0}", {.op = OP_ACQUIRE, .pid = 3, .has_wait = true}},
};

static void assert_means(const char *text, const struct request *means)
{
    struct request r;
    struct error err = {""};
    if (parse(text, &r, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    if (memcmp(&r, means, sizeof(r)) != 0)
        fail_msg("%s is read as %s", text, proto_format(&r));
}

/* And what is written of it can be read, and is the same. */
TEST(accepts_each_operation)
{
    for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
        char *text = proto_format(&accepted[i].means);
        assert_means(accepted[i].text, &accepted[i].means);
        assert_means(text, &accepted[i].means);
        free(text);
    }
    const struct request quotes = {.op = OP_PAUSE, .name = "a \"b\" \\"};
    char *text = proto_format(&quotes);
    assert_means(text, &quotes);
    free(text);
}

TEST(accepts_parameters)
{
    struct request r;
    struct error err = {""};
    assert_int_equal(parse("{'op':'policy','params':{'floor':0.25,'probe_us':7}}", &r, &err), 0);
    for (unsigned i = 0; i < PARAMS_COUNT; i++) {
        const char *name = param_at(i)->name;
        bool floor = strcmp(name, "floor") == 0, probe = strcmp(name, "probe_us") == 0;
        assert_int_equal(r.params >> i & 1, floor || probe);
        assert_true(r.param[i] == (floor ? 0.25 : probe ? 7 : 0));
    }
    assert_int_equal(request_text(&r, "gpus", "auto", &err), 0);
    assert_int_equal(r.gpus, 1);
}

#define LONG_8(x) x x x x x x x x
#define LONG      LONG_8(LONG_8("GPU-01234567890,")) /* 1024 bytes */

/* Each with a word that the text must hold, so that it is refused for the right reason. */
static const struct {
    const char *text, *says;
} refused[] = {
    {"{'op':7}", "op:"},
    {"{'op':'reboot'}", "'reboot'"},
    {"{'op':'\\u001b[2J'}", "'?[2J'"},
    {"{'op':'ps','x':1}", "'x': ps takes pid, after"},
    {"{'op':'pause','target':1,'weight':5}", "unknown field 'weight'"},
    {"{'op':'rules','target':1}", "unknown field 'target'"},
    {"{'op':'identity'}", "cgroup is missing"},
    {"{'op':'identity','cgroup':'a'}", "a path below /"},
    {"{'op':'identity','cgroup':'//'}", "a path below /"},
    {"{'op':'identity','cgroup':'/'}", "a path below /"},
    {"{'op':'identity','cgroup':'/a/../b'}", "a path below /"},
    {"{'op':'identity','cgroup':'/a\\n'}", "a path below /"},
    {"{'op':'identity','cgroup':'/a','facts':{'x':'y'}}", "not one of pod"},
    {"{'op':'add'}", "pid is missing"},
    {"{'op':'pause'}", "target is missing"},
    {"{'op':'swap-in'}", "target is missing"},
    {"{'op':'yield','pause':1}", "pause: true or false"},
    {"{'op':'yield','class':'batch'}", "unknown field"},
    {"{'op':'acquire','wait_us':5000001}", "wait_us: a whole number"},
    {"{'op':'acquire','pause':true}", "unknown field"},
    {"{'op':'try','for_us':5}", "target is missing"},
    {"{'op':'try','target':1}", "for_us is missing"},
    {"{'op':'try','target':1,'for_us':0}", "for_us: a whole number from 1 to 5000000"},
    {"{'op':'try','target':1,'for_us':5000001}", "for_us: a whole number from 1 to 5000000"},
    {"{'op':'try','target':1,'for_us':'5'}", "for_us: a whole number"},
    {"{'op':'try','target':1,'for_us':5,'held':1}", "held: true or false"},
    {"{'op':'try','target':1,'for_us':5,'first':true,'last':true}", "exclude each other"},
    {"{'op':'try','target':1,'for_us':5,'together':0}", "together: a whole number from 1 to 8000"},
    {"{'op':'try','target':1,'for_us':5,'together':8001}", "together: a whole number"},
    {"{'op':'try','target':1,'for_us':5,'class':'batch'}", "unknown field 'class'"},
    {"{'op':'pause','target':1,'held':true}", "unknown field 'held'"},
    {"{'op':'add','pid':1,'class':'latency','memory_bytes':0}",
     "memory_bytes: a whole number from 1"},
    {"{'op':'add','pid':1,'gpu':0}", "gpu and started need memory_bytes"},
    {"{'op':'add','pid':1,'slurm_job':7,'name':'a'}", "slurm_job takes no name"},
    {"{'op':'add','pid':1,'started':true}", "need memory_bytes"},
    {"{'op':'add','pid':1,'gpu':16}", "gpu: a whole number from 0 to 15"},
    {"{'op':'add','pid':1,'gpus':0}", "gpus: a whole number from 1 to 16"},
    {"{'op':'add','pid':1,'gpus':17}", "gpus: a whole number from 1 to 16"},
    {"{'op':'add','pid':1,'gpus':'auto'}", "gpus: a whole number"},
    {"{'op':'add','pid':1,'visible':'0'}", "visible needs gpus"},
    {"{'op':'add','pid':1,'gpus':1,'visible':[0]}",
     "visible: a list of GPUs of less than 1024 bytes"},
    {"{'op':'add','pid':1,'gpus':1,'visible':'" LONG "'}",
     "visible: a list of GPUs of less than 1024 bytes"},
    {"{'op':'add','pid':1,'gpus':1,'memory_bytes':5,'gpu':0}", "leave out its number"},
    {"{'op':'add','pid':1,'gpus':2,'memory_bytes':5}", "one GPU only"},
    {"{'op':'set','target':1,'gpus':1}", "unknown field 'gpus'"},
    {"{'op':'swap-out','target':1,'weight':5}", "unknown field"},
    {"{'op':'set','target':1}",
     "class, weight, budget_us, gpu_min, gpu_max, deadline_us, laxity_us, preempt, min_speed, "
     "memory_max_mib, memory_over"},
    {"{'op':'set','target':1,'gpu_max':101}", "gpu_max: a whole number"},
    {"{'op':'add','pid':1,'gpu_min':60,'gpu_max':50}",
     "gpu-min is 60%, more than gpu-max, which is 50%"},
    {"{'op':'set','target':1,'class':'none','gpu_max':5}", "no gpu_max"},
    {"{'op':'set','target':1,'class':'none','preempt':'block'}", "no preempt"},
    {"{'op':'set','target':1,'preempt':'kernel'}", "'kernel' is not block or instruction"},
    {"{'op':'set','target':1,'min_speed':101}", "min_speed"},
    {"{'op':'set','target':1,'preempt':1}", "not block or instruction"},
    {"{'op':'set','target':1,'budget_us':1000001}", "budget_us"},
    {"{'op':'set','target':1,'class':'none','budget_us':5}", "no budget"},
    {"{'op':'pause','target':1,'budget_us':5}", "unknown field"},
    {"{'op':'set','target':1,'deadline_us':199999}", "at least 200000"},
    {"{'op':'set','target':1,'deadline_us':3600000001}", "deadline_us"},
    {"{'op':'set','target':1,'laxity_us':5}", "give the deadline too"},
    {"{'op':'add','pid':1,'deadline_us':500000,'laxity_us':500000}", "shorter"},
    {"{'op':'add','pid':1,'class':'latency','deadline_us':500000}", "latency job"},
    {"{'op':'set','target':1,'class':'none','deadline_us':500000}", "no deadline"},
    {"{'op':'set','target':1,'class':'none','weight':5}", "no weight"},
    {"{'op':'add','pid':1,'class':'none'}", "class:"},
    {"{'op':'add','pid':0}", "pid: a whole number from 1"},
    {"{'op':'add','pid':-1}", "pid:"},
    {"{'op':'add','pid':2147483648}", "to 2147483647"},
    {"{'op':'add','pid':1.5}", "pid:"},
    {"{'op':'add','pid':'1'}", "pid:"},
    {"{'op':'add','pid':99999999999999999999}", "not JSON"},
    {"{'op':'add','pid':1,'class':'fast'}", "latency, normal or batch"},
    {"{'op':'add','pid':1,'class':null}", "class:"},
    {"{'op':'add','pid':1,'weight':0}", "weight: a whole number from 1"},
    {"{'op':'add','pid':1,'weight':10001}", "to 10000"},
    {"{'op':'add','pid':1,'name':''}", "name:"},
    {"{'op':'add','pid':1,'name':'a\\u0000b'}", "not JSON"},
    {"{'op':'add','pid':1,'run':1}", "true or false"},
    {"{'op':'pause','target':true}", "target:"},
    {"{'op':'pause','target':'#0'}", "job's number"},
    {"{'op':'pause','target':'0'}", "a pid is"},
    {"{'op':'pause','target':'a/b'}", "number of a user"},
    {"{'op':'pause','target':'/b'}", "number of a user"},
    {"{'op':'pause','target':'1/'}", "1000/train"},
    {"{'op':'pause','target':'1/2'}", "1000/train"},
    {"{'op':'pause','target':'4294967295/b'}", "number of a user"},
    {"{'op':'pause','target':'00000000000000001/b'}", "number of a user"},
    {"{'op':'policy','params':7}", "an object"},
    {"{'op':'policy','params':{'x':7}}", "no parameter x; there are"},
    {"{'op':'policy','params':{'probe_us':0.5}}", "probe_us: a whole"},
    {"{'op':'policy','params':{'probe_us':'7'}}", "probe_us: a whole"},
    {"{'op':'policy','params':{'probe_us':-7}}", "probe_us: a whole"},
    {"{'op':'ps','params':{}}", "unknown field 'params'"},
    {"{'op':'ps','after':-1}", "after:"},
    {"{'op':'hints'}", "op: 'hints' is not one of"}, /* asked for as libcede does */
    {"{'op':'room'}", "op: 'room' is not one of"},
};

/* As they are sent: no messages, and of other versions. */
static const struct {
    const char *text;
    int code;
    const char *says;
} unread[] = {
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
};

static void assert_refused(const char *text, int code, const char *says, int got,
                           const struct request *r, const struct error *err)
{
    static const struct request none;
    if (got != code || !strstr(err->text, says))
        fail_msg("%s: %d '%s', expected %d '%s'", text, got, err->text, code, says);
    assert_memory_equal(r, &none, sizeof(none)); /* nothing of it is left to be used */
}

TEST(refuses_with_a_reason)
{
    struct request r;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
        struct error err = {""};
        int got = parse(refused[i].text, &r, &err);
        assert_refused(refused[i].text, -EINVAL, refused[i].says, got, &r, &err);
    }
    for (size_t i = 0; i < ARRAY_SIZE(unread); i++) {
        struct error err = {""};
        int got = proto_parse(unread[i].text, strlen(unread[i].text), &r, &err);
        assert_refused(unread[i].text, unread[i].code, unread[i].says, got, &r, &err);
    }
}

/* As libcede sends them; what of a message is not its operation's has no effect. */
static const struct {
    struct link_ask ask;
    struct request means;
} of_libcede[] = {
    {{.op = LINK_HINTS, .class = 1, .page = 7}, {.op = OP_HINTS, .has_wait = true}},
    {{.op = LINK_SET, .class = 1 + CLASS_BATCH, .gpu = "x", .flags = LINK_LOOK},
     {.op = OP_SET, .given = TERM(class), .class = CLASS_BATCH}},
    {{.op = LINK_SET, .class = 1 + CLASS_LATENCY, .weight = 7},
     {.op = OP_SET, .given = TERM(class) | TERM(weight), .class = CLASS_LATENCY, .weight = 7}},
    {{.op = LINK_ROOM, .bytes = 5, .page = 7, .gpu = "GPU-1", .weight = 7},
     {.op = OP_ROOM, .memory_bytes = 5, .page = 7, .name = "GPU-1"}},
    {{.op = LINK_YIELD, .flags = LINK_PAUSE | LINK_LOOK, .bytes = 5},
     {.op = OP_YIELD, .yields_pause = true, .look = true, .has_wait = true}},
    {{.op = LINK_ACQUIRE, .wait_us = ACQUIRE_WAIT_US},
     {.op = OP_ACQUIRE, .has_wait = true, .wait_us = ACQUIRE_WAIT_US}},
};

static const struct link_ask not_of_libcede[] = {
    {.op = LINK_ACQUIRE + 1},
    {.op = UINT32_MAX},
    {.op = LINK_SET},
    {.op = LINK_SET, .class = 1 + CLASS_COUNT},
    {.op = LINK_SET, .class = UINT32_MAX},
    {.op = LINK_SET, .weight = WEIGHT_MAX + 1},
    {.op = LINK_YIELD, .flags = LINK_LOOK << 1},
    {.op = LINK_ACQUIRE, .wait_us = ACQUIRE_WAIT_US + 1},
    {.op = LINK_ROOM, .bytes = MEMORY_MAX_BYTES + 1},
    {.op = LINK_ROOM, .gpu = "0123456789012345678901234567890123456789012345678901234567890123"},
};

static int parse_link(struct link_ask a, size_t bytes, struct request *r)
{
    struct error err = {""};
    a.magic = LINK_MAGIC;
    int code = proto_parse((const char *)&a, bytes, r, &err);
    assert_true((code < 0) == (err.text[0] != '\0'));
    assert_true(r->link); /* so that the answer is, too */
    return code;
}

TEST(reads_libcede)
{
    struct request r;
    for (size_t i = 0; i < ARRAY_SIZE(of_libcede); i++) {
        struct request want = of_libcede[i].means;
        want.link = true;
        assert_int_equal(parse_link(of_libcede[i].ask, sizeof(struct link_ask), &r), 0);
        assert_memory_equal(&r, &want, sizeof(r));
    }
    for (size_t i = 0; i < ARRAY_SIZE(not_of_libcede); i++)
        assert_int_equal(parse_link(not_of_libcede[i], sizeof(struct link_ask), &r), -EINVAL);
    for (size_t n = sizeof(uint32_t); n < sizeof(struct link_ask); n++)
        assert_int_equal(parse_link(of_libcede[0].ask, n, &r), -EPROTO);
}

TEST(refuses_size_and_depth)
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

TEST(knows_good_names)
{
    static const char *const good[] = {"a", "train 2", "12a", "日本語", "\xf0\x9f\x98\x80",
                                       "%", "%a",      "12%", "a b",    "a-"};
    /* The last are bytes that are no text, a control character and a right-to-left override;
     * tests/base/test_text.c has all that cannot be seen. */
    static const char *const bad[] = {"",     "12",   "#x",   "%12",      " a",
                                      "a ",   " ",    "-x",   "-",        "a/b",
                                      "a\nb", "\x7f", "\xff", "\xc2\x85", "\xe2\x80\xaeX"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        if (!proto_name_ok(good[i]))
            fail_msg("'%s' is refused", good[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        if (proto_name_ok(bad[i]))
            fail_msg("name %zu, '%s', is accepted", i, bad[i]);
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

TEST(shows_sums_and_reasons)
{
    struct job_view v = {.number = 3, .busy = -1};
    v.counts =
        (struct job_totals){.where_ns = {[WHERE_HERE] = 1500000000, [WHERE_PAUSED] = 500000000},
                            .swaps = 1,
                            .swapped_bytes = 7};
    v.counts.on[2] = (struct gpu_totals){
        .exact_ns = 125000000, .sampled_ns = 125000000, .ran_ns = 250000000, .turns = 3};
    v.count_age_ns[2] = 500000000;
    v.why[2] = (struct job_why){.why = WHY_NEXT, .other = 5, .gpu = 1, .ahead = 2, .for_ns = 9000};
    json_t *o = job_json(&v, JOB_WHOLE);
    assert_json(json_object_get(o, "counts"),
                "{'gpus':[{'allowed_s':0.25,'counted_s':1.5,'exact_s':0.125,'gpu':2,'gpu_s':0.25,"
                "'preempted':0,'turns':3,'waited_s':0.0}],'known_s':2.0,'paused_s':0.5,"
                "'queued_s':0.0,'swapped_out_bytes':7,'swapped_s':0.0,'swaps':1}");
    assert_json(json_object_get(o, "why"),
                "[{'ahead':2,'for_us':9,'gpu':2,'job':5,'on_gpu':1,'reason':'next',"
                "'text':'another has its turn'}]");
    json_decref(o);
}

/* What a brief job has is what the whole one has, but for sums of GPUs that say nothing. */
TEST(brief_is_a_part)
{
    struct job_view v = {
        .number = 3,
        .job = {.root = {.pid = 9}, .weight = 50, .uid = 7, .deadline_us = 5, .memory_bytes = 9},
        .busy = 0.5,
        .gpus = 1,
        .due = true,
        .is_client = true,
        .counts.where_ns = {[WHERE_HERE] = 2000000000},
        .counts.on[0].exact_ns = 125000000,
        .count_age_ns = {500000000},
    };
    json_t *whole = job_json(&v, JOB_WHOLE), *sums = job_json(&v, JOB_SUMS);
    json_t *brief = job_json(&v, JOB_BRIEF), *part;
    json_t *counts = json_object_get(whole, "counts"), *few = json_object_get(sums, "counts");
    const char *key;
    assert_int_equal(json_object_size(sums), json_object_size(brief) + 1);
    assert_true(json_object_size(sums) < json_object_size(whole));
    json_object_foreach (sums, key, part) {
        if (part != few && !json_equal(part, json_object_get(whole, key)))
            fail_msg("%s differs", key);
    }
    assert_null(json_object_get(sums, "why"));
    assert_null(json_object_get(brief, "counts"));
    assert_true(json_like(counts, few));
    json_decref(whole);
    json_decref(sums);
    json_decref(brief);
}

static void assert_shown(const struct job_view *v, const char *want)
{
    json_t *o = job_json(v, JOB_WHOLE);
    assert_like(o, want);
    json_decref(o);
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
        v.job.paused = states[i].paused != 0;
        v.groups = states[i].groups;
        v.runnable_groups = states[i].runnable;
        v.throttled = states[i].rests;
        v.signalled = states[i].signalled;
        json_t *o = job_json(&v, JOB_WHOLE);
        assert_string_equal(json_string_value(json_object_get(o, "state")), states[i].state);
        json_decref(o);
    }
}

TEST(shows_a_job)
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
        .level = {LEVEL_QUEUE, LEVEL_GATE, LEVEL_PIECE},
        .groups = 4,
        .busy = 0.5,
        .error = "no \xc3 right",
    };
    shows_its_state(v);
    v.job.paused = 1;
    assert_shown(&v, "{'deadline_us':null,'due':null}");
    json_t *o = job_json(&v, JOB_WHOLE);
    assert_json(o, "{'budget_us':0,'busy':0.5,'class':'batch','counts':{'gpus':[],'known_s':0.0,"
                   "'paused_s':0.0,'queued_s':0.0,'swapped_out_bytes':0,'swapped_s':0.0,"
                   "'swaps':0},'error':'no ? right','gpus':[0,2],'level':2,'level_name':'piece',"
                   "'levels':[3,2],'memory_bytes':0,'name':'bad ? byte','number':3,'pid':9,"
                   "'processes':0,'source':'rule','state':'paused','timeslice_us':0,'uid':1000,"
                   "'weight':50,'why':[]}");
    json_decref(o);
    v.job.deadline_us = 3000000000;
    v.due = v.due_first = true;
    v.due_in_ns = -1500000;
    v.due_needs_ns = TIME_NEVER;
    o = job_json(&v, JOB_WHOLE);
    assert_like(o,
                "{'deadline_us':3000000000,'due':{'in_us':-1500,'first':true,'promoted':false}}");
    assert_true(json_is_null(json_object_get(json_object_get(o, "due"), "needs_us")));
    json_decref(o);
    v.due = false;
    v.job.deadline_us = 0;

    v.busy = -1;
    v.error[0] = '\0';
    o = job_json(&v, JOB_WHOLE);
    assert_true(json_is_null(json_object_get(o, "busy")));
    assert_like(o, "{'error':null,'swap_error':null,'room':null,'swapped_bytes':null}");
    json_decref(o);

    v.job.memory_bytes = 70;
    v.swap = "swapped"; /* rather than paused */
    v.swapped_bytes = 5;
    snprintf(v.swap_error, sizeof(v.swap_error), "no room");
    assert_shown(&v, "{'state':'swapped','error':'no room','swap_error':'no room','room':false,"
                     "'swapped_bytes':5}");
}

/* What it said that it takes, and whether it waits for that. */
TEST(shows_memory)
{
    struct job_view v = {.number = 3, .busy = -1, .memory_held = 80};
    v.job.memory_bytes = 70;
    v.job.memory_gpu = 2;
    v.job.room = ROOM_KEPT;
    assert_shown(&v, "{'state':'starting','room':true}");
    json_t *o = job_json(&v, JOB_WHOLE);
    assert_json(json_object_get(o, "memory"), "{'gpu':2,'held_bytes':80,'said_bytes':70}");
    json_decref(o);
    v.job.room = ROOM_AWAITED;
    v.queued = true;
    v.position = 4;
    assert_shown(&v, "{'state':'queued','room':false,'memory':{'place':4}}");
}
