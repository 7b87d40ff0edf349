/* Clients of MPS servers: who they are, which of their groups are one, and libraries of other ages.
 */
#include "nvml_rig.h"

static void lists(struct nvml_rig *r, unsigned gpu, pid_t pid)
{
    struct fake_nvml_gpu *g = &r->nvml->gpus[gpu];
    assert_true(g->nmps < ARRAY_SIZE(g->mps));
    g->mps[g->nmps++] = (struct fake_nvml_process){.pid = (unsigned)pid};
}

/* With a context on this GPU, whose compute group has this number. */
static uint32_t compute(struct nvml_rig *r, struct fake_process *p, uint32_t client, unsigned gpu,
                        uint32_t number)
{
    struct fake_rm *rm = &r->t.rm;
    uint32_t group = fake_context(rm, p, client, fake_device(rm, client, gpu));
    fake_object_at(rm, client, group)->number = number;
    return group;
}

/* Scans until new groups have settled: so many, and this number of the compute group. */
static void is_shared(struct nvml_rig *r, const struct fake_process *p, int groups, uint32_t client,
                      uint32_t group, uint32_t shared)
{
    assert_int_equal(scan(&r->t, p), groups);
    assert_int_equal(find(&r->t, client, group)->shared, shared);
}

NVML_TEST(who_they_are, two_gpus)
{
    assert_int_equal(clients(&r->t), 0);
    pid_t a = child(r, "a"), b = child(r, "b");
    lists(r, 0, child(r, "nvidia-cuda-mps-server")); /* no client of its own */
    lists(r, 0, a);
    lists(r, 1, b);
    lists(r, 1, a);          /* of the servers of two GPUs */
    lists(r, 1, 0x3FFFFFFF); /* another namespace's */
    lists(r, 1, 0);
    assert_int_equal(clients(&r->t), 2);
    assert_int_equal(r->t.pids.v[0], a);
    assert_int_equal(r->t.pids.v[1], b);
    r->nvml->gpus[1].nmps = 0;
    assert_int_equal(clients(&r->t), 1);
    /* Refused: nobody is listed, which is no error. */
    r->nvml->mps_status = 3;
    assert_int_equal(clients(&r->t), 0);
}

/* More than the first question has room for. */
NVML_TEST(many, two_gpus)
{
    for (int i = 0; i < 100; i++)
        lists(r, i % 5 == 0, child(r, "client"));
    assert_int_equal(clients(&r->t), 100);
    assert_int_equal(r->nvml->asked_mps, 3);
    r->nvml->grows = true;
    r->nvml->gpus[0].nmps = 65;
    r->nvml->gpus[1].nmps = 0;
    assert_int_equal(clients(&r->t), 68); /* of GPU 0, in two questions, and of GPU 1 */
}

NVML_TEST(shared_groups, two_gpus)
{
    struct fake_rm *rm = &r->t.rm;
    struct fake_process *a = program(r), *b = program(r), *alone = program(r);
    uint32_t ca = fake_client(rm, a), cb = fake_client(rm, b), cc = fake_client(rm, alone);
    uint32_t ga = compute(r, a, ca, 0, 7), gb = compute(r, b, cb, 0, 7);
    uint32_t gb1 = compute(r, b, cb, 1, 7), gc = compute(r, alone, cc, 0, 6);
    lists(r, 0, a->id.pid);
    lists(r, 0, b->id.pid);
    assert_int_equal(scan(&r->t, a), 4);
    for (size_t i = 0; i < r->t.l.n; i++)
        assert_int_equal(r->t.l.v[i].shared, r->t.l.v[i].kind == GROUP_COMPUTE ? 8 : 0);
    assert_int_equal(find(&r->t, ca, ga)->kind, GROUP_COMPUTE);
    is_shared(r, b, 8, cb, gb, 8);
    assert_int_equal(find(&r->t, cb, gb)->gpu, 0);
    /* The same number on another GPU is another group. */
    assert_int_equal(find(&r->t, cb, gb1)->shared, 8);
    assert_int_equal(find(&r->t, cb, gb1)->gpu, 1);
    is_shared(r, alone, 4, cc, gc, 0);
    /* Asked once for each group, and never for programs outside. */
    assert_int_equal(rm->numbers, 3);
    is_shared(r, b, 8, cb, gb, 8);
    assert_int_equal(rm->numbers, 3);
}

