/* See rules.h. */
#include "control/rules.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "control/proto.h"
#include "lib/procfs.h"

#define HEX "0123456789abcdef"
/* Runtimes give ids of 64 digits, and shorter words of hexadecimal digits happen in other names. */
#define ID_DIGITS_MIN 32

bool rule_is_container_id(const char *s)
{
    return *s && strspn(s, HEX) == strlen(s);
}

static bool container_matches(const char *want, const char *cgroup)
{
    bool is_id = rule_is_container_id(want);
    size_t n = strlen(want);
    for (const char *p = cgroup; *p;) {
        if (is_id) {
            size_t run = strspn(p, HEX);
            if (run >= ID_DIGITS_MIN && run >= n && strncmp(p, want, n) == 0)
                return true;
            p += run ? run : strcspn(p, HEX);
            continue;
        }
        p += strspn(p, "/");
        size_t len = strcspn(p, "/");
        char part[256]; /* longest name of a cgroup: 255 */
        if (len > 0 && len < sizeof(part)) {
            memcpy(part, p, len);
            part[len] = '\0';
            if (fnmatch(want, part, 0) == 0)
                return true;
        }
        p += len;
    }
    return false;
}

static bool exe_matches(const char *pattern, const char *exe)
{
    const char *last = strrchr(exe, '/');
    if (last && !strchr(pattern, '/'))
        exe = last + 1;
    return *exe && fnmatch(pattern, exe, 0) == 0;
}

bool rule_matches(const struct rule *r, const struct rule_facts *f)
{
    if (r->has_uid && r->uid != f->uid)
        return false;
    if (r->exe[0] && !exe_matches(r->exe, f->exe))
        return false;
    if (r->cgroup[0] && (!f->cgroup[0] || fnmatch(r->cgroup, f->cgroup, 0) != 0))
        return false;
    return !r->container[0] || container_matches(r->container, f->cgroup);
}

const struct rule *rules_find(const struct rule_list *l, const struct rule_facts *f)
{
    for (size_t i = 0; i < l->n; i++) {
        if (!l->rules[i].account && rule_matches(&l->rules[i], f))
            return &l->rules[i];
    }
    return NULL;
}

void rules_job_name(char name[static JOB_NAME_MAX], const char *comm, pid_t pid)
{
    if (!proto_name_from(name, comm)) /* comm is the program's to set: any bytes */
        snprintf(name, JOB_NAME_MAX, "pid-%d", (int)pid);
}

struct job_spec request_spec(const struct request *r, const char *comm, pid_t pid, bool admin)
{
    struct job_spec spec = {
        .terms = {r->has_class ? r->class : CLASS_NORMAL,
                  r->has_weight ? r->weight : WEIGHT_DEFAULT, r->budget_us, r->gpu_min, r->gpu_max,
                  r->preempt, r->min_speed},
        .deadline_us = r->deadline_us,
        .laxity_us = r->laxity_us,
        .may_promote = admin && r->deadline_us,
    };
    spec.slurm_job = r->slurm_job;
    if (r->name[0])
        snprintf(spec.name, sizeof(spec.name), "%s", r->name);
    else if (r->slurm_job)
        snprintf(spec.name, sizeof(spec.name), SLURM_JOB_NAME "%llu",
                 (unsigned long long)r->slurm_job);
    else
        rules_job_name(spec.name, comm, pid);
    return spec;
}

/* Of a process, with room for its texts. */
struct facts {
    struct rule_facts of;
    char exe[4096], cgroup[4096];
};

static int facts_read(pid_t pid, struct facts *f)
{
    f->of = (struct rule_facts){.exe = f->exe, .cgroup = f->cgroup};
    /* These leave an empty text when they fail. */
    (void)proc_exe(pid, f->exe, sizeof(f->exe));
    (void)proc_cgroup(pid, f->cgroup, sizeof(f->cgroup));
    return proc_owner(pid, &f->of.uid);
}

static void set_account(const struct rule_list *l, const struct rule_facts *f, pid_t pid,
                        struct job_spec *spec)
{
    size_t i = 0;
    while (i < l->n && !(l->rules[i].account && rule_matches(&l->rules[i], f)))
        i++;
    snprintf(spec->account, sizeof(spec->account), "%s", i < l->n ? l->rules[i].title : "");
    spec->account_uid = l->people ? account_of(l->people, spec->uid, pid) : spec->uid;
}

void rules_account(const struct rule_list *l, pid_t pid, struct job_spec *spec)
{
    static const struct rule_list none = {.rules = NULL};
    struct facts f;
    spec->account_uid = spec->uid;
    if (facts_read(pid, &f) == 0)
        set_account(l ? l : &none, &f.of, pid, spec);
}

bool rules_fn(void *arg, pid_t pid, struct job_spec *spec)
{
    const struct rule_list *l = arg;
    if (l->n == 0)
        return false;
    struct proc_stat st;
    struct facts f;
    if (proc_stat_read(pid, &st) < 0 || facts_read(pid, &f) < 0)
        return false;
    const struct rule *r = rules_find(l, &f.of);
    if (!r)
        return false;
    *spec = request_spec(&r->request, st.comm, pid, true);
    spec->source = JOB_RULE;
    spec->uid = f.of.uid;
    set_account(l, &f.of, pid, spec);
    return true;
}

void rules_name_accounts(const struct rule_list *l, struct engine *e)
{
    engine_accounts_forget(e);
    for (size_t i = 0; i < l->n; i++) {
        const struct request *r = &l->rules[i].request;
        const struct job_terms terms = {.weight = r->has_weight ? r->weight : WEIGHT_DEFAULT,
                                        .gpu_min = r->gpu_min,
                                        .gpu_max = r->gpu_max};
        if (l->rules[i].account)
            engine_account_set(e, l->rules[i].title, &terms);
    }
}
