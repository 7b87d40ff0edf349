/* What a test sees of the GPU and of the journal: see fixture.h. */
#include "fixture.h"

#include "gpu/registry.h"
#include "journal/journal.h"

/* A software GPU may be another one since the last look. A real one is not, and its driver knows by
 * now where to look for a program's contexts, which takes seconds the first time. */
static struct device_driver *test_driver(void)
{
    static struct device_driver *d;
    struct error err = {""};
    if (d && strcmp(e2e_driver, "soft") == 0) {
        device_close(d);
        d = NULL;
    }
    if (!d && device_open(e2e_driver, NULL, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

static struct group_list groups_of(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    struct proc_stat st;
    struct error err = {""};
    int r = 0;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    /* A look at a process takes several steps; it may have done before all of them. */
    bool done = EVENTUALLY(({
        group_list_free(&l);
        l = (struct group_list){0};
        r = d->ops->scan(d, st.id, &l, &err);
        r != -EAGAIN || l.n;
    }));
    if (!done || (r < 0 && r != -EAGAIN))
        fail_msg("%s", err.text);
    return l;
}

bool all_have_contexts(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    bool all = true;
    for (size_t i = 0; i < n; i++) {
        struct group_list l = groups_of(d, v[i]);
        all &= l.n > 0;
        group_list_free(&l);
    }
    return all;
}

uint64_t odd_slice(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    uint64_t odd = 0;
    for (size_t i = 0; i < n; i++) {
        struct group_list l = {0};
        /* One that comes back from host memory has none for a moment. */
        bool back = EVENTUALLY(({
            group_list_free(&l);
            l = groups_of(d, v[i]);
            l.n > 0;
        }));
        if (!back)
            fail_msg("process %d has nothing on the GPU", (int)v[i]);
        for (size_t k = 0; k < l.n && !odd; k++)
            odd = l.v[k].timeslice_now_us == SLICE_DEFAULT_US || l.v[k].kind != GROUP_COMPUTE
                      ? 0
                      : l.v[k].timeslice_now_us;
        group_list_free(&l);
    }
    return odd;
}

bool all_slices_default(const pid_t *v, size_t n)
{
    return odd_slice(v, n) == 0;
}

static void add_usage(struct device_driver *d, const pid_t *v, size_t n, double *busy)
{
    struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0);
    for (size_t k = 0; k < u.n; k++) {
        for (size_t i = 0; i < n; i++) {
            if (u.v[k].pid == v[i] && u.v[k].busy > 0)
                busy[i] += u.v[k].busy;
        }
    }
    usage_list_free(&u);
}

void await_progress(const pid_t *v, size_t n)
{
    struct device_driver *d = test_driver();
    double busy[32] = {0};
    size_t done = 0;
    assert_true(n <= ARRAY_SIZE(busy));
    bool all = EVENTUALLY(({
        add_usage(d, v, n, busy);
        while (done < n && busy[done] > 0)
            done++;
        done == n;
    }));
    if (!all)
        fail_msg("process %d does not get the GPU", (int)v[done]);
}

void measure(const pid_t *v, size_t n, unsigned ms, double *busy)
{
    struct device_driver *d = test_driver();
    struct usage_list u = {0};
    assert_int_equal(d->ops->usage(d, &u, NULL), 0); /* the time counts from here */
    usage_list_free(&u);
    nap_ms(ms);
    memset(busy, 0, n * sizeof(*busy));
    add_usage(d, v, n, busy);
}

void in_some_attempt(int attempts, bool (*is_right)(void))
{
    bool right = false;
    while (attempts-- > 0 && !right)
        right = is_right();
    assert_true(right);
}

/* ---- the journal ---- */

/* Group records of one process, or of all (pid 0). */
static unsigned count(pid_t pid, unsigned *suspended_of)
{
    struct journal *j;
    unsigned n = 0, s = 0;
    if (journal_open_readonly(cede_home(), &j, NULL) == 0) {
        for (uint32_t i = 0; i < journal_groups_end(j); i++) {
            uint32_t flags;
            const struct device_group *g = journal_group(j, i, &flags);
            if (!g || (pid && g->proc.pid != pid))
                continue;
            n++;
            s += (flags & JG_SUSPENDED) != 0;
        }
        journal_close(j);
    }
    if (suspended_of)
        *suspended_of = s;
    return n;
}

unsigned records(unsigned *suspended_of)
{
    return count(0, suspended_of);
}

unsigned swap_records(pid_t *swapper)
{
    struct journal *j;
    unsigned n = 0;
    if (swapper)
        *swapper = 0;
    if (journal_open_readonly(cede_home(), &j, NULL) < 0)
        return 0;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        const struct journal_swap *s = journal_swap(j, i);
        n += s != NULL;
        if (swapper && s && s->swapper.pid && proc_alive(s->swapper))
            *swapper = s->swapper.pid;
    }
    journal_close(j);
    return n;
}

bool somebody_suspended(void)
{
    unsigned s;
    count(0, &s);
    return s > 0;
}

bool suspended(pid_t pid)
{
    unsigned s;
    count(pid, &s);
    return s > 0;
}

static unsigned suspended_of(const pid_t *v, size_t n)
{
    unsigned all = 0;
    for (size_t i = 0; i < n; i++)
        all += suspended(v[i]);
    return all;
}

bool runs_on(const pid_t *v, size_t n)
{
    bool runs = EVENTUALLY(suspended_of(v, n) == 0);
    for (int i = 0; i < 50 && runs; i++) {
        nap_ms(5);
        runs = suspended_of(v, n) == 0;
    }
    return runs;
}
