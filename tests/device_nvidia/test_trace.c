/* The trace of context switches: what is counted, lost records, and a buffer, a driver and a GPU
 * that misbehave. Times are the fake GPU's. */
#include "../test.h"
#include "fake_rm.h"

#define MS NSEC_PER_MSEC

static struct rm_switch_record record(uint16_t seqno, uint8_t tag, uint32_t pid, uint64_t ns)
{
    return (struct rm_switch_record){
        .type = RM_RECORD_SWITCH, .tag = tag, .seqno = seqno, .pid = pid, .ns = ns};
}

static void take_record(struct nv_engine *e, uint16_t seqno, uint8_t tag, uint32_t pid, uint64_t ns)
{
    struct rm_switch_record r = record(seqno, tag, pid, ns);
    assert_int_equal(nv_engine_take(e, &r), 0);
}

static void take(struct nv_engine *e, uint8_t tag, uint32_t pid, uint64_t ns)
{
    take_record(e, e->next_seqno, tag, pid, ns);
}

static void take_burst(struct nv_engine *e, uint32_t pid, uint64_t start_ns, uint64_t end_ns)
{
    take(e, RM_SWITCH_START, pid, start_ns);
    take(e, RM_SWITCH_END, pid, end_ns);
}

static struct gpu_activity of(const struct activity_list *l, int32_t pid)
{
    struct gpu_activity sum = {.pid = pid};
    for (size_t i = 0; i < l->n; i++) {
        if (l->v[i].pid == pid) {
            assert_int_equal(sum.bursts | sum.busy_ns, 0); /* once each */
            sum = l->v[i];
        }
    }
    return sum;
}

#define expect(l, pid, b, ns)                                                                      \
    do {                                                                                           \
        assert_int_equal(of(l, pid).bursts, b);                                                    \
        assert_int_equal(of(l, pid).busy_ns, ns);                                                  \
    } while (0)

static void tell(struct nv_engine *e, struct activity_list *l)
{
    activity_list_free(l);
    assert_int_equal(nv_engine_report(e, 2, l), 0);
}

TEST(counting)
{
    _cleanup_(nv_engine_free) struct nv_engine e = {0};
    _cleanup_(activity_list_free) struct activity_list l = {0};
    tell(&e, &l);
    assert_int_equal(l.incomplete, 1 << 2); /* who has had it since before is not known */
    take(&e, RM_SWITCH_END, 10, 500);
    tell(&e, &l);
    assert_int_equal(l.incomplete, 1 << 2); /* now it is, but was not all the time */
    assert_int_equal(l.n, 0);
    take_burst(&e, 20, 1000, 1100);
    take_burst(&e, 10, 1300, 3300);
    take_burst(&e, 20, 3500, 3600);
    take(&e, RM_SWITCH_START, 10, 3800);
    tell(&e, &l);
    expect(&l, 20, 2, 200);
    expect(&l, 10, 2, 2000);
    assert_int_equal(l.incomplete, 0);
    /* Nothing new: nobody is listed, though 10 has the engine. */
    tell(&e, &l);
    assert_int_equal(l.n, 0);
    /* A start without the end of the one before; time that goes backwards counts for nothing. */
    take_burst(&e, 30, 4800, 4000);
    take(&e, RM_SWITCH_START, 10, 5000);
    take(&e, 0xFE, 10, 5100); /* other tags mean nothing */
    /* Another user's and the kernel's take the engine away. */
    take(&e, RM_SWITCH_START, 0, 5500);
    take(&e, RM_SWITCH_END, 10, 9000);
    take(&e, RM_SWITCH_START, UINT32_MAX, 9500);
    tell(&e, &l);
    expect(&l, 10, 1, 1500);
    expect(&l, 30, 1, 0);
    assert_int_equal(l.n, 2);
}

TEST(quiet)
{
    _cleanup_(nv_engine_free) struct nv_engine e = {0};
    _cleanup_(activity_list_free) struct activity_list l = {0};
    assert_int_equal(nv_engine_quiet(&e, 100), 0); /* nobody has it */
    take(&e, RM_SWITCH_START, 10, 1000);
    assert_int_equal(nv_engine_quiet(&e, 5000), 0);
    tell(&e, &l);
    expect(&l, 10, 1, 5000);
    assert_int_equal(nv_engine_quiet(&e, 5000), 0);
    tell(&e, &l);
    expect(&l, 10, 0, 5000);
    /* In all 12000: what was told already is not told again. */
    take(&e, RM_SWITCH_END, 10, 13000);
    tell(&e, &l);
    expect(&l, 10, 0, 2000);
    /* Told too much is not taken back. */
    take(&e, RM_SWITCH_START, 10, 20000);
    assert_int_equal(nv_engine_quiet(&e, 5000), 0);
    take(&e, RM_SWITCH_END, 10, 20100);
    tell(&e, &l);
    expect(&l, 10, 1, 5000);
}

