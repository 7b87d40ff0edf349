/* See fixture.h. */
#include "fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/soft/proto.h"
#include "softgpu/server.h"

const char *inert;

pid_t start_server(const char *path, uid_t uid, int *status)
{
    int p[2];
    char line[256] = "";
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        char name[] = "cede-softgpu", gpus_opt[] = "--gpus=2", driver_opt[] = "--driver=999.1";
        char socket_opt[128], inert_opt[64];
        snprintf(socket_opt, sizeof(socket_opt), "--socket=%s", path);
        snprintf(inert_opt, sizeof(inert_opt), "--inert=%s", inert ? inert : "");
        char *argv[] = {name, socket_opt, gpus_opt, driver_opt, inert ? inert_opt : NULL, NULL};
        dup2(p[1], STDOUT_FILENO);
        if (uid != geteuid() && setuid(uid) < 0)
            _exit(99);
        char dir[128];
        snprintf(dir, sizeof(dir), "%s", path);
        char *slash = strrchr(dir, '/');
        if (slash && slash > dir) {
            *slash = '\0';
            mkdir(dir, 0700);
        }
        prctl(PR_SET_PDEATHSIG, SIGKILL);       /* changing the user would clear it */
        int null = open("/dev/null", O_WRONLY); /* complaints about clients are expected */
        dup2(null, STDERR_FILENO);
        exit(soft_server_main(inert ? 5 : 4, argv));
    }
    close(p[1]);
    FILE *f = fdopen(p[0], "r");
    assert_non_null(f);
    bool listens = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    if (!listens) {
        int st;
        assert_int_equal(waitpid(pid, &st, 0), pid);
        if (status)
            *status = WIFEXITED(st) ? WEXITSTATUS(st) : -1;
        else
            fail_msg("the server has ended");
        return -1;
    }
    assert_int_equal(strncmp(line, "listening on ", 13), 0);
    assert_int_equal(strncmp(line + 13, path, strlen(path)), 0);
    return pid;
}

void stop_server(pid_t pid)
{
    int st;
    assert_int_equal(kill(pid, SIGTERM), 0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    unsetenv("CUDA_MPS_PIPE_DIRECTORY"); /* contexts would be clients */
    strcpy(f->dir, "/tmp/cede-test-XXXXXX");
    if (!mkdtemp(f->dir))
        return -1;
    snprintf(f->path, sizeof(f->path), "%s/made/socket", f->dir);
    f->server = start_server(f->path, geteuid(), NULL);
    *state = f;
    return 0;
}

int teardown(void **state)
{
    struct fixture *f = *state;
    char made[80];
    struct stat st;
    if (f->server > 0)
        stop_server(f->server);
    snprintf(made, sizeof(made), "%s/made", f->dir);
    bool clean = lstat(f->path, &st) < 0 && errno == ENOENT;
    unlink(f->path);
    rmdir(made);
    rmdir(f->dir);
    free(f);
    return clean ? 0 : -1;
}

void open_to_all(const struct fixture *f)
{
    char made[80];
    snprintf(made, sizeof(made), "%s/made", f->dir);
    assert_int_equal(chmod(f->dir, 0755), 0);
    assert_int_equal(chmod(made, 0755), 0);
    assert_int_equal(chmod(f->path, 0666), 0);
}

struct soft_client *client(const struct fixture *f, unsigned gpu)
{
    struct soft_client *c = NULL;
    assert_int_equal(soft_client_open(f->path, gpu, NULL, &c), 0);
    return c;
}

struct device_driver *driver(const struct fixture *f)
{
    struct device_driver *d = NULL;
    struct error err = {""};
    if (device_soft.open(f->path, &d, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

void submit(struct soft_client *c, uint32_t duration_ns, unsigned times)
{
    struct soft_kernel k = {.duration_ns = duration_ns, .sm_fraction = 1, .cookie = 42};
    while (times-- > 0)
        assert_int_equal(soft_client_submit(c, &k), 0);
}

struct soft_completion wait_for(struct soft_client *c)
{
    struct soft_completion out;
    assert_int_equal(soft_client_wait(c, PATIENCE * NSEC_PER_MSEC, &out), 0);
    assert_int_equal(out.cookie, 42);
    return out;
}

struct soft_completion wait_for_all(struct soft_client *c, unsigned times)
{
    struct soft_completion last = {0};
    while (times-- > 0)
        last = wait_for(c);
    return last;
}

struct soft_completion run(struct soft_client *c, uint32_t duration_ns, unsigned times)
{
    submit(c, duration_ns, times);
    return wait_for_all(c, times);
}

void drain(struct soft_client *c)
{
    while (soft_client_wait(c, 0, &(struct soft_completion){0}) == 0)
        ;
}

void has_none(struct soft_client *c)
{
    assert_int_equal(soft_client_wait(c, 0, &(struct soft_completion){0}), -ETIMEDOUT);
}

struct proc_id id_of(pid_t pid)
{
    struct proc_stat st;
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

struct group_list scan(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    assert_int_equal(d->ops->scan(d, id_of(pid), &l, NULL), 0);
    return l;
}

int switch_groups(struct device_driver *d, const struct group_list *l, size_t n, bool suspend)
{
    const struct device_group *g[2 * SOFT_CONTEXT_GROUPS];
    for (size_t i = 0; i < n; i++)
        g[i] = &l->v[i];
    return d->ops->set_running(d, g, n, !suspend, NULL);
}

int swap_away(struct device_driver *d, struct proc_id proc, unsigned lock_ms, struct error *err)
{
    int r = d->ops->swap_step(d, proc, SWAP_STEP_LOCK, lock_ms, err);
    return r < 0 ? r : d->ops->swap_step(d, proc, SWAP_STEP_OUT, 0, err);
}

int swap_back(struct device_driver *d, struct proc_id proc)
{
    int in = d->ops->swap_step(d, proc, SWAP_STEP_IN, 0, NULL);
    int r = d->ops->swap_step(d, proc, SWAP_STEP_UNLOCK, 0, NULL);
    return in < 0 ? in : r;
}

pid_t start_client(const struct fixture *f, const char *mps, uid_t uid, unsigned kernels)
{
    struct soft_kernel k = {.duration_ns = 1000 * MS, .sm_fraction = 0.5f};
    struct soft_client *c;
    int p[2];
    char ok = 0;
    assert_int_equal(pipe(p), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (mps)
            setenv("CUDA_MPS_PIPE_DIRECTORY", mps, 1);
        bool well =
            (uid == geteuid() || setuid(uid) == 0) && soft_client_open(f->path, 0, NULL, &c) == 0;
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing the user would clear it */
        while (well && kernels-- > 0)
            well = soft_client_submit(c, &k) == 0;
        if (!well || write(p[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(p[1]);
    assert_int_equal(read(p[0], &ok, 1), 1);
    close(p[0]);
    return pid;
}

void end_client(struct device_driver *d, pid_t pid)
{
    struct proc_id id = id_of(pid);
    struct group_list gone = {0};
    int r = 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; (r = d->ops->scan(d, id, &gone, NULL)) == 0 && i < PATIENCE / 10; i++)
        usleep(10000);
    group_list_free(&gone);
    assert_int_equal(r, -ESRCH);
}
