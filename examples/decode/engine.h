/* Continuous batching: requests come and go while others run, each step decodes one token of each.
 * Prompts are processed a token a step like what is decoded; or in chunks, of which each step takes
 * what fits into its number of tokens beside a token of each request that decodes. The loop is
 * libcede's (cede/step.h), and so are the graphs (cede/graph.h). */
#ifndef DECODE_ENGINE_H
#define DECODE_ENGINE_H

#include <stdbool.h>

#include "model.h"

struct request {
    int32_t *prompt;
    int prompt_tokens, most; /* at most so many tokens, and none after one of the last kind */
    int from_step;           /* it comes then */
    int32_t *tokens;         /* what it got */
    int got;
    /* While it runs: */
    uint64_t id;
    int32_t *pages;
    int npages, position; /* of the next step */
    int chunk;            /* its tokens in the step that is being scheduled */
    bool joined, ended;
};

struct mode {
    const char *name;
    unsigned depth; /* of the loop: 1: nothing overlaps */
    bool graphs;
    int launch_us; /* as in struct device */
    bool chunks;   /* prompts in chunks; steps that have any are not launched as graphs */
};

/* How what a step brings gets to the GPU: token, position and pages each by a copy; all by one
 * copy; or read out of the host's memory by a kernel. */
enum inputs_by { BY_COPIES, BY_COPY, BY_KERNEL };

struct run_options {
    int schedule_us; /* work of the CPU added to each step */
    int at_once;     /* requests of a step at most */
    int step_tokens; /* with chunks: tokens of a step at most */
    enum inputs_by inputs;
    bool spins; /* in place of sleeping until a step has run */
};

struct run {
    double seconds;
    uint64_t tokens, steps, surplus;
    uint64_t chunk_steps; /* those that have more than one token of a request */
    unsigned rows_most;   /* tokens of the longest step */
    double thread_us;     /* of the processor, the loop's own work and waiting too */
    double cpu_us, gpu_us, idle_us, hidden_us, wait_us; /* in all */
    uint64_t graphs, eager;                             /* launches */
    double launch_p50_us, launch_p99_us; /* of the model alone, eagerly or as a graph */
    double inputs_p50_us, inputs_p99_us; /* of the call or calls that bring inputs */
    /* Of the steps that the GPU needs longer for than the CPU to schedule the next one: how many,
     * their time, how long the GPU had nothing to do after them, and that scheduling. */
    uint64_t long_steps;
    double long_gpu_us, long_idle_us, long_schedule_us;
    uint64_t captures, capture_us, graph_bytes; /* of all batch sizes */
};

/* Runs all of them to their end. 0, or -1 with the reason said. */
int engine_run(struct model *m, const struct mode *mode, struct request *v, int n,
               const struct run_options *options, struct run *out);

/* Steps of lengths that vary. */
enum { PREFILL_EAGER, PREFILL_PADDED, PREFILL_EXACT, PREFILL_WAYS };
struct prefill {
    double step_us;
    uint64_t graphs, captures, capture_us, graph_bytes;
};
/* 0 or -1. */
int prefill_run(struct model *m, int steps, struct prefill out[PREFILL_WAYS]);

#endif
