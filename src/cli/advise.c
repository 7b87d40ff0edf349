/* `cede advise`: which programs fit together on a GPU, by their profiles. */
#include <errno.h>
#include <string.h>

#include "api/client.h"
#include "base/json_text.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/profile.h"
#include "plan/advice.h"

#define PROGRAMS_MAX 40

static const char help[] =
    "usage: cede advise [--json] PROFILE PROFILE...\n"
    "\n"
    "Predicts how fast each two of these programs are together on one GPU, relative to alone, "
    "what\n"
    "they contend for most, and whether they should share it in space (a pool) or in time "
    "(turns).\n"
    "ncu_profile.py (share/cede/programs, package cede-bench) makes profiles. One that is given "
    "twice\n"
    "is two of the same. Where jobs of these names run together now, what ceded measures stands "
    "below.\n"
    "\n"
    "      --json  {\"pairs\": [...]}, see cede-json(5)\n"
    "  -h, --help  this text\n"
    "\n"
    "  cede advise train.json serve.json\n";

static const char *const advice_names[] = {
    [ADVICE_TURNS] = "turns", [ADVICE_POOL] = "pool", [ADVICE_SPLIT] = "split"};

/* ---- what `cede ps` says of jobs of these names ---- */

static bool is_told(const json_t *job, const char *name)
{
    const char *own = json_get_text(job, "name");
    return own && strcmp(own, name) == 0 &&
           json_is_number(json_object_get(json_object_get(job, "mps"), "speed"));
}

/* Whether two jobs run at the same time in one MPS server, with no third. */
static bool are_together(const json_t *jobs, const json_t *a, const json_t *b)
{
    json_int_t unit = json_get_int(json_object_get(a, "mps"), "unit");
    unsigned there = 0;
    const json_t *job;
    size_t i;
    json_array_foreach(jobs, i, job)
    {
        const json_t *mps = json_object_get(job, "mps");
        there += mps && json_get_int(mps, "unit") == unit;
        if ((job == a || job == b) &&
            (json_get_int(mps, "unit") != unit || json_is_true(json_object_get(mps, "turns"))))
            return false;
    }
    return unit > 0 && there == 2;
}

static bool measured(const json_t *jobs, const char *a, const char *b, double speeds[2])
{
    const json_t *first, *second;
    size_t i, k;
    json_array_foreach(jobs, i, first)
    {
        json_array_foreach(jobs, k, second)
        {
            if (i == k || !is_told(first, a) || !is_told(second, b) ||
                !are_together(jobs, first, second))
                continue;
            speeds[0] = json_get_number(json_object_get(first, "mps"), "speed");
            speeds[1] = json_get_number(json_object_get(second, "mps"), "speed");
            return true;
        }
    }
    return false;
}

/* ---- output ---- */

static void print_pair(const struct profile *p, const struct profile *q, const struct advised *a,
                       const double *is)
{
    char pair[140], split[32] = "-", words[64], limits[64];
    const struct interference *i = &a->pool;
    const char *first = resource_name(i->limit[0]), *second = resource_name(i->limit[1]);
    snprintf(pair, sizeof(pair), "%s + %s", p->name, q->name);
    text_show(pair);
    if (a->split_percent)
        snprintf(split, sizeof(split), "%5.2f + %.2f", 1 / a->split.slowdown[0],
                 1 / a->split.slowdown[1]);
    snprintf(limits, sizeof(limits), i->limit[0] == i->limit[1] ? "%s%.0s" : "%s, %s", first,
             second);
    snprintf(words, sizeof(words), "%s", a->advice == ADVICE_POOL ? "--pool" : "turns");
    if (a->advice == ADVICE_SPLIT)
        snprintf(words, sizeof(words), "--pool --sm %u%% and --sm %u%%", a->split_percent,
                 100 - a->split_percent);
    printf("%-32s %5.2f + %.2f  %5.2f + %.2f  %-12s  %-32s %s\n", pair, 1 / a->turns.slowdown[0],
           1 / a->turns.slowdown[1], 1 / i->slowdown[0], 1 / i->slowdown[1], split, limits, words);
    if (is)
        printf("%-32s %-13s  %5.2f + %.2f\n", "  they run now, and are", "", is[0], is[1]);
}

