/* The reader of control groups' paths: what runtimes, systemd and Slurm write, and what they do
 * not.
 */
#include "../test.h"
#include "who/workload.h"

#include "base/util.h"

#define ID   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define ID2  "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"
#define POD  "8a6c9d1e-0b1f-4c2d-9e3f-aabbccddeeff"
#define POD_ "8a6c9d1e_0b1f_4c2d_9e3f_aabbccddeeff"
#define HASH "d7e2c5c1a4b3a291807f6e5d4c3b2a19"

static const struct {
    const char *path;
    struct workload w;
} rows[] = {
    {"", {.unit = ""}},
    {"/", {.unit = ""}},
    /* systemd */
    {"/system.slice/nginx.service", {.unit = "nginx.service"}},
    {"/system.slice/system-train.slice/train@7.service/inner", {.unit = "train@7.service"}},
    {"/user.slice/user-1000.slice/session-4.scope", {.unit = "session-4.scope"}},
    {"/user.slice/user-1000.slice/user@1000.service/app.slice/app-foo.scope",
     {.unit = "app-foo.scope"}},
    {"/system.slice", {.unit = ""}},
    {"/.service", {.unit = ""}},
    {"/a.service.d", {.unit = ""}},
    /* Kubernetes */
    {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_
     ".slice/cri-containerd-" ID ".scope",
     {.container = ID, .pod = POD}},
    {"/kubepods.slice/kubepods-pod" POD_ ".slice/crio-" ID ".scope", {.container = ID, .pod = POD}},
    {"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" POD_ ".slice/docker-" ID
     ".scope",
     {.container = ID, .pod = POD}},
    {"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" POD_ ".slice/cri-containerd-" ID
     ".scope",
     {.container = ID, .pod = POD}},
    {"/kubepods/burstable/pod" POD "/" ID, {.container = ID, .pod = POD}},
    {"/kubepods/pod" POD "/crio-" ID, {.container = ID, .pod = POD}},
    {"/kubepods/besteffort/pod" HASH "/" ID, {.container = ID, .pod = HASH}},
    {"/system.slice/containerd.service/kubepods-burstable-pod" POD_ ".slice/" ID,
     {.unit = "containerd.service", .container = ID, .pod = POD}},
    {"/kubepods/pod" POD, {.pod = POD}},
    /* the innermost: a container in a container */
    {"/docker/" ID "/docker/" ID2, {.container = ID2}},
    {"/docker/" ID "/kubepods/pod" POD "/" ID2, {.container = ID2, .pod = POD}},
    {"/docker/" ID "/system.slice/a.service", {.unit = "a.service", .container = ID}},
    /* Docker, Podman */
    {"/docker/" ID, {.container = ID}},
    {"/system.slice/docker-" ID ".scope", {.container = ID}},
    {"/machine.slice/libpod-" ID ".scope/container", {.container = ID}},
    {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" ID ".scope",
     {.unit = "user@1000.service", .container = ID}},
    {"/libpod_parent/libpod-" ID, {.container = ID}},
    {"/machine.slice/libpod-conmon-" ID ".scope", {.unit = ""}},
    /* Slurm */
    {"/slurm/uid_1000/job_123/step_0/task_0", {.slurm_job = 123, .slurm_step = "0"}},
    {"/slurm_node7/uid_1000/job_9/step_batch", {.slurm_job = 9, .slurm_step = "batch"}},
    {"/system.slice/slurmstepd.scope/job_42/step_0/user/task_0",
     {.unit = "slurmstepd.scope", .slurm_job = 42, .slurm_step = "0"}},
    {"/system.slice/node1_slurmstepd.scope/job_42/step_extern",
     {.unit = "node1_slurmstepd.scope", .slurm_job = 42, .slurm_step = "extern"}},
    /* what only looks like it */
    {"/job_5", {.slurm_job = 0}},
    {"/slurm/job_0", {.slurm_job = 0}},
    {"/slurm/job_-1", {.slurm_job = 0}},
    {"/slurm/job_12x", {.slurm_job = 0}},
    {"/slurm/job_99999999999999999999", {.slurm_job = 0}},
    {"/" ID, {.container = ""}},
    {"/docker/" ID "0", {.container = ""}},
    {"/docker/0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef", {.container = ""}},
    {"/docker/..", {.container = ""}},
    {"/pod" POD "/" ID, {.pod = ""}},
    {"/kubepods/pod../" ID, {.pod = ""}},
    {"/kubepods/pod8a6c9d1e-0b1f-4c2d-9e3f-aabbccddeefg", {.pod = ""}},
    {"/kubepods/pod8a6c9d1e-0b1f-4c2d-9e3f-aabbccddeef", {.pod = ""}},
    {"//docker////" ID "//", {.container = ID}},
    {"docker/" ID, {.container = ID}},
};

TEST(known_paths)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct workload w;
        memset(&w, 0xff, sizeof(w));
        workload_read(rows[i].path, &w);
        if (strcmp(w.unit, rows[i].w.unit) || strcmp(w.container, rows[i].w.container) ||
            strcmp(w.pod, rows[i].w.pod) || w.slurm_job != rows[i].w.slurm_job ||
            strcmp(w.slurm_step, rows[i].w.slurm_step))
            fail_msg("%s: unit '%s', container '%s', pod '%s', job %llu", rows[i].path, w.unit,
                     w.container, w.pod, (unsigned long long)w.slurm_job);
    }
}

static bool within(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

/* Each path of above with bytes changed, cut and repeated at random, and components that are as
 * long as the kernel allows and longer. */
TEST(hostile_paths)
{
    unsigned found = 0;
    uint64_t seed = 1;
    for (int n = 0; n < 200000; n++) {
        char path[1024];
        const char *from = rows[(size_t)n % ARRAY_SIZE(rows)].path;
        size_t len = strlen(from);
        memcpy(path, from, len + 1);
        for (int k = 0; k < 3 && len; k++) {
            seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
            size_t at = (seed >> 33) % len;
            if (seed >> 62)
                path[at] = (char)(seed >> 40);
            else
                memmove(path + at, path, min_u64(len, sizeof(path) - 1 - at));
            path[len] = '\0';
        }
        struct workload w;
        workload_read(path, &w);
        assert_true(within(w.unit, sizeof(w.unit)) && within(w.container, sizeof(w.container)) &&
                    within(w.pod, sizeof(w.pod)));
        assert_true(!w.container[0] || strspn(w.container, "0123456789abcdef") == 64);
        assert_null(strchr(w.unit, '/'));
        found += w.unit[0] || w.container[0] || w.pod[0] || w.slurm_job;
    }
    assert_true(found > 1000);

    for (size_t n = 80; n < 400; n++) {
        char path[512] = "/docker/" ID "/";
        const size_t was = strlen(path);
        memset(path + was, 'a', n);
        memcpy(path + was + n, ".service", 9);
        struct workload w;
        workload_read(path, &w);
        assert_int_equal(w.unit[0] != '\0', n + 8 < WORKLOAD_UNIT);
        assert_string_equal(w.container, ID);
    }
}
