/* Files that are written because somebody named them: whole or not at all, devices stay devices,
 * and as root no link of another user's leads elsewhere. */
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

#include "../test.h"
#include "base/out_file.h"

#include "../descriptors.h"

#define OTHER 65534

static char home[64];

static const char *in(const char *name)
{
    static char paths[4][128];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", home, name);
    return path;
}

static const char *text_of(const char *path)
{
    static char text[64];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static struct stat stat_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st;
}

static int put(const char *path, const char *text)
{
    struct error err = {""};
    int r = out_file_put(path, 0, text, strlen(text), &err);
    assert_true(r == 0 || strstr(err.text, path));
    return r;
}

static int set_up(void **state)
{
    snprintf(home, sizeof(home), "/tmp/cede-test-out-XXXXXX");
    assert_non_null(mkdtemp(home));
    assert_int_equal(put(in("old"), "old"), 0);
    return 0;
}

/* No temporary file is left: the directory holds nothing else. */
static int tear_down(void **state)
{
    static const char *const names[] = {"old",  "new",         "link",       "device",
                                        "pipe", "theirs/link", "theirs/new", "theirs"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)remove(in(names[i]));
    return rmdir(home);
}

#define TEST_OF_FILES(name) TEST_WITH(name, set_up, tear_down)

TEST_OF_FILES(whole_or_not)
{
    struct out_file o;
    struct error err = {""};
    const size_t open_before = descriptors(getpid());
    assert_int_equal(put(in("new"), "new"), 0);
    assert_string_equal(text_of(in("new")), "new");
    assert_int_equal(chmod(in("old"), 0640), 0);
    assert_int_equal(out_file_open(&o, in("old"), 0, &err), 0);
    assert_int_equal(write(o.fd, "half", 4), 4);
    assert_string_equal(text_of(in("old")), "old");
    out_file_drop(&o);
    assert_string_equal(text_of(in("old")), "old");
    assert_int_equal(put(in("old"), "other"), 0);
    assert_string_equal(text_of(in("old")), "other");
    assert_int_equal(stat_of(in("old")).st_mode & 0777, 0640);
    assert_int_equal(out_file_put(in("old"), 0604, "x", 1, &err), 0);
    assert_int_equal(stat_of(in("old")).st_mode & 0777, 0604);
    assert_int_equal(put(home, "x"), -EISDIR);
    assert_int_equal(put(in("none/x"), "x"), -ENOENT);
    assert_int_equal(put(in("old/x"), "x"), -ENOTDIR);
    assert_int_equal(put("", "x"), -ENOENT);
    assert_int_equal(put(in("missing/"), "x"), -EISDIR);
    assert_int_equal(put(in("old/"), "x"), -EISDIR);
    assert_int_equal(descriptors(getpid()), open_before);
}

TEST_OF_FILES(in_place)
{
    char buf[8] = "";
    int status;
    assert_int_equal(mkfifo(in("pipe"), 0600), 0);
    int fd = open(in("pipe"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(put(in("pipe"), "piped"), 0);
    assert_int_equal(read(fd, buf, sizeof(buf)), 5);
    close(fd);
    assert_int_equal(put(in("pipe"), "nobody reads"), -EPIPE);
    pid_t reader = fork();
    if (reader == 0) {
        usleep(200000);
        fd = open(in("pipe"), O_RDONLY | O_CLOEXEC);
        _exit(fd < 0 || read(fd, buf, sizeof(buf)) != 5);
    }
    assert_int_equal(put(in("pipe"), "later"), 0);
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    assert_true(S_ISFIFO(stat_of(in("pipe")).st_mode));
    if (mknod(in("device"), S_IFCHR | 0600, makedev(1, 3)) == 0 &&
        (fd = open(in("device"), O_WRONLY | O_CLOEXEC)) >= 0) {
        close(fd);
        assert_int_equal(put(in("device"), "gone"), 0);
        assert_true(S_ISCHR(stat_of(in("device")).st_mode));
    }
    assert_int_equal(put("/dev/null", "gone"), 0);
    assert_true(S_ISCHR(stat_of("/dev/null").st_mode));
}

TEST_OF_FILES(standard_output)
{
    static const char *const names[] = {"-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int ends[2], status;
        char buf[8] = "";
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        if (pid == 0) {
            dup2(ends[1], 1);
            _exit(out_file_put(names[i], 0, "said", 4, NULL) < 0);
        }
        close(ends[1]);
        assert_int_equal(read(ends[0], buf, sizeof(buf)), 4);
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

TEST_OF_FILES(links)
{
    assert_int_equal(symlink("old", in("link")), 0);
    assert_int_equal(put(in("link"), "by a link"), 0);
    assert_true(is_link(in("link")));
    assert_string_equal(text_of(in("old")), "by a link");
    assert_int_equal(unlink(in("link")), 0);
    assert_int_equal(symlink("link", in("link")), 0);
    assert_int_equal(put(in("link"), "x"), -ELOOP);
}

/* Also where the link is a directory on the way, or root's own in a directory of another's. */
TEST_OF_FILES(links_of_others)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(mkdir(in("theirs"), 0755), 0);
    assert_int_equal(symlink("../old", in("theirs/link")), 0);
    assert_int_equal(put(in("theirs/link"), "root's"), 0);
    assert_int_equal(chown(in("theirs"), OTHER, OTHER), 0);
    assert_int_equal(put(in("theirs/link"), "x"), -EPERM);
    assert_int_equal(lchown(in("theirs/link"), OTHER, OTHER), 0);
    assert_int_equal(put(in("theirs/link"), "x"), -EPERM);
    assert_int_equal(unlink(in("theirs/link")), 0);
    assert_int_equal(symlink("..", in("theirs/link")), 0);
    assert_int_equal(put(in("theirs/link/old"), "x"), -EPERM);
    assert_string_equal(text_of(in("old")), "root's");
    /* A plain file of theirs stays theirs. */
    assert_int_equal(put(in("theirs/new"), "1"), 0);
    assert_int_equal(chown(in("theirs/new"), OTHER, OTHER), 0);
    assert_int_equal(put(in("theirs/new"), "2"), 0);
    assert_int_equal(stat_of(in("theirs/new")).st_uid, OTHER);
}
