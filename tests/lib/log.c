/* What is written to standard error, whatever that is and whether anybody reads it. */
#include "lib/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static int saved_stderr;

static void with_stderr(int fd)
{
    saved_stderr = dup(STDERR_FILENO);
    assert_true(dup2(fd, STDERR_FILENO) >= 0);
    log_open("test", LOG_INFO);
}

static void end(void)
{
    assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
    close(saved_stderr);
}

/* All that can be read now, from its beginning. */
static char text[1 << 20];
static const char *drain(int fd)
{
    size_t n = 0;
    for (ssize_t r; n < sizeof(text) - 1 && (r = read(fd, text + n, sizeof(text) - 1 - n)) > 0;)
        n += (size_t)r;
    text[n] = '\0';
    return text;
}

static unsigned count(const char *s, const char *what)
{
    unsigned n = 0;
    for (; (s = strstr(s, what)); s += strlen(what))
        n++;
    return n;
}

/* Nobody reads: it returns, loses whole lines only, and says how many with the first that fits. */
static void full(int out, int in)
{
    char lost[64];
    with_stderr(in);
    for (unsigned i = 0; i < 5000; i++)
        log_say(LOG_INFO, "line %04u, of which a pipe of this machine takes some", i);
    fcntl(out, F_SETFL, O_NONBLOCK);
    const char *got = drain(out);
    unsigned n = count(got, "test: line ");
    assert_in_range(n, 10, 4999);
    assert_int_equal(count(got, "\n"), n);
    log_say(LOG_INFO, "and on");
    end();
    snprintf(lost, sizeof(lost), "test: %u messages were lost", 5000 - n);
    got = drain(out);
    assert_int_equal(strncmp(got, lost, strlen(lost)), 0);
    assert_non_null(strstr(got, "\ntest: and on\n"));
    assert_int_equal(fcntl(in, F_GETFL) & O_NONBLOCK, 0); /* it is others' too */
}

static void full_pipe(void **state)
{
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    full(fd[0], fd[1]);
    close(fd[0]);
    close(fd[1]);
}

static void full_socket(void **state)
{
    int fd[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
    full(fd[0], fd[1]);
    close(fd[0]);
    close(fd[1]);
}

static void file_and_levels(void **state)
{
    char path[] = "/tmp/cede-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    with_stderr(fd);
    log_say(LOG_DEBUG, "not shown");
    log_say(LOG_INFO, "one\ntwo\x1b[31m");
    log_set_level(LOG_ERR);
    log_say(LOG_WARNING, "not shown");
    end();
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_string_equal(drain(fd), "test: one two [31m\n");
    close(fd);
    unlink(path);
}

/* A flood of one account is cut, said, and changes nothing for others. */
static void flood_is_cut(uid_t account, const char *said)
{
    char path[] = "/tmp/cede-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    with_stderr(fd);
    text[0] = '\0';
    for (int i = 0; i < 10000; i++)
        log_user(account, LOG_INFO, "again");
    log_user(1001, LOG_INFO, "uid 1001 too");
    while (!strstr(text, "left out")) {
        usleep(20000);
        log_user(account, LOG_INFO, "again");
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        drain(fd);
    }
    end();
    assert_non_null(strstr(text, "uid 1001 too\n"));
    assert_non_null(strstr(text, said));
    assert_in_range(count(text, "again\n"), LOG_USER_BURST, 2000);
    close(fd);
    unlink(path);
}

static void users(void **state)
{
    flood_is_cut(1000, " messages about uid 1000 left out");
}

static void containers(void **state)
{
    flood_is_cut(4026532512U, " the container with pid namespace 4026532512 left out");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_pipe),       cmocka_unit_test(full_socket),
        cmocka_unit_test(file_and_levels), cmocka_unit_test(users),
        cmocka_unit_test(containers),
    };
    alarm(60);
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
