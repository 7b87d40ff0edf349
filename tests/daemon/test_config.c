/* The configuration file: what each key does, and that every mistake is told with its line and with
 * what is allowed. */
#include <sys/stat.h>
#include <syslog.h>

#include "../test.h"
#include "api/rules/match.h"
#include "daemon/config.h"

/* To be given to config_free(). */
static struct config parsed(const char *text)
{
    struct config c;
    struct error err = {""};
    if (config_parse("f", text, strlen(text), &c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
    return c;
}

TEST(reads_every_key)
{
    static const char text[] = "\xef\xbb\xbf# a comment\r\n"
                               "[daemon]\r\n"
                               "group = root\n"
                               "device=soft ; as a test\n"
                               "  soft_socket : /run/soft\n"
                               "  log_level = debug\n"
                               "swap = manual\n"
                               "memory_reserve = 3G\n"
                               "swap_start = 90s\n"
                               "others = normal\n"
                               "\n"
                               "[policy]\n"
                               "name = shares\nfloor = 0.25\ntimeslice_min_us = 2\n"
                               "timeslice_latency_us = 5000\ntimeslice_alone_us = 500000\n"
                               "timeslice_share_us = 20000\ntimeslice_max_us = 900000\n"
                               "timeslice_floor_us = 3000\nrotation_us = 100000\n"
                               "probe_us = 10000\n"
                               "[rule first]\n"
                               "uid = root\n"
                               "exe = python3*\n"
                               "class = batch\n"
                               "weight = 10\n"
                               "name = training\n"
                               "[rule second one]\n"
                               "cgroup = /user.slice/*\n"
                               "container = 0123abcd\n"
                               "class = latency"; /* no newline at the end */
    struct config c = parsed(text);
    assert_int_equal(c.admin_gid, 0);
    assert_string_equal(c.device, "soft");
    assert_string_equal(c.soft_socket, "/run/soft");
    assert_int_equal(c.log_level, LOG_DEBUG);
    assert_int_equal(c.swap.mode, SWAP_MANUAL);
    assert_int_equal(c.swap.reserve_bytes, 3ULL << 30);
    assert_int_equal(c.swap.start_us, 90000000);
    assert_string_equal(c.policy, "shares");
    assert_true(c.params.floor == 0.25);
    assert_int_equal(c.params.timeslice_min_us, 2);
    assert_int_equal(c.params.timeslice_latency_us, 5000);
    assert_int_equal(c.params.timeslice_alone_us, 500000);
    assert_int_equal(c.params.timeslice_share_us, 20000);
    assert_int_equal(c.params.timeslice_max_us, 900000);
    assert_int_equal(c.params.timeslice_floor_us, 3000);
    assert_int_equal(c.params.rotation_us, 100000);
    assert_int_equal(c.params.probe_us, 10000);
    assert_int_equal(c.nrules, 3); /* others is the last */
    assert_string_equal(c.rules[0].title, "first");
    assert_int_equal(c.rules[0].n, 2);
    assert_true(c.rules[0].conditions[0].kind == COND_UID && !c.rules[0].conditions[0].id);
    assert_string_equal(c.rules[0].conditions[1].pattern, "python3*");
    assert_int_equal(c.rules[0].request.class, CLASS_BATCH);
    assert_int_equal(c.rules[0].request.weight, 10);
    assert_string_equal(c.rules[0].request.name, "training");
    assert_string_equal(c.rules[1].title, "second one");
    assert_string_equal(c.rules[1].conditions[0].pattern, "/user.slice/*");
    assert_int_equal(c.rules[1].conditions[1].kind, COND_CONTAINER);
    assert_string_equal(c.rules[1].conditions[1].pattern, "0123abcd");
    assert_int_equal(c.rules[1].request.class, CLASS_LATENCY);
    assert_false(c.rules[1].request.given & TERM(weight));
    config_free(&c);
}

TEST(settings_of_the_daemon)
{
    struct config c = parsed("");
    assert_int_equal(c.pool, POOL_OF_NONE);
    assert_int_equal(c.pool_latency_sm, 95);
    assert_true(c.accounts);
    assert_int_equal(c.driver_check, DRIVER_CHECK_AUTO);
    assert_int_equal(c.keep_days, 90);
    config_free(&c);
    c = parsed("[daemon]\npool = latency\npool_latency_sm = 75%\naccounts = no\n"
               "accounts_keep = 400d\ndriver_check = always\n");
    assert_int_equal(c.pool, POOL_OF_LATENCY);
    assert_int_equal(c.pool_latency_sm, 75);
    assert_false(c.accounts);
    assert_int_equal(c.keep_days, 400);
    assert_int_equal(c.driver_check, DRIVER_CHECK_ALWAYS);
    config_free(&c);
}

/* Keys with a name of their own, which may be given several times, and names that nobody has. */
TEST(conditions_of_a_rule)
{
    static const char text[] = "[rule a]\n"
                               "label:app.kubernetes.io/name = web-*\n"
                               "label = tier\n"
                               "environment = CEDE_JOB = a=b\n"
                               "environment = EMPTY=\n"
                               "group = no-such-group-here\n"
                               "slurm_job = 7?\n"
                               "class = environment\n";
    static const struct condition want[] = {
        {.kind = COND_LABEL, .key = "app.kubernetes.io/name", .pattern = "web-*"},
        {.kind = COND_LABEL, .key = "tier", .pattern = "*"},
        {.kind = COND_ENVIRONMENT, .key = "CEDE_JOB", .pattern = "a=b"},
        {.kind = COND_ENVIRONMENT, .key = "EMPTY", .pattern = ""},
        {.kind = COND_GROUP, .nobody = true, .pattern = "no-such-group-here"},
        {.kind = COND_SLURM_JOB, .pattern = "7?"}};
    struct config c = parsed(text);
    assert_int_equal(c.rules[0].n, ARRAY_SIZE(want));
    assert_true(c.rules[0].class_said && c.environment);
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        const struct condition *k = &c.rules[0].conditions[i];
        assert_int_equal(k->kind, want[i].kind);
        assert_int_equal(k->nobody, want[i].nobody);
        assert_string_equal(k->key, want[i].key);
        assert_string_equal(k->pattern, want[i].pattern);
    }
    config_free(&c);
}

/* More names of variables than one question to cede-identify has room for. */
TEST(limits_variables)
{
    char text[32768];
    struct config c;
    struct error err = {""};
    for (int rules = 8; rules <= 16; rules += 8) {
        size_t n = 0;
        for (int i = 0; i < rules; i++) {
            n += (size_t)sprintf(text + n, "[rule %d]\nclass = batch\n", i);
            for (int k = 0; k < 8; k++)
                n += (size_t)sprintf(text + n, "environment = V%060d%d=x\n", i, k);
        }
        int r = config_parse("f", text, n, &c, &err);
        assert_int_equal(r, rules == 8 ? 0 : -EINVAL);
        if (r == 0)
            config_free(&c);
    }
    assert_non_null(strstr(err.text, "too many variables"));
}

/* The class of a program of uid 7, which a rule takes, or of another; -1: it is left alone. */
static int class_of_others(const char *text, bool rule_takes_it)
{
    struct config c = parsed(text);
    const struct rule_list l = {.rules = c.rules, .n = c.nrules};
    const struct rule_facts f = {.uid = rule_takes_it ? 7 : 8, .exe = "", .cgroup = ""};
    struct outcome o;
    classify(&l, &f, &o);
    int class = o.by != BY_NONE ? (int)o.request.class : -1;
    assert_false(o.request.given & TERM(weight));
    config_free(&c);
    return class;
}

/* It stands as a last rule that asks for nothing, wherever in the file it is set. */
TEST(others_is_a_last_rule)
{
#define SEVEN "[rule seven]\nuid = 7\nclass = latency\n"
    static const struct {
        const char *text;
        int class, of_seven;
    } rows[] = {
        {"", -1, -1},
        {"[daemon]\nothers = leave\n", -1, -1},
        {"[daemon]\nothers = batch\n", CLASS_BATCH, CLASS_BATCH},
        {"[daemon]\nothers = normal\n", CLASS_NORMAL, CLASS_NORMAL},
        {"[daemon]\nothers = batch\n" SEVEN, CLASS_BATCH, CLASS_LATENCY},
        {SEVEN "[daemon]\nothers = batch\n", CLASS_BATCH, CLASS_LATENCY},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        assert_int_equal(class_of_others(rows[i].text, false), rows[i].class);
        assert_int_equal(class_of_others(rows[i].text, true), rows[i].of_seven);
    }
}

TEST(empty_gives_the_defaults)
{
    struct config c;
    struct sched_params p;
    params_default(&p);
    assert_int_equal(config_parse("f", "", 0, &c, NULL), 0);
    assert_int_equal(c.admin_gid, ADMIN_NO_GROUP);
    assert_string_equal(c.device, "auto");
    assert_string_equal(c.policy, "laxity");
    assert_int_equal(c.nrules, 0);
    assert_memory_equal(&c.params, &p, sizeof(p));
}

#define R "[rule a]\n"
static const struct {
    const char *text;
    int line;
    const char *says[2];
} mistakes[] = {
    {"key = 1\n", 1, {"before any section", "[daemon]"}},
    {"[daemon]\n\ncolour = red\n", 3, {"unknown key 'colour'", "group, device"}},
    {"[policy]\nclass = batch\n", 2, {"unknown key 'class'", "floor"}},
    {"[deamon]\n", 1, {"unknown section [deamon]", "[policy]"}},
    {"[rules x]\n", 1, {"unknown section", "[rule NAME]"}},
    {"[daemon\n", 1, {"[NAME]", ""}},
    {"[daemon] x\n", 1, {"a comment at most", ""}},
    {"[daemon] # all\ndevice = arc\n", 2, {"'arc'", ""}},
    {"[daemon] ; all\ndevice = arc\n", 2, {"'arc'", ""}},
    {"[daemon]\nnonsense\n", 2, {"key = value", ""}},
    {"[daemon]\n[policy]\n[daemon]\n", 3, {"there twice", ""}},
    {"[daemon]\ndevice = auto\ndevice = auto\n", 3, {"device is given twice", ""}},
    {"[daemon]\ndevice = arc\n", 2, {"'arc'", "auto, nvidia, amd, soft or gate"}},
    {"[daemon]\ngroup = no-such-group-here\n", 2, {"no group", "groupadd"}},
    {"[daemon]\ngroup =\n", 2, {"no group", ""}},
    {"[daemon]\nsoft_socket = here\n", 2, {"absolute", ""}},
    {"[daemon]\nswap = on\n", 2, {"'on'", "auto, manual, off"}},
    {"[daemon]\nswap_start = 2h\n", 2, {"'2h'", "90s"}},
    {"[daemon]\naccounts = on\n", 2, {"'on'", "no, yes"}},
    {"[daemon]\ndriver_check = yes\n", 2, {"'yes'", "auto, always, never"}},
    {"[daemon]\npool = on\n", 2, {"'on'", "off, batch, latency"}},
    {"[daemon]\npool_latency_sm = 0\n", 2, {"'0'", "from 1% to 100%"}},
    {"[daemon]\n\npool_latency_sm = 101%\n", 3, {"'101%'", "from 1% to 100%"}},
    {"[daemon]\npool_latency_sm = %\n", 2, {"'%'", "such as 90%"}},
    {"[daemon]\npool_latency_sm = 12.5\n", 2, {"'12.5'", "such as 90%"}},
    {"[daemon]\naccounts_keep = 90\n", 2, {"'90'", "90d"}},
    {"[daemon]\naccounts_keep = 0d\n", 2, {"'0d'", "from 1d to 3650d"}},
    {"[daemon]\naccounts_keep = 3651d\n", 2, {"'3651d'", "90d"}},
    {"[daemon]\naccounts_keep = 00000000000000000001d\n", 2, {"0001d'", "90d"}},
    {"[daemon]\naccounts_keep = d\n", 2, {"'d'", "90d"}},
    {"[daemon]\nmemory_reserve = 2X\n", 2, {"'2X'", "500M"}},
    {"[daemon]\nmemory_reserve = -1\n", 2, {"'-1'", "500M"}},
    {"[daemon]\nmemory_reserve = 99999T\n", 2, {"99999T", "500M"}},
    {"[daemon]\nothers = latency\n", 2, {"'latency'", "normal, batch, leave"}},
    {"[daemon]\nothers =\n", 2, {"others", "normal, batch, leave"}},
    {"[daemon]\nothers = batch\n[rule a]\n", 2 + 1, {"matches nothing", ""}},
    {"[daemon]\nlog_level = loud\n", 2, {"'loud'", "error, warning, info, debug"}},
    {"[policy]\nname = fastest\n", 2, {"'fastest'", "shares"}},
    {"[policy]\nfloor = 0.6\n", 2, {"floor", "0, or 0.001 to 0.5"}},
    {"[policy]\nfloor = nan\n", 2, {"floor", "0, or 0.001 to 0.5"}},
    {"[policy]\ntimeslice_min_us = -1\n", 2, {"timeslice_min_us", "whole number"}},
    {"[policy]\ntimeslice_min_us = 1 ms\n", 2, {"timeslice_min_us", "whole number"}},
    {"[policy]\n\ntimeslice_max_us = 5\n", 3, {"timeslice_max_us", "1000 to 10000000"}},
    {"[policy]\ntimeslice_share_us = 5000000\nfloor = 0\n",
     2,
     {"timeslice_share_us", "timeslice_max_us"}},
    /* The default of timeslice_alone_us is what no longer fits; the cause is in line 2. */
    {"[policy]\ntimeslice_max_us = 500000\n", 2, {"timeslice_alone_us", "timeslice_max_us"}},
    {"[policy]\nrotation_us = 1\n", 2, {"rotation_us", "10000 to 60000000"}},
    {"[policy]\nprobe_us = 300000\n", 2, {"probe_us", "rotation_us"}},
    {R "class = batch\n", 1, {"matches nothing", "uid, exe, pod, unit, cgroup or container"}},
    {R "uid = 5\n[daemon]\n", 1, {"no class", "batch"}},
    {R, 1, {"matches nothing", ""}},
    {R "uid = 1\nclass = batch\n" R, 4, {"there already", "line 1"}},
    {"[rule]\n", 1, {"[rule NAME]", ""}},
    {"[rule  ]\n", 1, {"[rule NAME]", ""}},
    {"[account a]\nuid = no-such-user-here\n", 2, {"no-such-user-here", "neither a number"}},
    {R "group = 99999999999\n", 2, {"group: '99999999999'", "neither a number"}},
    {R "environment =\n", 2, {"environment", "NAME=PATTERN"}},
    {R "environment = =x\n", 2, {"environment", "NAME=PATTERN"}},
    {R "label = = x\n", 2, {"label", "NAME=PATTERN"}},
    {R "unit = a\nunit = b\n", 3, {"unit is given twice", ""}},
    {R "uid = 0\nclass = environment\nbudget = 2ms\n", 1, {"rule a", "excludes budget"}},
    {R "uid = 0\nclass = promised\nbudget = 2ms\n", 1, {"class promised", "excludes budget"}},
    {R "uid = 0\nclass = batch\nmemory = 8G\n", 1, {"rule a", "for latency jobs"}},
    {R "uid = 0\nclass = batch\nmemory = promised\n", 1, {"rule a", "for latency jobs"}},
    {R "memory = 8G@1\n", 2, {"memory", "names no GPU"}},
    {R "memory_max = promised, stop\n", 2, {"memory_max: 'stop'", "warn, pause or kill"}},
    {R "gpu_max = promised\n", 2, {"gpu_max", "1% to 100%"}},
    {"[account a]\nuid = 1\ngpu_min = promised\n", 3, {"gpu_min", "1% to 100%"}},
    {"[daemon]\nenvironment = raise\n", 2, {"'raise'", "ignore, lower"}},
    {"[account a]\nimage = x\n", 2, {"unknown key 'image'", "slurm_job"}},
    {R "uid = -1\n", 2, {"'-1'", ""}},
    {R "uid = 4294967295\n", 2, {"4294967295", ""}},
    {R "exe =\n", 2, {"exe", "1 to"}},
    {R "container = abc\n", 2, {"at least 8", "pattern"}},
    {R "class = best\n", 2, {"'best'", "latency, normal or batch"}},
    {R "budget = 5\n", 2, {"budget", "500us or 2ms"}},
    {R "deadline = 100ms\n", 2, {"deadline", "from 200ms"}},
    {R "laxity = 0\n", 2, {"laxity", "leave the key out"}},
    {"[rule a]\nuid = 0\nclass = batch\nlaxity = 2s\n", 1, {"a", "give the deadline"}},
    {"[rule a]\nuid = 0\nclass = latency\ndeadline = 2s\n", 1, {"a", "normal or batch"}},
    {R "budget = 2s\n", 2, {"budget", "up to 1s"}},
    {"[rule a]\nuid = 0\nclass = batch\nbudget = 2ms\n", 1, {"a", "class latency"}},
    {"[policy]\nswitch_us = 0\n", 2, {"switch_us", "1 to 100000"}},
    {"[policy]\nedf_k = 0\n", 2, {"edf_k", "1 to 64"}},
    {"[policy]\ndeadline_share = 1\n", 2, {"deadline_share", "0, or 0.001 to 0.95"}},
    {"[policy]\ncopies_apart = 2\n", 2, {"copies_apart", "0 or 1"}},
    {"[policy]\nswitch_loss = 0.6\n", 2, {"switch_loss", "0.001 to 0.5"}},
    {R "memory_max = 8G,stop\n", 2, {"memory_max", "warn, pause or kill"}},
    {R "memory_max = 8\n", 2, {"memory_max", "such as 8G"}},
    {R "weight = 0\n", 2, {"weight", "1 to 10000"}},
    {R "weight = 1e3\n", 2, {"weight", "1 to 10000"}},
    {R "gpu_min = 130%\n", 2, {"gpu_min", "1% to 100%"}},
    {R "gpu_max = half\n", 2, {"gpu_max", "1% to 100%"}},
    {"[account a]\nuid = 1\ngpu_min = 60%\ngpu_max = 50%\n", 1, {"account a", "more than gpu-max"}},
    {"[account a]\nweight = 5\n", 1, {"matches nothing", "give it uid, unit, cgroup or container"}},
    {"[account a]\nuid = 1\nclass = batch\n", 3, {"unknown key", "gpu_max"}},
    {"[account a]\nuid = 1\n[account a]\n", 3, {"account a is there already", "line 1"}},
    {"[account #1]\n", 1, {"[account NAME]", "a job could have"}},
    {"[account a]\nuid = 1\ngpu_min = 60%\n[account b]\nuid = 2\ngpu_min = 50%\n",
     4,
     {"account b", "promised 110%"}},
    {R "name = 12\n", 2, {"name", "not a number"}},
    {R "colour = red\n", 2, {"unknown key", "container"}},
};

TEST(tells_mistakes_with_their_line)
{
    for (size_t i = 0; i < ARRAY_SIZE(mistakes); i++) {
        struct config c = {.nrules = 12345};
        struct error err = {""};
        char where[32];
        snprintf(where, sizeof(where), "some.conf:%d: ", mistakes[i].line);
        int r = config_parse("some.conf", mistakes[i].text, strlen(mistakes[i].text), &c, &err);
        if (r != -EINVAL || strncmp(err.text, where, strlen(where)) != 0 ||
            !strstr(err.text, mistakes[i].says[0]) || !strstr(err.text, mistakes[i].says[1]))
            fail_msg("%d for:\n%s\nsays: %s", r, mistakes[i].text, err.text);
        assert_int_equal(c.nrules, 12345); /* left alone */
    }
}

TEST(watches_lengths)
{
    struct config c;
    struct error err = {""};
    char text[4096];

    /* A line too long for the parser is not cut in two. */
    int n = snprintf(text, sizeof(text), "[daemon]\ndevice = auto%*s\n", 500, ";x");
    assert_int_equal(config_parse("f", text, (size_t)n, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "f:2: the line has more than"));
    /* A comment may be. */
    n = snprintf(text, sizeof(text), "#%*s\n[daemon]\n", 1000, "device = x");
    assert_int_equal(config_parse("f", text, (size_t)n, &c, &err), 0);
    config_free(&c);
    /* The parser underneath knows 49 bytes of a section's name. */
    n = snprintf(text, sizeof(text), "[rule %063d]\nuid=1\nclass=batch\n", 7);
    assert_int_equal(config_parse("f", text, (size_t)n, &c, &err), 0);
    assert_int_equal(strlen(c.rules[0].title), 63);
    config_free(&c);

    assert_int_equal(config_parse("f", "[daemon]\n\0\n", 11, &c, &err), -EINVAL);
    assert_non_null(strstr(err.text, "f:2: a zero byte"));
}

TEST(limits_rules)
{
    char *text = malloc(64 * (CONFIG_RULES_MAX + 1));
    assert_non_null(text);
    size_t n = 0;
    for (int i = 0; i <= CONFIG_RULES_MAX; i++) {
        struct config c;
        struct error err = {""};
        n += (size_t)sprintf(text + n, "[rule %d]\nuid = %d\nclass = batch\n", i, i);
        int r = config_parse("f", text, n, &c, &err);
        assert_int_equal(r, i < CONFIG_RULES_MAX ? 0 : -EINVAL);
        if (r == 0)
            config_free(&c);
        else
            assert_non_null(strstr(err.text, "more than 256 rules"));
    }
    free(text);
}

TEST(files)
{
    char dir[] = "/tmp/cede-test-config-XXXXXX", file[64];
    struct config c;
    struct error err = {""};
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof(file), "%s/cede.conf", dir);
    assert_int_equal(config_read(file, false, &c, &err), 0);
    assert_string_equal(c.device, "auto");
    assert_int_equal(config_read(file, true, &c, &err), -ENOENT);
    assert_non_null(strstr(err.text, file));
    assert_int_equal(config_read(dir, true, &c, &err), -EINVAL);

    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("[daemon]\ndevice = nvidia\n", f);
    fclose(f);
    assert_int_equal(config_read(file, true, &c, &err), 0);
    assert_string_equal(c.device, "nvidia");
    assert_int_equal(truncate(file, CONFIG_SIZE_MAX + 1), 0);
    assert_int_equal(config_read(file, true, &c, &err), -EFBIG);
    unlink(file);
    rmdir(dir);
}
