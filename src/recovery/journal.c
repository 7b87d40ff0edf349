/* See journal.h. The records: the file that they are in is journal_file.c's. The space for groups
 * is reserved chunk by chunk with fallocate(2), so that a full file system is an error before a
 * change and not in the middle of one. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "lib/fnv.h"
#include "recovery/journal_impl.h"

#define GROUPS_CHUNK 256U

/* Its group is being written over: it counts, its sum does not. */
#define JG_MOVING (1U << 2)
#define FLAGS_ALL (JG_SUSPENDED | JG_TIMESLICE | JG_STOPPED | JG_PREEMPT | JG_MOVING)

/* What was changed in memory, in the file too: step by step, so that a kill between two steps
 * leaves there what would be right in memory. 0 or -errno. */
static int journal_store(struct journal *j, const void *what, size_t n)
{
    atomic_signal_fence(memory_order_seq_cst); /* the steps are those of the text */
    const off_t at = (const char *)what - (const char *)j->map;
    const ssize_t w = pwrite(j->fd, what, n, at);
    const int r = w == (ssize_t)n ? 0 : w < 0 ? -errno : -EIO;
    j->stale |= r < 0;
    return r;
}

#define STORE(j, field) journal_store(j, &(field), sizeof(field))

#define NUMBER_MAX   (1ULL << 53) /* job numbers travel as JSON numbers */
#define JOB_CHANGING 0U           /* for a sum: old and new values mixed, all of which were meant */
#define GROUP_SUM(r) sum_of(&(r)->group, sizeof((r)->group))

/* FNV-1a. */
static uint32_t sum_of(const void *data, size_t size)
{
    const unsigned char *p = data;
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * 16777619U;
    return h;
}

static uint32_t job_sum(const struct journal_job *r)
{
    uint32_t sum = sum_of(r, offsetof(struct journal_job, sum));
    return sum == JOB_CHANGING ? 1 : sum;
}

static bool yield_ok(const struct journal_job *r)
{
    return r->yielded <= (YIELD_CLASS | YIELD_PAUSE | YIELD_MEMORY) &&
           r->yielded_class < CLASS_COUNT && r->yielded_budget_us <= BUDGET_MAX_US;
}

static bool job_ok(const struct journal_job *r)
{
    return r->root.pid > 0 && r->class < CLASS_COUNT && r->weight >= WEIGHT_MIN && r->paused <= 1 &&
           r->weight <= WEIGHT_MAX && r->budget_us <= BUDGET_MAX_US && r->room <= ROOM_NONE &&
           r->may_promote <= 1 && r->gpu_min <= 100 && r->gpu_max <= 100 && r->min_speed <= 100 &&
           r->memory_bytes <= MEMORY_MAX_BYTES && r->number <= NUMBER_MAX &&
           memchr(r->name, '\0', sizeof(r->name)) && memchr(r->account, '\0', sizeof(r->account)) &&
           r->deadline_us <= DEADLINE_MAX_US && r->memory_gpu < DEVICE_GPUS_MAX && yield_ok(r) &&
           r->cgroup.hierarchy <= CGROUP_HIERARCHIES && r->preempt < PREEMPT_COUNT &&
           r->laxity_us <= DEADLINE_MAX_US && !(r->placed >> DEVICE_GPUS_MAX) &&
           (r->sum == JOB_CHANGING || (r->sum == job_sum(r) && r->laxity_us <= r->deadline_us));
}

static uint64_t member_sum(const struct journal_member *r)
{
    uint64_t h = fnv(FNV_START, &r->proc.pid, sizeof(r->proc.pid));
    h = fnv(h, &r->proc.start_ticks, sizeof(r->proc.start_ticks));
    return fnv(h, &r->job, sizeof(r->job));
}

/* With what is between the members, which is summed too. A job that has not yielded its class
 * yields the one that it has: so a record in which old and new are mixed gives no other back. */
static void job_copy(struct journal_job *to, const struct journal_job *job)
{
    memcpy(to, job, sizeof(*to));
    if (to->yielded & YIELD_CLASS)
        return;
    to->yielded_class = to->class;
    to->yielded_budget_us = to->budget_us;
}