TEST(test_lost)
{
    _cleanup_(nv_engine_free) struct nv_engine e = {0};
    _cleanup_(activity_list_free) struct activity_list l = {0};
    const struct rm_switch_record other = {.type = 77, .seqno = 5, .pid = 10};
    take_record(&e, 65534, RM_SWITCH_START, 10, 100);
    take_record(&e, 65535, RM_SWITCH_END, 10, 200);
    take_record(&e, 0, RM_SWITCH_START, 10, 300); /* wraps: nothing is missing */
    assert_true(e.known);
    take_record(&e, 4, RM_SWITCH_END, 10, 900); /* three are, so it may be another burst's end */
    assert_int_equal(nv_engine_take(&e, &other), 0);
    assert_false(e.known);
    tell(&e, &l);
    expect(&l, 10, 2, 100);
    assert_int_equal(l.incomplete, 1 << 2);
    take_record(&e, 6, RM_SWITCH_START, 10, 1000);
    tell(&e, &l);
    assert_int_equal(l.incomplete, 1 << 2);
    tell(&e, &l);
    assert_int_equal(l.incomplete, 0);
}

/* More processes than anyone has cost memory up to a bound, and then an error. */
TEST(many)
{
    _cleanup_(nv_engine_free) struct nv_engine e = {0};
    int r = 0;
    uint32_t pid = 0;
    while (r == 0 && pid < 100000) {
        pid++;
        struct rm_switch_record x = record(e.next_seqno, RM_SWITCH_START, pid, pid);
        r = nv_engine_take(&e, &x);
    }
    assert_int_equal(r, -ENOMEM);
    assert_true(pid > 1000 && pid < 10000);
}

TEST(garbage)
{
    _cleanup_(nv_engine_free) struct nv_engine e = {0};
    _cleanup_(activity_list_free) struct activity_list l = {0};
    uint32_t x = 1;
    for (int i = 0; i < 200000; i++) {
        uint8_t bytes[sizeof(struct rm_switch_record)];
        for (size_t k = 0; k < sizeof(bytes); k++) {
            x = x * 1664525 + 1013904223;
            bytes[k] = (uint8_t)(x >> 24);
        }
        struct rm_switch_record r;
        memcpy(&r, bytes, sizeof(r));
        r.type = x & 1 ? RM_RECORD_SWITCH : r.type;
        r.tag = x & 2 ? r.tag % 9 : r.tag;
        r.pid = x & 4 ? r.pid % 9 : r.pid;
        if (nv_engine_take(&e, &r) < 0 || i % 1000 == 0) {
            activity_list_free(&l);
            assert_int_equal(nv_engine_report(&e, 0, &l), 0);
        }
        for (size_t k = 0; k < l.n; k++)
            assert_true(l.v[k].pid > 0);
    }
}

/* ---- through the driver ---- */

struct machine {
    struct fake_rm rm;
    struct device_driver *d;
    struct fake_process *a, *b;
    struct activity_list l; /* of the last ask() */
    struct switch_list s;   /* of the last switches_are() */
};

/* A process with a context on that GPU. */
static struct fake_process *process_on(struct machine *m, unsigned gpu)
{
    _cleanup_(group_list_free) struct group_list l = {0};
    struct fake_process *p = fake_process(&m->rm);
    uint32_t client = fake_client(&m->rm, p);
    fake_context(&m->rm, p, client, fake_device(&m->rm, client, gpu));
    assert_int_equal(m->d->ops->scan(m->d, p->id, &l, NULL), 0);
    return p;
}

static void begin(struct machine *m, unsigned gpus, unsigned gpu)
{
    memset(m, 0, sizeof(*m));
    fake_init(&m->rm, gpus);
    m->d = fake_driver(&m->rm, gpus);
    m->a = process_on(m, gpu);
    m->b = process_on(m, gpu);
}

static void burst(struct machine *m, unsigned gpu, const struct fake_process *p, uint64_t start_ns,
                  uint64_t end_ns)
{
    fake_switch(&m->rm, gpu, RM_SWITCH_START, (uint32_t)p->id.pid, start_ns);
    fake_switch(&m->rm, gpu, RM_SWITCH_END, (uint32_t)p->id.pid, end_ns);
}

