/* See mock_driver.h. */
#include "mock_driver.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "../test.h"

static struct mock_driver *self(struct device_driver *d)
{
    return (struct mock_driver *)(void *)d;
}

static unsigned gpus(struct device_driver *d)
{
    return self(d)->ngpus;
}

static int info(struct device_driver *d, unsigned gpu, struct gpu_info *out)
{
    *out = (struct gpu_info){.name = "mock",
                             .caps = GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_PREEMPT |
                                     (self(d)->no_swap ? 0 : GPU_CAP_SWAP) |
                                     (self(d)->has_usage ? GPU_CAP_USAGE : 0) |
                                     (self(d)->has_counters ? GPU_CAP_COUNTERS : 0) |
                                     (self(d)->gates >> gpu & 1 ? GPU_CAP_GATE : 0),
                             .memory_bytes = (self(d)->small >> gpu & 1 ? 32ULL : 64ULL) << 30,
                             .timeslice_min_us = 1,
                             .timeslice_max_us = 1000000,
                             .timeslice_default_us = 2048};
    snprintf(out->uuid, sizeof(out->uuid), "MOCK-%u", gpu);
    return 0;
}

static int processes(struct device_driver *d, struct pid_list *out, struct error *err)
{
    if (self(d)->fail_processes)
        return error_set(err, -self(d)->fail_processes, "mock processes");
    for_each_context (self(d), g)
        pid_list_push(out, g->dg.proc.pid);
    for (size_t i = 0; i < self(d)->nidle; i++)
        pid_list_push(out, self(d)->idle[i]);
    return 0;
}

static int clients(struct device_driver *d, struct pid_list *out, struct error *err)
{
    for_each_context (self(d), g) {
        if (g->dg.shared)
            pid_list_push(out, g->dg.proc.pid);
    }
    return 0;
}

static void spin(uint64_t ns)
{
    for (uint64_t end = monotonic_ns() + ns; ns && monotonic_ns() < end;)
        ;
}

static int scan(struct device_driver *d, struct proc_id proc, struct group_list *out,
                struct error *err)
{
    struct mock_driver *m = self(d);
    m->scans++;
    spin(m->scan_ns);
    if (m->fail_scan)
        return error_set(err, -m->fail_scan, "mock scan of %d", proc.pid);
    if (!proc_alive(proc))
        return -ESRCH;
    for_each_context (m, x) {
        struct device_group g = x->dg;
        g.timeslice_us = g.timeslice_now_us = x->timeslice_us; /* as hardware: what it has */
        if (g.proc.pid == proc.pid)
            group_list_push(out, &g);
    }
    return 0;
}

static void forget(struct device_driver *d, pid_t pid)
{
}

static struct mock_group *find(struct mock_driver *m, const struct device_group *g)
{
    for_each_context (m, x) {
        if (x->dg.key == g->key)
            return x;
    }
    return NULL;
}

static int set_timeslice(struct device_driver *d, const struct device_group *g, uint64_t us,
                         struct error *err)
{
    struct mock_driver *m = self(d);
    m->timeslice_calls++;
    spin(m->control_ns);
    assert_in_range(us, 1, 1000000);
    struct mock_group *x = find(m, g);
    for_each_context (m, o) {
        if (x && (!m->fail_timeslice || m->partial) &&
            (o == x || (x->dg.shared && o->dg.shared == x->dg.shared && o->dg.gpu == x->dg.gpu)))
            o->timeslice_us = us;
    }
    if (m->fail_timeslice)
        return error_set(err, -m->fail_timeslice, "mock timeslice");
    return x ? 0 : -ESRCH;
}

static int set_preempt(struct device_driver *d, const struct device_group *g, bool block_ends,
                       struct error *err)
{
    struct mock_driver *m = self(d);
    struct mock_group *x = find(m, g);
    m->preempt_calls++;
    assert_int_equal(g->kind, GROUP_COMPUTE);
    if (x && (!m->fail_preempt || m->partial))
        x->block_ends = block_ends;
    if (m->fail_preempt)
        return error_set(err, -m->fail_preempt, "mock preempt");
    return x ? 0 : -ESRCH;
}

