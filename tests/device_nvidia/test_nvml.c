/* What the driver has from the vendor's library, of three ages: GPUs, memory, processes. */
#include <math.h>

#include "nvml_rig.h"

/* Entries of the lists differ in size; with the wrong one every second process is another. */
TEST(test_processes)
{
    for (int which = LIBRARY_580; which <= LIBRARY_535; which++) {
        _cleanup_(nvml_rig_down) struct nvml_rig r;
        nvml_rig_up(&r, (enum library)which, 2);
        for (unsigned i = 0; i < 70; i++) {
            struct fake_nvml_gpu *g = &r.nvml->gpus[i / 60];
            g->running[g->nrunning++] =
                (struct fake_nvml_process){(unsigned)child(&r, "program"), i};
        }
        assert_int_equal(processes(&r.t), 70);
        assert_int_equal(usage(&r.t), 70);
        for (size_t i = 0; i < 70; i++) {
            assert_int_equal(r.t.pids.v[i], r.children[i]);
            assert_int_equal(r.t.usage.v[i].pid, r.children[i]);
            assert_int_equal(r.t.usage.v[i].memory_bytes, i);
            assert_int_equal(r.t.usage.v[i].gpu, i / 60);
        }
    }
}

/* Of processes on GPU 0; rounded, for what is compared. */
static void is_busy(struct nvml_rig *r, const int *percent, unsigned n)
{
    assert_int_equal(usage(&r->t), n);
    for (unsigned i = 0; i < n; i++) {
        const struct gpu_usage *u = &r->t.usage.v[i];
        assert_int_equal(u->pid, r->children[i]);
        if (percent[i] < 0)
            assert_true(u->busy < 0);
        else
            assert_int_equal(lround(u->busy * 100), percent[i]);
    }
}

/* Each sample names the process that had the engine when it was taken, and an idle GPU has none. */
NVML_TEST(test_busy, one_gpu)
{
    struct fake_nvml_gpu *g = &r->nvml->gpus[0];
    for (unsigned i = 0; i < 3; i++)
        g->running[g->nrunning++] = (struct fake_nvml_process){(unsigned)child(r, "program"), 1};
    const unsigned a = g->running[0].pid, b = g->running[1].pid;
    is_busy(r, (const int[]){0, 0, 0}, 3);
    /* The GPU works, and no sample says for whom. */
    g->percent = 100;
    is_busy(r, (const int[]){-1, -1, -1}, 3);
    g->no_rates = true;
    is_busy(r, (const int[]){-1, -1, -1}, 3);
    g->no_rates = false;
    /* One has all of it, by one sample or more. */
    for (unsigned i = 0; i < 6; i++)
        g->samples[i] = (struct fake_nvml_busy){a, 95};
    g->nsamples = 1;
    is_busy(r, (const int[]){95, 0, 0}, 3);
    g->nsamples = 6;
    is_busy(r, (const int[]){95, 0, 0}, 3);
    /* A share that leaves the rest of the GPU's time unexplained. */
    g->samples[0].percent = 20;
    g->nsamples = 1;
    is_busy(r, (const int[]){20, -1, -1}, 3);
    g->percent = 30;
    is_busy(r, (const int[]){20, 0, 0}, 3);
    /* Two in turns: each is in half of the samples, or in a third. */
    g->percent = 100;
    for (unsigned i = 0; i < 6; i++)
        g->samples[i] = (struct fake_nvml_busy){i % 2 ? a : b, 100};
    g->nsamples = 6;
    is_busy(r, (const int[]){50, 50, 0}, 3);
    g->samples[1].pid = b;
    is_busy(r, (const int[]){33, 67, 0}, 3);
}