static void end(struct machine *m)
{
    device_close(m->d);
    assert_int_equal(m->rm.nopen, 0);
    assert_int_equal(fake_traces(&m->rm), 0);
    fake_free(&m->rm);
    activity_list_free(&m->l);
    switch_list_free(&m->s);
}

static int ask(struct machine *m, struct error *err)
{
    activity_list_free(&m->l);
    return m->d->ops->activity(m->d, &m->l, err);
}

/* What the process had since the last one asked. */
static void asked(struct machine *m, const struct fake_process *p, unsigned bursts, uint64_t ns)
{
    assert_int_equal(ask(m, NULL), 0);
    expect(&m->l, p->id.pid, bursts, ns);
}

TEST(test_driver)
{
    _cleanup_(end) struct machine m;
    begin(&m, 3, 1);
    uint32_t a = (uint32_t)m.a->id.pid, b = (uint32_t)m.b->id.pid;
    assert_int_equal(m.rm.gpus_open, 0); /* nothing is opened before somebody asks */
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(m.l.n, 0);
    assert_int_equal(m.rm.gpus_open, 1); /* only the GPU that is used */
    assert_int_equal(fake_traces(&m.rm), 1);
    /* Many rounds of the ring. */
    uint64_t ns = 1000;
    for (int round = 0; round < 100; round++) {
        m.rm.now_ns += 100 * MS;
        fake_switch(&m.rm, 0, RM_SWITCH_START, b, ns); /* another GPU's */
        for (int i = 0; i < 300; i++, ns += 110)
            burst(&m, 1, m.a, ns + 10, ns + 110);
        burst(&m, 1, m.b, ns + 10, ns + 2010);
        ns += 2010;
        unsigned before = m.rm.ioctls;
        asked(&m, m.a, 300, 300 * 100);
        assert_int_equal(m.rm.ioctls - before, 1);
        expect(&m.l, (int32_t)b, 1, 2000);
        assert_int_equal(of(&m.l, (int32_t)a).gpu, 1);
        assert_int_equal(m.l.incomplete & 1 << 1, round ? 0 : 1 << 1);
        assert_true(m.l.incomplete & 1 << 0); /* not looked at */
    }
    unsigned before = m.rm.ioctls;
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(m.l.n, 0);
    assert_int_equal(m.rm.ioctls, before); /* no news: not even a call */
    /* Alone on the engine: had it all the time, less what may still be on its way. */
    fake_switch(&m.rm, 1, RM_SWITCH_START, a, ns);
    asked(&m, m.a, 1, 0);
    m.rm.now_ns += 500 * MS;
    asked(&m, m.a, 0, 500 * MS - ACTIVITY_LAG_NS);
    m.rm.now_ns += 500 * MS;
    asked(&m, m.a, 0, 500 * MS);
}

/* Nobody asks any more: it stops, and starts again with the next call. */
TEST(rest)
{
    _cleanup_(end) struct machine m;
    _cleanup_(pid_list_free) struct pid_list pids = {0};
    begin(&m, 1, 0);
    size_t open = m.rm.nopen;
    assert_int_equal(ask(&m, NULL), 0);
    m.rm.now_ns += NV_TRACE_IDLE_NS / 2;
    assert_int_equal(m.d->ops->processes(m.d, &pids, NULL), 0);
    assert_int_equal(fake_traces(&m.rm), 1);
    m.rm.now_ns += NV_TRACE_IDLE_NS;
    assert_int_equal(m.d->ops->processes(m.d, &pids, NULL), 0);
    assert_int_equal(fake_traces(&m.rm), 0);
    assert_int_equal(m.rm.nopen, open);
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(fake_traces(&m.rm), 1);
}

TEST(slow_reader)
{
    _cleanup_(end) struct machine m;
    begin(&m, 1, 0);
    uint32_t a = (uint32_t)m.a->id.pid;
    assert_int_equal(ask(&m, NULL), 0);
    for (uint32_t i = 0; i < NV_TRACE_RECORDS; i++)
        burst(&m, 0, m.a, 100 * i, 100 * i + 50);
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(of(&m.l, (int32_t)a).bursts, NV_TRACE_RECORDS / 2);
    fake_switch(&m.rm, 0, RM_SWITCH_END, a, 1000000000); /* not of the burst it had last */
    burst(&m, 0, m.a, 1000000000, 1000000070);
    asked(&m, m.a, 1, 70);
    assert_int_equal(m.l.incomplete & 1, 1);
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(m.l.incomplete & 1, 0);
}

