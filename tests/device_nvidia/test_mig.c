/* GPUs in MIG mode: their instances are devices. On GPU 0, which is whole, and GPU 1, which has
 * three instances, unless a test says otherwise. */
#include "nvml_rig.h"

static const char *const names[] = {"Stand-in MIG 3g.71gb", "Stand-in MIG 1g.18gb",
                                    "Stand-in MIG 1c.2g.35gb"};
static const char *const uuids[] = {"MIG-00000000-1111-2222-3333-444444444440",
                                    "MIG-00000000-1111-2222-3333-444444444441",
                                    "MIG-00000000-1111-2222-3333-444444444442"};

static struct fake_nvml_gpu *instance(struct nvml_rig *r, unsigned gpu, unsigned place)
{
    return &r->nvml->instances[gpu][place];
}

/* At places 0, 2 and 5 of those that there could be. */
static const unsigned places[] = {0, 2, 5};

static void divide(struct nvml_rig *r, unsigned gpu)
{
    r->nvml->gpus[gpu].mig = true;
    for (unsigned i = 0; i < 3; i++) {
        *instance(r, gpu, places[i]) = (struct fake_nvml_gpu){
            .there = true,
            .name = names[i],
            .uuid = uuids[i],
            .gpu_instance = i == 0 ? 2 : 7,
            .compute_instance = i == 2,
            .sms = 60 - 20 * i,
            .mib = 1000 * (i + 1),
        };
    }
}

static void mig_rig_up(struct nvml_rig *r)
{
    nvml_rig_load(r, LIBRARY_580, 2);
    divide(r, 1);
    r->t.rm.instances = true;
    r->t.d = fake_driver(&r->t.rm, 2);
}

static int divided_gpu(void **state)
{
    *state = malloc(sizeof(struct nvml_rig));
    mig_rig_up(*state);
    return 0;
}

static void lists(struct fake_nvml_gpu *g, pid_t pid)
{
    assert_true(g->nrunning < ARRAY_SIZE(g->running));
    g->running[g->nrunning++] = (struct fake_nvml_process){(unsigned)pid, 5};
}

/* A program with a context on this GPU, and with a subscription unless uuid is NULL. */
static struct fake_process *computes(struct nvml_rig *r, unsigned gpu, const char *uuid, bool own)
{
    struct fake_process *p = program(r);
    uint32_t c = fake_client(&r->t.rm, p), d = fake_device(&r->t.rm, c, gpu);
    if (uuid)
        fake_subscribe(&r->t.rm, c, d, uuid, own);
    fake_context(&r->t.rm, p, c, d);
    return p;
}

/* All its groups are on this device, and are steered. */
static void is_on(struct nvml_rig *r, struct fake_process *p, unsigned gpu)
{
    assert_int_equal(scan(&r->t, p), 4);
    for (size_t i = 0; i < r->t.l.n; i++)
        assert_int_equal(r->t.l.v[i].gpu, gpu);
    suspends(&r->t, 20);
    assert_int_equal(r->t.d->ops->set_timeslice(r->t.d, &r->t.l.v[0], 5, &r->t.err), 0);
}

static void is_nowhere(struct nvml_rig *r, struct fake_process *p)
{
    assert_int_equal(scan(&r->t, p), -ENOTSUP);
    assert_int_equal(r->t.l.n, 0);
    assert_non_null(strstr(r->t.err.text, "MIG instance"));
}