static json_t *speeds_json(const struct interference *i)
{
    return json_pack("[f,f]", 1 / i->slowdown[0], 1 / i->slowdown[1]);
}

static json_t *pair_json(const struct profile *p, const struct profile *q, const struct advised *a,
                         const double *is)
{
    json_t *speeds = is ? json_pack("[f,f]", is[0], is[1]) : NULL;
    json_t *split = a->split_percent ? json_pack("{s:o, s:[i,i]}", "speeds", speeds_json(&a->split),
                                                 "sm_percent", (int)a->split_percent,
                                                 100 - (int)a->split_percent)
                                     : NULL; /* one SM cannot be split */
    return json_pack("{s:[o,o], s:{s:o}, s:{s:o, s:[s,s]}, s:o*, s:s, s:o*}", "programs",
                     json_text(p->name), json_text(q->name), "turns", "speeds",
                     speeds_json(&a->turns), "pool", "speeds", speeds_json(&a->pool), "limits",
                     resource_name(a->pool.limit[0]), resource_name(a->pool.limit[1]), "split",
                     split, "advice", advice_names[a->advice], "measured", speeds);
}

/* Predicts each pair of programs. */
static void advise_all(const struct profile *v, size_t n, const json_t *jobs, bool json)
{
    json_t *pairs = json_array();
    if (!json)
        printf("%-32s %-13s  %-12s  %-12s  %-32s %s\n", "PROGRAMS", "IN TURNS", "IN A POOL",
               "SPLIT", "CONTENDING FOR", "ADVICE");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = i + 1; k < n; k++) {
            const struct program_kernels pair[2] = {{v[i].uses, v[i].n, v[i].busy},
                                                    {v[k].uses, v[k].n, v[k].busy}};
            struct advised a;
            double speeds[2], *is = measured(jobs, v[i].name, v[k].name, speeds) ? speeds : NULL;
            advise(&v[i].gpu, pair, &a);
            if (json)
                json_array_append_new(pairs, pair_json(&v[i], &v[k], &a, is));
            else
                print_pair(&v[i], &v[k], &a, is);
        }
    }
    if (json) {
        json_t *all = json_pack("{s:O}", "pairs", pairs);
        cli_print_json(all);
        json_decref(all);
    }
    json_decref(pairs);
}

int advise_main(int argc, char **argv)
{
    bool json = false;
    const struct option_row options[] = {{"json", .flag = &json}};
    const struct command_line line = {.program = "cede advise", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    size_t n = (size_t)(argc - optind), read = 0;
    struct error err = {""};
    if (n < 2 || n > PROGRAMS_MAX)
        return cli_usage("advise", "advise: give 2 to %d profiles, as ncu_profile.py makes them",
                         PROGRAMS_MAX);
    struct profile *v = calloc(n, sizeof(*v));
    int r = v ? 0 : error_set(&err, -ENOMEM, "out of memory");
    for (; r == 0 && read < n; read += r == 0) {
        r = profile_load(argv[(size_t)optind + read], &v[read], &err);
        if (r == 0 && v[read].gpu.sms != v[0].gpu.sms) {
            r = error_set(&err, -EINVAL, "%s is of a GPU with %u SMs, and %s of one with %u",
                          argv[optind], v[0].gpu.sms, argv[(size_t)optind + read], v[read].gpu.sms);
            profile_free(&v[read]);
        }
    }
    json_t *ps = NULL; /* the daemon's reply; NULL: no daemon runs */
    struct client c;
    if (r == 0 && client_open(&c, NULL) == 0) {
        (void)client_ps(&c, false, &ps, NULL);
        client_close(&c);
    }
    if (r == 0)
        advise_all(v, n, json_object_get(ps, "jobs"), json);
    else
        cli_error("%s", err.text);
    json_decref(ps);
    for (size_t i = 0; i < read; i++)
        profile_free(&v[i]);
    free(v);
    return r == 0 ? CLI_OK : r == -ENOMEM ? CLI_FAILED : CLI_USAGE;
}
