/* See journal.h. Reads and writes records; journal_file.c opens and mends the file. The space for
 * groups is reserved in chunks with fallocate(2), so that a full file system is an error before a
 * change and not in the middle of one. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>

#include "base/fnv.h"
#include "journal/journal_impl.h"

#define GROUPS_CHUNK 256U

/* The group is being overwritten, so that its checksum does not count. */
#define JG_MOVING (1U << 2)
#define FLAGS_ALL (JG_SUSPENDED | JG_TIMESLICE | JG_STOPPED | JG_PREEMPT | JG_MOVING)

/* Keeps the order of writes to memory, because this process may be killed between two of them and
 * leave the other holder alone. */
static void in_order(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

/* Copies a change from memory to the file. The steps are the same as in memory, so that a kill
 * between two of them leaves a valid file. After a failed step no other is written, and the file
 * stays as a kill would have left it, until journal_mend() writes everything. 0 or -errno. */
static int journal_store(struct journal *j, const void *what, size_t n)
{
    in_order();
    _Atomic int32_t *stale = &j->map->header.stale;
    if (j->yielded)
        return -EBUSY;
    if (!*stale)
        *stale = journal_write(j->fd, what, n, (const char *)what - (const char *)j->map);
    return *stale;
}

#define STORE(j, field) journal_store(j, &(field), sizeof(field))

#define NUMBER_MAX   (1ULL << 53) /* the largest job number that is exact in JSON */
#define JOB_CHANGING 0U           /* as a sum: the record may mix old and new values, all valid */
#define GROUP_SUM(r) sum_of(&(r)->group, sizeof((r)->group))

/* FNV-1a of 32 bits, as the journal's layout has it; base/fnv.h has 64 bits. */
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
           r->memory_bytes <= MEMORY_MAX_BYTES && r->memory_max_mib <= MEMORY_MAX_MIB &&
           r->memory_over < MEMORY_OVER_COUNT && r->number <= NUMBER_MAX &&
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

/* Copies the record with its padding, which the checksum includes. yielded_class of a job that has
 * not yielded its class is its present class, so that a record in which old and new values are
 * mixed never gives another class back. */
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

/* Sets the flags in one store, so that a kill leaves the old ones or the new ones. */
static int set_flags(struct journal *j, struct journal_group *r, uint32_t flags)
{
    r->state = flags ? flags | ~flags << 16 : 0;
    return STORE(j, r->state);
}

/* Counts a record before it is used, and until after it is free. A writer that is killed in between
 * so leaves a number that is too large, and never one that hides the loss of a record. */
static void count_used(struct journal *j, bool was, bool is)
{
    if (is && !was)
        atomic_fetch_add(&j->map->header.shared.used, 1);
    else if (was && !is)
        atomic_fetch_sub(&j->map->header.shared.used, 1);
    if (was != is)
        (void)STORE(j, j->map->header.shared.used);
}

static uint32_t flags_of(const struct journal_group *r)
{
    uint32_t state = r->state, flags = state & FLAGS_ALL;
    return state == (flags | ~flags << 16) ? flags : 0;
}

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
    /* Fewer records than the header says are missing: the file was cut off, or overwritten. One
     * that was killed in mid-change leaves a wrong number too; then the search is cheap. */
    j->damaged |= shared->reserved > j->groups_reserved;
    if (j->damaged || used != were_used)
        shared->incomplete |= ALL_MISSING;
    in_order();
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

/* The file gets the record in one write. No record of a job crosses a page, so that a failed write
 * leaves no part of it. */
void journal_put_job(struct journal *j, uint32_t slot, const struct journal_job *job)
{
    struct journal_job *r = &j->map->jobs[slot];
    bool same = job && r->root.pid == job->root.pid && r->number == job->number &&
                r->root.start_ticks == job->root.start_ticks;
    /* The pid says whether the record is in use, so it is cleared first and set last. The record of
     * a job that only changes stays in use. */
    if (same)
        r->sum = JOB_CHANGING;
    else
        r->root.pid = 0;
    in_order();
    if (job) {
        struct journal_job copy;
        job_copy(&copy, job);
        const uint32_t sum = job_sum(&copy);
        copy.sum = JOB_CHANGING;
        copy.root.pid = same ? job->root.pid : 0;
        memcpy(r, &copy, sizeof(*r));
        in_order();
        r->sum = sum;
        in_order();
        r->root.pid = job->root.pid;
        j->jobs_end = (uint32_t)max_u64(j->jobs_end, slot + 1);
    }
    (void)STORE(j, *r);
}
_Static_assert(HEADER_SIZE % sizeof(struct journal_job) == 0 &&
                   HEADER_SIZE % sizeof(struct journal_member) == 0,
               "no record crosses a page");

const struct journal_job *journal_job(const struct journal *j, uint32_t slot)
{
    return slot < JOURNAL_JOBS && job_ok(&j->map->jobs[slot]) ? &j->map->jobs[slot] : NULL;
}

void journal_put_member(struct journal *j, uint32_t slot, const struct journal_member *member)
{
    struct journal_member *r = &j->map->members[slot];
    r->proc.pid = 0; /* as in journal_put_job() */
    in_order();
    if (member) {
        r->proc.start_ticks = member->proc.start_ticks;
        r->job = member->job;
        r->sum = member_sum(member);
        in_order();
        r->proc.pid = member->proc.pid;
    }
    (void)STORE(j, *r);
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
    /* A record of the same process stays in use while it changes, because with the old and with the
     * new values the next holder does the same: it asks where the process is. */
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

/* Writes the group; its flags stay valid meanwhile. *moving: JG_MOVING if a killed writer left a
 * wrong checksum that was not corrected here. */
static void put_content(struct journal *j, struct journal_group *r, uint32_t flags,
                        const struct device_group *g, uint32_t *moving)
{
    *moving = flags_of(r) & JG_MOVING;
    if (!r->state) {
        r->group = *g;
        r->sum = GROUP_SUM(r); /* includes padding */
        (void)STORE(j, *r);
        return;
    }
    if (r->group.timeslice_us == g->timeslice_us &&
        memcmp(r->group.channels, g->channels, sizeof(g->channels)) == 0)
        return;
    /* The channels of a group that is in use, or its first timeslice, have changed: the list is
     * written first, its length last. */
    (void)set_flags(j, r, flags | JG_MOVING);
    *moving = 0;
    r->group.timeslice_us = g->timeslice_us;
    memcpy(r->group.channels, g->channels, sizeof(r->group.channels));
    (void)STORE(j, r->group);
    r->group.nchannels = g->nchannels;
    r->sum = GROUP_SUM(r);
    (void)STORE(j, r->group);
    (void)STORE(j, r->sum);
}

/* made: the change has been made, so the record stays in memory even if the file cannot have it. */
static int put_group(struct journal *j, uint32_t slot, uint32_t flags, const struct device_group *g,
                     bool made)
{
    if (slot >= j->groups_reserved && !flags)
        return 0;
    int e = journal_reserve(j, slot);
    if (slot >= j->groups_reserved)
        return e;
    struct journal_group *r = &j->map->groups[slot];
    const bool was_used = r->state != 0;
    uint32_t before = flags_of(r), moving = 0;
    if (flags) {
        count_used(j, was_used, true);
        if (was_used && !journal_same(&r->group, g)) { /* another group had the slot */
            before = 0;
            (void)set_flags(j, r, 0);
        }
        put_content(j, r, flags, g, &moving);
    }
    e = set_flags(j, r, flags | moving);
    if (!flags)
        count_used(j, was_used, false);
    if (e < 0 && !made && (flags & ~before)) {
        (void)set_flags(j, r, before);
        count_used(j, true, before != 0);
        return e;
    }
    if (flags && slot >= j->groups_end)
        j->groups_end = slot + 1;
    return 0;
}

int journal_put_group(struct journal *j, uint32_t slot, uint32_t flags,
                      const struct device_group *g)
{
    return put_group(j, slot, flags, g, false);
}

int journal_keep_group(struct journal *j, uint32_t slot, uint32_t flags,
                       const struct device_group *g)
{
    return put_group(j, slot, flags, g, true);
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
