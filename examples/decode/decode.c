/* A small engine that decodes, in seven ways: what each part of an engine's inner loop is worth.
 * The tokens of every request are the same in all of them, or the program fails.
 *
 *     cc *.c $(pkg-config --cflags --libs cede) -lm -ldl -o decode */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "products.h"

static const struct mode modes[] = {
    {"naive", 1, false, 10, false},   {"eager", 1, false, 0, false}, {"graphs", 1, true, 0, false},
    {"overlap", 2, false, 0, false},  {"all", 2, true, 0, false},    {"chunks", 1, true, 0, true},
    {"all-chunks", 2, true, 0, true},
};
/* Each request alone, its prompt in one step. */
static const struct mode whole = {"alone", 1, false, 0, true};
#define MODES (sizeof(modes) / sizeof(*modes))

enum { OWN, LIBRARY, PLAIN };
static const char *const products_names[] = {"own", "library", "plain", NULL};
static const char *const inputs_names[] = {"copies", "copy", "kernel", NULL};

static const char help[] =
    "usage: decode [OPTION...]\n"
    "\n"
    "      --device D       cuda or cpu (default: cuda where there is one)\n"
    "      --layers N       (12)   --width N    (1024)   --heads N (16)   --vocabulary N (8192)\n"
    "      --batch N        requests that run at a time (64)\n"
    "      --requests N     in all (128)\n"
    "      --tokens N       of each at most (256)\n"
    "      --prompt N       tokens of a prompt at most (32)\n"
    "      --at-once N      requests of a step at most (as --batch)\n"
    "      --step-tokens N  tokens of a step at most, with prompts in chunks (as --batch)\n"
    "      --schedule-us N  work of the CPU added to each step (0)\n"
    "      --inputs HOW     how a step's inputs get to the GPU: copies (three), copy, or kernel,\n"
    "                       which reads them in the host's memory (copy)\n"
    "      --spin           wait for results spinning, not asleep\n"
    "      --products WHAT  matrix products: own kernel; library: cuBLASLt, each for all rows of\n"
    "                       --batch, so that no row depends on its company; plain: cuBLASLt as it\n"
    "                       is used elsewhere, for the rows that there are (own)\n"
    "      --cublaslt FILE  libcublasLt, where the loader does not find it\n"
    "      --alone          first run the requests one after the other, each prompt in one step,\n"
    "                       then count those that get other tokens in company\n"
    "      --prefill N      also N steps of lengths that vary, with graphs and without\n"
    "      --mode NAME      naive, eager, graphs, overlap or all; chunks: graphs, with prompts in\n"
    "                       chunks; all-chunks: and overlap; may be given again (default: each)\n"
    "      --json           one object\n";

struct options {
    struct sizes sizes;
    struct run_options run;
    int batch, requests, tokens, prompt, prefill, products;
    const char *device, *cublaslt;
    bool wanted[MODES], alone, json;
};

static uint64_t random_of(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void free_requests(struct request *v, int n)
{
    for (int i = 0; v && i < n; i++) {
        free(v[i].prompt);
        free(v[i].tokens);
        free(v[i].pages);
    }
    free(v);
}

/* The same for each mode. */
static struct request *make_requests(const struct options *o)
{
    uint64_t state = 88172645463325252;
    bool failed = false;
    struct request *v = calloc((size_t)o->requests, sizeof(*v));
    for (int i = 0; v && i < o->requests; i++) {
        struct request *r = &v[i];
        r->prompt_tokens = 1 + (int)(random_of(&state) % (uint64_t)o->prompt);
        r->prompt = calloc((size_t)o->prompt, sizeof(*r->prompt));
        for (int k = 0; r->prompt && k < r->prompt_tokens; k++)
            r->prompt[k] = (int32_t)(random_of(&state) % (uint64_t)o->sizes.vocabulary);
        r->most = 1 + (int)(random_of(&state) % (uint64_t)o->tokens);
        r->from_step = i < o->batch / 2 ? 0 : i;
        r->tokens = calloc((size_t)o->tokens, sizeof(*r->tokens));
        r->pages = calloc((size_t)o->sizes.pages_max, sizeof(*r->pages));
        failed |= !r->prompt || !r->tokens || !r->pages;
    }
    if (failed)
        free_requests(v, o->requests);
    return failed ? NULL : v;
}

/* Of all tokens of all requests (FNV-1a). */
static uint64_t digest(const struct request *v, int n)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < n; i++) {
        for (int k = -1; k < v[i].got; k++)
            hash = (hash ^ (uint64_t)(k < 0 ? v[i].got : v[i].tokens[k])) * 0x100000001b3;
    }
    return hash;
}

