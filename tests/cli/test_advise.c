/* `cede advise`: what to do with programs of these profiles. */
#include <jansson.h>
#include <unistd.h>

#include "base/util.h"
#include "harness.h"

static struct result result;

__attribute__((format(printf, 2, 3))) static void write_file(const char *name, const char *fmt, ...)
{
    FILE *f = fopen(harness_file(name), "w");
    va_list ap;
    va_start(ap, fmt);
    vfprintf(f, fmt, ap);
    va_end(ap);
    fclose(f);
}

/* A program of one kernel of 132 blocks: its issue slots, DRAM bandwidth and threads of a block. */
static void make_profile(const char *file, const char *issue, const char *dram, unsigned threads)
{
    write_file(file,
               "{\"program\":\"%.*s\",\"gpu\":{\"sms\":132,\"sm_threads\":2048,"
               "\"sm_blocks\":32,\"sm_registers\":65536,\"sm_shared_bytes\":233472,"
               "\"sm_l1_bytes\":262144},\"busy\":%s,\"kernels\":[{\"name\":\"k\",\"calls\":1,"
               "\"us\":1000,\"blocks\":132,\"threads\":%u,\"use\":{\"issue slots\":%s,"
               "\"DRAM bandwidth\":%s}}]}",
               (int)strcspn(file, "."), file, strncmp(file, "rarely", 6) == 0 ? "0.05" : "1",
               threads, issue, dram);
}

static void write_profile(const char *file, const char *name, unsigned sms, const char *us)
{
    write_file(file,
               "{\"program\":\"%s\",\"gpu\":{\"sms\":%u,\"sm_threads\":2048,\"sm_blocks\":32},"
               "\"kernels\":[{\"name\":\"k\",\"calls\":1,\"us\":%s,\"blocks\":9999,"
               "\"threads\":1024,\"use\":{\"DRAM\":0.5}}]}",
               name, sms, us);
}

/* why: NULL: whatever. */
static void refuse(const char *why, const char *a, const char *b)
{
    SAYS(&result, 2, NULL, why, "cede", "advise", harness_file(a), b ? harness_file(b) : NULL);
}

static void expect_advice(const char *a, const char *b, const char *advice, const char *limit)
{
    SAYS(&result, 0, NULL, NULL, "cede", "advise", "--json", harness_file(a), harness_file(b));
    json_t *all = json_loads(result.out, 0, NULL);
    const json_t *pair = json_array_get(json_object_get(all, "pairs"), 0);
    const json_t *limits = json_object_get(json_object_get(pair, "pool"), "limits");
    assert_string_equal(json_string_value(json_object_get(pair, "advice")), advice);
    assert_string_equal(json_string_value(json_array_get(limits, 0)), limit);
    json_decref(all);
}

TEST(pairs)
{
    make_profile("computes.json", "0.4", "0.01", 128);
    make_profile("greedy.json", "1", "0", 128);
    make_profile("copies.json", "0.1", "0.6", 1024);
    make_profile("fills.json", "0.6", "0.05", 1024);
    expect_advice("computes.json", "copies.json", "pool", "nothing");
    expect_advice("greedy.json", "greedy.json", "turns", "issue slots");
    expect_advice("copies.json", "greedy.json", "split", "issue slots");
    SAYS(&result, 0, "computes + copies", NULL, "cede", "advise", harness_file("computes.json"),
         harness_file("copies.json"), harness_file("fills.json"));
    assert_non_null(strstr(result.out, "copies + fills"));
    assert_non_null(strstr(result.out, "--pool\n"));
}

/* Whether they contend is the same; but two that are idle most of the time do as well in turns. */
TEST(gaps)
{
    make_profile("computes.json", "0.4", "0.01", 128);
    make_profile("rarely.json", "0.4", "0.01", 128);
    expect_advice("computes.json", "computes.json", "pool", "nothing");
    expect_advice("rarely.json", "rarely.json", "turns", "nothing");
}

/* Files of others: what steers a terminal, no SMs to split, and times without a ratio. */
TEST(foreign)
{
    write_profile("steers.json", "a\\u001b]0;b\\nc", 132, "10");
    SAYS(&result, 0, "a?]0;b?c + a?]0;b?c", NULL, "cede", "advise", harness_file("steers.json"),
         harness_file("steers.json"));

    write_profile("single.json", "single", 1, "10");
    RUN(&result, "cede", "advise", harness_file("single.json"), harness_file("single.json"));
    assert_null(strstr(result.out, "inf"));
    expect_advice("single.json", "single.json", "turns", "room for blocks");

    write_profile("long.json", "long", 132, "1e11");
    write_profile("short.json", "short", 132, "1e-300");
    refuse("short.json is no profile of a program, or damaged", "long.json", "short.json");
    write_profile("short.json", "short", 132, "0.001");
    expect_advice("long.json", "short.json", "turns", "room for blocks");
}

TEST(refused)
{
    static const char *const damaged[] = {
        "[]",
        "{\"gpu\": {\"sms\": 1}}",
        "{\"gpu\": {\"sms\": 1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": [{}]}",
        ("{\"gpu\": {\"sms\": 1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": [{\"name\": "
         "\"k\", \"calls\": 1, \"us\": 1, \"blocks\": 1, \"threads\": -1}]}"),
        "{\"gpu\": {\"sms\": -1, \"sm_threads\": 1, \"sm_blocks\": 1}, \"kernels\": []}",
    };
    make_profile("one.json", "0.4", "0.01", 128);
    refuse(NULL, "one.json", NULL);
    refuse("cannot open ", "one.json", "none.json");
    write_file("damaged.json", "{");
    refuse("line 1", "one.json", "damaged.json");
    for (size_t i = 0; i < ARRAY_SIZE(damaged); i++) {
        write_file("damaged.json", "%s", damaged[i]);
        refuse("damaged.json is no profile of a program, or damaged", "one.json", "damaged.json");
    }
}
