/* Sums of jobs by their labels: they never fall, are bounded in number, and are shown to guests
 * without the jobs of others. */
#include "../json_like.h"
#include "../test.h"
#include "api/job_sums.h"
#include "api/replies.h"
#include "fake_engine.h"

struct sums_of_test {
    struct engine *e;
    struct job_sums *s;
};

static int begin(void **state)
{
    struct sums_of_test *t = calloc(1, sizeof(*t));
    t->e = fake_engine_new();
    t->s = job_sums_new(NULL, NULL);
    *state = t;
    return 0;
}

static int end(void **state)
{
    struct sums_of_test *t = *state;
    job_sums_free(t->s);
    free(t->e);
    free(t);
    return 0;
}
#define TEST_OF_SUMS(name) TEST_IN(name, struct sums_of_test *t, begin, end)

static struct job_view *put(struct sums_of_test *t, uid_t uid, const char *name)
{
    const uint32_t slot =
        fake_engine_put(t->e, 1000 + (pid_t)t->e->next_number, uid, CLASS_BATCH, 100, name);
    struct job_view *v = &t->e->jobs[slot];
    v->job.principal = uid;
    job_sums_changed(t->s, slot, v, false);
    return v;
}

static void ended(struct sums_of_test *t, struct job_view *v)
{
    job_sums_changed(t->s, (uint32_t)(v - t->e->jobs), v, true);
    v->number = 0;
}

/* As `cede metrics` gets it; the caller's. */
static json_t *ask(struct sums_of_test *t, bool guest, uint64_t after)
{
    const struct caller who = {
        .uid = 0, .admin = !guest, .guest = guest, .pid = getpid(), .ns = {.level = guest ? 2 : 1}};
    char *text = reply_ps(t->e, NULL, t->s, &who, after, 0, JOB_WHOLE);
    json_t *o = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(o);
    return o;
}

/* Jobs and swaps of the sum of that name; -1: there is none. */
static void assert_sum(struct sums_of_test *t, const char *name, json_int_t jobs, json_int_t swaps)
{
    json_t *o = ask(t, false, 0), *x;
    size_t i;
    json_int_t seen_jobs = -1, seen_swaps = -1;
    json_array_foreach(json_object_get(o, "jobs"), i, x)
    {
        const json_t *counts = json_object_get(x, "counts");
        if (strcmp(json_string_value(json_object_get(x, "name")), name) != 0)
            continue;
        assert_int_equal(seen_jobs, -1); /* one sum */
        seen_jobs = json_integer_value(json_object_get(x, "jobs"));
        seen_swaps = json_integer_value(json_object_get(counts, "swaps"));
    }
    json_decref(o);
    assert_int_equal(seen_jobs, jobs);
    assert_int_equal(seen_swaps, swaps);
}

TEST_OF_SUMS(ended_jobs_stay)
{
    json_int_t all = 0;
    for (int i = 0; i < 64; i++) {
        struct job_view *v = put(t, 1000, "train");
        v->counts.swaps = 3;
        assert_sum(t, "train", 1, all + 3);
        v->counts.swaps = 5;
        all += 5;
        ended(t, v);
        assert_sum(t, "train", 0, all);
    }
    put(t, 1001, "other");
    json_t *o = ask(t, false, 0);
    assert_int_equal(json_array_size(json_object_get(o, "jobs")), 2);
    assert_like(o, "{'omitted':0,'states':{'batch':{'starting':1}}}");
    json_decref(o);
}

/* What a job had under another name, class or pod stays there. */
TEST_OF_SUMS(labels_change)
{
    struct job_view *v = put(t, 1000, "a"), *b = put(t, 1000, "b");
    b->counts.swaps = 100;
    v->counts.swaps = 7;
    assert_sum(t, "a", 1, 7);
    strcpy(v->job.name, "b");
    assert_sum(t, "a", 0, 7);
    assert_sum(t, "b", 2, 100);
    v->counts.swaps = 9;
    assert_sum(t, "b", 2, 102);
    ended(t, v);
    assert_sum(t, "a", 0, 7);
    assert_sum(t, "b", 1, 102);
    strcpy(b->pod.pod, "p");
    json_t *o = ask(t, false, 0);
    assert_int_equal(json_array_size(json_object_get(o, "jobs")), 3);
    json_decref(o);
}

/* A user's names do not take the room of others, and without room jobs are counted. */
TEST_OF_SUMS(bounded)
{
    char name[JOB_NAME_MAX];
    struct job_view *mine = put(t, 2000, "mine");
    mine->counts.swaps = 4;
    ended(t, mine);
    for (unsigned i = 0; i < 3 * JOB_SUMS_PER_USER; i++) {
        snprintf(name, sizeof(name), "n%u", i);
        ended(t, put(t, 1000, name));
    }
    assert_sum(t, "mine", 0, 4);
    assert_sum(t, "n0", -1, -1); /* the first had to go */
    for (unsigned i = 0; i < JOB_SUMS_PER_USER + 9; i++) {
        snprintf(name, sizeof(name), "m%u", i);
        put(t, 1000, name);
    }
    size_t n = 0;
    json_t *o = ask(t, false, 0);
    assert_like(o, "{'omitted':9}");
    for (bool more = true; more;) { /* pages */
        const json_t *jobs = json_object_get(o, "jobs");
        const size_t size = json_array_size(jobs);
        n += size;
        more = json_is_true(json_object_get(o, "more"));
        const uint64_t last =
            (uint64_t)json_integer_value(json_object_get(json_array_get(jobs, size - 1), "number"));
        json_decref(o);
        o = more ? ask(t, false, last) : NULL;
    }
    assert_int_equal(n, JOB_SUMS_PER_USER + 1);
}

TEST_OF_SUMS(guests)
{
    ended(t, put(t, 1000, "gone"));
    put(t, 1000, "foreign");
    json_t *o = ask(t, true, 0);
    assert_int_equal(json_array_size(json_object_get(o, "jobs")), 0);
    json_decref(o);
}