/* Requests that got other tokens. */
static int differing(const struct request *a, const struct request *b, int n)
{
    int differ = 0;
    for (int i = 0; i < n; i++)
        differ += a[i].got != b[i].got ||
                  memcmp(a[i].tokens, b[i].tokens, (size_t)a[i].got * sizeof(*a->tokens)) != 0;
    return differ;
}

static double ratio(double part, double of)
{
    return of > 0 ? part / of : 0;
}

/* Of the scheduling that a step was long enough for, what the GPU did not wait for; and the part of
 * its time that it waited. */
static void print_long(const struct run *r)
{
    const double exposed = ratio(r->long_idle_us, r->long_schedule_us);
    printf("\"long_steps\": %llu, ", (unsigned long long)r->long_steps);
    if (r->long_steps)
        printf("\"long_hidden\": %.4f, \"long_idle\": %.4f, ", exposed < 1 ? 1 - exposed : 0,
               ratio(r->long_idle_us, r->long_idle_us + r->long_gpu_us));
}

/* differ: requests with other tokens than alone; negative: not known. */
static void print_json(const struct model *m, const struct mode *mode, const struct run *r,
                       uint64_t hash, int differ)
{
    const double steps = (double)r->steps, gpu = r->gpu_us + r->idle_us;
    printf(" {\"mode\": \"%s\", \"seconds\": %.4f, \"tokens\": %llu, \"tokens_per_s\": %.1f, "
           "\"steps\": %llu, \"step_us\": %.1f, \"cpu_us\": %.1f, \"thread_us\": %.1f, "
           "\"wait_us\": %.1f, "
           "\"gpu_us\": %.1f, \"hidden\": %.4f, \"gpu_idle\": %.4f, \"surplus\": %llu, "
           "\"chunk_steps\": %llu, \"rows_most\": %u, ",
           mode->name, r->seconds, (unsigned long long)r->tokens, (double)r->tokens / r->seconds,
           (unsigned long long)r->steps, r->seconds * 1e6 / steps, r->cpu_us / steps,
           r->thread_us / steps, r->wait_us / steps, r->gpu_us / steps,
           ratio(r->hidden_us, r->cpu_us), ratio(r->idle_us, gpu), (unsigned long long)r->surplus,
           (unsigned long long)r->chunk_steps, r->rows_most);
    print_long(r);
    if (differ >= 0)
        printf("\"differ_from_alone\": %d, ", differ);
    printf("\"kernels\": %d, \"launch_p50_us\": %.2f, \"launch_p99_us\": %.2f, "
           "\"inputs_p50_us\": %.2f, \"inputs_p99_us\": %.2f, \"graphs\": %llu, "
           "\"eager\": %llu, \"captures\": %llu, \"capture_us\": %llu, \"graph_bytes\": %llu, "
           "\"digest\": \"%016llx\"}",
           model_kernels(m), r->launch_p50_us, r->launch_p99_us, r->inputs_p50_us, r->inputs_p99_us,
           (unsigned long long)r->graphs, (unsigned long long)r->eager,
           (unsigned long long)r->captures, (unsigned long long)r->capture_us,
           (unsigned long long)r->graph_bytes, (unsigned long long)hash);
}

