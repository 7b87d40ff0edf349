/* SPANK plugin: srun, sbatch and salloc --gpu-class, --gpu-weight and --gpu-pool. On the node it
 * names each task to ceded, as root, before the task's program begins; all tasks of a Slurm job are
 * one job of cede's (docs/slurm.md).
 *
 * It trusts nothing that the user can change: limits are checked on the node, by its plugstack.conf
 * and by slurmctld's record of the job. It must not delay a task for longer than CEDED_NS, except
 * into a pool, and must not fail a step in a way that drains the node: so a refusal takes effect in
 * the task. SPANK keeps no state of a plugin, which is therefore in `self`. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "api/client.h"
#include "base/json_text.h"
#include "limits.h"
#include "memory/pool/pool.h"
#include "who/procfs.h"

SPANK_PLUGIN(cede, 1)

#define CEDED_NS    NSEC_PER_SEC /* for connecting, request and answer */
#define OWNER_LOOKS 200          /* one second in all, until the task is its user's */
#define OWNER_NAP   5000000L

/* Memory that slurmstepd shares with the tasks that it forks. */
struct shared {
    char refusal[sizeof(
        ((struct error *)0)->text)]; /* why tasks do not run, which each prints; "": they run */
    bool pool_possible;
    struct pool_terms pool; /* from ceded's answer */
};

static struct {
    struct limits limits;
    struct limits_options options;
    struct error wrong; /* of an option or an argument; on the node only tasks may fail for it */
    enum job_class class;
    uint32_t weight;
    struct shared *shared; /* NULL: not on a node */
} self = {.class = LIMIT_CLASS_NOT};

enum { OPTION_CLASS, OPTION_WEIGHT, OPTION_POOL };

static int spank_read_option(int which, const char *text, struct error *err)
{
    struct limits_options *o = &self.options;
    uint64_t weight;
    switch (which) {
    case OPTION_CLASS:
        o->has_class = true;
        return text && job_class_parse(text, &o->class) == 0
                   ? 0
                   : error_set(err, -EINVAL, "--gpu-class: '%s' is not latency, normal or batch",
                               text ? text : "");
    case OPTION_WEIGHT:
        if (!text || parse_u64(text, WEIGHT_MIN, WEIGHT_MAX, &weight) < 0)
            return error_set(err, -EINVAL, "--gpu-weight: '%s' is not a number from %u to %u",
                             text ? text : "", WEIGHT_MIN, WEIGHT_MAX);
        o->weight = (uint32_t)weight;
        return 0;
    default:
        o->pool = true;
        return 0;
    }
}

static int spank_option(int which, const char *text, int remote)
{
    struct error err;
    if (spank_read_option(which, text, &err) == 0)
        return 0;
    if (remote) {
        self.wrong = err;
        return 0;
    }
    slurm_error("cede: %s", err.text);
    return -1;
}

int slurm_spank_init(spank_t sp, int ac, char **av)
{
    static char names[][12] = {"gpu-class", "gpu-weight", "gpu-pool"}, args[][6] = {"CLASS", "N"};
    static char usage[][64] = {"class on the GPU: latency, normal or batch (cede)",
                               "share of the GPU within the class, 1 to 10000 (cede)",
                               "share the GPU in space with your other batch jobs (cede)"};
    static struct spank_option options[] = {
        {names[0], args[0], usage[0], 1, OPTION_CLASS, spank_option},
        {names[1], args[1], usage[1], 1, OPTION_WEIGHT, spank_option},
        {names[2], NULL, usage[2], 0, OPTION_POOL, spank_option},
    };
    for (size_t i = 0; i < ARRAY_SIZE(options); i++) {
        if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS)
            return -1;
    }
    for (int i = 0; i < ac; i++) {
        if (limits_read(&self.limits, av[i], &self.wrong) < 0)
            slurm_error("cede: plugstack.conf: %s", self.wrong.text);
    }
    return 0;
}

/* Asks slurmctld, because a user can change the environment, which has them too. "": not known. */
static void spank_partition(spank_t sp, char partition[static LIMIT_NAME_MAX],
                            char qos[static LIMIT_NAME_MAX])
{
    job_info_msg_t *jobs = NULL;
    uint32_t id = 0;
    partition[0] = qos[0] = '\0';
    if (!limits_differ(&self.limits) || spank_get_item(sp, S_JOB_ID, &id) != ESPANK_SUCCESS)
        return;
    if (slurm_load_job(&jobs, id, 0) != 0 || jobs->record_count < 1) {
        slurm_error("cede: slurmctld does not say where job %u runs: what is allowed everywhere is",
                    id);
    } else {
        const slurm_job_info_t *job = &jobs->job_array[0];
        snprintf(partition, LIMIT_NAME_MAX, "%s", job->partition ? job->partition : "");
        snprintf(qos, LIMIT_NAME_MAX, "%s", job->qos ? job->qos : "");
    }
    if (jobs)
        slurm_free_job_info_msg(jobs);
}

static int spank_begin_node(spank_t sp)
{
    char partition[LIMIT_NAME_MAX], qos[LIMIT_NAME_MAX];
    struct error err = self.wrong;
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        slurm_error("cede: no memory: the GPU is not scheduled");
        return 0;
    }
    self.shared = shared;
    if (self.limits.dir)
        setenv("CEDE_DIR", self.limits.dir, 1);
    spank_partition(sp, partition, qos);
    if (!err.text[0])
        limits_apply(&self.limits, &self.options, partition, qos, &self.class, &self.weight, &err);
    snprintf(shared->refusal, sizeof(shared->refusal), "%s", err.text);
    return 0;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av)
{
    const spank_context_t where = spank_context();
    struct error err = self.wrong;
    if (where == S_CTX_REMOTE)
        return spank_begin_node(sp);
    if (where != S_CTX_LOCAL && where != S_CTX_ALLOCATOR)
        return 0;
    if (!err.text[0] &&
        limits_apply(&self.limits, &self.options, NULL, NULL, &self.class, &self.weight, &err) == 0)
        return 0;
    slurm_error("cede: %s", err.text);
    return -1;
}

