/* What the driver has from the vendor's library, of three ages: GPUs, memory, processes. */
#include "nvml_rig.h"

/* Entries of the lists differ in size; with the wrong one every second process is another. */
static void test_processes(void **state)
{
    (void)state;
    for (int which = LIBRARY_580; which <= LIBRARY_535; which++) {
        struct nvml_rig r;
        struct pid_list l = {0};
        nvml_rig_up(&r, (enum library)which, 2);
        for (unsigned i = 0; i < 70; i++) {
            struct fake_nvml_gpu *g = &r.nvml->gpus[i / 60];
            g->running[g->nrunning++] =
                (struct fake_nvml_process){(unsigned)child(&r, "program"), i};
        }
        assert_int_equal(r.t.d->ops->processes(r.t.d, &l, &r.t.err), 0);
        assert_int_equal(l.n, 70);
        for (size_t i = 0; i < l.n; i++)
            assert_int_equal(l.v[i], r.children[i]);
        struct usage_list u = {0};
        assert_int_equal(r.t.d->ops->usage(r.t.d, &u, &r.t.err), 0);
        assert_int_equal(u.n, 70);
        for (size_t i = 0; i < u.n; i++) {
            assert_int_equal(u.v[i].pid, r.children[i]);
            assert_int_equal(u.v[i].memory_bytes, i);
            assert_int_equal(u.v[i].gpu, i / 60);
        }
        usage_list_free(&u);
        pid_list_free(&l);
        nvml_rig_down(&r);
    }
}

static void test_gpus(void **state)
{
    (void)state;
    struct nvml_rig r;
    nvml_rig_load(&r, LIBRARY_580, 3);
    r.nvml->gpus[2].compute_mode = 3;
    r.t.d = fake_driver(&r.t.rm, 0); /* /proc shows none */
    assert_int_equal(r.t.d->ops->gpus(r.t.d), 3);
    for (unsigned i = 0; i < 3; i++) {
        struct gpu_info g;
        char text[32];
        assert_int_equal(r.t.d->ops->info(r.t.d, i, &g), 0);
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
    nvml_rig_down(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes),
        cmocka_unit_test(test_gpus),
    };
    if (argc != 4)
        return 2;
    libraries = (const char *const *)&argv[1];
    return cmocka_run_group_tests_name("nvml", tests, NULL, NULL);
}