static void print_line(const struct mode *mode, const struct run *r, uint64_t hash, int differ)
{
    const double steps = (double)r->steps, gpu = r->gpu_us + r->idle_us;
    printf("%-10s %10.1f %9.1f %9.1f %9.1f %7.1f %7.1f %8llu  %016llx", mode->name,
           (double)r->tokens / r->seconds, r->seconds * 1e6 / steps, r->cpu_us / steps,
           r->launch_p50_us, 100 * ratio(r->hidden_us, r->cpu_us), 100 * ratio(r->idle_us, gpu),
           (unsigned long long)r->surplus, (unsigned long long)hash);
    if (differ >= 0)
        printf("  %d requests differ from alone", differ);
    printf("\n");
}

static int number(const char *text, int least, int most)
{
    char *end;
    const long v = strtol(text, &end, 10);
    if (*text && !*end && v >= least && v <= most)
        return (int)v;
    fprintf(stderr, "decode: '%s' is no number from %d to %d\n", text, least, most);
    exit(2);
}

static bool choose_mode(struct options *o, const char *name)
{
    for (size_t i = 0; i < MODES; i++) {
        if (strcmp(modes[i].name, name) == 0)
            return o->wanted[i] = true;
    }
    fprintf(stderr, "decode: there is no mode '%s'\n", name);
    return false;
}

/* Its place among the names, or an exit. */
static int choose(const char *const *names, const char *option, const char *name)
{
    for (int i = 0; names[i]; i++) {
        if (strcmp(names[i], name) == 0)
            return i;
    }
    fprintf(stderr, "decode: %s is %s, %s or %s, not '%s'\n", option, names[0], names[1], names[2],
            name);
    exit(2);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Exit status, or -1. */
static int check_options(struct options *o)
{
    const int head = o->sizes.width / o->sizes.heads;
    if (o->sizes.width % o->sizes.heads || head % 64 || head > HEAD_MAX) {
        fprintf(stderr, "decode: a head has 64 or 128 numbers: choose --width and --heads so\n");
        return 2;
    }
    if (o->run.at_once > o->batch) {
        fprintf(stderr, "decode: --at-once %d is more than --batch %d\n", o->run.at_once, o->batch);
        return 2;
    }
    o->run.at_once = o->run.at_once ? o->run.at_once : o->batch;
    o->run.step_tokens = o->run.step_tokens ? o->run.step_tokens : o->batch;
    o->sizes.batch = larger(larger(o->batch, o->run.step_tokens), o->alone ? o->prompt : 0);
    o->sizes.pages_max = (o->prompt + o->tokens + PAGE - 1) / PAGE;
    o->sizes.pages = o->batch * o->sizes.pages_max * 2;
    o->sizes.wide = o->products != OWN;
    return -1;
}

/* Exit status, or -1. */
static int read_options(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"layers", 1, NULL, 'l'},      {"width", 1, NULL, 'w'},
        {"heads", 1, NULL, 'e'},       {"vocabulary", 1, NULL, 'v'},
        {"batch", 1, NULL, 'b'},       {"requests", 1, NULL, 'r'},
        {"tokens", 1, NULL, 't'},      {"prefill", 1, NULL, 'p'},
        {"schedule-us", 1, NULL, 's'}, {"device", 1, NULL, 'd'},
        {"mode", 1, NULL, 'm'},        {"json", 0, NULL, 'j'},
        {"at-once", 1, NULL, 'o'},     {"inputs", 1, NULL, 'i'},
        {"spin", 0, NULL, 'S'},        {"products", 1, NULL, 'P'},
        {"alone", 0, NULL, 'A'},       {"cublaslt", 1, NULL, 'L'},
        {"prompt", 1, NULL, 'q'},      {"step-tokens", 1, NULL, 'T'},
        {"help", 0, NULL, 'h'},        {NULL, 0, NULL, 0}};
    bool any = false;
    for (int c; (c = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
        int *const to = c == 'l'   ? &o->sizes.layers
                        : c == 'w' ? &o->sizes.width
                        : c == 'e' ? &o->sizes.heads
                        : c == 'v' ? &o->sizes.vocabulary
                        : c == 'b' ? &o->batch
                        : c == 'r' ? &o->requests
                        : c == 't' ? &o->tokens
                        : c == 's' ? &o->run.schedule_us
                        : c == 'o' ? &o->run.at_once
                        : c == 'p' ? &o->prefill
                        : c == 'q' ? &o->prompt
                        : c == 'T' ? &o->run.step_tokens
                                   : NULL;
        if (to)
            *to = number(optarg, c != 's', 1 << 20);
        else if (c == 'm' && !choose_mode(o, optarg))
            return 2;
        else if (c == 'd')
            o->device = optarg;
        else if (c == 'L')
            o->cublaslt = optarg;
        else if (c == 'P')
            o->products = choose(products_names, "--products", optarg);
        else if (c == 'i')
            o->run.inputs = (enum inputs_by)choose(inputs_names, "--inputs", optarg);
        else if (c == 'h')
            fputs(help, stdout);
        o->json |= c == 'j';
        o->alone |= c == 'A';
        o->run.spins |= c == 'S';
        any |= c == 'm';
        if (c == '?' || c == 'h')
            return c == '?' ? 2 : 0;
    }
    for (size_t i = 0; i < MODES && !any; i++)
        o->wanted[i] = true;
    return check_options(o);
}

