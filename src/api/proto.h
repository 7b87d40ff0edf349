/* The protocol between cede and ceded: one JSON object per message on a SEQPACKET Unix socket.
 * A request whose sender closes the connection before it has the reply is dropped or taken back.
 *
 * Request:  {"v":1, "op":OP, ...}. T is a pid, a job's number written "#12", or its name,
 * with the owner's uid before it if that is another user: "1000/train".
 * - add: {"pid":N, TERMS, "name":S?, "run":true?, "memory_bytes":N?, "gpu":N?, "started":true?,
 *   "program":N?, "gpus":N?, "visible":S?, "slurm_job":N?}: adopts a process tree. memory_bytes:
 * the memory that it is going to take on that GPU; started: its program starts whether or not that
 * is free; gpus: the number of GPUs to choose, from those that visible (its CUDA_VISIBLE_DEVICES)
 *   lists; slurm_job, from administrators only: all processes of that Slurm job are one job. TERMS,
 *   all optional: api/job_terms.c
 * - set: {"target":T, TERMS}: at least one of them; class "none" detaches the job; a pid in no job
 *   is adopted
 * - pause, resume: {"target":T}
 * - swap-out, swap-in: {"target":T}: begins the move; ps shows its progress
 * - yield: {"target":T?, "pause":true?, "memory":true?, "look":true?}: class batch, and if asked
 *   suspended or out of GPU memory; without target for the job of the calling process. look: begins
 *   nothing, and shows the outcome
 * - acquire: {"target":T?, "wait_us":N?}: gives the job back what it yielded. The caller repeats it
 *   until that is done, each time within N (5 s), or the job loses its position in line
 * - try: {"target":T, "for_us":N, "held":true?, "first":true?, "last":true?, "together":N?}: for so
 *   long, or until this connection ends, the job is held, or has class latency or batch. together:
 *   what all jobs that this connection tries do together in space, in thousandths of one of them
 *   alone, which the daemon remembers for these programs
 * - ps: {"after":N?, "pid":N?, "brief":true?, "sums":true?, "summed":true?}: jobs with numbers
 *   above N, as many as fit, and the job of process pid; brief: without what tables do not show;
 *   sums: with the sums of time that cede top shows; summed: sums of jobs in place of jobs
 * - pids: {"target":T, "from":N?}: the processes of a job, and of jobs that began within it, from
 *   that pid on, as many as are found in 5 ms
 * - policy: {"name":S?, "params":{KEY:X, ...}?}: shows, or changes all or nothing; keys as in
 *   [policy] of cede.conf
 * - trace: {}: events from now on
 * - rules: {"pid":N?, "after":N?}: the rules with numbers above N, as many as fit, and their result
 *   for a process
 * - identity: {"cgroup":S, "facts":{"pod":S?, "namespace":S?, "container_name":S?, "image":S?,
 *   "priority_class":S?, "partition":S?, "qos":S?, "label:KEY":S?, ...}?}: an administrator's
 *   agent's report of a control group; without facts the last report is forgotten
 *
 * Reply:    {"v":1, "ok":true, ...} or {"v":1, "ok":false, "errno":E, "error":"for a person",
 *           "admin_gid":N|null? (where the text is about ADMINS_GROUP; null: none is configured)}
 * - add, set, pause, resume, swap-out, swap-in, yield, acquire, try: {"job":{...}, "note":S?,
 *   "vain":true? (there was nothing to undo: the note says so), "failed":true? (a control of the
 *   GPU failed: the note says which),
 * "waits":true? (yield, acquire: it is not done yet)}; for add with run also the unmanaged programs
 * as in ps, and "warning":S? (why it cannot be scheduled yet), "no_gpu":true? (only programs
 * that hold their own work are scheduled); with gpus "visible":S, for the program's environment
 * - ps: {"jobs":[...], "job_of":N? (number of the process's job), "more":bool, "policy":S,
 * "device":S, "gpus":[{"index":, "label":, "name":, "uuid":, "level":, "level_name":, "caps":[S,
 * ...]}], "pid":N, "guest":true?}; without devices that nobody has used yet. Pids are those of the
 * caller's pid namespace, 0 where a process is in another one. Where "after" is 0 also
 * "unmanaged":[{"pid":, "name":, "uid":, "gpus":[..] (empty: not known), "detached":bool (by a
 * person), "may_set":bool (by this caller)}] and, where there are more than 64, "unmanaged_more":N:
 * unmanaged GPU programs
 * - pids: {"job":{...}, "pids":[N, ...], "next":N? (the pid from which the next request goes on)}
 * - policy: {"policy":S, "policies":[{"name":, "summary":}], "params":{KEY:X, ...}}
 * - rules: {"rules":[{"number":, "kind":"rule|account", "name":, "conditions":[{"key":, "name":S?
 * (of a variable or label), "wanted":S, and for a process "seen":S, "holds":bool|null (not known
 * yet)}], "class":?, "weight":?, "warning":S? (why it never matches), "matches":bool|null?}],
 *   "environment":bool, "others":S|null, "more":bool}, and for a process "pid", "pending":bool (ask
 *   again), "outcome":{"by":"rule|environment|others|nothing", "rule":S?, "class":?, "weight":?,
 *   "name":S?, "note":S?}?, "job":N?
 * - identity: {}
 * - trace: {"trace":N}, followed by messages as in base/trace_proto.h of version N
 *
 * A job has the fields of api/job_json.c, which cede-json(5) describes, and in a reply to ps
 * "requests" when its programs report them (api/hints.h).
 *
 * libcede asks in another form (base/link_proto.h), of which proto_parse() makes the same requests.
 *
 * Messages are not trusted: length, depth, types, ranges and unknown fields are checked here, and
 * nowhere else. No I/O in this file. */
