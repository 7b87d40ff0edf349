/* A program's own words, of a child that says what the test wants, and the files of container
 * runtimes, below a directory of the test's. */
#include <fcntl.h>
#include <sys/stat.h>

#include "../idle_child.h"
#include "../json_like.h"
#include "base/util.h"
#include "who/container.h"
#include "who/environment.h"

#define TEXT(s) ((struct pairs){s, sizeof(s)})
#define ID      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static struct identify_answer a;

static const char *got(const char *name)
{
    return pairs_get((struct pairs){a.text, a.n}, name);
}

TEST(pairs)
{
    char buf[16];
    size_t n = 0, at = 0;
    const char *name, *value;
    assert_int_equal(pairs_put(buf, sizeof(buf), &n, "a", "bc"), 0);
    assert_int_equal(pairs_put(buf, sizeof(buf), &n, "d", ""), 0);
    assert_int_equal(pairs_put(buf, sizeof(buf), &n, "long", "text"), -ENOSPC);
    assert_int_equal(n, 8);
    const struct pairs p = {buf, n};
    assert_true(pairs_valid(p));
    assert_string_equal(pairs_get(p, "a"), "bc");
    assert_string_equal(pairs_get(p, "d"), "");
    assert_null(pairs_get(p, "bc"));
    assert_true(pairs_next(p, &at, &name, &value) && pairs_next(p, &at, &name, &value));
    assert_string_equal(name, "d");
    assert_false(pairs_next(p, &at, &name, &value));
    assert_true(pairs_valid((struct pairs){.n = 0}));
    assert_false(pairs_valid((struct pairs){"ab", 2}));
    assert_false(pairs_valid((struct pairs){"ab", 3}));      /* a name without a value */
    assert_false(pairs_valid((struct pairs){"a\0b\0c", 5})); /* and one that has no end */
    assert_null(pairs_get((struct pairs){.n = 0}, ""));
}

/* A child that has called exec(2) when this returns. */
static struct proc_id child(const char *const argv[], const char *const envp[])
{
    int fds[2];
    char c;
    struct proc_stat st;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        execve("/bin/sleep", (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
        _exit(1);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], &c, 1), 0); /* closed by exec(2) */
    close(fds[0]);
    assert_int_equal(proc_stat_read(pid, &st), 0);
    return st.id;
}

TEST(own_words)
{
    const char *const argv[] = {"sleep", "600", NULL};
    const char *const envp[] = {
        "XCEDE_CLASS=no", "CEDE_CLASS=batch", "CEDE_CLASS=latency", "CEDE_CLASSY=1",
        "EMPTY=",         "NOTHING",          "LIST=a=b",           NULL};
    struct proc_id id = child(argv, envp);
    a.n = 0;
    assert_int_equal(
        environment_read(id, "",
                         TEXT("arguments\0\0environment:CEDE_CLASS\0\0environment:EMPTY\0\0"
                              "environment:NOTHING\0\0environment:LIST\0\0environment:PATH\0"),
                         &a),
        0);
    assert_true(pairs_valid((struct pairs){a.text, a.n}));
    assert_string_equal(got("arguments"), "sleep 600");
    assert_string_equal(got("environment:CEDE_CLASS"),
                        "batch"); /* the first, as getenv(3) has it */
    assert_string_equal(got("environment:EMPTY"), "");
    assert_string_equal(got("environment:LIST"), "a=b");
    assert_null(got("environment:NOTHING"));
    assert_null(got("environment:PATH"));
    assert_null(got("environment:XCEDE_CLASS")); /* nobody wanted it */
    /* Another process by that number; none. */
    id.start_ticks++;
    assert_int_equal(environment_read(id, "", TEXT("arguments\0"), &a), -ESRCH);
    id.start_ticks--;
    end_child(id.pid);
    assert_int_equal(environment_read(id, "", TEXT("arguments\0"), &a), -ESRCH);
}

/* A shell with a word, a shell without, and a program with these variables: what the program is
 * said to have of them, and whether the first shell is said to have begun it. */
