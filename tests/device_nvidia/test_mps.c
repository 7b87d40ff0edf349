/* Clients of MPS servers: who they are, which of their groups are one, and libraries of other ages.
 */
#include "nvml_rig.h"

static void lists(struct nvml_rig *r, unsigned gpu, pid_t pid)
{
    struct fake_nvml_gpu *g = &r->nvml->gpus[gpu];
    assert_true(g->nmps < ARRAY_SIZE(g->mps));
    g->mps[g->nmps++] = (struct fake_nvml_process){.pid = (unsigned)pid};
}

static size_t clients(struct nvml_rig *r, struct pid_list *out)
{
    out->n = 0;
    assert_int_equal(r->t.d->ops->clients(r->t.d, out, &r->t.err), 0);
    return out->n;
}

/* With a context on this GPU, whose compute group has this number (0: one of its own). */
static uint32_t compute(struct nvml_rig *r, struct fake_process *p, uint32_t client, unsigned gpu,
                        uint32_t number)
{
    struct fake_rm *rm = &r->t.rm;
    uint32_t group = fake_context(rm, p, client, fake_device(rm, client, gpu));
    if (number)
        fake_object_at(rm, client, group)->number = number;
    return group;
}

static void test_who_they_are(void **state)
{
    (void)state;
    struct nvml_rig r;
    struct pid_list l = {0};
    nvml_rig_up(&r, LIBRARY_580, 2);
    assert_int_equal(clients(&r, &l), 0);
    pid_t a = child(&r, "a"), b = child(&r, "b");
    lists(&r, 0, child(&r, "nvidia-cuda-mps-server")); /* no client of its own */
    lists(&r, 0, a);
    lists(&r, 1, b);
    lists(&r, 1, a);          /* of the servers of two GPUs */
    lists(&r, 1, 0x3FFFFFFF); /* another namespace's */
    lists(&r, 1, 0);
    assert_int_equal(clients(&r, &l), 2);
    assert_int_equal(l.v[0], a);
    assert_int_equal(l.v[1], b);
    r.nvml->gpus[1].nmps = 0;
    assert_int_equal(clients(&r, &l), 1);
    /* Refused: nobody is listed, which is no error. */
    r.nvml->mps_status = 3;
    assert_int_equal(clients(&r, &l), 0);
    pid_list_free(&l);
    nvml_rig_down(&r);
}

/* More than the first question has room for. */
static void test_many(void **state)
{
    (void)state;
    struct nvml_rig r;
    struct pid_list l = {0};
    nvml_rig_up(&r, LIBRARY_580, 2);
    for (int i = 0; i < 100; i++)
        lists(&r, i % 5 == 0, child(&r, "client"));
    assert_int_equal(clients(&r, &l), 100);
    assert_int_equal(r.nvml->asked_mps, 3);
    r.nvml->grows = true;
    r.nvml->gpus[0].nmps = 65;
    r.nvml->gpus[1].nmps = 0;
    assert_int_equal(clients(&r, &l), 68); /* of GPU 0, in two questions, and of GPU 1 */
    pid_list_free(&l);
    nvml_rig_down(&r);
}

static void test_shared_groups(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 2);
    struct fake_rm *rm = &r.t.rm;
    struct fake_process *a = program(&r), *b = program(&r), *alone = program(&r);
    uint32_t ca = fake_client(rm, a), cb = fake_client(rm, b), cc = fake_client(rm, alone);
    uint32_t ga = compute(&r, a, ca, 0, 7), gb = compute(&r, b, cb, 0, 7);
    uint32_t gb1 = compute(&r, b, cb, 1, 7), gc = compute(&r, alone, cc, 0, 6);
    lists(&r, 0, a->id.pid);
    lists(&r, 0, b->id.pid);
    assert_int_equal(scan(&r.t, a), 4);
    for (size_t i = 0; i < r.t.l.n; i++)
        assert_int_equal(r.t.l.v[i].shared, r.t.l.v[i].kind == GROUP_COMPUTE ? 8 : 0);
    assert_int_equal(find(&r.t, ca, ga)->kind, GROUP_COMPUTE);
    assert_int_equal(scan(&r.t, b), 8);
    assert_int_equal(find(&r.t, cb, gb)->shared, 8);
    assert_int_equal(find(&r.t, cb, gb)->gpu, 0);
    /* The same number on another GPU is another group. */
    assert_int_equal(find(&r.t, cb, gb1)->shared, 8);
    assert_int_equal(find(&r.t, cb, gb1)->gpu, 1);
    assert_int_equal(scan(&r.t, alone), 4);
    assert_int_equal(find(&r.t, cc, gc)->shared, 0);
    /* Asked once for each group, and never for programs outside. */
    assert_int_equal(rm->numbers, 3);
    assert_int_equal(scan(&r.t, b), 8);
    assert_int_equal(find(&r.t, cb, gb)->shared, 8);
    assert_int_equal(rm->numbers, 3);
    nvml_rig_down(&r);
}