/* After a reset of the GPU the buffer is nobody's: it is let go of, and made anew later. */
TEST(gone)
{
    _cleanup_(end) struct machine m;
    struct error err;
    begin(&m, 1, 0);
    uint32_t a = (uint32_t)m.a->id.pid;
    for (int fault = 0; fault < 2; fault++) {
        assert_int_equal(ask(&m, NULL), 0);
        fake_switch(&m.rm, 0, RM_SWITCH_START, a, 100);
        if (fault)
            ((struct rm_event_header *)m.rm.traces[0].pages[0])->put = NV_TRACE_RECORDS;
        else
            m.rm.fail_cmd = 0x90CD0102, m.rm.fail_status = 0x0F;
        assert_int_equal(ask(&m, &err), -EIO);
        assert_true(m.l.incomplete & 1);
        assert_int_equal(fake_traces(&m.rm), 0);
        m.rm.fail_cmd = 0;
        assert_int_equal(ask(&m, NULL), -EAGAIN);
        m.rm.now_ns += NV_TRACE_RETRY_NS;
        assert_int_equal(ask(&m, NULL), 0);
        assert_int_equal(fake_traces(&m.rm), 1);
    }
}

/* Whatever the driver refuses: an error that says what, nothing is left, and not again at once. */
TEST(refused)
{
    const struct {
        uint32_t class, cmd;
    } steps[] = {
        {RM_CLASS_ROOT, 0},
        {RM_CLASS_DEVICE, 0},
        {RM_CLASS_SUBDEVICE, 0},
        {RM_CLASS_MEMORY_DEVICELESS, 0},
        {RM_CLASS_EVENT_BUFFER, 0},
        {0, 0x20801238},
        {0, 0x90CD0101},
    };
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        _cleanup_(end) struct machine m;
        struct error err = {""};
        begin(&m, 2, 0);
        size_t open = m.rm.nopen;
        m.rm.fail_class = steps[i].class;
        m.rm.fail_cmd = steps[i].cmd;
        m.rm.fail_status = 0x56;
        assert_true(ask(&m, &err) < 0);
        assert_true(err.text[0]);
        assert_int_equal(m.rm.nopen, open);
        unsigned before = m.rm.ioctls;
        assert_int_equal(ask(&m, NULL), -EAGAIN);
        assert_int_equal(m.rm.ioctls, before);
    }
}

TEST(namespace)
{
    _cleanup_(end) struct machine m;
    struct gpu_info info;
    begin(&m, 1, 0);
    assert_int_equal(m.d->ops->info(m.d, 0, &info), 0);
    assert_true(info.caps & GPU_CAP_ACTIVITY);
    m.rm.other_pids = true;
    assert_int_equal(m.d->ops->info(m.d, 0, &info), 0);
    assert_false(info.caps & GPU_CAP_ACTIVITY);
    assert_int_equal(ask(&m, NULL), -ENOTSUP);
    assert_int_equal(m.rm.gpus_open, 0);
}

/* One of two GPUs cannot be traced: what is known of the other is told. */
TEST(one_gpu_untraced)
{
    _cleanup_(end) struct machine m;
    struct error err = {""};
    begin(&m, 2, 0);
    assert_int_equal(ask(&m, NULL), 0);
    burst(&m, 0, m.a, 100, 200);
    assert_int_equal(ask(&m, NULL), 0);
    process_on(&m, 1);
    m.rm.fail_class = RM_CLASS_EVENT_BUFFER;
    for (uint64_t k = 1; k <= 5; k++) {
        m.rm.now_ns += 100 * MS;
        burst(&m, 0, m.a, 1000 * k, 1000 * k + 100);
        assert_int_equal(ask(&m, &err), 0);
        assert_int_equal(of(&m.l, m.a->id.pid).bursts, 1);
        assert_int_equal(m.l.incomplete & 3U, 2);
    }
    m.rm.fail_class = 0;
}

/* ---- switches ---- */

static void switches_are(struct machine *m, size_t n)
{
    struct switch_list *l = &m->s;
    l->n = 0;
    assert_int_equal(m->d->ops->switches(m->d, l, NULL), 0);
    assert_int_equal(l->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(l->v[i].gpu, 1);
        assert_true(l->v[i].ns <= m->rm.now_ns);
        assert_true(i == 0 || l->v[i].ns >= l->v[i - 1].ns);
    }
}

