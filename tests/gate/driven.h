/* What the tests of both gates share: real programs under a gate, and the daemon's driver, in this
 * process, that opens and closes the device to them. */
#ifndef CEDE_TESTS_GATE_DRIVEN_H
#define CEDE_TESTS_GATE_DRIVEN_H

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "../test.h"
#include "gpu/ops.h"

static char dir[64], socket_path[96]; /* of the test; of its driver */

static inline bool make_dir(void)
{
    snprintf(dir, sizeof(dir), "/tmp/cede-gate-XXXXXX");
    if (!mkdtemp(dir))
        return false;
    snprintf(socket_path, sizeof(socket_path), "%s/gate", dir);
    signal(SIGPIPE, SIG_IGN);
    return true;
}

/* r: of the tests; the exit status. */
static inline int remove_dir(int r)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    return system(command) == 0 ? r : 1;
}

static inline int status_of_ended(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static inline void update(struct device_driver *d)
{
    struct pid_list pids = {0};
    assert_int_equal(d->ops->processes(d, &pids, NULL), 0);
    pid_list_free(&pids);
}

/* It listens. */
static inline struct device_driver *driver(void)
{
    struct device_driver *d;
    assert_int_equal(device_gate.open(socket_path, &d, NULL), 0);
    update(d);
    return d;
}

/* All that this process has now. */
static inline struct group_list groups_of(struct device_driver *d, pid_t pid)
{
    struct group_list l = {0};
    struct proc_stat st;
    update(d);
    if (proc_stat_read(pid, &st) == 0)
        assert_int_equal(d->ops->scan(d, st.id, &l, NULL), 0);
    return l;
}

/* Sets all that the process has; how much that is. */
static inline size_t set(struct device_driver *d, pid_t pid, bool runs, uint64_t us)
{
    struct group_list l = groups_of(d, pid);
    size_t n = l.n;
    for (size_t i = 0; i < n; i++) {
        const struct device_group *g = &l.v[i];
        int r = d->ops->set_timeslice(d, g, us, NULL);
        assert_true(r == 0 || r == -ENOENT);
        r = d->ops->set_running(d, &g, 1, runs, NULL);
        assert_true(r == 0 || r == -ENOENT);
    }
    group_list_free(&l);
    return n;
}

/* Both files are alike, and not empty. */
static inline void same_text(const char *a, const char *b)
{
    static char text[2][1 << 20];
    const char *const paths[] = {a, b};
    for (int i = 0; i < 2; i++) {
        FILE *f = fopen(paths[i], "re");
        assert_non_null(f);
        text[i][fread(text[i], 1, sizeof(text[i]) - 1, f)] = '\0';
        fclose(f);
    }
    assert_true(strlen(text[0]) > 10);
    assert_string_equal(text[0], text[1]);
}

#endif
