/* See counting.h. */
#include "daemon/counting.h"

#include <errno.h>

#include "base/log.h"
#include "base/paths.h"

static struct acct *start_accounting(uv_loop_t *loop, const char *dir, const char *state_of,
                                     const struct config *c)
{
    struct error err = {""};
    char state[160];
    const int r = cede_state_dir(state_of, state, sizeof(state), &err);
    struct acct *a = r < 0 ? NULL : acct_new(loop, dir, state, c->admin_gid, c->keep_days, &err);
    if (!a)
        log_say(LOG_WARNING, "no accounting: %s", err.text);
    return a;
}

int counting_start(uv_loop_t *loop, const char *dir, const char *state_of, bool accounting,
                   const struct config *c, struct acct **acct, struct job_sums **sums,
                   struct error *err)
{
    *acct = accounting ? start_accounting(loop, dir, state_of, c) : NULL;
    *sums = job_sums_new(*acct ? acct_job_changed : NULL, *acct);
    return *sums ? 0 : error_set(err, -ENOMEM, "out of memory");
}

void counting_use_hints(struct acct *acct, struct job_sums *sums, struct hints *hints)
{
    if (acct)
        acct_use_hints(acct, hints);
    job_sums_use_hints(sums, hints);
}
