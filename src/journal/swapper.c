/* See swapper.h. */
#include "journal/swapper.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/child.h"
#include "base/log.h"
#include "base/text.h"
#include "gpu/registry.h"
#include "journal/other_cedes.h"
#include "who/procfs.h"

/* Host memory that is needed besides the GPU memory: the target's bookkeeping was 50 MB. */
#define HOST_MARGIN(bytes) (256ULL * 1024 * 1024 + (bytes) / 32)
#define SEARCH_S           60 /* limit of a search through all processes */
#define STOPPED_S          2  /* limit for those that are stopped, which are asked last */
#define SCANS_MAX          64 /* tries to scan a process that is back, LOOK_NS apart */
#define LOOK_NS            10000000L

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

/* ---- starting one ---- */

int swapper_start(struct swapper *s, struct error *err)
{
    int result[2];
    *s = (struct swapper){.pidfd = -1, .order_fd = -1, .result_fd = -1};
    if (pipe2(result, O_CLOEXEC) < 0)
        return error_set(err, -errno, "cannot make a pipe for swapping: %s", strerror(errno));
    const struct child_spec spec = {.file = CHILD_SELF,
                                    .argv = (const char *const[]){"cede-swap", NULL},
                                    .fds = {{result[1], SWAP_RESULT_FD}},
                                    .session = true,
                                    .fresh = true};
    pid_t child;
    int r = s->order_fd = child_start_linked(&spec, CHILD_READS, SWAP_ORDER_FD, &child);
    close(result[1]);
    s->result_fd = result[0];
    struct proc_stat st = {.ppid = 0};
    if (r >= 0)
        r = proc_stat_read(child, &st);
    if (r >= 0)
        r = s->pidfd = proc_pidfd(st.id);
    if (r >= 0) {
        s->id = st.id;
        return 0;
    }
    swapper_detach(s); /* without an order it ends */
    if (child > 0)
        waitpid(child, NULL, 0);
    return error_set(err, r, "cannot start the swapper: %s", strerror(-r));
}

int swapper_begin(struct swapper *s, struct journal *j, struct swap_order *o, struct error *err)
{
    const struct journal_shared *shared = journal_shared(j);
    snprintf(o->driver, sizeof(o->driver), "%.*s", (int)sizeof(o->driver) - 1, shared->driver);
    snprintf(o->where, sizeof(o->where), "%.*s", (int)sizeof(o->where) - 1, shared->where);
    o->lock = journal_lock_id(j);
    for (uint32_t i = 0; i < o->n; i++) {
        uint32_t slot = journal_swap_slot(j, o->v[i].proc);
        if (slot == SLOT_NONE)
            return error_set(err, -ENOSPC, "too many processes are swapped out (%u)",
                             JOURNAL_SWAPS);
        o->v[i].swapper = s->id;
        o->v[i].arrived = 0;
        journal_put_swap(j, slot, &o->v[i]);
    }
    int r = journal_stale(j) ? journal_mend(j) : 0;
    if (r < 0 && !o->must)
        return error_set(err, r, "cannot write the journal (%s): left where it is", strerror(-r));
    r = write_full(s->order_fd, o, sizeof(*o));
    close(s->order_fd);
    s->order_fd = -1;
    return r < 0 ? error_set(err, r, "the swapper has ended before its time") : 0;
}

