/* See run_pool.h. */
#include "cli/run_pool.h"

#include <errno.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/run_words.h"

static bool says_latency(const char *text)
{
    return strcmp(text, job_class_name(CLASS_LATENCY)) == 0;
}

int run_pool_option(void *to, const char *name, const char *text, struct error *err)
{
    struct run_pool *o = to;
    if (text && !says_latency(text))
        return error_set(err, -EINVAL, "%s: '%s' is not latency, its only value: --%s=latency",
                         name, text, name);
    o->wanted = true;
    o->latency |= text != NULL;
    return 0;
}

int run_pool_sm(void *to, const char *name, const char *text, struct error *err)
{
    uint64_t percent;
    if (parse_percent(text, 1, &percent) < 0)
        return error_set(err, -EINVAL, "%s: '%s' is not a percentage from 1%% to 100%%", name,
                         text);
    *(uint32_t *)to = (uint32_t)percent;
    return 0;
}

void run_pool_words(struct run_pool *o, const struct request *r)
{
    const char *said = run_words_pool();
    if (!said || r->class != CLASS_BATCH || r->preempt == PREEMPT_BLOCK)
        return;
    o->wanted = true;
    o->latency |= says_latency(said);
}

int run_pool_check(const struct run_pool *o, const struct request *r)
{
    if (o->wanted && r->class == CLASS_NORMAL)
        return cli_usage("run", "run: --pool is for batch jobs and latency jobs: give -c batch or "
                                "-c latency too");
    if (o->wanted && r->preempt == PREEMPT_BLOCK)
        return cli_usage("run",
                         "run: --preempt block is not for the programs of a pool, which have "
                         "one preemption mode together: leave out one of the two");
    if (o->sm_percent && !o->wanted)
        return cli_usage("run", "run: --sm is of a pool: give --pool too");
    return OPTIONS_GO_ON;
}

/* A batch job without a pool runs nevertheless, except with --strict. A latency job would then be
 * scheduled otherwise than its user expects, so it does not run where a pool is impossible. */
static int run_without(const struct run_pool *o, const struct request *r, int code, const char *why)
{
    const bool never = code == -ENOENT || code == -EEXIST || code == -ENOTSUP;
    if (r->class == CLASS_LATENCY && never) {
        cli_error("'%s' was not run: %s; leave out --pool to share the GPU in time instead",
                  r->name, why);
        return CLI_USAGE;
    }
    cli_error("'%s' %s: %s", r->name,
              o->wanted && o->strict ? "was not run" : "runs outside of a pool", why);
    return o->wanted && o->strict ? CLI_FAILED : OPTIONS_GO_ON;
}

int run_pool_join(const struct run_pool *o, const struct request *r, const json_t *reply,
                  struct pool *pool)
{
    const json_t *said = json_object_get(reply, "pool");
    const bool configured = json_get_true(said, "wanted") && r->preempt != PREEMPT_BLOCK;
    struct error err = {""};
    if (!o->wanted && !configured)
        return OPTIONS_GO_ON;
    if (json_get_true(said, "loses") && !o->strict && !o->sm_percent && !r->min_speed) {
        cli_error(
            "'%s' takes turns instead of joining the pool: beside what runs there now it did less, "
            "the last time; --strict joins nevertheless",
            r->name);
        return OPTIONS_GO_ON;
    }
    const struct pool_terms terms = {.latency = r->class == CLASS_LATENCY,
                                     .may_join = o->latency || json_get_true(said, "latency"),
                                     .sm_percent = o->sm_percent,
                                     .latency_sm = (unsigned)json_get_int(said, "latency_sm"),
                                     .memory_mib = r->memory_max_mib};
    int code = json_get_true(said, "possible")
                   ? pool_join(pool, &terms, NULL, &err)
                   : error_set(&err, -ENOTSUP,
                               "there is no GPU for MPS: none, or in MIG mode, reserved for "
                               "one process (compute mode), or of another kind");
    if (code < 0)
        return run_without(o, r, code, err.text);
    if (pool->unlimited)
        cli_error("note: batch jobs that are in this pool already use all multiprocessors, at the "
                  "priority of '%s'; those that start from now on yield to it, and those that "
                  "start before it do with --pool=latency",
                  r->name);
    return OPTIONS_GO_ON;
}
