/* Accounts and limits in the engine: who shares with whom, floors that cannot be had together, and
 * that all of it outlives a daemon. */
#include <errno.h>

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
        .principal = uid};
    snprintf(spec.account, sizeof(spec.account), "%s", account);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    int r = engine_add(f->m, st.id, &spec, &job, err);
    if (r != expect)
        fail_msg("%d: %s", r, err->text);
    ticks(f, 300);
    return job;
}

ENGINE_TEST(test_floors)
{
    used = 0;
    programs(f, pool, ARRAY_SIZE(pool), 0);
    start(f, "priority", NULL);
    model_account_set(engine_model(f->m), "lab", &(struct job_terms){.weight = 100, .gpu_min = 30});
    uint32_t a = add_for(f, 1, "", 50, 0, 0, &f->err);
    add_for(f, 2, "lab", 20, 0, 0, &f->err);    /* within its account's */
    add_for(f, 3, "", 80, 0, -ERANGE, &f->err); /* an account's counts on all GPUs */
    assert_non_null(strstr(f->err.text, "gpu-min 80%: no GPU has so much left"));
    assert_non_null(strstr(f->err.text, "of GPU 1, which has most, 30% is promised to others"));
    add_for(f, 2, "lab", 20, 0, 0, &f->err); /* 40 now, of both */
    struct job_terms more = {.class = CLASS_NORMAL, .weight = WEIGHT_DEFAULT, .gpu_min = 61};
    FAILS(-ERANGE, "40% of GPU 0 is promised to others, so 60% is left",
          engine_change(f->m, a, &more, &f->err));
    assert_int_equal(view(f, a).job.gpu_min, 50);
    more.gpu_min = 60;
    assert_int_equal(engine_change(f->m, a, &more, &f->err), 0);
    model_account_set(engine_model(f->m), "lab", &(struct job_terms){.weight = 100, .gpu_max = 10});
    add_for(f, 2, "lab", 20, 0, -ERANGE, &f->err);
    assert_non_null(strstr(f->err.text, "account lab has 10%"));
}

/* One job of one user has half of the turns beside three of another, a ceiling holds, and both do
 * in the next daemon. */
ENGINE_TEST(test_shares_and_ceiling)
{
    used = 0;
    programs(f, pool, ARRAY_SIZE(pool), 0);
    start(f, "priority", NULL);
    add(f, pool[used++], CLASS_LATENCY);
    add_for(f, 1, "", 0, 0, 0, &f->err);
    pid_t first = pool[used - 1], limited;
    for (int i = 0; i < 3; i++)
        add_for(f, 2, "", 0, 0, 0, &f->err);
    uint32_t capped = add_for(f, 3, "lab", 0, 20, 0, &f->err);
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
        assert_string_equal(view(f, capped).job.account, "lab");
        assert_int_equal(view(f, capped).job.gpu_max, 20);
        if (daemon == 0) {
            crash(f);
            start(f, "priority", NULL);
            ticks(f, 5000);
        }
    }
}