int swapper_end(struct swapper *s, struct error *err)
{
    struct swap_result res = {.locked_ns = 0};
    int r;
    close_p(&s->order_fd);
    while (waitpid(s->id.pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (read_full(s->result_fd, &res, sizeof(res)) == 0) {
        res.err.text[sizeof(res.err.text) - 1] = '\0';
        r = res.code < 0 ? error_set(err, res.code, "%s", res.err.text) : 0;
    } else {
        r = error_set(err, -EINTR, "the swapper (pid %d) was killed, or its time was up",
                      (int)s->id.pid);
        res.locked_ns = 0;
    }
    swapper_detach(s);
    s->locked_ns = res.locked_ns;
    return r;
}

int swapper_search(struct swapper *s, struct journal *j, struct error *err)
{
    struct swap_order o = {.search = 1};
    int r = swapper_start(s, err);
    if (r < 0)
        return r;
    r = swapper_begin(s, j, &o, err);
    if (r < 0)
        swapper_end(s, NULL);
    return r;
}

int swapper_found(struct swapper *s, struct proc_id v[SWAPS_FOUND_MAX], uint32_t *n,
                  struct error *err)
{
    *n = 0;
    /* Processes come one by one, then one with pid 0, then the result. */
    while (*n < SWAPS_FOUND_MAX && read_full(s->result_fd, &v[*n], sizeof(v[0])) == 0 && v[*n].pid)
        ++*n;
    int r = swapper_end(s, err);
    return r == 0 && *n == SWAPS_FOUND_MAX
               ? error_set(err, -ENOSPC, "more than %u processes", SWAPS_FOUND_MAX - 1)
               : r;
}

void swapper_detach(struct swapper *s)
{
    close_p(&s->order_fd);
    close_p(&s->result_fd);
    close_p(&s->pidfd);
    *s = (struct swapper){.pidfd = -1, .order_fd = -1, .result_fd = -1};
}

/* The number after `key` (and ":") at the beginning of a line of the file, or `otherwise`. */
static uint64_t number_in(const char *path, const char *key, uint64_t otherwise)
{
    char line[256];
    unsigned long long n = 0;
    const size_t len = strlen(key);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, key, len) == 0 &&
            sscanf(line + len + (line[len] == ':'), "%llu", &n) == 1)
            return n;
    }
    return otherwise;
}

uint64_t swapper_host_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    return (number_in(path, "VmRSS", 0) + number_in(path, "VmSwap", 0)) * 1024;
}

uint32_t swapper_users(const struct journal *j)
{
    uint32_t n = 0;
    const struct journal_swap *rec;
    for (uint32_t i = 0; (rec = journal_swap_of(j, SLOT_NONE, &i)); i++)
        n += rec->by_user && rec->uid != 0;
    return n;
}

/* ---- undoing ---- */

bool swapper_anything(const struct journal *j)
{
    uint32_t first = 0;
    return journal_swap_of(j, SLOT_NONE, &first);
}

enum swap_phase swapper_phase(const struct journal_swap *rec)
{
    if (rec->swapper.pid && proc_alive(rec->swapper))
        return SWAP_MOVING;
    return rec->arrived ? SWAP_AWAY : SWAP_STRANDED;
}

const char *swap_phase_name(enum swap_phase phase)
{
    if (phase == SWAP_HERE)
        return "";
    return phase < SWAP_AWAY ? "swapping-out" : phase == SWAP_AWAY ? "swapped" : "swapping-in";
}

struct undoing {
    struct journal *j;
    uint64_t until_ns;
    bool yields;
    bool taken; /* another holder has the journal, which must not be touched any more */
    struct error *err;
    bool tried[JOURNAL_SWAPS];
};

/* Waits until that swapper has ended. 0, -ETIMEDOUT; -EBUSY: the journal is taken. */
static int undo_wait(struct undoing *u, struct proc_id swapper)
{
    while (proc_alive(swapper)) {
        if (monotonic_ns() >= u->until_ns)
            return error_set(u->err, -ETIMEDOUT, "the swapper (pid %d) does not end",
                             (int)swapper.pid);
        if (u->yields)
            journal_yield(u->j);
        nap();
        if (u->yields && journal_reclaim(u->j) < 0) {
            u->taken = true;
            return -EBUSY;
        }
    }
    return 0;
}

/* Whether the record is unchanged after a wait, in which another holder may have used it. */
static bool is_ours(const struct journal *j, uint32_t slot, const struct journal_swap *was)
{
    const struct journal_swap *rec = journal_swap(j, slot);
    return rec && proc_same(rec->proc, was->proc) && proc_same(rec->swapper, was->swapper);
}