static bool is_recorded(const struct mock_driver *m, const struct device_group *g)
{
    uint32_t flags;
    for (uint32_t i = 0; i < journal_groups_end(*m->journal); i++) {
        const struct device_group *rec = journal_group(*m->journal, i, &flags);
        if (rec && journal_same(rec, g) && (flags & JG_SUSPENDED))
            return true;
    }
    return false;
}

static int set_running(struct device_driver *d, const struct device_group *const *g, size_t n,
                       bool on, struct error *err)
{
    struct mock_driver *m = self(d);
    int r = 0, fail = on ? m->fail_resume : m->fail_suspend;
    size_t taken = !fail ? n : m->partial ? 1 : 0;
    *(on ? &m->resume_calls : &m->suspend_calls) += 1;
    m->run_groups += (unsigned)n;
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(g[i]->gpu, g[0]->gpu); /* one GPU a call */
        if ((m->fail_several && g[i]->proc.pid != g[0]->proc.pid) || g[i]->proc.pid == m->fail_pid)
            fail = EIO, taken = n / 2;
    }
    for (size_t i = 0; i < n; i++) {
        struct mock_group *x = find(m, g[i]);
        assert_true((on && !m->resumes_recorded) || !m->journal || is_recorded(m, g[i]));
        if (!x)
            r = r ? r : -ESRCH;
        else if (i < taken)
            x->suspended = !on            ? x->suspended + 1
                           : x->suspended ? x->suspended - 1
                                          : 0,
            x->ran |= on;
    }
    return fail ? error_set(err, -fail, "mock %s", on ? "resume" : "suspend") : r;
}

static int usage(struct device_driver *d, struct usage_list *out, struct error *err)
{
    struct mock_driver *m = self(d);
    m->usage_calls++;
    if (!m->has_usage)
        return error_set(err, -ENOTSUP, "mock usage");
    for_each_context (m, g) {
        struct gpu_usage u = {.pid = g->dg.proc.pid,
                              .gpu = g->dg.gpu,
                              .busy = g->busy,
                              .memory_bytes = g->memory_bytes ? g->memory_bytes : 1 << 20};
        if (g->dg.kind == GROUP_COMPUTE)
            usage_list_push(out, &u);
    }
    return 0;
}

static int memory_used(struct device_driver *d, struct usage_list *out, struct error *err)
{
    struct mock_driver *m = self(d);
    m->memory_calls++;
    for_each_context (m, g) {
        if (g->dg.kind == GROUP_COMPUTE)
            usage_list_push(out, &(struct gpu_usage){g->dg.proc.pid, g->dg.gpu, -1,
                                                     g->memory_bytes ? g->memory_bytes : 1 << 20});
    }
    return 0;
}

static int activity(struct device_driver *d, struct activity_list *out, struct error *err)
{
    struct mock_driver *m = self(d);
    m->activity_calls++;
    if (!m->has_activity)
        return error_set(err, -ENOTSUP, "mock activity");
    for_each_context (m, g) {
        struct gpu_activity a = {
            .pid = g->dg.proc.pid, .gpu = g->dg.gpu, .bursts = g->bursts, .busy_ns = g->busy_ns};
        if (g->dg.kind == GROUP_COMPUTE && (g->ran || !g->suspended) && (g->bursts || g->busy_ns))
            activity_list_push(out, &a);
        g->ran = !g->suspended;
    }
    out->incomplete = m->incomplete ? UINT32_MAX : 0;
    return 0;
}

static int switches(struct device_driver *d, struct switch_list *out, struct error *err)
{
    struct mock_driver *m = self(d);
    int r = 0;
    m->recording = out && m->has_switches;
    if (!out) {
        switch_list_free(&m->record);
        m->record = (struct switch_list){0};
        return 0;
    }
    m->switches_calls++;
    if (!m->has_switches)
        return error_set(err, -EPERM, "mock switches");
    for (size_t i = 0; i < m->record.n && r == 0; i++)
        r = switch_list_push(out, &m->record.v[i]);
    m->record.n = 0;
    return r;
}

/* Or will be, once it gets the processor. */
static bool looks_stopped(pid_t pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    const char *pending = strstr(text, "ShdPnd:");
    return strstr(text, "State:\tT") ||
           (pending && strtoull(pending + 8, NULL, 16) >> (SIGSTOP - 1) & 1);
}

/* The kernel writes the state first: one that stops between the two looks as if it ran, once. */
static bool is_stopped(pid_t pid)
{
    return looks_stopped(pid) || looks_stopped(pid);
}

