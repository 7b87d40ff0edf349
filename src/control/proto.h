/* What cede and ceded say to each other: one JSON object a message on a SEQPACKET Unix socket.
 * A request whose sender closes the connection before it has the reply is dropped or taken back.
 *
 * Request:  {"v":1, "op":OP, ...}. T is a pid, a job's number written "#12", or its name,
 * with its user's number before it where it is another's: "1000/train".
 * - add: {"pid":N, "class":C?, "weight":W?, "budget_us":B?, "name":S?, "run":true?,
 *   "deadline_us":D?, "laxity_us":L?, "memory_bytes":N?, "gpu":N?, "started":true?, "program":N?,
 *   "preempt":P?, "gpus":N?, "visible":S?, "slurm_job":N?}: adopt a process
 * tree; it may say how much of a GPU it is going to take, and "started":true that its program
 * starts whether or not that is free; gpus: how many are to be chosen for it, of those that visible
 * (its CUDA_VISIBLE_DEVICES) lists; slurm_job, from administrators only: a process of that Slurm
 * job, whose processes are one job here
 * - set: {"target":T, "class":C?, "weight":W?, "budget_us":B?, "deadline_us":D?, "laxity_us":L?,
 *   "preempt":"block|instruction"?}; class "none" detaches the job; a pid in no job is adopted
 * - pause, resume: {"target":T}
 * - swap-out, swap-in: {"target":T}: begin it; ps shows how far it is
 * - yield: {"target":T?, "pause":true?, "memory":true?, "look":true?}: class batch, suspended, out
 * of GPU memory; without target the job of the asking process. look: begins nothing, and says what
 *   has become of it
 * - acquire: {"target":T?, "wait_us":N?}: it is to have back what it yielded; asked again until it
 *   has, at the latest after N (5 s): else its place in line is gone
 * - ps: {"after":N?, "pid":N?, "brief":true?}: jobs with numbers above N, as many as fit; which the
 * process is in; brief: without what tables and cede top do not show
 * - policy: {"name":S?, "params":{KEY:X, ...}?}: show, or change; keys as in [policy] of cede.conf.
 *   All of it is done, or nothing
 * - hints: {}: a page to report requests: libcede
 * - room: {"memory_bytes":N?, "name":S?}: after hints, on the same connection: so much is to be
 *   free on that GPU (its UUID; without: the only one) for this process's job, which has to be of
 *   class latency; for 5 s, or until the connection ends. Without memory_bytes: no longer
 * - trace: {}: what happens, from now on
 * - rules: {"pid":N?, "after":N?}: the rules with numbers above N, as many as fit, and what they
 * say of a process
 * - identity: {"cgroup":S, "facts":{"pod":S?, "namespace":S?, "container_name":S?, "image":S?,
 *   "priority_class":S?, "partition":S?, "qos":S?, "label:KEY":S?, ...}?}: what an administrator's
 *   agent knows of a control group; without facts that is forgotten
 *
 * Reply:    {"v":1, "ok":true, ...} or {"v":1, "ok":false, "errno":E, "error":"for a person"}
 * - add, set, pause, resume, swap-out, swap-in, yield, acquire: {"job":{...}, "note":S?,
 * "waits":true? (of the last two: it is not done yet)}; of add with run also what ps lists of
 * unmanaged programs, and "warning":S? (why it cannot be scheduled yet); with gpus "visible":S, for
 * the program's environment
 * - ps: {"jobs":[...], "job_of":N? (the number of that process's), "more":bool, "policy":S,
 * "device":S, "gpus":[{"index":, "label":, "name":, "uuid":, "level":, "level_name":, "caps":[S,
 * ...]}], "pid":N, "guest":true?}; without devices that nobody has used yet. Pids are those of the
 * caller's pid namespace, 0 where a process is in another one. Where "after" is 0 also
 * "unmanaged":[{"pid":, "name":, "uid":, "gpus":[..] (empty: not known), "detached":bool (by a
 * person), "may_set":bool (by this caller)}] and, where there are more than 64, "unmanaged_more":N:
 * GPU programs that no job owns
 * - policy: {"policy":S, "policies":[{"name":, "summary":}], "params":{KEY:X, ...}}
 * - hints: {"hints":N, "pid":N}, and the page's descriptor: lib/hints_proto.h of version N; pid
 *   is the asking process
 * - rules: {"rules":[{"number":, "kind":"rule|account", "name":, "conditions":[{"key":, "name":S?
 * (of a variable or label), "wanted":S, and of a process "seen":S, "holds":bool|null (not known
 * yet)}], "class":?, "weight":?, "warning":S? (why it never matches), "matches":bool|null?}],
 *   "environment":bool, "others":S|null, "more":bool}, and of a process "pid", "pending":bool (ask
 *   again), "outcome":{"by":"rule|environment|others|nothing", "rule":S?, "class":?, "weight":?,
 *   "name":S?, "note":S?}?, "job":N?
 * - identity: {}
 * - room: {}
 * - trace: {"trace":N}, and then, unasked, messages as lib/trace_proto.h of version N has them
 *
 * A job: {"number":, "name":, "class":, "weight":, "budget_us":, "deadline_us":?,
 *   "laxity_us":?, "preempt":"block"?, "preempt_active":bool? (is it so now?), "pid":, "uid":,
 *   "source":"run|pid|rule|environment|slurm",
 *   "state":"running|waiting|throttled|paused|stopped|queued|starting|swapping-out|
 *   swapped|swapping-in",
 *   "processes":,
 *   "gpus":[..], "levels":[..] (of each GPU), "level":N|null (the lowest), "level_name":S|null,
 *   "timeslice_us":, "busy":x|null, "memory_bytes":, "error":S?, "swap_error":S?,
 *   "due":{"in_us":, "needs_us":N|null, "first":bool, "promoted":bool}? (what it does now is due:
 * is it boosted over its class, is it promoted to the latency class?), "swapped_bytes":?,
 * "placed":{"gpus":[..], "why":S}? (the GPUs that were chosen for it),
 * "room":bool? (was the memory free that it said it needs?), "memory":{"said_bytes":,
 *   "gpu":, "held_bytes":, "place":N?}? (with room; place in line, 0 the first;
 *   "infeasible":true? if there is too little even if all jobs end), "yielded":{"class":,
 * "paused":, "memory":}? (its class before; what else it yielded), "requests":{..}?
 * (of ps, when its programs report them: control/hints.h)}
 *
 * Parsing never trusts: length, depth, types, ranges and unknown fields are checked here, and
 * nowhere else. No I/O in this file. */