NVML_TEST(test_devices, divided_gpu)
{
    const struct device_ops *ops = r->t.d->ops;
    struct gpu_info g = info_of(r, 0);
    assert_int_equal(ops->gpus(r->t.d), 4);
    assert_string_equal(g.name, "Stand-in 0");
    assert_string_equal(g.label, "");
    assert_int_equal(g.sms, 0);
    assert_true(g.caps & GPU_CAP_USAGE && g.caps & GPU_CAP_ACTIVITY);
    for (unsigned i = 0; i < 3; i++) {
        char label[16];
        uint64_t bytes;
        g = info_of(r, i + 1);
        assert_string_equal(g.name, names[i]);
        assert_string_equal(g.uuid, uuids[i]);
        snprintf(label, sizeof(label), "%u:%s", i + 1, strstr(names[i], "MIG ") + 4);
        assert_string_equal(g.label, label);
        assert_int_equal(g.sms, 60 - 20 * i);
        assert_int_equal(g.memory_bytes, (1000ULL * (i + 1)) << 20);
        assert_true(g.caps & GPU_CAP_TIMESLICE && g.caps & GPU_CAP_SUSPEND);
        assert_false(g.caps & (GPU_CAP_USAGE | GPU_CAP_ACTIVITY | GPU_CAP_SWAP | GPU_CAP_PREEMPT |
                               GPU_CAP_PLACE));
        assert_int_equal(ops->memory_free(r->t.d, i + 1, &bytes, &r->t.err), 0);
        assert_int_equal(bytes, ((1000ULL * (i + 1)) << 20) * 6 / 10);
    }
    assert_int_equal(ops->info(r->t.d, 4, &g), -EINVAL);
}

TEST(test_processes)
{
    for (int own = 0; own < 2; own++) {
        _cleanup_(nvml_rig_down) struct nvml_rig r;
        mig_rig_up(&r);
        r.nvml->lists_all = own; /* an instance's list is its GPU's */
        struct fake_process *p[4];
        p[0] = computes(&r, 0, NULL, false);
        lists(&r.nvml->gpus[0], p[0]->id.pid);
        for (unsigned i = 0; i < 3; i++) {
            p[i + 1] = computes(&r, 1, uuids[i], own);
            lists(instance(&r, 1, places[i]), p[i + 1]->id.pid);
        }
        for (unsigned i = 0; i < 4; i++)
            is_on(&r, p[i], i);

        assert_int_equal(usage(&r.t), 4);
        for (unsigned i = 0; i < 4; i++) {
            assert_int_equal(r.t.usage.v[i].gpu, i);
            assert_int_equal(r.t.usage.v[i].pid, p[i]->id.pid);
            assert_true(i ? r.t.usage.v[i].busy < 0 : r.t.usage.v[i].busy == 0);
        }
        assert_int_equal(processes(&r.t), 4);
    }
}

/* The client's own subscription says where its groups are, whatever NVML lists. */
TEST(test_subscription)
{
    for (int own = 0; own < 2; own++) {
        _cleanup_(nvml_rig_down) struct nvml_rig r;
        mig_rig_up(&r);
        struct fake_process *p = computes(&r, 1, uuids[0], own);
        lists(instance(&r, 1, places[2]), p->id.pid);
        is_on(&r, p, 1);
    }
}

/* A driver that names subscriptions elsewhere: the instance in which NVML lists the process. */
NVML_TEST(by_list, divided_gpu)
{
    struct fake_process *p = computes(r, 1, NULL, false);
    is_nowhere(r, p);
    lists(instance(r, 1, 2), p->id.pid);
    r->t.rm.now_ns += 2 * NSEC_PER_SEC;
    is_on(r, p, 2);

    /* In two: not to be told. */
    struct fake_process *q = computes(r, 1, NULL, false);
    lists(instance(r, 1, 0), q->id.pid);
    lists(instance(r, 1, 2), q->id.pid);
    r->t.rm.now_ns += 2 * NSEC_PER_SEC;
    is_nowhere(r, q);

    /* One of another GPU does not matter. */
    struct fake_process *o = computes(r, 1, NULL, false);
    lists(&r->nvml->gpus[0], o->id.pid);
    is_nowhere(r, o);
    lists(instance(r, 1, 5), o->id.pid);
    r->t.rm.now_ns += 2 * NSEC_PER_SEC;
    is_on(r, o, 3);
}

/* Nothing is asked again and again while a process's instance is not known. */
NVML_TEST(cost_of_unlocated, divided_gpu)
{
    struct fake_process *p = computes(r, 1, NULL, false);
    is_nowhere(r, p);
    r->t.rm.now_ns += NSEC_PER_SEC / 10;
    assert_int_equal(look(&r->t, p), -ENOTSUP);
    assert_in_range(r->t.rm.ioctls, 1, 50);
}

