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
#include "who/procfs.h"

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

HELPER const char *pool_path(const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/%s", pool_dir(), name);
    return in_dir(path);
}

/* "" if there is none. */
HELPER const char *pool_file(const char *name)
{
    return contents(pool_path(name) + strlen(harness_dir()) + 1);
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
    return job_int(name, "mps.unit");
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
    AWAIT(children_of(runner, v, ARRAY_SIZE(v)) == 1 && has_pool_in_environment(v[0]));
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
    char file[192];
    mkdir(in_dir(pool_dir()), 0700);
    mkdir(pool_path("mps"), 0700);
    snprintf(file, sizeof(file), "%s/mps/%s", pool_dir(), what);
    touch(file);
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