#ifndef CEDE_CONTROL_PROTO_H
#define CEDE_CONTROL_PROTO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/identities.h"
#include "engine/engine.h"
#include "lib/util.h"
#include "recovery/journal.h"
#include "sched/sched.h"

#define PROTO_VERSION     1
#define PROTO_MESSAGE_MAX 65536   /* bytes; a longer message is refused */
#define VISIBLE_MAX       1024    /* bytes of a list of GPUs */
#define ACQUIRE_WAIT_US   5000000 /* that a wish to acquire lasts */

enum proto_op {
    OP_ADD,
    OP_SET,
    OP_PAUSE,
    OP_RESUME,
    OP_PS,
    OP_POLICY,
    OP_SWAP_OUT,
    OP_SWAP_IN,
    OP_YIELD,
    OP_ACQUIRE,
    OP_HINTS,
    OP_ROOM,
    OP_TRACE,
    OP_RULES,
    OP_IDENTITY
};

struct request {
    enum proto_op op;
    bool has_class, has_weight, has_budget, has_deadline, has_laxity, has_gpu_min, has_gpu_max;
    bool has_preempt, has_min_speed;
    bool release, run, started;
    bool brief;                             /* of ps */
    bool yields_pause, yields_memory, look; /* of yield */
    bool has_wait;                          /* of acquire: */
    uint32_t wait_us;
    enum job_class class;
    uint32_t weight, budget_us;
    uint32_t gpu_min, gpu_max; /* percent of each GPU; 0: none */
    enum preempt_mode preempt;
    uint32_t min_speed;              /* percent of its speed alone; 0: none */
    uint32_t deadline_us, laxity_us; /* 0: none */
    uint64_t memory_bytes;           /* of add; 0: not said */
    uint32_t gpu;
    uint32_t gpus; /* of add: how many are to be chosen; 0: none, the program does */
    bool has_gpu, has_visible;
    char visible[VISIBLE_MAX];
    uint64_t slurm_job;           /* of add: it is a process of that one; 0: of none */
    uint64_t program;             /* of add: a number made of its arguments; 0: not said */
    pid_t pid;                    /* of add, or of target when it is a pid; 0: none */
    uint64_t number;              /* of target "#12", or of "after" */
    char name[JOB_NAME_MAX];      /* of add, target or policy; "" none */
    char cgroup[IDENTITY_CGROUP]; /* of identity; with these, as pairs: */
    char facts[IDENTITY_FACTS];
    uint32_t nfacts;
    bool has_owner; /* of target: the name is that user's; else the caller's first */
    uid_t owner;
    uint32_t params; /* of policy: bit i says that param_at(i) shall be param[i] */
    double param[PARAMS_COUNT];
};