/* Brings in one job's processes. Returns how many of them stay on record. */
static unsigned undo_job(struct undoing *u, uint32_t job)
{
    struct swap_order o = {.must = 1};
    struct swapper s;
    uint32_t slots[SWAP_PROCESSES_MAX];
    const struct journal_swap *rec;
    for (uint32_t i = 0; o.n < SWAP_PROCESSES_MAX && (rec = journal_swap_of(u->j, job, &i)); i++) {
        slots[o.n] = i;
        u->tried[i] = true;
        if (proc_alive(rec->proc))
            o.v[o.n++] = *rec;
        else
            journal_put_swap(u->j, i, NULL);
    }
    for (uint32_t i = 0; i < o.n; i++) {
        if (undo_wait(u, o.v[i].swapper) < 0)
            return u->taken ? 0 : o.n;
        if (!is_ours(u->j, slots[i], &o.v[i]))
            return 0;
    }
    if (journal_stale(u->j))
        journal_mend_soon(u->j);
    const uint32_t n = o.n;
    int r = n ? swapper_start(&s, u->err) : 0;
    if (r < 0 || !n)
        return n;
    r = swapper_begin(&s, u->j, &o, u->err);
    if (r < 0) {
        swapper_end(&s, NULL);
    } else {
        r = undo_wait(u, o.v[0].swapper);
        if (r < 0 || !is_ours(u->j, slots[0], &o.v[0])) {
            swapper_detach(&s);
            return u->taken || r == 0 ? 0 : n; /* the swapper goes on, as the records say */
        }
        r = swapper_end(&s, u->err);
    }
    for (uint32_t i = 0; i < n; i++) {
        o.v[i].swapper.pid = 0;
        journal_put_swap(u->j, slots[i], r < 0 ? &o.v[i] : NULL);
    }
    return r < 0 ? n : 0;
}

unsigned swapper_undo(struct journal *j, unsigned wait_ms, bool yields, struct error *err)
{
    struct undoing u = {
        .j = j, .until_ns = monotonic_ns() + wait_ms * NSEC_PER_MSEC, .yields = yields, .err = err};
    unsigned left = 0;
    const struct journal_swap *rec;
    for (uint32_t i = 0; !u.taken && (rec = journal_swap_of(j, SLOT_NONE, &i)); i++) {
        if (!u.tried[i])
            left += undo_job(&u, rec->job);
    }
    return u.taken ? 0 : left;
}

/* ---- the swapper itself ---- */

static uint64_t cgroup_number(const char *path, const char *file, const char *key,
                              uint64_t otherwise)
{
    char name[600];
    snprintf(name, sizeof(name), "/sys/fs/cgroup%s/%s", path, file);
    return number_in(name, key, otherwise);
}

/* The memory that the process's control groups (v2) still allow; file cache counts as free. */
static uint64_t cgroup_spare(pid_t pid)
{
    char path[512];
    uint64_t spare = UINT64_MAX;
    if (proc_cgroup(pid, path, sizeof(path)) < 0 || path[0] != '/')
        return spare;
    for (; path[0]; *strrchr(path, '/') = '\0') {
        uint64_t max = cgroup_number(path, "memory.max", "", UINT64_MAX); /* or "max" */
        if (max == UINT64_MAX)
            continue;
        uint64_t current = cgroup_number(path, "memory.current", "", 0);
        current -= min_u64(current, cgroup_number(path, "memory.stat", "inactive_file", 0));
        spare = min_u64(spare, max - min_u64(max, current));
    }
    return spare;
}

#define GIB(bytes) ((double)(bytes) / (1024.0 * 1024 * 1024))

static uint64_t on_all_gpus(const struct journal_swap *p)
{
    uint64_t sum = 0;
    for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
        sum += p->bytes[g];
    return sum;
}

