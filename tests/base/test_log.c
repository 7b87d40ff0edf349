/* What is written to standard error, whatever that is and whether anybody reads it. */
#include "../test.h"
#include "base/log.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

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

TEST(full_pipe_or_socket)
{
    for (int is_socket = 0; is_socket < 2; is_socket++) {
        int fd[2];
        int code = is_socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, fd) : pipe(fd);
        assert_int_equal(code, 0);
        full(fd[0], fd[1]);
        close(fd[0]);
        close(fd[1]);
    }
}

/* A file that is gone when it is closed takes the place of standard error. */
static int file_as_stderr(void)
{
    char path[] = "/tmp/cede-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    with_stderr(fd);
    return fd;
}

TEST(file_and_levels)
{
    int fd = file_as_stderr();
    log_say(LOG_DEBUG, "not shown");
    log_say(LOG_INFO, "one\ntwo\x1b[31m");
    log_set_level(LOG_ERR);
    log_say(LOG_WARNING, "not shown");
    end();
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    assert_string_equal(drain(fd), "test: one two [31m\n");
    close(fd);
}

/* A flood of one principal is cut, said, and changes nothing for others. */
static void flood_is_cut(uid_t principal, const char *said)
{
    int fd = file_as_stderr();
    text[0] = '\0';
    for (int i = 0; i < 10000; i++)
        log_user(principal, LOG_INFO, "again");
    log_user(1001, LOG_INFO, "uid 1001 too");
    while (!strstr(text, "left out")) {
        usleep(20000);
        log_user(principal, LOG_INFO, "again");
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        drain(fd);
    }
    end();
    assert_non_null(strstr(text, "uid 1001 too\n"));
    assert_non_null(strstr(text, said));
    assert_in_range(count(text, "again\n"), LOG_USER_BURST, 2000);
    close(fd);
}

TEST(users)
{
    flood_is_cut(1000, " messages about uid 1000 left out");
}

TEST(containers)
{
    flood_is_cut(4026532512U, " the container with pid namespace 4026532512 left out");
}

int main(void)
{
    alarm(60);
    return test_run(NULL, NULL);
}
