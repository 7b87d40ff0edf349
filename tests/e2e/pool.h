/* For tests of pools (`cede run --pool`), with a stand-in for the vendor's control daemon (mps/):
 * what can be seen of one from outside. */
#ifndef CEDE_TESTS_E2E_POOL_H
#define CEDE_TESTS_E2E_POOL_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fixture.h"
#include "lib/procfs.h"

#define HELPER static __attribute__((unused))

/* The pool of all GPUs in this pid namespace: join.h. */
HELPER const char *pool_dir(void)
{
    static char name[32] = "pool-all";
    struct stat ns;
    if (!proc_sees_all() && stat("/proc/self/ns/pid", &ns) == 0)
        snprintf(name, sizeof(name), "pool-all-%x", (unsigned)ns.st_ino);
    return name;
}

/* Whether the text names that pool's directory with this behind it. */
HELPER bool names_pool(const char *text, const char *rest)
{
    char want[64];
    snprintf(want, sizeof(want), "/%s%s", pool_dir(), rest);
    return strstr(text, want) != NULL;
}

/* "" if there is none. */
HELPER const char *pool_file(const char *name)
{
    char path[64];
    struct stat st;
    static char full[160];
    snprintf(path, sizeof(path), "%s/%s", pool_dir(), name);
    snprintf(full, sizeof(full), "%s/%s", harness_dir(), path);
    return stat(full, &st) == 0 ? contents(path) : "";
}

HELPER const char *pool_path(const char *name)
{
    static char path[160];
    snprintf(path, sizeof(path), "%s/%s/%s", harness_dir(), pool_dir(), name);
    return path;
}

HELPER bool pool_has(const char *name)
{
    return access(pool_path(name), F_OK) == 0;
}

HELPER pid_t pid_of(const char *name)
{
    return (pid_t)strtol(pool_file(name), NULL, 10);
}

/* The job that stands for its unit; 0: it is in none. */
HELPER long long unit_of_job(const char *name)
{
    json_t *job = job_named(name);
    long long unit = json_integer_value(json_object_get(json_object_get(job, "mps"), "unit"));
    json_decref(job);
    return unit;
}

/* How often a control daemon began. */
HELPER unsigned begun(void)
{
    unsigned n = 0;
    for (const char *c = pool_file("mps/count"); *c; c++)
        n += *c == '\n';
    return n;
}

HELPER bool is_over(void)
{
    pid_t control = pid_of("control");
    return control && !process_state(control) && !*pool_file("mps/control");
}

HELPER bool has_pool_in_environment(pid_t pid)
{
    char text[16384];
    ssize_t n = proc_read(pid, "environ", text, sizeof(text));
    static const char name[] = "CUDA_MPS_PIPE_DIRECTORY=";
    return n > 0 && memmem(text, (size_t)n, name, sizeof(name) - 1);
}

/* The process that `cede run` executes, once it is in the pool: the keeper's parent was before, and
 * has not this environment. */
HELPER pid_t program_of(pid_t runner)
{
    pid_t v[4];
    assert_true(
        EVENTUALLY(children_of(runner, v, ARRAY_SIZE(v)) == 1 && has_pool_in_environment(v[0])));
    return v[0];
}

HELPER pid_t keeper(void)
{
    return children_named(getpid(), "cede-pool").pid; /* this process is a subreaper */
}

#define IN_POOL(name, ...)                                                                         \
    SPAWN(name, "cede", "run", "-q", "-c", "batch", "--pool", "-n", name, "--", __VA_ARGS__)

/* A file that the stand-in looks for. */
HELPER void stand_in(const char *what)
{
    char path[192];
    snprintf(path, sizeof(path), "%s/%s", harness_dir(), pool_dir());
    mkdir(path, 0700);
    mkdir(pool_path("mps"), 0700);
    snprintf(path, sizeof(path), "mps/%s", what);
    fclose(fopen(pool_path(path), "w"));
}

/* Before the first test. */
HELPER void use_stand_in(void)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s:%s", getenv("CEDE_MPS_STAND_IN"), getenv("PATH"));
    setenv("PATH", path, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

#endif