/* Called in srun when it has its allocation, before it starts the step. */
int slurm_spank_local_user_init(spank_t sp, int ac, char **av)
{
    char partition[LIMIT_NAME_MAX], qos[LIMIT_NAME_MAX];
    struct error err;
    spank_partition(sp, partition, qos);
    if (limits_apply(&self.limits, &self.options, partition, qos, &self.class, &self.weight,
                     &err) == 0)
        return 0;
    slurm_error("cede: %s", err.text);
    return -1;
}

/* Waits until the task, which was forked as root, has changed to its user. */
static void spank_await_owner(pid_t pid, uid_t uid)
{
    uid_t now;
    for (int i = 0; i < OWNER_LOOKS && proc_owner(pid, &now) == 0 && now != uid; i++)
        nanosleep(&(struct timespec){.tv_nsec = OWNER_NAP}, NULL);
}

static int spank_tell(pid_t pid, uint32_t job, json_t **reply, struct error *err)
{
    _cleanup_client_ struct client c = {.fd = -1};
    const struct request r = {.op = OP_ADD,
                              .pid = pid,
                              .given = TERM(class) | TERM(weight),
                              .class = self.class,
                              .weight = self.weight,
                              .slurm_job = job,
                              .run = self.options.pool}; /* asks whether a pool is possible */
    const int code = client_open_until(&c, monotonic_ns() + CEDED_NS, err);
    return code < 0 ? code : client_call(&c, &r, reply, err);
}

/* Called in slurmstepd for each task, whose program begins when this returns. */
int slurm_spank_task_post_fork(spank_t sp, int ac, char **av)
{
    struct error err = {""};
    json_t *reply = NULL;
    uint32_t job = 0;
    pid_t pid = 0;
    uid_t uid = 0;
    if (!self.shared || self.shared->refusal[0] || self.class == LIMIT_CLASS_NOT ||
        spank_get_item(sp, S_TASK_PID, &pid) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_ID, &job) != ESPANK_SUCCESS ||
        spank_get_item(sp, S_JOB_UID, &uid) != ESPANK_SUCCESS)
        return 0;
    spank_await_owner(pid, uid);
    int code = spank_tell(pid, job, &reply, &err);
    const json_t *pool = json_object_get(reply, "pool");
    self.shared->pool_possible = json_get_true(pool, "possible");
    self.shared->pool =
        (struct pool_terms){.may_join = json_get_true(pool, "latency"),
                            .latency_sm = (unsigned)json_get_int(pool, "latency_sm")};
    json_decref(reply);
    if (code == 0)
        return 0;
    if (self.limits.required)
        snprintf(self.shared->refusal, sizeof(self.shared->refusal),
                 "task %d was not run, as the GPU is not scheduled on this node: %.400s", (int)pid,
                 err.text);
    else if (code == -ENOENT)
        slurm_info("cede: task %d of job %u runs unscheduled: %s", (int)pid, job, err.text);
    else /* the user sees errors, but not slurm_info() */
        slurm_error("cede: task %d of job %u runs unscheduled: %s", (int)pid, job, err.text);
    return 0;
}

/* Copies a variable of the task's environment into this process's, which is another one. */
static void spank_copy_in(spank_t sp, const char *name)
{
    char value[8192];
    if (spank_getenv(sp, name, value, sizeof(value)) == ESPANK_SUCCESS)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static int spank_pool(spank_t sp, struct error *err)
{
    static const char *const in[] = {
        "PATH",  "CUDA_VISIBLE_DEVICES", "CUDA_MPS_PIPE_DIRECTORY", "XDG_RUNTIME_DIR",
        POOL_SM, POOL_PRIORITY};
    static const char *const out[] = {"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", POOL_SM,
                                      POOL_PRIORITY};
    struct pool pool;
    if (!self.shared->pool_possible)
        return error_set(err, -ENOTSUP,
                         "no ceded runs here, or the GPU is in MIG mode, reserved for one process "
                         "(compute mode), or of another kind");
    for (size_t i = 0; i < ARRAY_SIZE(in); i++)
        spank_copy_in(sp, in[i]);
    int r =
        pool_join(&pool, &self.shared->pool, self.limits.cede ? self.limits.cede : CEDE_PATH, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(out); i++) {
        if (getenv(out[i]))
            spank_setenv(sp, out[i], getenv(out[i]), 1);
    }
    pool_enter(&pool);
    return 0;
}

/* Called in the task, as its user, just before its program begins. */
int slurm_spank_task_init(spank_t sp, int ac, char **av)
{
    struct error err = {""};
    if (!self.shared)
        return 0;
    if (self.shared->refusal[0]) {
        slurm_error("cede: %s", self.shared->refusal);
        return -1;
    }
    if (!self.options.pool || spank_pool(sp, &err) == 0)
        return 0;
    slurm_error("cede: the task %s: %s",
                self.limits.required ? "was not run" : "runs outside of a pool", err.text);
    return self.limits.required ? -1 : 0;
}