/* With too little host memory the kernel would kill the job half-way, so nothing is begun. */
static int check_host(const struct swap_order *o, struct error *err)
{
    uint64_t need = 0, spare = number_in("/proc/meminfo", "MemAvailable", 0) * 1024;
    if (o->host_max_bytes)
        spare = min_u64(spare, o->host_max_bytes);
    for (uint32_t i = 0; i < o->n; i++) {
        uint64_t bytes = on_all_gpus(&o->v[i]);
        if (!bytes) {
            char name[TEXT_QUOTE];
            struct proc_stat st;
            proc_stat_read(o->v[i].proc.pid, &st);
            return error_set(err, -ENOTSUP,
                             "the driver reports no GPU memory of %s (process %d), so it cannot be "
                             "swapped safely: try again once it has some, or ask `cede doctor`",
                             text_quote(name, st.comm), (int)o->v[i].proc.pid);
        }
        need += bytes;
        spare = min_u64(spare, cgroup_spare(o->v[i].proc.pid));
    }
    need += HOST_MARGIN(need);
    if (need <= spare)
        return 0;
    return error_set(err, -ENOMEM,
                     "its GPU memory takes %.1f GiB of host memory, and %.1f GiB can be had: not "
                     "swapped, it runs on",
                     GIB(need), GIB(spare));
}

/* Whether there is room on the GPUs. A process takes what it had, or the amount by which its host
 * memory has grown, if it allocated more between the measurement and the lock. */
static int check_gpus(struct device_driver *d, const struct swap_order *o, struct error *err)
{
    uint64_t need[DEVICE_GPUS_MAX] = {0};
    for_each (p, o->v, o->n) {
        enum swap_state s;
        int r = d->ops->swap_state(d, p->proc, &s, err);
        if (r == -ESRCH && o->n > 1) /* the others need room even so */
            continue;
        if (r < 0)
            return r;
        if (s != SWAP_OUT)
            continue;
        uint64_t had = on_all_gpus(p), now = swapper_host_bytes(p->proc.pid);
        double grown = now > p->host_bytes ? (double)(now - p->host_bytes) : 0;
        double factor = had && grown > (double)had ? grown / (double)had : 1;
        for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++)
            need[g] += (uint64_t)((double)p->bytes[g] * factor);
        if (!had) /* what it had is not known; it cannot take more than all of its memory */
            need[0] += now;
    }
    for (unsigned g = 0; g < DEVICE_GPUS_MAX; g++) {
        uint64_t spare = 0, all = need[g] + SWAP_GPU_MARGIN(need[g]);
        int r = need[g] ? d->ops->memory_free(d, g, &spare, err) : 0;
        if (r < 0)
            return r;
        if (need[g] && all > spare)
            return error_set(err, -ENOMEM,
                             "no room on GPU %u: %.1f GiB are needed and %.1f GiB are free; it "
                             "stays in host memory",
                             g, GIB(all), GIB(spare));
    }
    return 0;
}

static bool is_away(struct device_driver *d, struct proc_id proc)
{
    enum swap_state s;
    return d->ops->swap_state(d, proc, &s, NULL) == 0 && (s == SWAP_OUT || s == SWAP_LOCKED);
}

/* Asks the driver about every process. For one that does not use the GPU the answer is a quick
 * error. A call about a stopped one that uses it does not return, so stopped ones are asked last.
 */
static int search(const struct swap_order *o, struct device_driver *d, struct error *err)
{
    _cleanup_free_ pid_t *pids = NULL;
    struct other_cedes others;
    size_t n = 0;
    other_cedes_find(&others, o->driver, o->where, &o->lock);
    int r = d->ops->swap_state ? proc_list(&pids, &n) : -ENOTSUP;
    if (r < 0)
        return error_set(err, r, "cannot search the processes: %s", strerror(-r));
    for (size_t i = 0, stopped = 0; i < n + stopped; i++) {
        if (i == n)
            alarm(STOPPED_S);
        const pid_t pid = i < n ? pids[i] : pids[i - n];
        struct proc_stat st;
        uid_t uid;
        int code = proc_owner(pid, &uid);
        if (code == 0)
            code = proc_stat_read(pid, &st);
        if (code < 0 && code != -ESRCH)
            r = error_set(err, code, "cannot look at process %d: %s", (int)pid, strerror(-code));
        if (code != 0 || (geteuid() != 0 && uid != geteuid()) || other_cedes_have(&others, pid))
            continue;
        if (i < n && proc_stopped(st.id))
            pids[stopped++] = pid;
        else if (is_away(d, st.id))
            (void)write_full(SWAP_RESULT_FD, &st.id, sizeof(st.id));
    }
    if (others.unsure && r == 0)
        r = error_set(err, -EAGAIN, "cannot tell what other cedes there are");
    return r;
}