TEST(inherited_words)
{
    static const struct {
        const char *own, *class, *name, *step;
        bool began, overwritten;
    } cases[] = {
        {"A=1", "batch", "outer", NULL, true, false},
        {"CEDE_CLASS=batch", "batch", "outer", NULL, true, false},
        {"CEDE_CLASS=normal", "normal", "outer", NULL, false, false},
        {"CEDE_NAME=inner", "batch", "inner", NULL, false, false},
        {"STEP=2", "batch", "outer", "2", true, false},
        {"", "batch", "outer", "1", true, true},
        {"a title, 3 = 2 + 1", "batch", "outer", "1", true, true},
    };
    static const char wanted[] = "environment:CEDE_CLASS\0\0environment:CEDE_NAME\0\0"
                                 "environment:STEP\0";
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int fds[2], status;
        pid_t pid;
        assert_int_equal(pipe2(fds, 0), 0);
        pid_t shell = fork();
        if (shell == 0) {
            const char *const envp[] = {"CEDE_CLASS=batch", "CEDE_NAME=outer", "STEP=1", NULL};
            char script[256];
            snprintf(
                script, sizeof(script),
                "env -i PATH=/usr/bin:/bin sh -c 'env -i ${0:+\"$0\"} sleep 600 & echo $! >&%d; "
                "wait' \"$0\"; :",
                fds[1]);
            execle("/bin/sh", "sh", "-c", script, cases[i].own, NULL, envp);
            _exit(1);
        }
        close(fds[1]);
        FILE *f = fdopen(fds[0], "r");
        assert_int_equal(fscanf(f, "%d", &pid), 1);
        fclose(f);
        struct proc_stat st;
        struct proc_id before;
        do
            assert_int_equal(proc_stat_read(pid, &st), 0);
        while (strcmp(st.comm, "sleep") != 0 || st.state != 'S');
        assert_int_equal(proc_stat_read(shell, &st), 0);
        before = st.id;
        assert_int_equal(proc_stat_read(pid, &st), 0);
        a = (struct identify_answer){.n = 0};
        assert_int_equal(environment_read(st.id, "", TEXT(wanted), &a), 0);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(shell, &status, 0), shell);
        const char *seen[] = {got("environment:CEDE_CLASS"), got("environment:CEDE_NAME"),
                              got("environment:STEP")};
        const char *right[] = {cases[i].class, cases[i].name, cases[i].step};
        for (size_t k = 0; k < ARRAY_SIZE(seen); k++)
            assert_string_equal(seen[k] ? seen[k] : "none", right[k] ? right[k] : "none");
        assert_int_equal(proc_same(a.origin.speaker, before), cases[i].began);
        assert_int_equal(a.origin.overwritten, cases[i].overwritten);
    }
}

/* 300 KiB of environment are read as far as 128 KiB, and long values are cut. */
TEST(long_words)
{
    static char large[100 * 1024], much[3][100 * 1024];
    memset(large, 'x', sizeof(large) - 1);
    for (int i = 0; i < 3; i++)
        snprintf(much[i], sizeof(much[i]), "%c=%s", 'A' + i, large);
    const char *const argv[] = {"sleep", "600", NULL};
    const char *const envp[] = {"FIRST=1", much[0], much[1], "LAST=1", NULL};
    struct proc_id id = child(argv, envp);
    a.n = 0;
    assert_int_equal(environment_read(id, "",
                                      TEXT("environment:FIRST\0\0environment:A\0\0environment:B\0\0"
                                           "environment:LAST\0"),
                                      &a),
                     0);
    assert_string_equal(got("environment:FIRST"), "1");
    assert_int_equal(strlen(got("environment:A")), 1023);
    assert_null(got("environment:B")); /* cut in its middle: not what the program has */
    assert_null(got("environment:LAST"));
    end_child(id.pid);
}

/* exec(2) is seen, fork(2) and time are not. */
TEST(images)
{
    int go[2];
    struct proc_stat st;
    struct proc_image own, before, again, after;
    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        (void)!read(go[0], &c, 1);
        execl("/bin/sleep", "sleep", "600", NULL);
        _exit(1);
    }
    assert_int_equal(proc_stat_read(pid, &st), 0);
    assert_int_equal(proc_image_read(st.id, &before), 0);
    assert_int_equal(proc_image_read(st.id, &again), 0);
    assert_true(proc_image_same(before, again));
    struct proc_stat self;
    assert_int_equal(proc_stat_read(getpid(), &self), 0);
    assert_int_equal(proc_image_read(self.id, &own), 0);
    assert_true(proc_image_same(own, before));
    assert_int_equal(write(go[1], "g", 1), 1);
    do
        assert_int_equal(proc_image_read(st.id, &after), 0);
    while (proc_image_same(before, after));
    end_child(st.id.pid);
    close(go[0]);
    close(go[1]);
}

/* ---- containers ---- */

static char root[64];

