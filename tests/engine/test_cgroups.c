/* Processes of a job by its control group, in real ones: in each hierarchy in which this machine
 * lets the test make some. */
#include <sys/stat.h>

#include "fixture.h"

static const char *const hierarchies[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified",
                                          "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/pids"};
static const char *hierarchy;
static pid_t test_pid;

static const char *group_path(const char *name)
{
    static char path[2][128];
    static unsigned at;
    char *p = path[at++ % 2];
    snprintf(p, sizeof(path[0]), "%s/cede-test-%d%s", hierarchy, (int)test_pid, name);
    return p;
}

static bool group_make(const char *name)
{
    struct stat st;
    char procs[160];
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", group_path(name));
    if (mkdir(group_path(name), 0755) < 0)
        return false;
    if (stat(procs, &st) == 0)
        return true;
    rmdir(group_path(name));
    return false;
}

static void group_enter(const char *name, pid_t pid)
{
    char procs[160];
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", group_path(name));
    FILE *to = fopen(procs, "we");
    assert_non_null(to);
    assert_true(fprintf(to, "%d\n", (int)pid) > 0);
    assert_int_equal(fclose(to), 0);
}

/* As soon as no process is in it. */
static void group_remove(const char *name)
{
    for (int i = 0; i < 1000 && access(group_path(name), F_OK) == 0; i++)
        if (rmdir(group_path(name)) < 0)
            usleep(1000);
}

static int groups_begin(void **state)
{
    assert_true(group_make(""));
    return setup(state);
}

static int groups_end(void **state)
{
    teardown(state);
    group_remove("/below");
    group_remove("");
    return 0;
}

#define CGROUPS_TEST(name) ENGINE_TEST_WITH(name, groups_begin, groups_end)

static pid_t child_in(struct fixture *f, const char *name)
{
    pid_t pid = child(f);
    group_enter(name, pid);
    return pid;
}

/* A job whose root was alone in its group. */
static uint32_t job_in(struct fixture *f, const char *name, pid_t *root)
{
    *root = child_in(f, name);
    if (!f->m)
        start(f, "priority", NULL);
    return add(f, *root, CLASS_BATCH);
}

CGROUPS_TEST(those_in_the_group_are_the_jobs)
{
    pid_t root;
    uint32_t job = job_in(f, "", &root);
    pid_t outside = child(f), inside = child_in(f, "");
    assert_true(group_make("/below"));
    pid_t below = child_in(f, "/below");
    assert_int_equal(engine_job_of(f->m, outside), SLOT_NONE);
    assert_int_equal(engine_job_of(f->m, inside), job);
    assert_int_equal(engine_job_of(f->m, below), job);
}

CGROUPS_TEST(group_with_others_is_nobodys)
{
    child_in(f, "");
    pid_t root;
    job_in(f, "", &root);
    assert_int_equal(engine_job_of(f->m, child_in(f, "")), SLOT_NONE);
}

/* Who is below is not looked for. */
CGROUPS_TEST(group_with_groups_below_is_nobodys)
{
    pid_t root;
    assert_true(group_make("/below"));
    job_in(f, "", &root);
    assert_int_equal(engine_job_of(f->m, child_in(f, "")), SLOT_NONE);
}

/* A child that is in the group, and a child of its own there. */
static pid_t family_in(struct fixture *f, pid_t *grandchild)
{
    pid_t pid = family(f, 0, 1, grandchild);
    group_enter("", pid);
    group_enter("", *grandchild);
    return pid;
}

CGROUPS_TEST(descendants_are_no_others)
{
    pid_t grandchild, root = family_in(f, &grandchild);
    start(f, "priority", NULL);
    uint32_t job = add(f, root, CLASS_BATCH);
    assert_int_equal(engine_job_of(f->m, child_in(f, "")), job);
}

CGROUPS_TEST(other_users_are_not_taken)
{
    pid_t root;
    job_in(f, "", &root);
    const pid_t other = family(f, 12345, 0, NULL);
    group_enter("", other);
    assert_int_equal(engine_job_of(f->m, other), SLOT_NONE);
}

CGROUPS_TEST(innermost_group_counts)
{
    pid_t outer_root, inner_root;
    uint32_t outer = job_in(f, "", &outer_root);
    assert_true(group_make("/below"));
    uint32_t inner = job_in(f, "/below", &inner_root);
    assert_int_not_equal(inner, outer);
    assert_int_equal(engine_job_of(f->m, child_in(f, "")), outer);
    assert_int_equal(engine_job_of(f->m, child_in(f, "/below")), inner);
}

