/* See standby.h. */
#include "daemon/standby.h"

#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "journal/restorer.h"

#define RESTORER_INTERVAL_NS NSEC_PER_SEC /* between starts of restorers that keep dying */
#define RESTORER_LEAVE_MS    500          /* a dismissed restorer only reads the dismissal */

int standby_start(struct standby *s, struct journal *journal, struct error *err)
{
    s->journal = journal;
    s->started_ns = monotonic_ns();
    return restorer_start(journal, &s->pid, &s->pipe, err);
}

void standby_reap(struct standby *s)
{
    int status;
    if (!s->pid || waitpid(s->pid, &status, WNOHANG) != s->pid)
        return;
    log_say(LOG_WARNING, "the restorer (pid %d) has died (%s %d); starting another", (int)s->pid,
            WIFSIGNALED(status) ? "signal" : "status",
            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    s->pid = 0;
    close(s->pipe);
    s->pipe = -1;
}

uint64_t standby_due(const struct standby *s)
{
    return s->pid ? TIME_NEVER : s->started_ns + RESTORER_INTERVAL_NS;
}

void standby_replace(struct standby *s, uint64_t now)
{
    struct error err = {""};
    if (now >= standby_due(s) && standby_start(s, s->journal, &err) < 0)
        log_say(LOG_ERR, "%s; trying again in a second", err.text);
}

void standby_leave(struct standby *s, bool done)
{
    if (s->pipe < 0)
        return;
    if (done)
        restorer_dismiss(s->pipe);
    else
        close(s->pipe); /* without a dismissal it tries to undo once more */
    /* The daemon waits for the restorer's end, so that the journal is free for the next daemon. */
    for (int i = 0; i < RESTORER_LEAVE_MS && done; i++) {
        if (waitpid(s->pid, NULL, WNOHANG) != 0)
            break;
        usleep(1000);
    }
    s->pipe = -1;
}