/* Number 0 is one like any other; the highest there could be is none. */
static void test_numbers(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p);
    uint32_t g = compute(&r, p, c, 0, UINT32_MAX);
    lists(&r, 0, p->id.pid);
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 0);
    fake_object_at(&r.t.rm, c, g)->number = 0;
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 1);
    nvml_rig_down(&r);
}

/* A process that was scanned before NVML listed it, without clients() being called. */
static void test_listed_later(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p);
    uint32_t g = compute(&r, p, c, 0, 5);
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 0);
    lists(&r, 0, p->id.pid);
    r.t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(look(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 6);

    /* NVML is asked once a second, whoever wants to know. */
    unsigned asked = r.nvml->asked_mps;
    for (int i = 0; i < 9; i++) {
        r.t.rm.now_ns += NSEC_PER_SEC / 10;
        assert_int_equal(look(&r.t, p), 4);
    }
    assert_int_equal(r.nvml->asked_mps, asked);
    struct pid_list l = {0};
    assert_int_equal(clients(&r, &l), 1);
    pid_list_free(&l);
    r.t.rm.now_ns += NSEC_PER_SEC * 9 / 10;
    assert_int_equal(look(&r.t, p), 4);
    assert_int_equal(r.nvml->asked_mps, asked + 1);
    nvml_rig_down(&r);
}

/* The control fails: a scan is good without. */
static void test_control_fails(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p);
    uint32_t g = compute(&r, p, c, 0, 5);
    lists(&r, 0, p->id.pid);
    r.t.rm.fail_cmd = 0xA06C0106;
    r.t.rm.fail_status = 0x56;
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 0);
    assert_int_equal(find(&r.t, c, g)->nchannels, 8);
    assert_int_equal(disable(&r.t, true), 0);
    assert_int_equal(disable(&r.t, false), 0);
    r.t.rm.fail_cmd = 0;
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 6);
    nvml_rig_down(&r);
}

/* Should a server show the group itself, it is its clients' group: in a job it is steered with
 * them.
 */
static void test_server(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 1);
    struct fake_process *p = program(&r), *server = fake_process(&r.t.rm);
    server->id.pid = child(&r, "nvidia-cuda-mps-server");
    uint32_t c = fake_client(&r.t.rm, server), g = compute(&r, server, c, 0, 5);
    assert_int_equal(scan(&r.t, server), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 0);
    lists(&r, 0, p->id.pid);
    r.t.rm.now_ns += NSEC_PER_SEC;
    assert_int_equal(scan(&r.t, server), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 6);
    nvml_rig_down(&r);
}

/* A context that comes later has a number of its own. */
static void test_second_context(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_up(&r, LIBRARY_580, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p), d = fake_device(&r.t.rm, c, 0);
    lists(&r, 0, p->id.pid);
    uint32_t g = fake_context(&r.t.rm, p, c, d);
    fake_object_at(&r.t.rm, c, g)->number = 3;
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 4);
    uint32_t g2 = fake_context(&r.t.rm, p, c, d);
    fake_object_at(&r.t.rm, c, g2)->number = 9;
    assert_int_equal(scan(&r.t, p), 8);
    assert_int_equal(find(&r.t, c, g)->shared, 4);
    assert_int_equal(find(&r.t, c, g2)->shared, 10);
    nvml_rig_down(&r);
}

/* A library without the lists, and one whose third version has larger entries. */
static void test_other_libraries(void **state)
{
    (void)state;
    struct nvml_rig r;
    struct pid_list l = {0};
    nvml_rig_up(&r, LIBRARY_450, 1);
    struct fake_process *p = program(&r);
    uint32_t c = fake_client(&r.t.rm, p), g = compute(&r, p, c, 0, 5);
    lists(&r, 0, p->id.pid);
    assert_int_equal(clients(&r, &l), 0);
    assert_int_equal(scan(&r.t, p), 4);
    assert_int_equal(find(&r.t, c, g)->shared, 0);
    nvml_rig_down(&r);

    nvml_rig_up(&r, LIBRARY_535, 1);
    for (int i = 0; i < 60; i++)
        lists(&r, 0, child(&r, "client"));
    assert_int_equal(clients(&r, &l), 60);
    for (size_t i = 0; i < l.n; i++)
        assert_int_equal(l.v[i], r.children[i]);
    nvml_rig_down(&r);
    pid_list_free(&l);
}

/* Without any library there are none. */
static void test_no_library(void **state)
{
    (void)state;
    struct rig t;
    struct pid_list l = {0};
    rig_up(&t, 1);
    assert_int_equal(t.d->ops->clients(t.d, &l, &t.err), 0);
    assert_int_equal(l.n, 0);
    rig_down(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_they_are),   cmocka_unit_test(test_many),
        cmocka_unit_test(test_shared_groups),  cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_listed_later),   cmocka_unit_test(test_control_fails),
        cmocka_unit_test(test_second_context), cmocka_unit_test(test_other_libraries),
        cmocka_unit_test(test_no_library),     cmocka_unit_test(test_server),
    };
    if (argc != 4)
        return 2;
    libraries = (const char *const *)&argv[1];
    return cmocka_run_group_tests_name("mps", tests, NULL, NULL);
}