/* A job that began within the group is nearer to its own children than the group's job is. */
CGROUPS_TEST(younger_job_keeps_its_own)
{
    pid_t root, grandchild;
    uint32_t job = job_in(f, "", &root);
    usleep(20000); /* start times are in ticks of 10 ms */
    pid_t inner = family_in(f, &grandchild);
    assert_int_equal(engine_job_of(f->m, grandchild), job);
    uint32_t nested = add(f, inner, CLASS_BATCH);
    assert_int_not_equal(nested, job);
    assert_int_equal(engine_job_of(f->m, grandchild), nested);
}

/* Whom nobody has seen on the GPU yet keeps the job, over a restart too. */
CGROUPS_TEST(job_lasts_as_long_as_its_group)
{
    pid_t root = child_in(f, ""), orphan = child(f); /* neither has the journal's lock */
    start(f, "priority", NULL);
    uint32_t job = add(f, root, CLASS_BATCH);
    group_enter("", orphan);
    ticks(f, 100);
    end(f, root);
    ticks(f, 3000);
    assert_int_equal(model_jobs(engine_model(f->m)), 1);
    assert_int_equal(model_job_by_number(engine_model(f->m), 1), job);
    restart(f, "priority");
    ticks(f, 3000);
    assert_int_equal(model_jobs(engine_model(f->m)), 1);
    job = model_job_by_number(engine_model(f->m), 1);
    assert_int_equal(engine_job_of(f->m, orphan), job);
    mock_context(&f->d, orphan, 0, 1);
    ticks(f, 2000);
    assert_int_equal(job_with(f, orphan), job);
    end(f, orphan);
    ticks(f, 3000);
    assert_int_equal(model_jobs(engine_model(f->m)), 0);
}

CGROUPS_TEST(job_without_a_group_ends_with_its_root)
{
    pid_t root = child(f);
    start(f, "priority", NULL);
    add(f, root, CLASS_BATCH);
    ticks(f, 100);
    child(f);
    end(f, root);
    ticks(f, 2000);
    assert_int_equal(model_jobs(engine_model(f->m)), 0);
}

/* The last one left of a job becomes a job of its own: then the first is over. */
CGROUPS_TEST(group_passes_to_the_one_who_is_left)
{
    pid_t root;
    job_in(f, "", &root);
    ticks(f, 100);
    pid_t left = child_in(f, "");
    end(f, root);
    ticks(f, 2000);
    assert_int_equal(model_jobs(engine_model(f->m)), 1);
    uint32_t job = add(f, left, CLASS_BATCH);
    ticks(f, 2000);
    assert_int_equal(model_jobs(engine_model(f->m)), 1);
    assert_int_equal(engine_job_of(f->m, child_in(f, "")), job);
}

/* Slurm's groups of a job have those of its steps below. */
CGROUPS_TEST(slurm_jobs_group_is_for_all_steps)
{
    uint32_t job;
    assert_true(group_make("/job_77") && group_make("/job_77/step_0") &&
                group_make("/job_77/step_1") && group_make("/job_7"));
    pid_t root = child_in(f, "/job_77/step_0"), step = child_in(f, "/job_77/step_1"),
          another = child_in(f, "/job_7");
    start(f, "priority", NULL);
    struct job_spec spec = {.terms = {.class = CLASS_BATCH, .weight = WEIGHT_DEFAULT},
                            .source = JOB_SLURM,
                            .name = SLURM_JOB_NAME "77",
                            .slurm_job = 77};
    job = add_spec(f, root, &spec);
    assert_int_equal(engine_job_of(f->m, step), job);
    assert_int_equal(engine_job_of(f->m, another), SLOT_NONE);
    end(f, another);
    end(f, step);
    end(f, root);
    static const char *const made[] = {"/job_77/step_0", "/job_77/step_1", "/job_77", "/job_7"};
    for (size_t i = 0; i < ARRAY_SIZE(made); i++)
        group_remove(made[i]);
}

int main(void)
{
    int failed = 0, tried = 0;
    test_pid = getpid();
    for (size_t i = 0; i < ARRAY_SIZE(hierarchies); i++) {
        hierarchy = hierarchies[i];
        if (getuid() != 0 || !group_make(""))
            continue;
        rmdir(group_path(""));
        tried++;
        failed += test_run(NULL, NULL);
    }
    return tried ? failed : 77;
}
