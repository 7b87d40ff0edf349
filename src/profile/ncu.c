/* Tables of Nsight Compute: `ncu --csv`. Page raw has a row for each launch, a column for each
 * metric and its units below the heading; page details a row for each metric. See profile.h. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "profile/profile.h"

#define COLUMNS_MAX 4096

enum metric_to {
    TO_TIME,
    TO_BLOCKS,
    TO_THREADS,
    TO_REGISTERS,
    TO_SHARED,
    TO_DIVISION,
    TO_L1_HIT,
    TO_L2_HIT,
    TO_USE, /* a percentage */
    TO_IPC, /* of four */
    TO_L2_BYTES,
    TO_DRAM_BYTES,
    TO_SMS,
    TO_SM_THREADS,
    TO_SM_BLOCKS,
    TO_SM_REGISTERS,
    TO_SM_SHARED,
    TO_L2_SIZE,
};

/* Of two for the same the larger counts. */
static const struct metric {
    const char *name;
    enum metric_to to;
    enum resource resource;
} metrics[] = {
    {"gpu__time_duration.sum", TO_TIME, 0},
    {"launch__grid_size", TO_BLOCKS, 0},
    {"launch__block_size", TO_THREADS, 0},
    {"launch__registers_per_thread", TO_REGISTERS, 0},
    {"launch__shared_mem_per_block", TO_SHARED, 0},
    {"launch__shared_mem_config_size", TO_DIVISION, 0},
    {"l1tex__t_sector_hit_rate.pct", TO_L1_HIT, 0},
    {"lts__t_sector_hit_rate.pct", TO_L2_HIT, 0},
    {"smsp__issue_active.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_ISSUE},
    {"sm__inst_issued.avg.per_cycle_active", TO_IPC, RESOURCE_ISSUE},
    {"sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_INTEGER},
    {"sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_FP32},
    {"sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_FP64},
    {"sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_FP16},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_TENSOR},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", TO_USE, RESOURCE_TENSOR},
    {"dram__throughput.avg.pct_of_peak_sustained_elapsed", TO_USE, RESOURCE_DRAM},
    {"lts__t_bytes.sum.per_second", TO_L2_BYTES, 0},
    {"dram__bytes.sum.per_second", TO_DRAM_BYTES, 0},
    {"device__attribute_multiprocessor_count", TO_SMS, 0},
    {"device__attribute_max_threads_per_multiprocessor", TO_SM_THREADS, 0},
    {"device__attribute_max_blocks_per_multiprocessor", TO_SM_BLOCKS, 0},
    {"device__attribute_max_registers_per_multiprocessor", TO_SM_REGISTERS, 0},
    {"device__attribute_max_shared_memory_per_multiprocessor", TO_SM_SHARED, 0},
    {"device__attribute_l2_cache_size", TO_L2_SIZE, 0},
};

struct reader {
    FILE *f;
    const char *path;
    char *line;
    size_t room;
    unsigned number; /* of the line */
    char *fields[COLUMNS_MAX];
    size_t n;

    size_t column_of[ARRAY_SIZE(metrics)]; /* page raw; 0: not there, as the first is ID */
    size_t id, kernel, capability, name, unit, value;
    double scale[ARRAY_SIZE(metrics)];

    /* The launch that is being read. */
    char launch[128], launch_name[256];
    double v[ARRAY_SIZE(metrics)];
    unsigned cc;
};

/* "a","b ""c""",d in place. */
static void split(struct reader *r)
{
    char *in = r->line;
    r->n = 0;
    while (*in && r->n < COLUMNS_MAX) {
        char *out = in;
        bool quoted = *in == '"';
        r->fields[r->n++] = out;
        in += quoted;
        for (; *in && (quoted || *in != ','); in++) {
            if (quoted && *in == '"' && *++in != '"') {
                quoted = false;
                if (*in == ',' || !*in)
                    break;
            }
            *out++ = *in;
        }
        bool more = *in == ',';
        in += more;
        *out = '\0';
    }
}

static bool next_row(struct reader *r)
{
    ssize_t n;
    r->n = 0;
    do {
        n = getline(&r->line, &r->room, r->f);
        r->number += n >= 0;
    } while (n >= 0 && r->line[0] != '"'); /* what the program and the profiler say in between */
    if (n < 0)
        return false;
    r->line[strcspn(r->line, "\r\n")] = '\0';
    split(r);
    return true;
}

static const char *field(const struct reader *r, size_t column)
{
    return column < r->n ? r->fields[column] : "";
}

static size_t column(const struct reader *r, const char *heading)
{
    for (size_t i = 1; i < r->n; i++) {
        if (strcmp(r->fields[i], heading) == 0)
            return i;
    }
    return 0;
}

/* What one of this unit is in ns, bytes, % or without a unit. */
static double scale_of(const char *unit)
{
    static const struct {
        const char *start;
        double scale;
    } units[] = {{"nsecond", 1},   {"ns", 1},      {"usecond", 1e3}, {"us", 1e3},
                 {"msecond", 1e6}, {"ms", 1e6},    {"second", 1e9},  {"s", 1e9},
                 {"Kbyte", 1e3},   {"Mbyte", 1e6}, {"Gbyte", 1e9},   {"Tbyte", 1e12}};
    size_t word = strcspn(unit, "/ ");
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (strlen(units[i].start) == word && strncmp(unit, units[i].start, word) == 0)
            return units[i].scale;
    }
    return 1;
}

/* "1,234.5"; NAN: no number. */
static double ncu_number(const char *text)
{
    char plain[64], *out = plain, *end;
    for (; *text && out + 1 < plain + sizeof(plain); text++) {
        if (*text != ',')
            *out++ = *text;
    }
    *out = '\0';
    double v = strtod(plain, &end);
    return end == plain || *end || !(v >= 0 && v < 1e18) ? NAN : v;
}

static size_t metric_of(const char *name)
{
    size_t i = 0;
    while (i < ARRAY_SIZE(metrics) && strcmp(metrics[i].name, name) != 0)
        i++;
    return i;
}

static void keep_larger(double *to, double v)
{
    *to = v > *to ? v : *to;
}

static uint32_t whole(double v)
{
    return v > 0 && v < UINT32_MAX ? (uint32_t)v : 0;
}

static void take_metric(struct gpu_shape *g, struct kernel_profile *k, const struct metric *m,
                        double v, double bytes[2])
{
    switch (m->to) {
    case TO_TIME:
        k->us = v / 1e3;
        break;
    case TO_BLOCKS:
        k->blocks = whole(v);
        break;
    case TO_THREADS:
        k->threads = whole(v);
        break;
    case TO_REGISTERS:
        k->registers = whole(v);
        break;
    case TO_SHARED:
        k->shared_bytes = whole(v);
        break;
    case TO_DIVISION:
        k->division = whole(v);
        break;
    case TO_L1_HIT:
        k->l1_hit = fmin(v / 100, 1);
        break;
    case TO_L2_HIT:
        k->l2_hit = fmin(v / 100, 1);
        break;
    case TO_USE:
        keep_larger(&k->use[m->resource], fmin(v / 100, 1));
        break;
    case TO_IPC:
        keep_larger(&k->use[m->resource], fmin(v / 4, 1));
        break;
    case TO_L2_BYTES:
        bytes[0] = v;
        break;
    case TO_DRAM_BYTES:
        bytes[1] = v;
        break;
    case TO_SMS:
        g->sms = whole(v);
        break;
    case TO_SM_THREADS:
        g->sm_threads = whole(v);
        break;
    case TO_SM_BLOCKS:
        g->sm_blocks = whole(v);
        break;
    case TO_SM_REGISTERS:
        g->sm_registers = whole(v);
        break;
    case TO_SM_SHARED:
        g->sm_shared_bytes = whole(v);
        break;
    case TO_L2_SIZE:
        g->l2_bytes = whole(v);
        break;
    }
}

/* The launch is complete. */
static int end_launch(struct reader *r, struct profile *p, struct error *err)
{
    struct kernel_profile k = {.us = 0};
    double bytes[2] = {0};
    if (!r->launch[0])
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
        if (!isnan(r->v[i]))
            take_metric(&p->gpu, &k, &metrics[i], r->v[i], bytes);
        r->v[i] = NAN;
    }
    r->launch[0] = '\0';
    if (k.us <= 0 || !k.blocks || !k.threads)
        return error_set(err, -EINVAL,
                         "%s, line %u: '%.60s' has no gpu__time_duration.sum, launch__grid_size "
                         "and launch__block_size (`cede profile --help` has the metrics)",
                         r->path, r->number, r->launch_name);
    /* Of what DRAM can do, by what share of that its bytes are. */
    if (bytes[1] > 0)
        k.use[RESOURCE_L2] = bytes[0] / bytes[1] * k.use[RESOURCE_DRAM];
    int c = profile_add(p, r->launch_name, &k);
    return c < 0 ? error_set(err, c, "%s: %s", r->path,
                             c == -E2BIG ? "more than 2000 different launches" : "out of memory")
                 : 0;
}

static void begin_launch(struct reader *r)
{
    unsigned major = 0, minor = 0;
    snprintf(r->launch, sizeof(r->launch), "%s", field(r, r->id));
    snprintf(r->launch_name, sizeof(r->launch_name), "%s", field(r, r->kernel));
    if (sscanf(field(r, r->capability), "%3u.%3u", &major, &minor) == 2)
        r->cc = 10 * major + minor;
}

static int read_rows(struct reader *r, struct profile *p, struct error *err)
{
    int c = 0;
    while (c == 0 && next_row(r)) {
        const char *id = field(r, r->id);
        if (!id[0] && !r->name) { /* the units */
            for (size_t i = 0; i < ARRAY_SIZE(metrics); i++)
                r->scale[i] = scale_of(field(r, r->column_of[i]));
            continue;
        }
        if (!r->name || strcmp(r->launch, id) != 0) {
            c = end_launch(r, p, err);
            begin_launch(r);
        }
        size_t m = r->name ? metric_of(field(r, r->name)) : 0;
        if (r->name && m < ARRAY_SIZE(metrics))
            r->v[m] = ncu_number(field(r, r->value)) * scale_of(field(r, r->unit));
        for (size_t i = 0; i < ARRAY_SIZE(metrics) && !r->name; i++) {
            if (r->column_of[i])
                r->v[i] = ncu_number(field(r, r->column_of[i])) * r->scale[i];
        }
    }
    return c < 0 ? c : end_launch(r, p, err);
}

int profile_from_ncu(FILE *f, const char *path, struct profile *out, struct error *err)
{
    struct reader *r = calloc(1, sizeof(*r));
    *out = (struct profile){.n = 0};
    if (!r)
        return error_set(err, -ENOMEM, "out of memory");
    r->f = f;
    r->path = path;
    int c = 0;
    while (next_row(r) && strcmp(field(r, 0), "ID") != 0)
        ;
    r->kernel = column(r, "Kernel Name");
    r->capability = column(r, "CC");
    r->name = column(r, "Metric Name");
    r->unit = column(r, "Metric Unit");
    r->value = column(r, "Metric Value");
    for (size_t i = 0; i < ARRAY_SIZE(metrics); i++) {
        r->column_of[i] = r->name ? 0 : column(r, metrics[i].name);
        r->scale[i] = 1;
        r->v[i] = NAN;
    }
    if (!r->kernel)
        c = error_set(err, -EINVAL,
                      "%s is no table of `ncu --csv`: there is no column 'Kernel Name'", path);
    c = c < 0 ? c : read_rows(r, out, err);
    if (c == 0 && !out->n)
        c = error_set(err, -EINVAL, "%s has no kernels", path);
    if (c == 0 && profile_complete_gpu(&out->gpu, r->cc) < 0)
        c = error_set(err, -ENODEV,
                      "%s does not say what GPU it is from: add "
                      "device__attribute_multiprocessor_count to --metrics",
                      path);
    profile_finish(out);
    if (c < 0)
        profile_free(out);
    free(r->line);
    free(r);
    return c;
}
