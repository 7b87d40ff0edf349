/* What checks of drivers found, on disk: by driver, GPU and version; and whatever else may be in
 * that place counts as nothing. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../json_like.h"
#include "base/version.h"
#include "daemon/findings.h"
#include "doctor/cleanup.h"
#include "gpu/ops.h"

static char dir[64], file[96];

static struct finding finding_of(const char *driver, const char *chip, uint32_t off,
                                 const char *why)
{
    struct finding f = {.off = off};
    snprintf(f.driver, sizeof(f.driver), "%s", driver);
    snprintf(f.chip, sizeof(f.chip), "%s", chip);
    snprintf(f.why, sizeof(f.why), "%s", why);
    return f;
}

static bool found(const char *driver, const char *chip, struct finding *f)
{
    *f = finding_of(driver, chip, 99, "before");
    return findings_find(dir, f);
}

static void keep(const char *driver, const char *chip, uint32_t off, const char *why)
{
    struct finding f = finding_of(driver, chip, off, why);
    struct error err = {""};
    if (findings_keep(dir, &f, &err) < 0)
        fail_msg("%s", err.text);
}

static void write_file(const char *text, size_t n)
{
    unlink(file);
    int fd = open(file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write_full(fd, text, n), 0);
    close(fd);
}

/* With " for each '. */
static void write_quoted(char *text)
{
    json_quote(text);
    write_file(text, strlen(text));
}

TEST(by_driver_and_chip)
{
    struct finding f;
    unlink(file);
    assert_false(found("999.1", "A", &f));
    keep("999.1", "A", GPU_CAP_SUSPEND | GPU_CAP_PREEMPT, "one \"reason\"\n");
    keep("999.1", "B", 0, "");
    keep("999.2", "A", GPU_CAP_TIMESLICE, "another");
    assert_true(found("999.1", "A", &f));
    assert_int_equal(f.off, GPU_CAP_SUSPEND | GPU_CAP_PREEMPT);
    assert_string_equal(f.why, "one \"reason\"?");
    assert_true(found("999.1", "B", &f));
    assert_int_equal(f.off, 0);
    assert_true(found("999.2", "A", &f));
    assert_int_equal(f.off, GPU_CAP_TIMESLICE);
    assert_false(found("999.2", "B", &f));
    keep("999.1", "A", 0, ""); /* the last one counts */
    assert_true(found("999.1", "A", &f));
    assert_int_equal(f.off, 0);
    for (int i = 0; i < 1000; i++) {
        char driver[16];
        snprintf(driver, sizeof(driver), "%d.1", i);
        keep(driver, "A", GPU_CAP_SUSPEND, "it had none, whatever was done about it, not at all");
    }
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    assert_in_range(st.st_size, 1, 16384); /* else it could not be read again */
    assert_true(found("999.1", "A", &f));
    assert_false(found("0.1", "A", &f));
}

TEST(of_this_version)
{
    struct finding f;
    char text[512];
    for (int other = 0; other < 2; other++) {
        snprintf(text, sizeof(text),
                 "{'findings':[{'cede':'%s%s','driver':'9.1','chip':'A','off':['suspend'],"
                 "'why':'w'}]}",
                 build_version(), other ? "x" : "");
        write_quoted(text);
        assert_int_equal(found("9.1", "A", &f), !other);
    }
}

/* Each is damaged in one place; afterwards another finding replaces all of it. */
TEST(damaged)
{
#define OURS "{'findings':[{'cede':'%s',"
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{'findings':3}",
        "{'findings':[3,null,{}]}",
        OURS "'driver':'9.1','chip':'A','off':[],'why':3}]}",
        OURS "'driver':'9.1','chip':'A','off':[3],'why':'w'}]}",
        OURS "'driver':'9.1','chip':'A','off':['usage'],'why':'w'}]}",
        OURS "'driver':'9.1','chip':'A','off':[],'why':'w'}]}",
        OURS "'driver':'9.1','chip':'A','off':['suspend'],'why':''}]}",
        OURS "'driver':9.1,'chip':'A','off':[],'why':''}]}",
    };
    struct finding f;
    char text[512];
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        const char *at = strstr(bad[i], "%s");
        snprintf(text, sizeof(text), "%.*s%s%s", at ? (int)(at - bad[i]) : 100, bad[i],
                 at ? build_version() : "", at ? at + 2 : "");
        write_quoted(text);
        if (found("9.1", "A", &f))
            fail_msg("%zu: %s", i, text);
        keep("9.1", "A", 0, "");
        assert_true(found("9.1", "A", &f));
    }
}

/* Others could have written it, or it is no file of ours. */
TEST(foreign)
{
    struct finding f;
    char other[128];
    snprintf(other, sizeof(other), "%s/other", dir);
    unlink(file);
    keep("9.1", "A", 0, "");
    assert_true(found("9.1", "A", &f));
    assert_int_equal(chmod(file, 0666), 0);
    assert_false(found("9.1", "A", &f));
    assert_int_equal(chmod(file, 0644), 0);
    assert_int_equal(rename(file, other), 0);
    assert_int_equal(symlink(other, file), 0);
    assert_false(found("9.1", "A", &f));
    keep("9.1", "B", 0, ""); /* it replaces the link, and leaves alone what that names */
    assert_false(found("9.1", "A", &f));
    assert_int_equal(rename(other, file), 0);
    assert_false(found("9.1", "B", &f));
    unlink(file);
    assert_int_equal(mkfifo(file, 0644), 0);
    assert_false(found("9.1", "A", &f));
    unlink(file);
    assert_int_equal(mkdir(file, 0755), 0); /* where nothing can be kept, nothing is left */
    f = finding_of("9.1", "A", 0, "");
    snprintf(other, sizeof(other), "%s.new", file);
    assert_true(findings_keep(dir, &f, NULL) < 0);
    assert_int_equal(access(other, F_OK), -1);
    assert_int_equal(rmdir(file), 0);
    static char large[16385];
    memset(large, ' ', sizeof(large));
    write_file(large, sizeof(large));
    assert_false(found("9.1", "A", &f));
    if (geteuid() == 0) {
        keep("9.1", "A", 0, "");
        assert_int_equal(chown(file, 65534, 65534), 0);
        assert_false(found("9.1", "A", &f));
    }
}

static int findings_begin(void **state)
{
    int r = process_make_dir("/tmp/cede-test-", dir, sizeof(dir));
    snprintf(file, sizeof(file), "%s/" FINDINGS_FILE, dir);
    return r;
}

static int findings_end(void **state)
{
    process_remove_dir(dir);
    return 0;
}

int main(void)
{
    return test_run(findings_begin, findings_end);
}
