/* See target_find.h. */
#include "api/target_find.h"

#include <errno.h>
#include <string.h>

#include "api/guest.h"
#include "who/pidns.h"
#include "who/procfs.h"
#include "who/schedulers.h"

int target_identify(pid_t pid, struct target *t, struct error *err)
{
    struct proc_stat before, after = {.kernel = false};
    if (pid == 1)
        return error_set(err, -EINVAL,
                         "process 1 is the ancestor of all processes and cannot be a job");
    int r = proc_stat_read(pid, &before);
    if (r == 0)
        r = proc_owner(pid, &t->proc_uid);
    if (r == 0)
        r = proc_stat_read(pid, &after);
    if (r == 0 && (before.id.start_ticks != after.id.start_ticks || proc_ended(&after)))
        r = -ESRCH;
    if (r < 0)
        return error_set(
            err, r, r == -ESRCH ? "there is no process %d" : "cannot look at process %d", (int)pid);
    if (after.kernel)
        return error_set(err, -EINVAL, "process %d is a thread of the kernel's", (int)pid);
    if (proc_is_scheduler(&after, t->proc_uid))
        return error_set(err, -EINVAL, "process %d (%s) schedules programs, and is none itself",
                         (int)pid, after.comm);
    t->proc = after.id;
    snprintf(t->comm, sizeof(t->comm), "%s", after.comm);
    return 0;
}

int target_translate(struct verb *v)
{
    const pid_t asked = v->request.pid;
    const struct request *r = &v->request;
    struct proc_stat st;
    if (!asked && !r->number && !r->name[0]) {
        v->request.pid = v->who.pid;
        return v->who.pid > 0 && proc_stat_read(v->who.pid, &st) == 0 &&
                       st.id.start_ticks <= v->who.since_ticks
                   ? 0
                   : error_set(&v->error, -ESRCH, "cannot see the process that asks (pid %d)",
                               (int)v->who.pid);
    }
    int code = asked ? pidns_translate(v->who.pid, asked, &v->request.pid) : 0;
    return code == 0 ? 0
           : code == -ESRCH
               ? error_set(&v->error, code, "there is no process %d in your pid namespace", asked)
               : error_set(&v->error, code,
                           "cannot tell which process is %d in your pid namespace (%s): name the "
                           "job by its number",
                           asked, strerror(-code));
}

/* The jobs with a name: those of the user that is meant, and those of others. */
struct named {
    unsigned own, others;
    uint32_t own_slot, other_slot;
    uid_t other;  /* the user of one of the others */
    bool several; /* the others belong to several users */
    char own_list[128], other_list[400];
};

static struct named find_named(const struct engine *e, const char *name, uid_t user,
                               const struct caller *who)
{
    struct named n = {.own = 0};
    const struct journal_job *rec;
    for (uint32_t cursor = 0; (rec = engine_next_record(e, &cursor));) {
        char text[JOB_NAME_MAX + 48];
        if (strcmp(rec->name, name) != 0 || !guest_reaches(who, engine_member(e, cursor - 1)))
            continue;
        if (rec->uid == user) {
            n.own_slot = cursor - 1;
            snprintf(text, sizeof(text), "#%llu", (unsigned long long)rec->number);
            if (n.own++ < 5)
                list_add(n.own_list, sizeof(n.own_list), text);
            continue;
        }
        n.several |= n.others && rec->uid != n.other;
        n.other = rec->uid;
        n.other_slot = cursor - 1;
        snprintf(text, sizeof(text), "%u/%s (#%llu)", rec->uid, name,
                 (unsigned long long)rec->number);
        if (n.others++ < 4)
            list_add(n.other_list, sizeof(n.other_list), text);
    }
    return n;
}

/* Each user has a separate set of names, so jobs of others never hide a user's own job. */
static int find_by_name(struct verb *v, const struct engine *e, uint32_t *slot)
{
    const struct request *r = &v->request;
    const uid_t user = r->has_owner ? r->owner : v->who.uid;
    const struct named n = find_named(e, r->name, user, &v->who);
    if (n.own > 1)
        return error_set(&v->error, -ENOTUNIQ,
                         "%u jobs of user %u are named %s: name one by its number (%s%s)", n.own,
                         user, r->name, n.own_list, n.own > 5 ? ", ..." : "");
    *slot = n.own ? n.own_slot : n.other_slot;
    if (n.own) {
        if (n.others && !r->has_owner && v->who.admin)
            snprintf(v->note, sizeof(v->note), "others have jobs of this name, too: %s%s",
                     n.other_list, n.others > 4 ? ", ..." : "");
        return 0;
    }
    if (r->has_owner)
        return error_set(&v->error, -ESRCH, "user %u has no job named %s; `cede ps` lists them",
                         user, r->name);
    if (n.others > 1)
        return error_set(&v->error, -ENOTUNIQ, "%u jobs%s are named %s: name one as %s%s", n.others,
                         n.several ? " of several users" : "", r->name, n.other_list,
                         n.others > 4 ? ", ..." : "");
    return n.others ? 0
                    : error_set(&v->error, -ESRCH, "there is no job named %s; `cede ps` lists them",
                                r->name);
}

int target_find(struct verb *v, const struct engine *e)
{
    const struct request *r = &v->request;
    struct target *t = &v->target;
    struct error *err = &v->error;
    *t = (struct target){.slot = SLOT_NONE};
    int code = target_translate(v);
    if (code < 0)
        return code;
    if (r->pid) {
        /* Looking up a known process would take a tenth of the time of a pause. */
        t->slot = r->op == OP_ADD ? SLOT_NONE : model_job_with(engine_model(e), r->pid);
        code = t->slot == SLOT_NONE ? target_identify(r->pid, t, err) : 0;
        if (code < 0)
            return code;
        if (t->slot == SLOT_NONE)
            code = model_job_of(engine_model(e), r->pid, &t->slot);
        if (code < 0)
            return error_set(err, code, "cannot look at process %d: %s", (int)r->pid,
                             strerror(-code));
    } else if (r->number) {
        t->slot = model_job_by_number(engine_model(e), r->number);
        if (t->slot == SLOT_NONE)
            return error_set(err, -ESRCH, "there is no job #%llu; `cede ps` lists them",
                             (unsigned long long)r->number);
    } else {
        code = find_by_name(v, e, &t->slot);
        if (code < 0)
            return code;
    }
    if (t->slot != SLOT_NONE && !engine_view(e, t->slot, &t->view))
        return error_set(err, -ESRCH, "the job has just ended");
    return 0;
}
