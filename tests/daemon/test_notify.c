/* What the service manager is told, and one that does not listen. */
#include "../test.h"
#include "daemon/daemonize.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* What is only for people is left out, and nothing else is waited for without end. */
TEST(service_manager_that_does_not_read)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char dir[] = "/tmp/cede-notify-XXXXXX";
    assert_non_null(mkdtemp(dir));
    snprintf(a.sun_path, sizeof(a.sun_path), "%s/notify", dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), refused = 0;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    setenv("NOTIFY_SOCKET", a.sun_path, 1);
    assert_int_equal(notify_send("READY=1\nSTATUS=up"), 0);
    for (int i = 0; i < 10000; i++)
        refused += notify_send("STATUS=7 jobs") == -EAGAIN;
    assert_int_equal(notify_send("STOPPING=1"), -EAGAIN);
    unsetenv("NOTIFY_SOCKET");
    close(fd);
    unlink(a.sun_path);
    rmdir(dir);
    assert_true(refused > 0);
}