/* ---- all processes of a job ----
 * All are locked, then all are moved out; all are brought in, then all are unlocked. So none runs
 * while another is away, whatever they wait for from each other.
 *
 * The first process is moved out first and brought in last. So if it is locked, none is out. Then
 * the others are not asked before it is unlocked, because processes that share memory may not
 * answer while one of them is locked (cuda-checkpoint#30). */

/* Makes one step with all processes, in their order or backwards. The first error counts. */
static int step_all(struct device_driver *d, const struct swap_order *o, enum swap_step step,
                    bool backwards, struct error *err)
{
    int first = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        struct error e = {""};
        const struct proc_id proc = o->v[backwards ? o->n - 1 - i : i].proc;
        int r = d->ops->swap_step(d, proc, step, 0, &e);
        if (r < 0 && first == 0)
            first = error_set(err, r, "%s", e.text);
    }
    return first;
}

/* Sets the default timeslices again, because a restored context lacks what the vendor's library had
 * set. */
static void restore_timeslices(struct device_driver *d, struct proc_id proc)
{
    struct group_list found = {0};
    int r;
    for (int i = 0; i < SCANS_MAX && (r = d->ops->scan(d, proc, &found, NULL)) < 0 && r != -ESRCH;
         i++) {
        group_list_free(&found);
        nap();
    }
    for_each (g, found.v, found.n) {
        struct gpu_info gpu;
        struct error err;
        if (g->kind != GROUP_COMPUTE || d->ops->info(d, g->gpu, &gpu) < 0 ||
            g->timeslice_now_us != gpu.timeslice_back_us || !(gpu.caps & GPU_CAP_TIMESLICE))
            continue;
        r = d->ops->set_timeslice(d, g, gpu.timeslice_default_us, &err);
        if (r < 0) /* it may have failed for want of memory */
            r = d->ops->set_timeslice(d, g, gpu.timeslice_default_us, &err);
        if (r < 0)
            log_say(LOG_WARNING, "process %d is back with shorter timeslices than it had: %s",
                    (int)proc.pid, err.text);
    }
    group_list_free(&found);
}

/* -EAGAIN: a process that seemed to be back is not. */
static int bring_in(struct device_driver *d, const struct swap_order *o, struct error *err)
{
    enum swap_state s;
    struct error e = {""};
    int r = 0;
    if (d->ops->swap_state(d, o->v[0].proc, &s, NULL) < 0 || s != SWAP_LOCKED) {
        r = check_gpus(d, o, err);
        if (r == 0)
            r = step_all(d, o, SWAP_STEP_IN, true, err);
    }
    int unlocked = step_all(d, o, SWAP_STEP_UNLOCK, false, &e);
    if (r < 0 || unlocked < 0)
        return r < 0 ? r : error_set(err, unlocked, "%s", e.text);
    for (uint32_t i = 0; i < o->n; i++) {
        if (d->ops->swap_state(d, o->v[i].proc, &s, NULL) == 0 && s != SWAP_RUNNING)
            return error_set(err, -EAGAIN, "process %d is not back yet", (int)o->v[i].proc.pid);
    }
    for (uint32_t i = 0; i < o->n; i++)
        restore_timeslices(d, o->v[i].proc);
    return 0;
}