/* By our clock, as if the newest record were of now; others see as much as without. */
TEST(test_switches)
{
    _cleanup_(end) struct machine m;
    begin(&m, 2, 1);
    m.rm.now_ns += NSEC_PER_SEC;
    const int32_t a = m.a->id.pid, b = m.b->id.pid;
    switches_are(&m, 0);
    assert_int_equal(fake_traces(&m.rm), 1);
    assert_int_equal(ask(&m, NULL), 0);
    m.rm.now_ns += 50 * MS;
    burst(&m, 1, m.a, 1000, 1500);
    fake_switch(&m.rm, 1, RM_SWITCH_START, (uint32_t)b, 2000);
    switches_are(&m, 3);
    const uint64_t zero = m.rm.now_ns - 2000; /* of the GPU's clock */
    assert_int_equal(m.s.v[0].pid, a);
    assert_int_equal(m.s.v[0].ns, zero + 1000);
    assert_int_equal(m.s.v[1].pid, GPU_NOBODY);
    assert_int_equal(m.s.v[1].ns, zero + 1500);
    assert_int_equal(m.s.v[2].pid, b);
    m.rm.now_ns += 50 * MS;
    fake_switch(&m.rm, 1, RM_SWITCH_END, (uint32_t)b, 2700); /* took long to come */
    asked(&m, m.a, 1, 500);
    expect(&m.l, b, 1, 700);
    switches_are(&m, 1);
    assert_int_equal(m.s.v[0].pid, GPU_NOBODY);
    assert_int_equal(m.s.v[0].ns, zero + 2700);
    /* Whoever has it when records are lost has it no longer for certain. */
    for (uint32_t i = 0; i <= NV_TRACE_RECORDS; i++)
        fake_switch(&m.rm, 1, i % 2 ? RM_SWITCH_END : RM_SWITCH_START, (uint32_t)a, 3000 + i);
    switches_are(&m, NV_TRACE_RECORDS - 1);
    fake_switch(&m.rm, 1, RM_SWITCH_START, (uint32_t)b, 90000);
    switches_are(&m, 2);
    assert_int_equal(m.s.v[0].pid, GPU_UNKNOWN);
    assert_int_equal(m.s.v[1].pid, b);
}

/* Records that took 7 ms to come are of when they happened if the GPU's clock can be read. A clock
 * by which they come before they happen, or that far too late, is another one. */
TEST(test_clock)
{
    const struct {
        int64_t reads_ns; /* more than the clock of the records; INT64_MAX: it cannot be read */
        uint64_t late_ns; /* of what is shown */
    } table[] = {
        {0, 0},
        {INT64_MAX, 7 * MS},
        {-1000 * (int64_t)MS, 7 * MS},
        {1000 * (int64_t)MS, 7 * MS},
        {-2 * (int64_t)MS, 2 * MS},
    };
    const uint64_t clock = 5000 * NSEC_PER_SEC;
    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        _cleanup_(end) struct machine m;
        begin(&m, 2, 1);
        m.rm.now_ns += NSEC_PER_SEC;
        switches_are(&m, 0);
        if (table[i].reads_ns != INT64_MAX)
            m.rm.gpu_clock_ns = clock + (uint64_t)table[i].reads_ns;
        const uint64_t happened = m.rm.now_ns;
        fake_switch(&m.rm, 1, RM_SWITCH_START, (uint32_t)m.a->id.pid, clock + happened);
        m.rm.now_ns += 7 * MS;
        switches_are(&m, 1);
        assert_int_equal(m.s.v[0].ns, happened + table[i].late_ns);
    }
}

/* Ends at once when nobody wants switches any more, unless activity() is asked for; and that tells
 * nothing of a time in which nobody asked for it. */
TEST(switches_end)
{
    _cleanup_(end) struct machine m;
    begin(&m, 2, 1);
    m.rm.now_ns += NSEC_PER_SEC;
    switches_are(&m, 0);
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(m.d->ops->switches(m.d, NULL, NULL), 0);
    assert_int_equal(fake_traces(&m.rm), 1);
    fake_switch(&m.rm, 1, RM_SWITCH_START, (uint32_t)m.a->id.pid, 1000);
    asked(&m, m.a, 1, 0);
    switches_are(&m, 0); /* what was before is not kept */
    fake_switch(&m.rm, 1, RM_SWITCH_START, (uint32_t)m.b->id.pid, 2000);
    m.rm.now_ns += 2 * NV_TRACE_IDLE_NS;
    switches_are(&m, 1);
    assert_int_equal(ask(&m, NULL), 0);
    assert_int_equal(m.l.n, 0);
    assert_true(m.l.incomplete & 1 << 1);
    switches_are(&m, 0);
    m.rm.now_ns += 2 * NV_TRACE_IDLE_NS;
    assert_int_equal(m.d->ops->switches(m.d, NULL, NULL), 0);
    assert_int_equal(fake_traces(&m.rm), 0);
    switches_are(&m, 0); /* begins anew at once */
    assert_int_equal(fake_traces(&m.rm), 1);
}