/* Number 0 is one like any other; the highest there could be is none. */
NVML_TEST(test_numbers, one_gpu)
{
    struct fake_process *p = program(r);
    uint32_t c = fake_client(&r->t.rm, p);
    uint32_t g = compute(r, p, c, 0, UINT32_MAX);
    lists(r, 0, p->id.pid);
    is_shared(r, p, 4, c, g, 0);
    fake_object_at(&r->t.rm, c, g)->number = 0;
    is_shared(r, p, 4, c, g, 1);
}

/* A process that was scanned before NVML listed it, without clients() being called. */
NVML_TEST(listed_later, one_gpu)
{
    struct fake_process *p = program(r);
    uint32_t c = fake_client(&r->t.rm, p);
    uint32_t g = compute(r, p, c, 0, 5);
    is_shared(r, p, 4, c, g, 0);
    lists(r, 0, p->id.pid);
    r->t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(look(&r->t, p), 4);
    assert_int_equal(find(&r->t, c, g)->shared, 6);

    /* NVML is asked once a second, whoever wants to know. */
    unsigned asked = r->nvml->asked_mps;
    for (int i = 0; i < 9; i++) {
        r->t.rm.now_ns += NSEC_PER_SEC / 10;
        assert_int_equal(look(&r->t, p), 4);
    }
    assert_int_equal(r->nvml->asked_mps, asked);
    assert_int_equal(clients(&r->t), 1);
    r->t.rm.now_ns += NSEC_PER_SEC * 9 / 10;
    assert_int_equal(look(&r->t, p), 4);
    assert_int_equal(r->nvml->asked_mps, asked + 1);
}

/* The control fails: a scan is good without. */
NVML_TEST(control_fails, one_gpu)
{
    struct fake_process *p = program(r);
    uint32_t c = fake_client(&r->t.rm, p);
    uint32_t g = compute(r, p, c, 0, 5);
    lists(r, 0, p->id.pid);
    r->t.rm.fail_cmd = 0xA06C0106;
    r->t.rm.fail_status = 0x56;
    is_shared(r, p, 4, c, g, 0);
    assert_int_equal(find(&r->t, c, g)->nchannels, 8);
    assert_int_equal(disable(&r->t, true), 0);
    assert_int_equal(disable(&r->t, false), 0);
    r->t.rm.fail_cmd = 0;
    is_shared(r, p, 4, c, g, 6);
}

/* Should a server show the group itself, it is its clients' group: in a job it is steered with
 * them.
 */
NVML_TEST(test_server, one_gpu)
{
    struct fake_process *p = program(r), *server = fake_process(&r->t.rm);
    server->id.pid = child(r, "nvidia-cuda-mps-server");
    uint32_t c = fake_client(&r->t.rm, server), g = compute(r, server, c, 0, 5);
    is_shared(r, server, 4, c, g, 0);
    lists(r, 0, p->id.pid);
    r->t.rm.now_ns += NSEC_PER_SEC;
    is_shared(r, server, 4, c, g, 6);
}

/* A context that comes later has a number of its own. */
NVML_TEST(second_context, one_gpu)
{
    struct fake_process *p = program(r);
    uint32_t c = fake_client(&r->t.rm, p), d = fake_device(&r->t.rm, c, 0);
    lists(r, 0, p->id.pid);
    uint32_t g = fake_context(&r->t.rm, p, c, d);
    fake_object_at(&r->t.rm, c, g)->number = 3;
    is_shared(r, p, 4, c, g, 4);
    uint32_t g2 = fake_context(&r->t.rm, p, c, d);
    fake_object_at(&r->t.rm, c, g2)->number = 9;
    is_shared(r, p, 8, c, g, 4);
    assert_int_equal(find(&r->t, c, g2)->shared, 10);
}

/* A library without the lists, and one whose third version has larger entries. */
TEST(other_libraries)
{
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_450, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p), g = compute(&r, p, c, 0, 5);
    lists(&r, 0, p->id.pid);
    assert_int_equal(clients(&r.t), 0);
    is_shared(&r, p, 4, c, g, 0);
    nvml_rig_down(&r);

    nvml_rig_up(&r, LIBRARY_535, 1);
    for (int i = 0; i < 60; i++)
        lists(&r, 0, child(&r, "client"));
    assert_int_equal(clients(&r.t), 60);
    for (size_t i = 0; i < r.t.pids.n; i++)
        assert_int_equal(r.t.pids.v[i], r.children[i]);
    nvml_rig_down(&r);
}

/* Without any library there are none. */
TEST(no_library)
{
    _cleanup_(rig_down) struct rig t;
    rig_up(&t, 1);
    assert_int_equal(clients(&t), 0);
}