static int root_make(void **state)
{
    snprintf(root, sizeof(root), "/tmp/cede-identify-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int root_remove(void **state)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

static const char *below_root(const char *path)
{
    static char names[2][512];
    static unsigned next;
    char *name = names[next++ % 2];
    snprintf(name, sizeof(names[0]), "%s%s", root, path);
    return name;
}

/* Each ' of the text is written as ". */
static void put_file(const char *path, const char *text, mode_t mode)
{
    char name[512], quoted[1024];
    snprintf(name, sizeof(name), "%s", below_root(path));
    snprintf(quoted, sizeof(quoted), "%s", text);
    json_quote(quoted);
    for (char *p = name + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        (void)mkdir(name, 0755);
    }
    (void)unlink(name);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write_full(fd, quoted, strlen(quoted)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

#define IN_CONTAINERD "/run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json"
#define IN_DOCKER     "/var/lib/docker/containers/" ID "/config.v2.json"
#define WANTED        TEXT("pod\0\0namespace\0\0container_name\0\0image\0")
#define KUBE                                                                                       \
    "{'ociVersion':'1.0.2','annotations':{'io.kubernetes.cri.sandbox-name':'web-1',"               \
    "'io.kubernetes.cri.sandbox-namespace':'prod','io.kubernetes.cri.container-name':'nginx',"     \
    "'io.kubernetes.cri.image-name':'docker.io/library/nginx:1'}}"
#define PODMAN                                                                                     \
    "[{'id':'other','names':['no']},{'id':'" ID "','names':['train'],'metadata':"                  \
    "'{\\'image-name\\':\\'quay.io/x/train:2\\',\\'name\\':\\'train\\'}'}]"

TEST_WITH(of_runtimes, root_make, root_remove)
{
    static const struct {
        const char *path, *text;
        mode_t mode;
        const char *pod, *space, *name, *image;
    } rows[] = {
        {IN_CONTAINERD, KUBE, 0644, "web-1", "prod", "nginx", "docker.io/library/nginx:1"},
        {"/run/containers/storage/overlay-containers/" ID "/userdata/config.json",
         "{'annotations':{'io.kubernetes.pod.name':'a','io.kubernetes.pod.namespace':'b',"
         "'io.kubernetes.container.name':'c','io.kubernetes.cri-o.ImageName':'d'}}",
         0600, "a", "b", "c", "d"},
        {IN_DOCKER, "{'Name':'/web','Config':{'Image':'nginx:1'}}", 0600, NULL, NULL, "web",
         "nginx:1"},
        {"/var/lib/containers/storage/overlay-containers/containers.json", PODMAN, 0600, NULL, NULL,
         "train", "quay.io/x/train:2"},
        {"/run/containers/storage/overlay-containers/volatile-containers.json", PODMAN, 0600, NULL,
         NULL, "train", "quay.io/x/train:2"},
        /* Anybody may have written it. */
        {IN_DOCKER, "{'Name':'/web'}", 0666, NULL, NULL, NULL, NULL},
        /* No texts where texts are wanted, and no JSON. */
        {IN_DOCKER, "{'Name':7,'Config':[]}", 0600, NULL, NULL, NULL, NULL},
        {IN_DOCKER, "{'Name':", 0600, NULL, NULL, NULL, NULL},
        {IN_DOCKER, "", 0600, NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        put_file(rows[i].path, rows[i].text, rows[i].mode);
        a.n = 0;
        container_read(root, ID, WANTED, &a);
        const char *want[] = {rows[i].pod, rows[i].space, rows[i].name, rows[i].image};
        const char *keys[] = {"pod", "namespace", "container_name", "image"};
        for (size_t k = 0; k < 4; k++) {
            const char *v = got(keys[k]);
            if (!v != !want[k] || (v && strcmp(v, want[k]) != 0))
                fail_msg("row %zu: %s is %s", i, keys[k], v ? v : "not known");
        }
        unlink(below_root(rows[i].path));
    }
    /* A link, another container, an id that is a path, and what nobody wants. */
    put_file("/elsewhere", KUBE, 0644);
    assert_int_equal(symlink(below_root("/elsewhere"), below_root(IN_CONTAINERD)), 0);
    a.n = 0;
    container_read(root, ID, WANTED, &a);
    assert_int_equal(a.n, 0);
    unlink(below_root(IN_CONTAINERD));
    put_file(IN_CONTAINERD, KUBE, 0644);
    container_read(root, "../k8s.io/" ID, WANTED, &a);
    container_read(root, "", WANTED, &a);
    container_read(root, "00", WANTED, &a);
    assert_int_equal(a.n, 0);
    container_read(root, ID, TEXT("pod\0"), &a);
    assert_string_equal(got("pod"), "web-1");
    assert_null(got("namespace"));
}

/* Where the runtimes' own configuration says so. */
TEST_WITH(of_stores_elsewhere, root_make, root_remove)
{
    put_file("/etc/docker/daemon.json", "{'data-root':'/data/docker'}", 0644);
    put_file("/data/docker/containers/" ID "/config.v2.json", "{'Name':'/moved'}", 0600);
    put_file("/etc/containers/storage.conf",
             "[storage]\n# graphroot = '/no'\n  graphroot = '/data/podman' # here\n", 0644);
    put_file("/data/podman/overlay-containers/containers.json", PODMAN, 0600);
    a.n = 0;
    container_read(root, ID, WANTED, &a);
    assert_string_equal(got("container_name"), "moved");
    assert_string_equal(got("image"), "quay.io/x/train:2");
    put_file("/etc/docker/daemon.json", "{'data-root':'/data/docker'}", 0666);
    put_file("/etc/containers/storage.conf", "graphroot", 0644);
    a.n = 0;
    container_read(root, ID, WANTED, &a);
    assert_int_equal(a.n, 0);
}