static bool works(const struct mock_group *g, unsigned gpu)
{
    return g->dg.gpu == gpu && g->together > 0 && !g->suspended && !is_stopped(g->dg.proc.pid);
}

static int counters(struct device_driver *d, unsigned gpu, struct gpu_counters *out,
                    struct error *err)
{
    struct mock_driver *m = self(d);
    unsigned n = 0;
    int r = 0;
    if (m->fail_counters)
        return -m->fail_counters;
    if (!out) {
        m->counted_ns = *m->clock;
        return 0;
    }
    *out = (struct gpu_counters){.window_ns = *m->clock - m->counted_ns};
    if (!m->counted_ns || !out->window_ns)
        r = -EAGAIN;
    m->counted_ns = *m->clock;
    for_each_context (m, g)
        n += works(g, gpu) && g->dg.shared;
    for_each_context (m, g) {
        double speed = n > 1 && g->dg.shared ? g->together : 1;
        for (unsigned p = 0; p < GPU_PARTS && works(g, gpu); p++)
            out->parts[p] += g->uses[p] * speed;
    }
    for (unsigned p = 0; p < GPU_PARTS && m->nonsense != 0; p++)
        out->parts[p] = m->nonsense;
    return r;
}

static int memory_free(struct device_driver *d, unsigned gpu, uint64_t *bytes, struct error *err)
{
    if (self(d)->free_unknown)
        return -ENOTSUP;
    *bytes = self(d)->free_bytes;
    return 0;
}

/* A swapper's to call, and the tests have one of their own. */
static int swap(struct device_driver *d, struct proc_id proc, enum swap_step step, unsigned lock_ms,
                struct error *err)
{
    fail_msg("the daemon has called swap_step");
    return -ENOTSUP;
}

static void close_driver(struct device_driver *d)
{
    switch_list_free(&self(d)->record);
}

void mock_init(struct mock_driver *d, unsigned ngpus)
{
    static const struct device_ops ops = {
        .name = "mock",
        .close = close_driver,
        .gpus = gpus,
        .info = info,
        .processes = processes,
        .clients = clients,
        .scan = scan,
        .forget = forget,
        .set_timeslice = set_timeslice,
        .set_preempt = set_preempt,
        .set_running = set_running,
        .usage = usage,
        .memory_used = memory_used,
        .activity = activity,
        .switches = switches,
        .counters = counters,
        .memory_free = memory_free,
        .swap_step = swap,
    };
    memset(d, 0, sizeof(*d));
    d->base.ops = &ops;
    d->ngpus = ngpus;
}

unsigned mock_context(struct mock_driver *d, pid_t pid, unsigned gpu, unsigned ncopy)
{
    static uint64_t key = 1;
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    unsigned compute = MOCK_GROUPS;
    for (unsigned i = 0, made = 0; i < MOCK_GROUPS && made <= ncopy; i++) {
        if (d->g[i].dg.proc.pid)
            continue;
        if (made == 0)
            compute = i;
        key++;
        d->g[i] = (struct mock_group){
            .dg = {.key = key,
                   .proc = st.id,
                   .gpu = gpu,
                   .kind = made++ ? GROUP_COPY : GROUP_COMPUTE,
                   .level = LEVEL_QUEUE,
                   .nchannels = 2,
                   .channels = {(uint32_t)key * 2, (uint32_t)key * 2 + 1}},
            .timeslice_us = 2048,
            .busy = 1,
        };
    }
    return compute;
}

void mock_exit(struct mock_driver *d, pid_t pid)
{
    for_each_context (d, g) {
        if (g->dg.proc.pid == pid)
            g->dg.proc.pid = 0;
    }
}

struct mock_group *mock_compute(struct mock_driver *d, pid_t pid, unsigned gpu)
{
    for_each_context (d, g) {
        if (g->dg.proc.pid == pid && g->dg.gpu == gpu && g->dg.kind == GROUP_COMPUTE)
            return g;
    }
    fail_msg("process %d has no context on GPU %u", (int)pid, gpu);
    return NULL;
}

void mock_share(struct mock_driver *d, pid_t pid, uint32_t number)
{
    for_each_context (d, g) {
        if (g->dg.proc.pid == pid && g->dg.kind == GROUP_COMPUTE)
            g->dg.shared = number;
    }
}