static bool swap_ok(const struct journal_swap *r)
{
    return r->proc.pid > 0 && r->arrived <= 1 && r->by_user <= 1 && r->swapper.pid >= 0;
}

static bool group_ok(const struct journal_group *r)
{
    return r->group.proc.pid > 0 && r->group.nchannels <= GROUP_CHANNELS_MAX &&
           r->group.gpu < DEVICE_GPUS_MAX;
}

/* One store, so that a writer may be killed before or after it. */
static int set_flags(struct journal *j, struct journal_group *r, uint32_t flags)
{
    r->state = flags ? flags | ~flags << 16 : 0;
    return STORE(j, r->state);
}

/* Before a record comes to be in use, and after it has ceased to: a writer that is killed in
 * between leaves a number that is too large, and never one that hides a loss. */
static int count_used(struct journal *j, bool was, bool is)
{
    if (is && !was)
        atomic_fetch_add(&j->map->header.shared.used, 1);
    else if (was && !is)
        atomic_fetch_sub(&j->map->header.shared.used, 1);
    return was == is ? 0 : STORE(j, j->map->header.shared.used);
}

static uint32_t flags_of(const struct journal_group *r)
{
    uint32_t state = r->state, flags = state & FLAGS_ALL;
    return state == (flags | ~flags << 16) ? flags : 0;
}

/* The one holder that writes drops records that make no sense, and learns where they end. */
void journal_tidy(struct journal *j)
{
    struct journal_shared *shared = &j->map->header.shared;
    uint64_t next = shared->next_number - 1 < NUMBER_MAX ? shared->next_number : 1;
    j->jobs_end = j->groups_end = 0;
    for (uint32_t i = 0; i < JOURNAL_JOBS; i++) {
        const struct journal_job *job = &j->map->jobs[i];
        if (!job->root.pid)
            continue;
        if (job_ok(job)) {
            struct journal_job whole = *job;
            whole.laxity_us = (uint32_t)min_u64(whole.laxity_us, whole.deadline_us);
            if (job->sum == JOB_CHANGING)
                journal_put_job(j, i, &whole);
            j->jobs_end = i + 1;
            next = max_u64(next, job->number + 1);
        } else {
            j->damaged = true;
            journal_put_job(j, i, NULL);
        }
    }
    shared->next_number = next;
    for (uint32_t i = 0; i < JOURNAL_MEMBERS; i++) {
        const bool is_used = j->map->members[i].proc.pid != 0;
        if (is_used && !journal_member(j, i)) {
            j->damaged = true;
            journal_put_member(j, i, NULL);
        }
    }
    uint32_t used = 0, were_used = shared->used;
    for (uint32_t i = 0; i < JOURNAL_SWAPS; i++) {
        bool is_used = j->map->swaps[i].proc.pid != 0;
        if (is_used && !swap_ok(&j->map->swaps[i])) {
            j->damaged = true;
            journal_put_swap(j, i, NULL);
        } else {
            used += is_used;
        }
    }
    for (uint32_t i = 0; i < j->groups_reserved; i++) {
        struct journal_group *g = &j->map->groups[i];
        uint32_t flags = flags_of(g);
        if (flags && group_ok(g) && ((flags & JG_MOVING) || g->sum == GROUP_SUM(g))) {
            j->groups_end = i + 1;
            used++;
        } else if (g->state) {
            j->damaged = true;
            set_flags(j, g, 0);
        }
    }
    /* Fewer than there were: the end was cut off, or some are zero. More, or one fewer, is also
     * what a writer leaves that is killed in mid-change; then looking once costs little. */
    j->damaged |= shared->reserved > j->groups_reserved;
    if (j->damaged || used != were_used)
        shared->incomplete |= ALL_MISSING;
    atomic_signal_fence(memory_order_seq_cst);
    shared->reserved = j->groups_reserved;
    shared->used = used;
    journal_store_shared(j);
}

struct journal_shared *journal_shared(struct journal *j)
{
    return &j->map->header.shared;
}

void journal_store_shared(struct journal *j)
{
    (void)STORE(j, j->map->header);
}