TEST(test_gpus)
{
    _cleanup_(nvml_rig_down) struct nvml_rig r;
    nvml_rig_load(&r, LIBRARY_580, 3);
    r.nvml->gpus[2].compute_mode = 3;
    r.t.d = fake_driver(&r.t.rm, 0); /* /proc shows none */
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct gpu_info g = info_of(&r, i);
        char text[32];
        snprintf(text, sizeof(text), "Stand-in %u", i);
        assert_string_equal(g.name, text);
        snprintf(text, sizeof(text), "GPU-%08u", i);
        assert_string_equal(g.uuid, text);
        snprintf(text, sizeof(text), "0000:%02x:00.0", 0x10 + i);
        assert_string_equal(g.bus_id, text);
        assert_int_equal(g.memory_bytes, 1000);
        assert_int_equal(g.caps & GPU_CAP_POOL, i < 2 ? GPU_CAP_POOL : 0);
        uint64_t bytes;
        assert_int_equal(r.t.d->ops->memory_free(r.t.d, i, &bytes, &r.t.err), 0);
        assert_int_equal(bytes, 600);
    }
}

/* Which of NVML's numbers is which part, and what the clock does to those of the SMs. */
TEST(test_counters)
{
    static const unsigned metric_of[GPU_PARTS] = {
        [PART_INTEGER] = 4,        [PART_TENSOR_FP64] = 6, [PART_TENSOR_FP16] = 7,
        [PART_TENSOR_INTEGER] = 9, [PART_FP64] = 11,       [PART_FP32] = 12,
        [PART_FP16] = 13,          [PART_DRAM] = 10,
    };
    struct nvml_rig r;
    struct gpu_counters c;
    nvml_rig_load(&r, LIBRARY_580, 2);
    struct device_driver *d = r.t.d = fake_driver(&r.t.rm, 0);
    r.nvml->gpus[1].no_metrics = true;
    assert_int_equal(d->ops->gpus(d), 2);
    assert_true(info_of(&r, 0).caps & GPU_CAP_COUNTERS);
    assert_false(info_of(&r, 1).caps & GPU_CAP_COUNTERS);
    assert_int_equal(d->ops->counters(d, 1, &c, NULL), -ENOTSUP);
    assert_int_equal(d->ops->counters(d, 9, &c, NULL), -ENOTSUP);
    for (unsigned p = 0; p < GPU_PARTS; p++)
        r.nvml->gpus[0].metrics[metric_of[p]] = 10 + p;
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), -EAGAIN);
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), -EAGAIN); /* no time has passed */
    r.t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), 0);
    assert_int_equal(c.window_ns, NSEC_PER_SEC);
    for (unsigned p = 0; p < GPU_PARTS; p++)
        assert_true(fabs(c.parts[p] - (10 + p) / 100.0) < 1e-9);
    /* The clock falls by half in the window's middle; DRAM has one of its own. */
    r.nvml->gpus[0].clock_mhz = 1000;
    r.nvml->gpus[0].metrics[metric_of[PART_FP16]] = -1;
    r.nvml->gpus[0].metrics[metric_of[PART_FP32]] = 250;
    r.t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), 0);
    assert_true(fabs(c.parts[PART_INTEGER] - 0.1 * 0.75) < 1e-9);
    assert_true(fabs(c.parts[PART_DRAM] - (10 + PART_DRAM) / 100.0) < 1e-9);
    assert_true(c.parts[PART_FP16] == 0 && fabs(c.parts[PART_FP32] - 0.75) < 1e-9);
    /* What was before a beginning does not count. */
    r.t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(d->ops->counters(d, 0, NULL, NULL), 0);
    r.t.rm.now_ns += NSEC_PER_SEC / 2;
    assert_int_equal(d->ops->counters(d, 0, &c, NULL), 0);
    assert_int_equal(c.window_ns, NSEC_PER_SEC / 2);
    nvml_rig_down(&r);
    nvml_rig_up(&r, LIBRARY_535, 1);
    assert_false(info_of(&r, 0).caps & GPU_CAP_COUNTERS);
    nvml_rig_down(&r);
}

