/* See test.h. */
#include "test.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

static struct CMUnitTest tests[64];
static size_t count;

void test_add(const struct CMUnitTest *test)
{
    if (count == sizeof(tests) / sizeof(*tests))
        abort();
    tests[count++] = *test;
}

const struct CMUnitTest *test_list(size_t *n)
{
    *n = count;
    return tests;
}

int test_run(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    cmocka_set_test_filter(getenv("FILTER"));
    return _cmocka_run_group_tests("tests", tests, count, set_up, tear_down);
}

void needs_user_namespaces(void)
{
    int status = 1;
    pid_t pid = geteuid() == 0 ? fork() : -1;
    if (pid == 0)
        _exit(setuid(65534) < 0 || unshare(CLONE_NEWUSER) < 0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
        print_message("skipped: root is needed, and user namespaces\n");
        skip();
    }
}