void journal_put_job(struct journal *j, uint32_t slot, const struct journal_job *job)
{
    struct journal_job *r = &j->map->jobs[slot];
    bool same = job && r->root.pid == job->root.pid && r->number == job->number &&
                r->root.start_ticks == job->root.start_ticks;
    /* The pid says whether the record counts: it goes first and comes last. But a job that is only
     * changed never stops counting. */
    if (same)
        r->sum = JOB_CHANGING;
    else
        r->root.pid = 0;
    /* Behind a step that failed no other follows: journal_mend() writes all of it. */
    int e = same ? STORE(j, r->sum) : STORE(j, r->root.pid);
    if (!job)
        return;
    struct journal_job copy;
    job_copy(&copy, job);
    uint32_t sum = job_sum(&copy);
    copy.sum = JOB_CHANGING;
    copy.root.pid = same ? job->root.pid : 0;
    memcpy(r, &copy, sizeof(*r));
    e = e < 0 ? e : STORE(j, *r);
    r->sum = sum;
    e = e < 0 ? e : STORE(j, r->sum);
    r->root.pid = job->root.pid;
    if (e == 0)
        (void)STORE(j, r->root.pid);
    if (slot >= j->jobs_end)
        j->jobs_end = slot + 1;
}

const struct journal_job *journal_job(const struct journal *j, uint32_t slot)
{
    return slot < JOURNAL_JOBS && job_ok(&j->map->jobs[slot]) ? &j->map->jobs[slot] : NULL;
}

void journal_put_member(struct journal *j, uint32_t slot, const struct journal_member *member)
{
    struct journal_member *r = &j->map->members[slot];
    r->proc.pid = 0; /* goes first and comes last, as of jobs */
    (void)STORE(j, r->proc.pid);
    if (!member)
        return;
    r->proc.start_ticks = member->proc.start_ticks;
    r->job = member->job;
    r->sum = member_sum(member);
    (void)STORE(j, *r);
    r->proc.pid = member->proc.pid;
    (void)STORE(j, r->proc.pid);
}

const struct journal_member *journal_member(const struct journal *j, uint32_t slot)
{
    const struct journal_member *r = &j->map->members[slot];
    return r->proc.pid > 0 && r->sum == member_sum(r) ? r : NULL;
}

void journal_put_swap(struct journal *j, uint32_t slot, const struct journal_swap *swap)
{
    struct journal_swap *r = &j->map->swaps[slot];
    const bool was_used = r->proc.pid != 0;
    if (swap)
        count_used(j, was_used, true);
    /* As for jobs, but a record that is in use never stops counting while it is changed: what it
     * says before and after leads to the same, asking the process where it is. */
    if (!swap || r->proc.pid != swap->proc.pid || r->proc.start_ticks != swap->proc.start_ticks) {
        r->proc.pid = 0;
        (void)STORE(j, r->proc.pid);
    }
    if (!swap) {
        count_used(j, was_used, false);
        return;
    }
    struct journal_swap copy = *swap;
    copy.proc.pid = r->proc.pid;
    *r = copy;
    (void)STORE(j, *r);
    r->proc.pid = swap->proc.pid;
    (void)STORE(j, r->proc.pid);
}

const struct journal_swap *journal_swap(const struct journal *j, uint32_t slot)
{
    return slot < JOURNAL_SWAPS && swap_ok(&j->map->swaps[slot]) ? &j->map->swaps[slot] : NULL;
}

const struct journal_swap *journal_swap_of(const struct journal *j, uint32_t job, uint32_t *slot)
{
    for (; *slot < JOURNAL_SWAPS; ++*slot) {
        const struct journal_swap *r = journal_swap(j, *slot);
        if (r && (job == SLOT_NONE || r->job == job))
            return r;
    }
    return NULL;
}

uint32_t journal_swap_slot(const struct journal *j, struct proc_id proc)
{
    uint32_t spare = SLOT_NONE;
    for (uint32_t i = JOURNAL_SWAPS; i-- > 0;) {
        const struct journal_swap *r = journal_swap(j, i);
        if (r && proc_same(r->proc, proc))
            return i;
        spare = r ? spare : i;
    }
    return spare;
}

bool journal_job_lives(const struct journal *j, const struct journal_job *job)
{
    bool lives = proc_alive(job->root);
    for (uint32_t i = 0; i < JOURNAL_MEMBERS && !lives; i++) {
        const struct journal_member *r = journal_member(j, i);
        lives = r && r->job == job->number && proc_alive(r->proc);
    }
    return lives;
}