#ifndef CEDE_API_PROTO_H
#define CEDE_API_PROTO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/link_proto.h"
#include "base/options.h"
#include "base/util.h"
#include "engine/engine.h"
#include "journal/journal.h"
#include "plan/sched.h"
#include "who/agent_reports.h"

#define PROTO_VERSION     1
#define ADMINS_GROUP      "the administrators' group" /* in the text of a refusal */
#define PROTO_MESSAGE_MAX 65536                       /* bytes; a longer message is refused */
#define VISIBLE_MAX       1024                        /* bytes of a list of GPUs */

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
    OP_TRACE,
    OP_RULES,
    OP_IDENTITY,
    OP_TRY,
    OP_PIDS,
    OPS_OF_JSON,
    OP_HINTS = OPS_OF_JSON, /* from here on only of libcede */
    OP_ROOM
};

/* The rights that an operation requires: see rights.c. */
enum op_rights {
    RIGHTS_ANYBODY, /* none: it only shows something, or is about the calling process */
    RIGHTS_TURNS,   /* the job's owner, as neither class nor shares change */
    RIGHTS_TERMS,   /* the job's owner, within the terms that users may set */
    RIGHTS_ADMIN
};

struct request {
    enum proto_op op;
    bool link;      /* it came as a struct link_ask, and is answered by a struct link_answer */
    uint32_t given; /* the terms that are given: TERM() */
    union {
        struct job_terms;
        struct job_terms terms; /* 0: not given, or none */
    };
    bool release; /* of set: class none */
    bool run, started;
    bool brief, sums, summed;               /* of ps */
    bool yields_pause, yields_memory, look; /* of yield */
    bool has_wait;                          /* of acquire: */
    uint32_t wait_us;
    bool held, first, last; /* of try: */
    uint32_t for_us, together;
    pid_t from;            /* of pids */
    uint64_t memory_bytes; /* of add, room; 0: not given */
    uint32_t gpu;
    uint32_t gpus; /* of add: the number to be chosen; 0: the program chooses */
    bool has_gpu, has_visible;
    char visible[VISIBLE_MAX];
    uint64_t slurm_job;           /* of add: the Slurm job of the process; 0: none */
    uint64_t program;             /* of add: a hash of its arguments; 0: not given */
    pid_t pid;                    /* of add, or of target when it is a pid; 0: none */
    uint64_t number;              /* of target "#12", or of "after" */
    uint64_t page;                /* of room: the connection whose page the program has */
    char rename[JOB_NAME_MAX];    /* of set: the job's new name; "": it keeps its own */
    char name[JOB_NAME_MAX];      /* of add, target or policy; of room: the GPU's UUID; "" none */
    char cgroup[IDENTITY_CGROUP]; /* of identity */
    char facts[IDENTITY_FACTS];   /* of identity, as pairs */
    uint32_t nfacts;
    bool has_owner; /* of target: the job is user `owner`'s; else the caller's jobs come first */
    uid_t owner;
    uint32_t params; /* of policy: bit i is set if param_at(i) is given, in param[i] */
    double param[PARAMS_COUNT];
};

/* 0, or -EINVAL / -EMSGSIZE / -EPROTO (other version) with what is wrong and where. */
int proto_parse(const char *text, size_t n, struct request *out, struct error *err);

/* "1234", "#12", a name or "1000/name". -EINVAL. */
int proto_target(const char *text, struct request *out, struct error *err);

/* Whether a job may have this name: 1..63 bytes of printable UTF-8 (base/text.h); not starting with
 * '#', not all digits or '%' and digits, without '/', which separates user and name. */
bool proto_name_ok(const char *name);

/* Makes a name of text, with _ for bytes that no name may have. False: even so it is none. */
bool proto_name_from(char name[static JOB_NAME_MAX], const char *text);

/* "pause" */
const char *proto_op_name(enum proto_op op);
const char *proto_op_done(enum proto_op op); /* "paused"; NULL: it steers no job */
enum op_rights proto_op_rights(enum proto_op op);

/* malloc'd JSON text of a request, for the client. NULL: no memory. */
char *proto_format(const struct request *r);

/* Checks what a request says of GPUs to choose and of memory. -EINVAL: it contradicts itself. */
int request_place(const struct request *r, struct error *err);
/* Sets a field of a struct request from the text that a person gave for the option or key `word`: a
 * term (api/job_terms.h), name, memory, gpus. -EINVAL. */
int request_text(void *request, const char *word, const char *text, struct error *err);

/* The options of a verb that takes terms, and `more` behind them; returns their number. */
#define REQUEST_OPTIONS_MAX 32
unsigned request_options(struct request *r, const struct option_row *more, unsigned nmore,
                         struct option_row rows[static REQUEST_OPTIONS_MAX]);

/* Adds a parameter to a request. -EINVAL: no such parameter, or not a whole number where one is
 * needed. Ranges depend on other parameters and are checked where those are known. */
int request_param(struct request *r, const char *name, double value, struct error *err);

json_t *proto_param(const struct param *f, double v); /* an integer or a real, by its kind */

#endif