/* MIG mode on, without an instance: the GPU keeps its place, and nothing is steered there. */
TEST(no_instances)
{
    for (int shown = 0; shown < 2; shown++) {
        _cleanup_(nvml_rig_down) struct nvml_rig r;
        nvml_rig_load(&r, LIBRARY_580, 2);
        r.nvml->gpus[0].mig = true;
        r.t.rm.instances = shown;
        r.t.d = fake_driver(&r.t.rm, 2);
        struct gpu_info g = info_of(&r, 0);
        assert_int_equal(r.t.d->ops->gpus(r.t.d), 2);
        assert_string_equal(g.name, "Stand-in 0 (MIG mode, not scheduled)");
        assert_int_equal(g.caps & (GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_PLACE), 0);
        g = info_of(&r, 1);
        assert_string_equal(g.name, "Stand-in 1");
        assert_true(g.caps & GPU_CAP_SUSPEND);
        is_nowhere(&r, computes(&r, 0, NULL, false));
        is_on(&r, computes(&r, 1, NULL, false), 1);
    }
}

/* Instances that came when the devices had their indices: these stay as they are. */
TEST(instances_later)
{
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 2);
    divide(&r, 1);
    assert_string_equal(info_of(&r, 1).name, "Stand-in 1 (MIG mode, not scheduled)");
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 2);
    is_nowhere(&r, computes(&r, 1, uuids[1], false));
    is_on(&r, computes(&r, 0, NULL, false), 0);
    nvml_rig_down(&r);

    /* One more in a GPU that had some. */
    mig_rig_up(&r);
    *instance(&r, 1, 6) =
        (struct fake_nvml_gpu){.there = true, .name = "new", .uuid = "MIG-new", .gpu_instance = 9};
    struct fake_process *p = computes(&r, 1, "MIG-new", false);
    lists(instance(&r, 1, 6), p->id.pid);
    is_nowhere(&r, p);
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 4);
    nvml_rig_down(&r);
}

/* More than there is room for: the first are devices; programs in the others are found, and it is
 * said why they are not steered. */
TEST(too_many)
{
    static char names_many[FAKE_NVML_INSTANCES][8];
    _cleanup_(nvml_rig_down) struct nvml_rig r;
    nvml_rig_load(&r, LIBRARY_580, 2);
    r.nvml->gpus[0].mig = true;
    for (unsigned i = 0; i < 20; i++) {
        snprintf(names_many[i], sizeof(names_many[i]), "MIG-%u", i);
        *instance(&r, 0, i) =
            (struct fake_nvml_gpu){.there = true, .uuid = names_many[i], .gpu_instance = i};
    }
    instance(&r, 0, 14)->name = "Stand-in 0"; /* the GPU's */
    r.t.rm.instances = true;
    r.t.d = fake_driver(&r.t.rm, 2);
    assert_int_equal(r.t.d->ops->gpus(r.t.d), DEVICE_GPUS_MAX);
    assert_string_equal(info_of(&r, 14).name, "Stand-in 0 MIG 14.0");
    const struct gpu_info g = info_of(&r, 15);
    assert_string_equal(g.uuid, "MIG-15");
    assert_string_equal(g.name, "Stand-in 0 MIG 15.0"); /* the library has no name for it */
    assert_string_equal(g.label, "15:15.0");
    struct fake_process *last = computes(&r, 0, "MIG-15", false);
    struct fake_process *beyond = computes(&r, 0, "MIG-16", false);
    lists(instance(&r, 0, 15), last->id.pid);
    lists(instance(&r, 0, 16), beyond->id.pid);
    is_on(&r, last, 15);
    is_nowhere(&r, beyond);
    assert_int_equal(processes(&r.t), 2);
    assert_int_equal(usage(&r.t), 1);
    assert_int_equal(r.t.usage.v[0].gpu, 15);
}