/* Locks all processes within lock_ms together, but each gets a second at least. */
static int lock_all(struct device_driver *d, const struct swap_order *o, struct error *err)
{
    const uint64_t until = monotonic_ns() + o->lock_ms * NSEC_PER_MSEC;
    int r = 0;
    for (uint32_t i = 0; i < o->n && r == 0; i++) {
        uint64_t now = monotonic_ns(), left = until > now ? (until - now) / NSEC_PER_MSEC : 0;
        r = d->ops->swap_step(d, o->v[i].proc, SWAP_STEP_LOCK, (unsigned)max_u64(left, 1000), err);
    }
    return r;
}

/* After a failure everything is brought in again, unless the room for it is gone. */
static int move_out(struct device_driver *d, const struct swap_order *o, uint64_t *locked_ns,
                    struct error *err)
{
    int r = 0;
    for (uint32_t i = 0; i < o->n && r == 0 && d->ops->swap_shares; i++)
        r = d->ops->swap_shares(d, o->v[i].proc, o->n > 1, err);
    if (r < 0)
        return r;
    r = lock_all(d, o, err);
    *locked_ns = r < 0 ? 0 : monotonic_ns();
    for (uint32_t i = 0; i < o->n && r == 0; i++)
        r = d->ops->swap_step(d, o->v[i].proc, SWAP_STEP_OUT, 0, err);
    for (int tries = 0; r < 0 && tries < 3 && bring_in(d, o, NULL) == -EAGAIN; tries++)
        ;
    return r;
}

/* Whether a process is in, or may be because its answer was lost, although not all are. */
static bool any_in(struct device_driver *d, const struct swap_order *o)
{
    enum swap_state s = SWAP_OUT;
    int r = 0;
    for (uint32_t i = 0; i < o->n && r == 0 && s == SWAP_OUT; i++)
        r = d->ops->swap_state(d, o->v[i].proc, &s, NULL);
    return s != SWAP_OUT || error_may_pass(r);
}

static int move_in(struct device_driver *d, const struct swap_order *o, struct error *err)
{
    int r = -EAGAIN;
    for (int tries = 0; r == -EAGAIN && tries < 3; tries++)
        r = bring_in(d, o, err);
    return r < 0 && any_in(d, o) ? -EINTR : r;
}

static int carry_out(const struct swap_order *o, uint64_t *locked_ns, struct error *err)
{
    struct device_driver *d;
    int r = device_open(o->driver, o->where[0] ? o->where : NULL, &d, err);
    if (r < 0)
        return r;
    if (o->search) {
        r = search(o, d, err);
        device_close(d);
        return r;
    }
    if (!d->ops->swap_step || !d->ops->swap_state || !d->ops->memory_free)
        r = error_set(err, -ENOTSUP, "the driver for %s GPUs cannot swap", d->ops->name);
    else if (o->out)
        r = check_host(o, err);
    if (r == 0)
        r = o->out ? move_out(d, o, locked_ns, err) : move_in(d, o, err);
    device_close(d);
    return r;
}

int swap_main(int argc, char **argv)
{
    static struct swap_order o;
    struct swap_result res = {.code = 0};
    if (argc != 1 || fcntl(SWAP_ORDER_FD, F_GETFD) < 0 || fcntl(SWAP_RESULT_FD, F_GETFD) < 0) {
        fprintf(stderr, "cede-swap is started by ceded, not by hand: see `cede swap out`\n");
        return 2;
    }
    if (child_begin("cede-swap") < 0 || read_full(SWAP_ORDER_FD, &o, sizeof(o)) < 0 ||
        o.n > SWAP_PROCESSES_MAX)
        return 1; /* there is no order, because the starter has died */
    if (o.search) /* a program may not answer; those that were found until then count */
        alarm(SEARCH_S);
    res.code = carry_out(&o, &res.locked_ns, &res.err);
    const struct proc_id none = {0, 0};
    if (o.search) /* ends the list of processes */
        (void)write_full(SWAP_RESULT_FD, &none, sizeof(none));
    (void)write_full(SWAP_RESULT_FD, &res,
                     sizeof(res)); /* without a reader, the journal shows it */
    return res.code < 0;
}
