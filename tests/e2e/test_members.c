/* Which processes are a job's: those that a program has moved away from itself are. */
#include <sys/stat.h>

#include "fixture.h"

/* `cede ps -a` would list it a second time, as in no job. */
static bool is_among_others(pid_t pid)
{
    const json_t *o;
    size_t i;
    bool is = false;
    CEDE("ps", "-a", "--json");
    json_t *all = json_loads(result.out, 0, NULL);
    assert_true(json_is_array(json_object_get(all, "others")));
    json_array_foreach(json_object_get(all, "others"), i, o) is |=
        json_integer_value(json_object_get(o, "pid")) == pid;
    json_decref(all);
    return is;
}

static void program_ends(pid_t pid)
{
    kill(pid, SIGKILL);
    AWAIT(!process_state(pid) || process_state(pid) == 'Z');
}

/* 200 shells, each the child of the one before. */
E2E(far_descendant)
{
    pid_t runner = SPAWN("far", "cede", "run", "--gpu-device", "soft", "-c", "batch", "-n", "far",
                         "--", "sh", "-c",
                         "f() { [ $1 -eq 0 ] && exec sh -c 'echo $$ > $CEDE_DIR/far.pid; exec "
                         "$CEDE_EXE load batch --device soft --kernel-us 2000'; "
                         "(f $(($1 - 1)); :); }; f 200");
    pid_t far = pid_in("far.pid");
    AWAIT(all_have_contexts(&far, 1));
    AWAIT(job_int("far", "timeslice_us") > 0);
    CEDE("pause", "far");
    AWAIT(suspended(far));
    kill(far, SIGKILL);
    await_child(runner);
}

/* A group of version 2 for a shell that runs `cede run`; false: there can be none. */
static bool shell_group(char *path, size_t size)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char events[160];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, size, "%s/cede-members-%d", roots[i], (int)getpid());
        snprintf(events, sizeof(events), "%s/cgroup.events", path);
        if (mkdir(path, 0755) == 0 && access(events, F_OK) == 0)
            return true;
        rmdir(path);
    }
    return false;
}

static unsigned groups_below(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_nlink > 2 ? (unsigned)st.st_nlink - 2 : 0;
}

/* A program that forks twice and calls setsid, and opens the GPU when `cede run` has ended. */
E2E(orphan_without_session)
{
    static const char script[] =
        "echo $$ > $GROUP/cgroup.procs; "
        "$CEDE_EXE run --gpu-device soft -c batch -n esc -- sh -c 'setsid sh -c \"echo \\$\\$ > "
        "$CEDE_DIR/esc.pid; while [ ! -e $CEDE_DIR/go ]; do sleep 0.02; done; exec $CEDE_EXE load "
        "batch --device soft --kernel-us 2000\" & while [ ! -s $CEDE_DIR/esc.pid ]; do sleep 0.02; "
        "done'; echo > $CEDE_DIR/over; while [ ! -e $CEDE_DIR/again ]; do sleep 0.02; done; "
        "$CEDE_EXE run --gpu-device soft -- true";
    char path[128];
    if (!shell_group(path, sizeof(path)))
        skip();
    setenv("GROUP", path, 1);
    ceded_start();
    pid_t shell = SPAWN("esc", "sh", "-c", script), pid = pid_in("esc.pid");
    AWAIT(contents("over")[0]);
    touch("go");
    AWAIT(all_have_contexts(&pid, 1));
    AWAIT(job_int("esc", "timeslice_us") > 0);
    CEDE("pause", "esc");
    AWAIT(suspended(pid));
    CEDE("resume", "esc");
    AWAIT(!suspended(pid));
    assert_int_equal(groups_below(path), 1);
    program_ends(pid);
    AWAIT(job_gone("esc"));
    touch("again"); /* the next one removes the group */
    assert_int_equal(await_child(shell), 0);
    assert_int_equal(groups_below(path), 0);
    AWAIT(rmdir(path) == 0);
}

/* The child's parent has ended before anybody saw it; all that is left are group and session. */
E2E(orphan_of_session)
{
    static const char script[] =
        "trap '(sh -c \"echo \\$\\$ > $CEDE_DIR/orphan.pid; exec $CEDE_EXE load batch "
        "--device soft --kernel-us 2000\" &)' USR1; echo $$ > $CEDE_DIR/ready; while :; do "
        "sleep 0.05; done";
    SPAWN("root", "setsid", "sh", "-c", script);
    pid_t root = pid_in("ready");
    ceded_start();
    CEDE("set", pid_text(root), "-c", "batch");
    CEDE("pause", pid_text(root));
    kill(root, SIGUSR1);
    pid_t pid = pid_in("orphan.pid");
    AWAIT(process_parent(pid) == getpid());
    AWAIT(all_have_contexts(&pid, 1));
    AWAIT(suspended(pid));
    CEDE("resume", pid_text(root));
    AWAIT(!suspended(pid));
    assert_false(is_among_others(pid));
    program_ends(root);
    assert_false(is_among_others(pid));
    program_ends(pid);
}

/* Left session, group and parents before anybody saw it, while its root has ended and the daemon
 * was killed: the control group is left, where this machine lets us make one. */
E2E(orphan_of_control_group)
{
    static const char script[] =
        "for d in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do "
        "g=$d/cede-members-$$; mkdir $g 2>&- && [ -e $g/cgroup.procs ] && echo $$ > "
        "$g/cgroup.procs && break; "
        "rmdir $g 2>&-; g=none; done; echo $g > $CEDE_DIR/group; "
        "trap '(setsid sh -c \"echo \\$\\$ > $CEDE_DIR/orphan.pid; "
        "while ! [ -e $CEDE_DIR/go ]; do sleep 0.05; done; exec $CEDE_EXE load batch "
        "--device soft --kernel-us 2000\" &)' USR1; echo $$ > $CEDE_DIR/ready; while :; do "
        "sleep 0.05; done";
    char group[256];
    SPAWN("root", "setsid", "sh", "-c", script);
    pid_t root = pid_in("ready");
    snprintf(group, sizeof(group), "%.*s", (int)strcspn(contents("group"), "\n"),
             contents("group"));
    if (strcmp(group, "none") == 0) {
        program_ends(root);
        skip();
    }
    struct ceded d = ceded_start();
    CEDE("set", pid_text(root), "-c", "batch");
    CEDE("pause", pid_text(root));
    kill(root, SIGUSR1);
    pid_t pid = pid_in("orphan.pid");
    program_ends(root);
    ceded_kill(&d);
    d = ceded_start();
    touch("go");
    AWAIT(all_have_contexts(&pid, 1));
    AWAIT(suspended(pid));
    program_ends(pid);
    AWAIT(job_gone("sh"));
    AWAIT(rmdir(group) == 0);
}

/* Neither another's session nor a group that is not the root's makes a program the job's. */
E2E(neighbour_is_left_alone)
{
    SPAWN("shell", "setsid", "sh", "-c",
          "sleep 600 & echo $! > $CEDE_DIR/sleeper.pid; sh -c 'echo $$ > "
          "$CEDE_DIR/other.pid; exec $CEDE_EXE load batch --device soft' & wait");
    pid_t root = pid_in("sleeper.pid"), other = pid_in("other.pid");
    ceded_start();
    CEDE("set", pid_text(root), "-c", "batch");
    CEDE("pause", pid_text(root));
    AWAIT(all_have_contexts(&other, 1));
    await_progress(&other, 1);
    assert_int_equal(job_int("sleep", "timeslice_us"), 0);
    assert_false(suspended(other));
    program_ends(other);
    program_ends(root);
}