/* There is one device, and yet what cannot be told is not on it. */
TEST(single_instance)
{
    _cleanup_(nvml_rig_down) struct nvml_rig r;
    nvml_rig_load(&r, LIBRARY_580, 1);
    r.nvml->gpus[0].mig = true;
    *instance(&r, 0, 0) = (struct fake_nvml_gpu){.there = true, .uuid = uuids[0]};
    r.t.rm.instances = true;
    r.t.d = fake_driver(&r.t.rm, 1);
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 1);
    is_nowhere(&r, computes(&r, 0, uuids[1], false));
    is_nowhere(&r, computes(&r, 0, NULL, false));
    is_on(&r, computes(&r, 0, uuids[0], false), 0);
}

/* By its place on the bus a GPU is found, but not one whose instances stand there. */
TEST(by_bus)
{
    struct nv_gpus g = {.n = 2, .v = {{.uuid = "a", .bus_id = "1"}, {.uuid = "b", .bus_id = "2"}}};
    memcpy(g.part[1].gpu, "whole", 6);
    assert_int_equal(nv_gpu_index(&g, "", "1"), 0);
    assert_int_equal(nv_gpu_index(&g, "", "2"), -ENOENT);
    assert_int_equal(nv_gpu_index(&g, "", "3"), 2);
}

/* Nobody can say what the instances are. */
TEST(no_library)
{
    struct nvml_rig r = {.n = 0};
    fake_init(&r.t.rm, 2);
    r.t.rm.instances = true;
    r.t.d = fake_driver(&r.t.rm, 2);
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 2);
    struct fake_process *p = fake_process(&r.t.rm);
    uint32_t c = fake_client(&r.t.rm, p), d = fake_device(&r.t.rm, c, 1);
    fake_context(&r.t.rm, p, c, d);
    is_nowhere(&r, p);
    rig_down(&r.t);
}

/* Numbers of groups repeat between instances: they count for each device by itself. */
NVML_TEST(test_mps, divided_gpu)
{
    for (unsigned i = 0; i < 2; i++) {
        struct fake_process *p = computes(r, 1, uuids[i], false);
        struct fake_nvml_gpu *g = instance(r, 1, places[i]);
        g->mps[g->nmps++] = (struct fake_nvml_process){.pid = (unsigned)p->id.pid};
        for (size_t k = 0; k < r->t.rm.clients[i].nobjects; k++)
            r->t.rm.clients[i].objects[k].number = 4;
        r->t.rm.now_ns += 2 * NSEC_PER_SEC;
        is_on(r, p, i + 1);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(r->t.l.v[k].shared, r->t.l.v[k].kind == GROUP_COMPUTE ? 5 : 0);
    }
}

/* Instances are not traced, which is no error, and their record has gaps. */
NVML_TEST(test_activity, divided_gpu)
{
    is_on(r, computes(r, 1, uuids[1], false), 2);
    struct activity_list l = {0};
    assert_int_equal(r->t.d->ops->activity(r->t.d, &l, &r->t.err), 0);
    assert_int_equal(l.n, 0);
    assert_true(l.incomplete & 1U << 2);
    assert_int_equal(fake_traces(&r->t.rm), 0);
    is_on(r, computes(r, 0, NULL, false), 0);
    r->t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(r->t.d->ops->activity(r->t.d, &l, &r->t.err), 0);
    assert_int_equal(fake_traces(&r->t.rm), 1);
    activity_list_free(&l);
    r->t.rm.now_ns += 10 * NSEC_PER_SEC; /* then it stops */
    processes(&r->t);
}

/* Where no GPU is divided: the library is not opened before it is needed, MIG mode is asked once,
 * and no scan looks for subscriptions or lists. */
NVML_TEST(without_mig, two_gpus)
{
    struct gpu_info g;
    assert_int_equal(r->nvml->opened, 0);
    assert_int_equal(r->t.d->ops->gpus(r->t.d), 2);
    struct fake_process *p = computes(r, 1, NULL, false);
    is_on(r, p, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->t.d->ops->info(r->t.d, 1, &g), 0);
        processes(&r->t);
    }
    assert_string_equal(g.name, "Stand-in 1");
    assert_string_equal(g.label, "");
    assert_true(g.caps & GPU_CAP_ACTIVITY && g.caps & GPU_CAP_USAGE);
    assert_int_equal(r->nvml->opened, 1);
    assert_int_equal(r->nvml->asked_mode, 2);
}
