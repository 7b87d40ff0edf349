/* `cede run --pool`: who comes into a pool, and what it is made of. */
#include "pool.h"

/* A program that shows where its pool is, behind a full stop. */
#define SHOW_PIPE "--", "sh", "-c", "echo .$CUDA_MPS_PIPE_DIRECTORY"

E2E(together_and_gone)
{
    ceded_start();
    pid_t a = IN_POOL("a", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    AWAIT(job_int("a", "timeslice_us") > 0);
    pid_t b = IN_POOL("b", harness_exe(), "load", "batch", "--device", "soft", "--verify");
    AWAIT(unit_of_job("a") > 0 && unit_of_job("a") == unit_of_job("b"));
    assert_int_equal(begun(), 1);
    pid_t p[] = {program_of(a), program_of(b)};
    await_progress(p, 2);
    kill(a, SIGTERM);
    assert_int_equal(await_child(a), 0);
    nap_ms(500);
    assert_int_not_equal(process_state(pid_of("control")), 0);
    kill(b, SIGTERM);
    assert_int_equal(await_child(b), 0);
    AWAIT(is_over());
    AWAIT(!keeper());
    assert_string_equal(pool_file("faults"), "");
    /* In a container nobody may wait for them. */
    assert_int_equal(children_named(getpid(), "nvidia-cuda-mps").n, 0);
    assert_int_equal(children_named(getpid(), "cat").n, 0);
    /* The next one begins anew. */
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    CEDE("run", "-c", "batch", "--pool", "--memory-max", "2G", "--", "sh", "-c",
         "echo $CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
    assert_string_equal(result.out, "0=2048M,1=2048M\n");
    unsetenv("CUDA_VISIBLE_DEVICES");
    CEDE("run", "-c", "batch", "--pool", "--sm", "30%", "--", "sh", "-c",
         "echo $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    assert_true(names_pool(result.out, "/mps 30\n"));
    assert_int_equal(begun(), 2);
}

/* At the same instant: one control daemon. */
E2E(many_at_once)
{
    pid_t p[20];
    ceded_start();
    for (int i = 0; i < 20; i++)
        p[i] = IN_POOL("many", "sh", "-c", "test -e \"$CUDA_MPS_PIPE_DIRECTORY/control\"");
    for (int i = 0; i < 20; i++)
        assert_int_equal(await_child(p[i]), 0);
    assert_string_equal(contents("many.err"), "");
    assert_int_equal(begun(), 1);
    AWAIT(is_over());
}

/* What the first user has open is not the pool's to keep. */
E2E(foreign_descriptors)
{
    ceded_start();
    RUN(&result, "sh", "-c",
        "cd $CEDE_DIR && exec 9>l && flock 9 && $CEDE_EXE run -c batch --pool -- true && exec 9>&- "
        "&& flock -n l true");
    assert_int_equal(status_of(result.status), 0);
    assert_true(keeper());
    AWAIT(is_over());
}

/* Whether `cede ps` lists that process among those that are in no job. */
static bool is_unmanaged(pid_t pid)
{
    const json_t *u;
    size_t i;
    bool is = false;
    json_t *ps = ask_jobs();
    json_array_foreach(json_object_get(ps, "unmanaged"), i, u) is |=
        json_integer_value(json_object_get(u, "pid")) == pid;
    json_decref(ps);
    return is;
}

/* The pool's server has the GPU open for its clients: it is no program that somebody forgot. */
E2E(server_is_no_program)
{
    ceded_start();
    stand_in("gpu");
    FILE *f = fopen(pool_path("mps/gpu"), "w");
    fprintf(f, "%s %s\n", harness_exe(), getenv("CEDE_SOFT_SOCKET"));
    fclose(f);
    pid_t a = IN_POOL("a", "sleep", "1000"), program = program_of(a), server;
    AWAIT((server = pid_of("mps/server")));
    AWAIT(all_have_contexts(&server, 1));
    pid_t other = LOAD("other", "batch");
    AWAIT(is_unmanaged(other));
    assert_false(is_unmanaged(server));
    CEDE("run", "-c", "latency", "--", "true");
    assert_null(strstr(result.err, "nvidia-cuda-mps"));
    assert_non_null(strstr(result.err, "is not scheduled"));
    /* Also when its keeper was killed. */
    kill(keeper(), SIGKILL);
    nap_ms(1500);
    assert_false(is_unmanaged(server));
    json_decref(load_end("other", other));
    kill(program, SIGKILL);
    await_child(a);
}

/* Where there is no control daemon to start. */
#define CEDE_WITHOUT_MPS(...) RUN(&result, "env", "PATH=/usr/bin:/bin", harness_exe(), __VA_ARGS__)

/* Where there can be none the job runs without, and a line says why. */
E2E(without)
{
    ceded_start();
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/else", 1);
    CEDE("run", "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.out, "./else\n");
    assert_non_null(
        strstr(result.err, "'sh' runs outside of a pool: CUDA_MPS_PIPE_DIRECTORY is set"));
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");

    CEDE_WITHOUT_MPS("run", "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(
        result.err, "there is no nvidia-cuda-mps-control in an absolute directory of $PATH"));
    RUN(&result, "sh", "-c",
        "cd $CEDE_MPS_STAND_IN && PATH=:.:/usr/bin:/bin exec $CEDE_EXE run -c batch --pool -- "
        "true");
    assert_non_null(strstr(result.err, "in an absolute directory of $PATH"));

    stand_in("fails");
    CEDE("run", "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(result.err, "the MPS control daemon does not start"));
    assert_non_null(strstr(pool_file("log/control.err"), "cannot begin"));

    RUN(&result, "cede", "run", "-c", "batch", "--sm", "30", "--", "true");
    assert_int_equal(status_of(result.status), 2);
}

E2E(configured)
{
    set_device("soft\npool = batch");
    configure(20, "");
    ceded_start();
    CEDE("run", "-c", "batch", SHOW_PIPE);
    assert_true(names_pool(result.out, ""));
    CEDE("run", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
    /* In a pool it would have no effect. */
    CEDE("run", "-c", "batch", "--preempt", "block", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
}

/* What the first user has set is not everybody's. */
E2E(plain_environment_of_all)
{
    ceded_start();
    RUN(&result, "sh", "-c",
        "trap '' USR1; CUDA_DEVICE_ORDER=PCI_BUS_ID LD_BIND_NOW=1 exec $CEDE_EXE run -q -c batch "
        "--pool -- sh -c 'cd /proc/$(cat $CUDA_MPS_PIPE_DIRECTORY/pid); tr \"\\0\" \"\\n\" "
        "<environ "
        "| grep -e CUDA_DEV -e LD_ -e PATH=; grep SigIgn status'");
    assert_string_equal(result.err, "");
    assert_null(strstr(result.out, "CUDA_DEV"));
    assert_null(strstr(result.out, "LD_BIND_NOW"));
    assert_non_null(strstr(result.out, "PATH="));
    const char *ignored = strstr(result.out, "SigIgn:\t");
    assert_non_null(ignored);
    assert_false(strtoul(ignored + strlen("SigIgn:\t"), NULL, 16) & 1UL << (SIGUSR1 - 1));
}

/* In a container the numbers of processes mean others. */
E2E(pid_namespace_of_its_own)
{
    RUN(&result, "unshare", "--pid", "--fork", "--mount-proc", "true");
    if (result.status)
        skip();
    ceded_start();
    pid_t a = IN_POOL("a", "sleep", "1000"), program = program_of(a);
    AWAIT(pool_has("mps/control"));
    for (int i = 0; i < 2; i++) {
        RUN(&result, "unshare", "--pid", "--fork", "--mount-proc", harness_exe(), "run", "-q", "-c",
            "batch", "--pool", SHOW_PIPE);
        assert_string_equal(result.err, "");
        assert_non_null(strstr(result.out, "/pool-all-"));
        assert_false(names_pool(result.out, "/"));
    }
    RUN(&result, "unshare", "--pid", "--fork", harness_exe(), "run", "-q", "-c", "batch", "--pool",
        "--", "true");
    assert_non_null(strstr(result.err, "outside of a pool: /proc is not of this pid namespace"));
    assert_int_equal(begun(), 1);
    kill(program, SIGKILL);
    await_child(a);
}

/* A ceded that was busy for longer than one answer takes says the same when it is asked again, as
 * `cede run --strict` does. */
E2E(answer_that_was_lost)
{
    struct ceded d = ceded_start();
    kill(d.pid, SIGSTOP);
    pid_t a =
        SPAWN("a", "cede", "run", "-q", "--strict", "-c", "batch", "--pool", "-n", "a", SHOW_PIPE);
    nap_ms(6000);
    kill(d.pid, SIGCONT);
    assert_int_equal(await_child(a), 0);
    assert_string_equal(contents("a.err"), "");
    assert_true(names_pool(contents("a.out"), "/mps"));
}

/* --strict: in the pool or not at all. Without a ceded one is started for it, or a line says why
 * there is no pool. */
E2E(strict_and_alone)
{
    CEDE("run", "--gpu-device", "soft", "-c", "batch", "--strict", "--pool", SHOW_PIPE);
    assert_true(names_pool(result.out, "/mps"));
    CEDE_WITHOUT_MPS("run", "--gpu-device", "soft", "-c", "batch", "--strict", "--pool", "--",
                     "echo", "ran");
    assert_int_equal(status_of(result.status), 1);
    assert_string_equal(result.out, "");
    assert_non_null(strstr(result.err, "'echo' was not run: there is no nvidia-cuda-mps-control"));
    set_device("soft\npool = batch"); /* nobody has asked for that */
    configure(20, "");
    struct ceded d = ceded_start();
    CEDE_WITHOUT_MPS("run", "-c", "batch", "--strict", "--", "echo", "ran");
    assert_string_equal(result.out, "ran\n");
    assert_non_null(strstr(result.err, "'echo' runs outside of a pool: there is no"));
    ceded_stop(&d);

    RUN(&result, "sh", "-c",
        "d=$CEDE_DIR/a-directory-of-more-bytes-than-there-are; mkdir $d; CEDE_DIR=$d exec "
        "$CEDE_EXE run --gpu-device soft -c batch --pool -- true");
    assert_int_equal(status_of(result.status), 0);
    assert_non_null(strstr(result.err, "is too long for a pool's sockets: set CEDE_DIR"));

    slay_child(gpu_pid());
    CEDE("run", "--gpu-device", "soft", "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(result.err, "'sh' runs unscheduled and outside of a pool: "));
    assert_ptr_equal(strchr(result.err, '\n'), strrchr(result.err, '\n'));
    RUN(&result, "cede", "run", "--gpu-device", "soft", "-c", "batch", "--strict", "--pool", "--",
        "true");
    assert_int_equal(status_of(result.status), 1);
}

/* What ends with its first user's control group is not the pool. */
E2E(control_group_of_the_first)
{
    char group[256], beside[300];
    ceded_start();
    pid_t a =
        SPAWN("a", "sh", "-c",
              "for d in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do "
              "g=$d/$(basename $CEDE_DIR)/first; mkdir -p $g 2>&- && [ -e $g/cgroup.procs ] && "
              "echo $$ >$g/cgroup.procs && break; rmdir -p $g 2>&-; g=none; done; "
              "echo $g >$CEDE_DIR/group; exec $CEDE_EXE run -q -c batch --pool -n a -- "
              "sh -c 'until [ -e $CEDE_DIR/go ]; do sleep 0.1; done'");
    AWAIT(pool_has("mps/control"));
    snprintf(group, sizeof(group), "%.*s", (int)strcspn(contents("group"), "\n"),
             contents("group"));
    pid_t b = IN_POOL("b", "sleep", "1000"), program = program_of(b);
    touch("go");
    assert_int_equal(await_child(a), 0);
    AWAIT(job_gone("a"));
    if (strcmp(group, "none") != 0) {
        AWAIT(rmdir(group) == 0);
        assert_int_not_equal(process_state(pid_of("control")), 0);
    }
    kill(program, SIGKILL);
    await_child(b);
    AWAIT(is_over());
    AWAIT(!keeper());
    if (strcmp(group, "none") != 0) {
        *strrchr(group, '/') = '\0';
        snprintf(beside, sizeof(beside), "%s/cede-pool", group);
        assert_int_equal(rmdir(beside), 0);
        assert_int_equal(rmdir(group), 0);
    }
}

static void expect_refused(const char *why)
{
    CEDE("run", "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.out, ".\n");
    assert_non_null(strstr(result.err, why));
}

/* Who can write there could have put anything there. */
E2E(directory_of_another)
{
    char dir[160], elsewhere[160];
    struct stat st;
    ceded_start();
    snprintf(dir, sizeof(dir), "%s", pool_path(""));
    dir[strlen(dir) - 1] = '\0';
    snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", harness_dir());
    mkdir(elsewhere, 0700);
    assert_int_equal(symlink(elsewhere, dir), 0);
    expect_refused("it is a link or no directory");
    unlink(dir);
    mkdir(dir, 0700);
    assert_int_equal(symlink(elsewhere, pool_path("mps")), 0);
    expect_refused("it is a link or no directory");
    unlink(pool_path("mps"));
    assert_int_equal(rmdir(elsewhere), 0); /* nothing was put there */
    chmod(dir, 0777);
    expect_refused("may be written to by others");
    chmod(dir, 0755);
    if (chown(dir, 4242, 4242) == 0)
        expect_refused("belongs to uid 4242");
    assert_int_equal(chown(dir, getuid(), getgid()), 0);
    CEDE("run", "-c", "batch", "--pool", "--", "true");
    assert_string_equal(result.err, "");
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
}

/* Beside root's. */
E2E(each_user_has_its_own)
{
    char runtime[180];
    struct stat st;
    RUN(&result, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "test", "-x",
        harness_exe());
    if (result.status)
        skip();
    ceded_start();
    assert_int_equal(chmod(harness_dir(), 0755), 0);
    snprintf(runtime, sizeof(runtime), "XDG_RUNTIME_DIR=%s", in_dir("own"));
    mkdir(in_dir("own"), 0700);
    assert_int_equal(chown(in_dir("own"), 65534, 65534), 0);
    CEDE("run", "-c", "batch", "--pool", "--", "setpriv", "--reuid", "65534", "--regid", "65534",
         "--clear-groups", "env", "-u", "CUDA_MPS_PIPE_DIRECTORY", runtime, harness_exe(), "run",
         "-c", "batch", "--pool", SHOW_PIPE);
    assert_string_equal(result.err, "");
    assert_non_null(strstr(result.out, "/own/cede/pool-all"));
    assert_true(names_pool(result.out, "/mps\n"));
    assert_int_equal(begun(), 1); /* root's */
    result.out[strcspn(result.out, "\n")] = '\0';
    assert_int_equal(stat(result.out + 1, &st), 0);
    assert_int_equal(st.st_uid, 65534);
    assert_int_equal(st.st_mode & 0777, 0700);
    AWAIT(is_over());
}

int main(void)
{
    use_stand_in();
    return e2e_at_once();
}
