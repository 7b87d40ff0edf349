/* Accounts and limits in the engine: who shares with whom, floors that cannot be had together, and
 * that all of it outlives a daemon. */
#include "engine/engine.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "fixture.h"

static pid_t pool[8]; /* of programs: a child that is forked later would hold the journal's lock */
static unsigned used;

static uint32_t add_for(struct fixture *f, uid_t uid, const char *account, uint32_t min,
                        uint32_t max, int expect, struct error *err)
{
    struct proc_stat st;
    uint32_t job = SLOT_NONE;
    pid_t pid = pool[used++];
    struct job_spec spec = {
        .terms = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .gpu_min = min, .gpu_max = max},
        .source = JOB_PID,
        .uid = uid,
        .account_uid = uid};
    snprintf(spec.account, sizeof(spec.account), "%s", account);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    int r = engine_add(f->m, st.id, &spec, &job, err);
    if (r != expect)
        fail_msg("%d: %s", r, err->text);
    ticks(f, 300);
    return job;
}

static struct journal_job record(const struct fixture *f, uint32_t job)
{
    struct job_view v;
    assert_true(engine_view(f->m, job, &v));
    return v.job;
}

static void test_floors(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    used = 0;
    programs(f, pool, ARRAY_SIZE(pool), 0);
    start(f, "priority", NULL);
    engine_account_set(f->m, "lab", &(struct job_terms){.weight = 100, .gpu_min = 30});
    uint32_t a = add_for(f, 1, "", 50, 0, 0, &err);
    add_for(f, 2, "lab", 20, 0, 0, &err);    /* within its account's */
    add_for(f, 3, "", 80, 0, -ERANGE, &err); /* an account's counts on all GPUs */
    assert_non_null(strstr(err.text, "gpu-min 80%: no GPU has so much left"));
    assert_non_null(strstr(err.text, "of GPU 1, which has most, 30% is promised to others"));
    add_for(f, 2, "lab", 20, 0, 0, &err); /* 40 now, of both */
    struct job_terms more = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .gpu_min = 61};
    assert_int_equal(engine_change(f->m, a, &more, &err), -ERANGE);
    assert_non_null(strstr(err.text, "40% of GPU 0 is promised to others, so 60% is left"));
    assert_int_equal(record(f, a).gpu_min, 50);
    more.gpu_min = 60;
    assert_int_equal(engine_change(f->m, a, &more, &err), 0);
    engine_account_set(f->m, "lab", &(struct job_terms){.weight = 100, .gpu_max = 10});
    add_for(f, 2, "lab", 20, 0, -ERANGE, &err);
    assert_non_null(strstr(err.text, "account lab has 10%"));
    stop(f, true);
}

/* One job of one user has half of the turns beside three of another, a ceiling holds, and both do
 * in the next daemon. */
static void test_shares_and_ceiling(void **state)
{
    struct fixture *f = *state;
    struct error err = {""};
    used = 0;
    programs(f, pool, ARRAY_SIZE(pool), 0);
    start(f, "priority", NULL);
    add(f, pool[used++], CLASS_LATENCY);
    add_for(f, 1, "", 0, 0, 0, &err);
    pid_t first = pool[used - 1], limited;
    for (int i = 0; i < 3; i++)
        add_for(f, 2, "", 0, 0, 0, &err);
    uint32_t capped = add_for(f, 3, "lab", 0, 20, 0, &err);
    limited = pool[used - 1];
    for (int daemon = 0; daemon < 2; daemon++) {
        uint32_t ran = 0, ran_capped = 0;
        for (int i = 0; i < 2000; i++) {
            ticks(f, 10);
            ran += !on(f, first)->suspended;
            ran_capped += !on(f, limited)->suspended;
        }
        assert_in_range(ran_capped, 360, 420);
        assert_in_range(ran, 740, 860); /* half of the rest */
        assert_string_equal(record(f, capped).account, "lab");
        assert_int_equal(record(f, capped).gpu_max, 20);
        if (daemon == 0) {
            crash(f);
            start(f, "priority", NULL);
            ticks(f, 5000);
        }
    }
    stop(f, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_floors),
        T(test_shares_and_ceiling),
    };
    return cmocka_run_group_tests_name("accounts", tests, NULL, NULL);
}
