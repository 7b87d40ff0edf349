/* See days.h. */
#include "acct/days.h"

#include <stdio.h>
#include <string.h>

#include "base/principal.h"
#include "base/util.h"

static void day_put(struct acct_days *all, struct acct_day *d)
{
    if (d->used && d->changed)
        all->put(all->arg, &d->sum);
    d->changed = false;
}

static bool day_is_of(const struct acct_day *d, uid_t user, const char *account)
{
    return d->used && d->user == user && strcmp(d->sum.account, account) == 0;
}

struct acct_day *acct_day_of(struct acct_days *all, uid_t user, const char *account, int64_t day)
{
    struct acct_day *found = NULL, *least = &all->v[0];
    for (size_t i = 0; i < ACCT_DAYS && !found; i++) {
        struct acct_day *d = &all->v[i];
        found = day_is_of(d, user, account) ? d : NULL;
        if (!d->used || (least->used && d->rows < least->rows))
            least = d;
    }
    if (found && found->day == day)
        return found;
    found = found ? found : least;
    day_put(all, found);
    *found = (struct acct_day){.used = true, .user = user, .day = day};
    snprintf(found->sum.account, sizeof(found->sum.account), "%s", account);
    return found;
}

bool acct_day_takes(struct acct_day *d)
{
    if (d->user != 0 && d->rows >= ACCT_ROWS_PER_DAY)
        return false;
    d->rows++;
    return true;
}

void acct_day_add(struct acct_days *all, struct acct_day *d, const struct acct_row *r, bool first)
{
    struct acct_row *s = &d->sum;
    if (!d->jobs) { /* the sum keeps number 0, which no job has */
        s->boot = r->boot;
        s->start_ticks = d->user;
        s->session = r->session;
        s->piece = ++all->sums;
        s->begin_s = r->begin_s;
        s->uid = principal_is_container(d->user) ? r->uid : d->user;
        s->ended = 1;
    }
    d->jobs += first || !d->jobs;
    d->changed = all->changed = true;
    s->begin_s = r->begin_s < s->begin_s ? r->begin_s : s->begin_s;
    s->end_s = r->end_s > s->end_s ? r->end_s : s->end_s;
    s->class = r->class;
    s->gpus = r->gpus > s->gpus ? r->gpus : s->gpus;
    for (size_t i = 0; i < ACCT_SUMS_COUNT; i++)
        s->sums[i] += r->sums[i];
    snprintf(s->name, sizeof(s->name), "(%llu more jobs)", (unsigned long long)d->jobs);
}

void acct_days_put(struct acct_days *all)
{
    for (size_t i = 0; i < ACCT_DAYS; i++)
        day_put(all, &all->v[i]);
    all->changed = false;
}