int journal_reserve(struct journal *j, uint32_t slot)
{
    if (slot >= JOURNAL_GROUPS)
        return -EINVAL;
    if (slot < j->groups_reserved)
        return 0;
    uint32_t want = (uint32_t)min_u64((slot / GROUPS_CHUNK + 1) * GROUPS_CHUNK, JOURNAL_GROUPS);
    int r =
        -posix_fallocate(j->fd, 0, (off_t)(GROUPS_OFFSET + want * sizeof(struct journal_group)));
    if (r < 0)
        return r;
    j->groups_reserved = want;
    j->map->header.shared.reserved = want;
    return STORE(j, j->map->header.shared.reserved);
}

/* What the group is; its flags count meanwhile, where they do. *moving: JG_MOVING where its sum is
 * not right yet, as a killed writer left it. */
static int put_content(struct journal *j, struct journal_group *r, uint32_t flags,
                       const struct device_group *g, uint32_t *moving)
{
    *moving = flags_of(r) & JG_MOVING;
    if (!r->state) {
        r->group = *g;
        r->sum = GROUP_SUM(r); /* with whatever is between its members */
        return STORE(j, *r);
    }
    if (r->group.timeslice_us == g->timeslice_us &&
        memcmp(r->group.channels, g->channels, sizeof(g->channels)) == 0)
        return 0;
    /* A living group whose channels changed, or what its program gave it: the list first, its
     * length last. */
    int e = set_flags(j, r, flags | JG_MOVING);
    *moving = 0;
    r->group.timeslice_us = g->timeslice_us;
    memcpy(r->group.channels, g->channels, sizeof(r->group.channels));
    e = e < 0 ? e : STORE(j, r->group);
    r->group.nchannels = g->nchannels;
    r->sum = GROUP_SUM(r);
    e = e < 0 ? e : STORE(j, r->group);
    return e < 0 ? e : STORE(j, r->sum);
}

int journal_put_group(struct journal *j, uint32_t slot, uint32_t flags,
                      const struct device_group *g)
{
    if (slot >= j->groups_reserved && !flags)
        return 0;
    int e = journal_reserve(j, slot);
    if (e < 0)
        return e;
    struct journal_group *r = &j->map->groups[slot];
    const bool was_used = r->state != 0;
    uint32_t before = flags_of(r), moving = 0;
    if (flags) {
        e = count_used(j, was_used, true);
        if (was_used && !journal_same(&r->group, g)) { /* the slot has changed hands */
            before = 0;
            e = e < 0 ? e : set_flags(j, r, 0);
        }
        e = e < 0 ? e : put_content(j, r, flags, g, &moving);
    }
    const int set = e < 0 ? e : set_flags(j, r, flags | moving);
    if (!flags)
        (void)count_used(j, was_used, false);
    if (flags && set < 0) { /* nobody is to touch the device: it is as before */
        (void)set_flags(j, r, before);
        (void)count_used(j, true, before != 0);
        return set;
    }
    if (flags && slot >= j->groups_end)
        j->groups_end = slot + 1;
    return 0;
}

const struct device_group *journal_group(const struct journal *j, uint32_t slot, uint32_t *flags)
{
    if (slot >= j->groups_reserved)
        return NULL;
    const struct journal_group *r = &j->map->groups[slot];
    *flags = flags_of(r) & ~JG_MOVING;
    return *flags && group_ok(r) ? &r->group : NULL;
}

bool journal_damaged(const struct journal *j)
{
    return j->damaged;
}

uint32_t journal_incomplete(const struct journal *j)
{
    return j->map->header.shared.incomplete & ALL_MISSING;
}

void journal_complete(struct journal *j, enum journal_missing what)
{
    atomic_fetch_and(&j->map->header.shared.incomplete, ~(uint32_t)what);
    (void)STORE(j, j->map->header.shared.incomplete);
}

uint32_t journal_jobs_end(const struct journal *j)
{
    return j->jobs_end;
}

uint32_t journal_groups_end(const struct journal *j)
{
    return j->groups_end;
}
