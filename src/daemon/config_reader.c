/* See config_reader.h. The answer is struct answer followed by the rules, as bytes: both ends are
 * the same program. */
#include "daemon/config_reader.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/child.h"
#include "base/log.h"
#include "base/paths.h"
#include "journal/restorer.h"

#define SLOW_MS   1000
#define ANSWER_FD 3

struct answer {
    int32_t code;
    struct error err;
    struct config config; /* its rules follow */
};
#define ANSWER_MAX (sizeof(struct answer) + CONFIG_RULES_MAX * sizeof(struct rule))

/* Runs in the child. */
static int read_and_answer(void *arg)
{
    static struct answer a;
    const char *file = arg;
    prctl(PR_SET_NAME, "cede-config");
    a.code = config_read(file ? file : CONFIG_FILE, file != NULL, &a.config, &a.err);
    int r = write_full(ANSWER_FD, &a, sizeof(a));
    if (r == 0 && a.code == 0)
        r = write_full(ANSWER_FD, a.config.rules, a.config.nrules * sizeof(struct rule));
    return r < 0;
}

int reader_start(struct reader *r, const char *file, struct error *err)
{
    char *answer = malloc(ANSWER_MAX);
    if (!answer)
        return error_set(err, -ENOMEM, "no memory to read the configuration");
    /* The child must not keep descriptors open whose closing others wait for: the journal's lock,
     * the restorer's pipe, the sockets of the service manager and of clients. */
    const struct child_spec spec = {.begin = read_and_answer,
                                    .arg = (void *)(uintptr_t)file,
                                    .fresh = true,
                                    .death_signal = SIGTERM};
    pid_t pid;
    const int fd = child_start_linked(&spec, CHILD_WRITES, ANSWER_FD, &pid);
    if (fd < 0) {
        free(answer);
        return error_set(err, fd, "cannot start a process to read the configuration: %s",
                         strerror(-fd));
    }
    *r = (struct reader){.pid = pid, .fd = fd, .answer = answer};
    return 0;
}

void reader_stop(struct reader *r, struct children *left)
{
    if (!r->pid)
        return;
    kill(r->pid, SIGKILL);
    process_leave(left, r->pid);
    close(r->fd);
    free(r->answer);
    *r = (struct reader)READER_NONE;
}

static int unpack(const struct reader *r, struct config *out, struct error *err)
{
    struct answer a;
    if (r->got < sizeof(a))
        return error_set(err, -EINTR, "the process that read the configuration was killed");
    memcpy(&a, r->answer, sizeof(a));
    if (a.code < 0)
        return error_set(err, a.code, "%s", a.err.text);
    size_t bytes = a.config.nrules * sizeof(struct rule);
    if (a.config.nrules > CONFIG_RULES_MAX || r->got != sizeof(a) + bytes)
        return error_set(err, -EINTR, "the process that read the configuration was killed");
    a.config.rules = malloc(bytes ? bytes : 1);
    if (!a.config.rules)
        return error_set(err, -ENOMEM, "no memory for rules");
    memcpy(a.config.rules, r->answer + sizeof(a), bytes);
    *out = a.config;
    return 0;
}

int reader_take(struct reader *r, struct config *out, struct error *err)
{
    for (;;) {
        ssize_t n = read(r->fd, r->answer + r->got, ANSWER_MAX - r->got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return -EAGAIN;
        if (n <= 0)
            break;
        r->got += (size_t)n;
    }
    return unpack(r, out, err);
}

static void undo_abandoned(const char *dir)
{
    char buf[108];
    struct error err = {""};
    int r = dir ? 0 : cede_dir(buf, sizeof(buf), &err);
    if (r == 0 && restorer_undo_abandoned(dir ? dir : buf, &err) < 0)
        log_say(LOG_ERR, "%s", err.text);
}

int reader_wait(const char *file, const char *dir, struct config *out, struct children *left,
                struct error *err)
{
    struct reader r = READER_NONE;
    int code = reader_start(&r, file, err);
    for (int wait_ms = SLOW_MS; code == 0 || code == -EAGAIN; wait_ms = -1) {
        struct pollfd p = {.fd = r.fd, .events = POLLIN};
        if (poll(&p, 1, wait_ms) == 0) {
            log_say(LOG_WARNING,
                    "reading the configuration takes long: is a directory service down that "
                    "knows the users and groups in it?");
            undo_abandoned(dir);
        }
        code = reader_take(&r, out, err);
        if (code != -EAGAIN)
            break;
    }
    reader_stop(&r, left);
    return code;
}