/* 0, or -EINVAL / -EMSGSIZE / -EPROTO (other version) with what is wrong and where. */
int proto_parse(const char *text, size_t n, struct request *out, struct error *err);

/* "1234", "#12", a name or "1000/name". -EINVAL. */
int proto_target(const char *text, struct request *out, struct error *err);

/* Names: 1..63 bytes of UTF-8 that can be seen (lib/text.h); not starting with '#', not all digits
 * or '%' and digits, without '/', which is between a user and a name.
 */
bool proto_name_ok(const char *name);

/* text made a name, its bytes that no name may have replaced by _. False: even so it is none. */
bool proto_name_from(char name[static JOB_NAME_MAX], const char *text);

/* "pause" */
const char *proto_op_name(enum proto_op op);

/* malloc'd JSON text of a request, for the client. NULL: no memory. */
char *proto_format(const struct request *r);

/* The budget of a job that is to be of that class and has now_us now (a new one: 0). -EINVAL: only
 * latency jobs have one. */
int request_budget(const struct request *r, enum job_class class, uint32_t now_us, uint32_t *out,
                   struct error *err);

/* -EINVAL: a deadline for a latency job, or none for a laxity, or less than the laxity. */
int request_deadline(const struct request *r, enum job_class class, struct error *err);

/* The preemption mode of a job that is to be of that class and has `now` now. -EINVAL: only batch
 * jobs have another than the usual one. */
int request_preempt(const struct request *r, enum job_class class, enum preempt_mode now,
                    enum preempt_mode *out, struct error *err);

/* The speed that a job of that class is to keep, which has `now` now. -EINVAL: only batch jobs do.
 */
int request_min_speed(const struct request *r, enum job_class class, uint32_t now, uint32_t *out,
                      struct error *err);
/* -EINVAL: GPUs to choose, and what does not go with that. */
int request_place(const struct request *r, struct error *err);
/* -EINVAL: a floor above the ceiling. */
int request_limits(uint32_t gpu_min, uint32_t gpu_max, struct error *err);

/* A field of a struct request from what a person writes as option or key `word`: class, weight,
 * budget, gpu-min, gpu-max (also with _), preempt, deadline, laxity, name, memory, gpus. -EINVAL.
 */
int request_text(void *request, const char *word, const char *text, struct error *err);

/* One more parameter into a request. -EINVAL: no such parameter, or not a whole number where one is
 * needed. Ranges depend on the others and are checked where those are known. */
int request_param(struct request *r, const char *name, double value, struct error *err);

json_t *proto_param(const struct param *f, double v); /* a whole number, or not */

#endif
