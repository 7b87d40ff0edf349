/* What the arguments of the plugin for Slurm allow, by partition and QOS, and what a refusal says.
 */
#include "../test.h"
#include "limits.h"

static struct limits read_all(const char *arguments)
{
    struct limits l = {.n = 0};
    struct error err;
    static char text[1024];
    snprintf(text, sizeof(text), "%s", arguments);
    for (char *rest = text, *one; (one = strsep(&rest, " "));)
        assert_int_equal(*one ? limits_read(&l, one, &err) : 0, 0);
    return l;
}

/* Class and weight, or the refusal. */
static const char *apply(const char *arguments, struct limits_options o, const char *partition,
                         const char *qos)
{
    static const char *const names[] = {"latency", "normal", "batch", "none"};
    static struct error err;
    const struct limits l = read_all(arguments);
    enum job_class class;
    uint32_t weight;
    if (limits_apply(&l, &o, partition, qos, &class, &weight, &err) == 0)
        snprintf(err.text, sizeof(err.text), "%s %u", names[class], weight);
    return err.text;
}

/* Of struct limits_options. */
#define LATENCY   .has_class = true, .class = CLASS_LATENCY
#define NORMAL    .has_class = true, .class = CLASS_NORMAL
#define NOTHING   .weight = 0
#define WEIGHT(n) .weight = n
#define POOL      .pool = true

#define SITE                                                                                       \
    "default=batch max=batch max:partition:prod=latency default:partition:prod=normal "            \
    "max:partition:test=normal max:qos:low=batch max:qos:high=latency max_weight:qos:high=500"

TEST(by_partition_and_qos)
{
    /* clang-format off */
    static const struct {
        const char *arguments;
        struct limits_options options;
        const char *partition, *qos, *want;
    } t[] = {
        {"", {NOTHING}, "p", "", "none 100"},
        {"", {NORMAL}, "p", "", "normal 100"},
        {"", {WEIGHT(50)}, "p", "", "normal 50"},
        {"", {POOL}, "p", "", "batch 100"},
        {"", {LATENCY}, "p", "",
         "--gpu-class=latency is not allowed in partition p: normal and batch are"},
        {"", {WEIGHT(101)}, "", "", "--gpu-weight=101 is not allowed: at most 100 is"},
        {SITE, {NOTHING}, "debug", "", "batch 100"},
        {SITE, {NOTHING}, "prod", "", "normal 100"},
        {SITE, {LATENCY}, "prod", "", "latency 100"},
        {SITE, {NORMAL}, "test", "other", "normal 100"},
        {SITE, {WEIGHT(500)}, "debug", "high", "batch 500"},
        /* A QOS has the last word, upwards and downwards, also over the default. */
        {SITE, {LATENCY}, "debug", "high", "latency 100"},
        {SITE, {NOTHING}, "prod", "low", "batch 100"},
        {SITE, {NORMAL}, "prod", "low",
         "--gpu-class=normal is not allowed in partition prod: batch is; it is allowed in "
         "partition prod, partition test, qos high"},
        {SITE, {LATENCY}, "test", "",
         "--gpu-class=latency is not allowed in partition test: normal and batch are; it is "
         "allowed in partition prod, qos high"},
        /* Not even where slurmctld cannot be asked is more than in general. */
        {SITE, {NORMAL}, "", "",
         "--gpu-class=normal is not allowed: batch is; it is allowed in partition prod, partition "
         "test, qos high"},
        /* At submission it is not known where the job will run: refused is what is allowed nowhere.
         */
        {SITE, {LATENCY}, NULL, NULL, "latency 100"},
        {SITE, {WEIGHT(500)}, NULL, NULL, "batch 500"},
        {SITE, {WEIGHT(501)}, NULL, NULL, "--gpu-weight=501 is not allowed: at most 500 is"},
        {"max:partition:a=batch", {LATENCY}, NULL, NULL,
         "--gpu-class=latency is not allowed: normal and batch are"},
        {"max:partition:a=batch", {NORMAL}, NULL, NULL, "normal 100"},
    };
    /* clang-format on */
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        const char *got = apply(t[i].arguments, t[i].options, t[i].partition, t[i].qos);
        if (strcmp(got, t[i].want) != 0)
            fail_msg("row %zu, %s: %s, not %s", i, t[i].arguments, got, t[i].want);
    }
    assert_non_null(strstr(apply("", (struct limits_options){POOL, NORMAL}, NULL, NULL),
                           "--gpu-pool is for batch jobs"));
}

TEST(arguments)
{
    static const char *const wrong[][2] = {
        {"max", "'max' is not KEY=VALUE"},
        {"max=none", "max: 'none' is not latency, normal or batch"},
        {"default=turbo", "default: 'turbo' is not latency, normal or batch, nor none"},
        {"max_weight=0", "max_weight: '0' is not a number from 1 to 10000"},
        {"least=batch", "there is no argument least"},
        {"max:partition:=batch", "after the key :partition:NAME or :qos:NAME may follow"},
        {"max:queue:a=batch", "after the key :partition:NAME or :qos:NAME may follow"},
        {"required=maybe", "required: 'maybe' is not yes or no"},
        {"dir=run", "dir: 'run' is not an absolute path"},
    };
    struct limits l = {.n = 0};
    struct error err;
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        assert_int_equal(limits_read(&l, wrong[i][0], &err), -EINVAL);
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
    assert_int_equal(l.n, 0);
    for (unsigned i = 0; i < LIMITS_MAX; i++)
        assert_int_equal(limits_read(&l, "max:qos:a=batch", &err), 0);
    assert_int_equal(limits_read(&l, "max:qos:a=batch", &err), -ENOSPC);
    l = read_all("required=yes dir=/run/cede cede=/opt/cede");
    assert_true(l.required);
    assert_string_equal(l.dir, "/run/cede");
    assert_string_equal(l.cede, "/opt/cede");
    assert_false(limits_differ(&l));
}