static bool has_open(const struct nvml_rig *r)
{
    assert_int_equal(r->t.rm.nopen, r->nvml->opened - r->nvml->closed);
    return r->t.rm.nopen;
}

/* Each of so many seconds this many processes are listed. */
static void lists_for(struct nvml_rig *r, unsigned seconds, size_t n)
{
    for (; seconds > 0; seconds--, r->t.rm.now_ns += NSEC_PER_SEC)
        assert_int_equal(processes(&r->t), n);
}

/* What is asked while there is no driver. */
static void unloaded(struct nvml_rig *r)
{
    struct device_driver *d = r->t.d;
    uint64_t bytes;
    r->t.rm.unloaded = true;
    lists_for(r, 20, 0);
    assert_int_equal(usage(&r->t) + clients(&r->t), 0);
    const struct gpu_info g = info_of(r, 1);
    assert_string_equal(g.driver, "580.1");
    assert_string_equal(g.name, "Stand-in 1");
    assert_true(g.caps & GPU_CAP_COUNTERS);
    assert_int_equal(d->ops->memory_free(d, 0, &bytes, &r->t.err), -ENODEV);
    assert_false(has_open(r));
}

/* Nothing of the driver is open while no program uses it, so that it can be unloaded; what is asked
 * meanwhile does not open it unless only it knows. It is opened again when a program does. */
TEST(let_go)
{
    _cleanup_(nvml_rig_down) struct nvml_rig r;
    uint64_t bytes;
    nvml_rig_load(&r, LIBRARY_580, 2);
    r.t.rm.release = "580.1";
    struct device_driver *d = r.t.d = fake_driver(&r.t.rm, 2);
    struct fake_nvml_gpu *gpu = &r.nvml->gpus[0];
    info_of(&r, 1);

    /* A program; then one that has the driver open and computes nothing, as nvidia-persistenced. */
    struct fake_process *p = program(&r);
    fake_client(&r.t.rm, p);
    gpu->running[gpu->nrunning++] = (struct fake_nvml_process){(unsigned)p->id.pid, 1};
    lists_for(&r, 10, 1);
    assert_true(has_open(&r));
    gpu->nrunning = 0;
    lists_for(&r, 10, 0);
    assert_true(has_open(&r));
    fake_exit(&r.t.rm, p);
    lists_for(&r, 4, 0);
    assert_false(has_open(&r));
    unloaded(&r);

    /* Another release comes, with the first program. */
    r.t.rm.unloaded = false;
    r.t.rm.release = "590.2";
    p = program(&r);
    const uint32_t client = fake_client(&r.t.rm, p);
    assert_int_equal(processes(&r.t), 0); /* it waits for the GPU */
    assert_int_equal(d->ops->scan(d, p->id, &r.t.l, &r.t.err), 0);
    assert_false(has_open(&r));
    p->ngpu = 1;
    gpu->running[gpu->nrunning++] = (struct fake_nvml_process){(unsigned)p->id.pid, 1};
    assert_int_equal(processes(&r.t), 1);
    assert_true(has_open(&r));
    assert_string_equal(info_of(&r, 1).driver, "590.2");
    fake_context(&r.t.rm, p, client, fake_device(&r.t.rm, client, 1));
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(usage(&r.t), 1);

    /* How much memory is free only the driver knows. The program has closed what it had. */
    gpu->nrunning = 0;
    p->nfds = p->ngpu = 0;
    for (int i = 0; i < 4; i++, r.t.rm.now_ns += NSEC_PER_SEC) {
        assert_int_equal(processes(&r.t), 0);
        assert_int_equal(d->ops->scan(d, p->id, &r.t.l, &r.t.err), 0);
    }
    assert_false(has_open(&r));
    assert_int_equal(d->ops->memory_free(d, 0, &bytes, &r.t.err), 0);
    assert_true(has_open(&r));
    assert_int_equal(processes(&r.t), 0);
}
