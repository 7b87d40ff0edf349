/* The simulator's state, shared by sim.c and measure.c. */
#ifndef CEDE_SOFTGPU_SIM_SIM_IMPL_H
#define CEDE_SOFTGPU_SIM_SIM_IMPL_H

#include "base/util.h"
#include "softgpu/sim/sim.h"

#include <math.h>

#define SAMPLES_MAX 65536U
#define LOOK_NS     100000000U
#define SWITCHES    8192U /* that are kept until the next look */
#define QUEUED      2U    /* kernels a saturating job keeps in the queue */
#define WANDER_NS   700000000ULL
#define QUIET_NS    300000000U /* without work, although it could: idle */
#define LIST        3U         /* contexts whose channels fit into one control */
#define RANKS       (SIM_JOBS_MAX * SIM_GPUS_MAX)
#define OPEN_MAX    64U /* requests in flight of an open loop; more do not come */

struct rank {
    bool present, suspended, ran; /* ran: it could, since the last look */
    uint32_t group, timeslice_us;
    bool ran_before;          /* with the plan before, whose calls */
    uint32_t before_us;       /* may not all be made */
    uint64_t bursts, seen_ns; /* told to the scheduler so far */
    uint64_t quiet_ns;
    double busy;        /* a mean of about a second */
    uint64_t submitted; /* kernels of a job that has its work back to back */
    uint64_t queued;    /* of these not done */
    uint64_t step_ns;   /* of a job with steps: when its host does the next thing */
    uint64_t begun_ns;  /* the step */
    uint32_t kernels;   /* in it */
    uint32_t launched;  /* of these */
    uint64_t steps;     /* done, */
    uint64_t last_step; /* and those that there will be for the requests that have come */
};

struct state {
    bool present, paused, gone;
    uint64_t due_ns;
    uint64_t busy_at_issue;
    bool waits; /* a request is on its way; of an open loop: OPEN_MAX are */
    uint64_t open_ns[OPEN_MAX], first_open, nopen; /* when they were issued */
    uint64_t random;
    double host_takes; /* of what its times say, until then */
    uint64_t host_until_ns;
    uint64_t meets; /* ranks that wait for the others to end their step */
    bool news;      /* since the scheduler was told */
    uint64_t busy_at_settle, busy_at_pause;
    uint64_t useful_ns, useful_at_settle; /* work done, without spinning */
    uint64_t may_wait_us;                 /* the oldest request, for others */
    uint64_t resumed_ns; /* when the first rank was, of a turn that is just beginning */
    double *samples;
};

/* Decides over one GPU, or over all. */
struct decider {
    struct sched *c;
    uint64_t wake;
    bool dirty;
};

struct sim {
    const struct sim_scenario *s;
    struct sim_result *out;
    struct fabric f;
    struct decider deciders[SIM_GPUS_MAX];
    struct state st[SIM_JOBS_MAX];
    struct rank ranks[RANKS]; /* [job * SIM_GPUS_MAX + gpu] */
    uint32_t n, ngpus, ndeciders;
    uint64_t now, call_at; /* call_at: the daemon is in a call until then */
    uint64_t look_at;      /* when it asks next who got the GPU */
    uint64_t report_at;
    struct softgpu_switch switches[SIM_GPUS_MAX][SWITCHES];
    uint64_t switches_end[SIM_GPUS_MAX], switches_told[SIM_GPUS_MAX];
    struct {
        enum softgpu_call call;
        uint32_t rank, us;
    } calls[3 * RANKS];
    uint32_t ncalls, next_call;
    bool applied; /* all calls of the last plan were made */
    uint64_t wasted_ns[SIM_GPUS_MAX];
    uint32_t switch_us; /* the longest */
    uint32_t default_us;
};

/* Below 1, of no less than 0. */
static inline double sim_random(struct state *st)
{
    st->random = st->random * 6364136223846793005U + 1442695040888963407U;
    return (double)(st->random >> 11) / 9007199254740992.0;
}

/* The time to the next of events that come at random. */
static inline uint64_t sim_random_gap(struct state *st, uint64_t mean_ns)
{
    return (uint64_t)(-log1p(-sim_random(st)) * (double)mean_ns) + 1;
}

/* Its ranks, as a bit map: one on each of its GPUs, or so many processes on one. */
static inline uint32_t sim_gpus_of(const struct sim *m, uint32_t j)
{
    const struct sim_job *job = &m->s->jobs[j];
    return job->ranks ? (1U << job->ranks) - 1 : job->gpus ? job->gpus : 1;
}

static inline uint32_t gpu_of(const struct sim *m, uint32_t j, uint32_t rank)
{
    const struct sim_job *job = &m->s->jobs[j];
    return !job->ranks ? rank : job->gpus ? (uint32_t)__builtin_ctz(job->gpus) : 0;
}

/* Those with its contexts, and those with its work. */
#define for_each_bit(map, g)                                                                       \
    for (uint32_t g##_left = (map), g = 0;                                                         \
         g##_left && (g = (uint32_t)__builtin_ctz(g##_left), true); g##_left &= g##_left - 1)
#define for_each_gpu_of(m, j, g)  for_each_bit (sim_gpus_of(m, j) | (m)->s->jobs[j].strays, g)
#define for_each_rank_of(m, j, g) for_each_bit (sim_gpus_of(m, j), g)

static inline struct rank *rank_of(struct sim *m, uint32_t j, uint32_t g)
{
    return &m->ranks[j * SIM_GPUS_MAX + g];
}

struct softgpu_group_info sim_info(struct sim *m, uint32_t j, uint32_t g);
/* For how long its kernels ran. */
uint64_t sim_busy(struct sim *m, uint32_t j);
/* A request of this job is issued; or the plan changes, so that any may wait longer. */
void sim_note_wait(struct sim *m, uint32_t job);
void sim_note_waits(struct sim *m);
/* The calls of the last plan are made. */
void sim_applied(struct sim *m);
/* From now to `next` nothing begins or ends. */
void sim_count_waste(struct sim *m, uint64_t next);
/* Time passes. */
void sim_sample(struct sim *m, uint64_t from, uint64_t to);
void sim_report(struct sim *m);

#endif