static int open_device(const char *name, struct device *d)
{
    if (name && strcmp(name, "cpu") == 0)
        return cpu_open(d);
    if (cuda_open(d) == 0)
        return 0;
    if (!name) {
        fprintf(stderr, "decode: there is no GPU; on the CPU, where the default model takes hours: "
                        "try --layers 2 --width 128 --heads 2 --requests 32 --tokens 32\n");
        return cpu_open(d);
    }
    fprintf(stderr, "decode: there is no device '%s' here\n", name);
    return -1;
}

static void print_head(const struct options *o, const struct device *d, double difference)
{
    if (o->json)
        printf("{\"device\": \"%s\", \"layers\": %d, \"width\": %d, \"heads\": %d, "
               "\"vocabulary\": %d, \"batch\": %d, \"requests\": %d, \"tokens\": %d, "
               "\"prompt\": %d, \"at_once\": %d, \"step_tokens\": %d, \"schedule_us\": %d, "
               "\"inputs\": \"%s\", \"spins\": %s, "
               "\"products\": \"%s\", \"products_difference\": %.3g, \"runs\": [",
               d->name, o->sizes.layers, o->sizes.width, o->sizes.heads, o->sizes.vocabulary,
               o->batch, o->requests, o->tokens, o->prompt, o->run.at_once, o->run.step_tokens,
               o->run.schedule_us, inputs_names[o->run.inputs], o->run.spins ? "true" : "false",
               products_names[o->products], difference);
    else
        printf("%-10s %10s %9s %9s %9s %7s %7s %8s  %s\n", "MODE", "TOKENS/S", "STEP US", "CPU US",
               "LAUNCH US", "HIDDEN%", "IDLE%", "SURPLUS", "DIGEST");
}

