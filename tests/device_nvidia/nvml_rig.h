/* The driver on a resource manager in memory and a stand-in for the vendor's library. Processes of
 * the two are real ones, children of the test that do nothing, because the driver leaves out pids
 * that do not exist. A copy in the test that uses it. */
#ifndef TESTS_DEVICE_NVIDIA_NVML_RIG_H
#define TESTS_DEVICE_NVIDIA_NVML_RIG_H

#include <dlfcn.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_nvml.h"
#include "rig.h"

enum library { LIBRARY_580, LIBRARY_450, LIBRARY_535 };
extern const char *const *libraries; /* paths, in this order */

struct nvml_rig {
    struct rig t;
    void *lib;
    struct fake_nvml *nvml;
    pid_t children[128];
    size_t n;
};

/* The driver opens the library by its name, and gets the one that is loaded already. */
HELPER void nvml_rig_load(struct nvml_rig *r, enum library which, unsigned gpus)
{
    memset(r, 0, sizeof(*r));
    r->lib = dlopen(libraries[which], RTLD_NOW | RTLD_LOCAL);
    assert_non_null(r->lib);
    r->nvml = dlsym(r->lib, "fake_nvml");
    assert_non_null(r->nvml);
    memset(r->nvml, 0, sizeof(*r->nvml));
    r->nvml->n = gpus;
    fake_init(&r->t.rm, gpus);
    r->t.rm.nvml = true;
}

HELPER void nvml_rig_up(struct nvml_rig *r, enum library which, unsigned gpus)
{
    nvml_rig_load(r, which, gpus);
    r->t.d = fake_driver(&r->t.rm, gpus);
}

HELPER void nvml_rig_down(struct nvml_rig *r)
{
    rig_down(&r->t);
    for (size_t i = 0; i < r->n; i++) {
        kill(r->children[i], SIGKILL);
        waitpid(r->children[i], NULL, 0);
    }
    dlclose(r->lib);
}

HELPER int nvml_tear_down(void **state)
{
    nvml_rig_down(*state);
    free(*state);
    return 0;
}

HELPER int one_gpu(void **state)
{
    *state = malloc(sizeof(struct nvml_rig));
    nvml_rig_up(*state, LIBRARY_580, 1);
    return 0;
}

HELPER int two_gpus(void **state)
{
    *state = malloc(sizeof(struct nvml_rig));
    nvml_rig_up(*state, LIBRARY_580, 2);
    return 0;
}
#define NVML_TEST(name, set_up) TEST_IN(name, struct nvml_rig *r, set_up, nvml_tear_down)

HELPER struct gpu_info info_of(struct nvml_rig *r, unsigned gpu)
{
    struct gpu_info info;
    assert_int_equal(r->t.d->ops->info(r->t.d, gpu, &info), 0);
    return info;
}

/* A process of this name, until the end of the test. */
HELPER pid_t child(struct nvml_rig *r, const char *name)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, name);
        if (write(ready[1], "", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    assert_true(r->n < ARRAY_SIZE(r->children));
    r->children[r->n++] = pid;
    return pid;
}

/* A process of the resource manager that exists; its client is r->t.rm.clients' last. */
HELPER struct fake_process *program(struct nvml_rig *r)
{
    struct fake_process *p = fake_process(&r->t.rm);
    p->id.pid = child(r, "program");
    return p;
}

#endif