static int run_prefill(const struct options *o, struct model *m)
{
    static const char *const ways[PREFILL_WAYS] = {"eager", "padded", "exact"};
    struct prefill all[PREFILL_WAYS];
    if (prefill_run(m, o->prefill, all) < 0) {
        fprintf(stderr, "decode: steps of lengths that vary failed\n");
        return -1;
    }
    printf(o->json ? "\n], \"prefill\": [\n" : "\nPREFILL    STEP US CAPTURES\n");
    for (int i = 0; i < PREFILL_WAYS; i++) {
        const struct prefill *p = &all[i];
        if (o->json)
            printf("%s {\"way\": \"%s\", \"step_us\": %.1f, \"graphs\": %llu, \"captures\": %llu, "
                   "\"capture_us\": %llu, \"graph_bytes\": %llu}",
                   i ? ",\n" : "", ways[i], p->step_us, (unsigned long long)p->graphs,
                   (unsigned long long)p->captures, (unsigned long long)p->capture_us,
                   (unsigned long long)p->graph_bytes);
        else
            printf("%-8s %9.1f %8llu\n", ways[i], p->step_us, (unsigned long long)p->captures);
    }
    return 0;
}

/* The requests one after the other. NULL: it is said what failed. */
static struct request *run_alone(const struct options *o, struct model *m)
{
    const struct run_options one = {
        .at_once = 1, .step_tokens = o->sizes.batch, .inputs = o->run.inputs};
    struct run unused;
    struct request *v = make_requests(o);
    if (v && engine_run(m, &whole, v, o->requests, &one, &unused) == 0)
        return v;
    free_requests(v, o->requests);
    return NULL;
}

/* 0, or -1. *same: of the modes before it; 0: there is none. */
static int run_mode(const struct options *o, struct model *m, const struct mode *mode,
                    const struct request *alone, uint64_t *same)
{
    struct run run;
    struct request *v = make_requests(o);
    int r = v ? engine_run(m, mode, v, o->requests, &o->run, &run) : -1;
    const uint64_t hash = r ? 0 : digest(v, o->requests);
    const int differ = r || !alone ? -1 : differing(alone, v, o->requests);
    free_requests(v, o->requests);
    if (r)
        return -1;
    if (o->json)
        fputs(*same ? ",\n" : "\n", stdout), print_json(m, mode, &run, hash, differ);
    else
        print_line(mode, &run, hash, differ);
    fflush(stdout);
    /* Of the plain library nothing else is expected. */
    const bool other = (*same && hash != *same) || differ > 0;
    *same = hash;
    if (!other || o->products == PLAIN)
        return 0;
    fprintf(stderr, "decode: %s gives other tokens\n", mode->name);
    return -1;
}

/* Exit status. */
static int run_modes(const struct options *o, struct model *m, double difference)
{
    struct request *alone = o->alone ? run_alone(o, m) : NULL;
    uint64_t same = 0;
    int r = o->alone && !alone ? -1 : 0;
    if (r == 0)
        print_head(o, m->device, difference);
    for (size_t i = 0; r == 0 && i < MODES; i++)
        r = o->wanted[i] ? run_mode(o, m, &modes[i], alone, &same) : 0;
    free_requests(alone, o->requests);
    if (r)
        return 1;
    if (o->prefill && run_prefill(o, m) < 0)
        return 1;
    if (o->json)
        printf("\n]}\n");
    return 0;
}

int main(int argc, char **argv)
{
    struct options o = {.sizes = {.layers = 12, .width = 1024, .heads = 16, .vocabulary = 8192},
                        .run = {.inputs = BY_COPY},
                        .batch = 64,
                        .requests = 128,
                        .tokens = 256,
                        .prompt = 32};
    struct products *products = NULL;
    struct device device;
    struct model model;
    int r = read_options(argc, argv, &o);
    if (r >= 0)
        return r;
    if (open_device(o.device, &device) < 0)
        return 1;
    r = model_open(&model, &device, &o.sizes, 1);
    if (r)
        fprintf(stderr, "decode: the model does not fit into memory: see --layers, --batch\n");
    else if (o.products != OWN &&
             !(products = products_open(&model, o.cublaslt, o.products == LIBRARY)))
        r = 1;
    else
        r = run_modes(&o, &model, products ? products_difference(products) : 0);
    products_close(products);
    model_close(&model);
    device.close(&device);
    return r != 0;
}
