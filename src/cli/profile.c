/* `cede profile`: what the kernels of a program use of a GPU, from a profiler's tables. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "lib/out_file.h"
#include "lib/text.h"
#include "profile/profile.h"

#define SHOWN 20 /* kernels */

static const char help[] =
    "usage: cede profile --ncu FILE [--busy PERCENT] [--name NAME] [-o FILE]\n"
    "\n"
    "Shows which kernels a program spends its GPU time in, and what of the GPU each uses, from a\n"
    "table of Nsight Compute (-: standard input). With -o it is kept for `cede advise`.\n"
    "\n"
    "      --ncu FILE   made by ncu --csv, as below\n"
    "      --busy PERCENT  of its time alone in which the GPU works (nvidia-smi shows it as\n"
    "                   utilization): a profiler does not see gaps (default: 100%)\n"
    "      --name NAME  of the program (default: the file's)\n"
    "  -o, --output FILE  write the profile there\n"
    "  -h, --help       this text\n"
    "\n"
    "  ncu --csv --page raw --metrics "
    "gpu__time_duration.sum,launch__grid_size,launch__block_size,\\\n"
    "launch__registers_per_thread,launch__shared_mem_per_block,"
    "launch__shared_mem_config_size,\\\n"
    "smsp__issue_active.avg.pct_of_peak_sustained_active,\\\n"
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active,\\\n"
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active,\\\n"
    "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active,\\\n"
    "sm__inst_executed_pipe_fp16.avg.pct_of_peak_sustained_active,\\\n"
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active,\\\n"
    "l1tex__t_sector_hit_rate.pct,lts__t_sector_hit_rate.pct,lts__t_bytes.sum.per_second,\\\n"
    "dram__bytes.sum.per_second,dram__throughput.avg.pct_of_peak_sustained_elapsed,\\\n"
    "device__attribute_multiprocessor_count,device__attribute_l2_cache_size \\\n"
    "--target-processes all --launch-count 500 python3 train.py >train.csv\n"
    "  cede profile --ncu train.csv -o train.json\n";

static enum resource busiest(const struct kernel_profile *k)
{
    enum resource most = RESOURCE_NONE;
    for (int r = RESOURCE_ISSUE; r < RESOURCE_COUNT; r++) {
        if (r != RESOURCE_L1 && r != RESOURCE_L2 && k->use[r] > k->use[most])
            most = (enum resource)r;
    }
    return most;
}

static void print_percent(double share)
{
    printf(" %5.1f", 100 * share);
}

static void show_profile(const struct profile *p)
{
    char name[sizeof(p->kernels->name)];
    snprintf(name, sizeof(name), "%s", p->name);
    text_show(name);
    printf("%s: %u kernels, on a GPU of %u SMs\n", name, p->n, p->gpu.sms);
    printf(" TIME  ISSUE  DRAM L1HIT L2HIT   MOST       CALLS        US  BLOCKS THREADS KERNEL\n");
    for (uint32_t i = 0; i < p->n && i < SHOWN; i++) {
        const struct kernel_profile *k = &p->uses[i];
        enum resource most = busiest(k);
        printf("%5.1f", 100 * k->share);
        print_percent(k->use[RESOURCE_ISSUE]);
        print_percent(k->use[RESOURCE_DRAM]);
        print_percent(k->l1_hit);
        print_percent(k->l2_hit);
        print_percent(k->use[most]);
        snprintf(name, sizeof(name), "%s", p->kernels[i].name);
        text_show(name);
        printf(" %-6.*s %6llu %9.1f %7u %7u %s\n", (int)strcspn(resource_name(most), " "),
               resource_name(most), (unsigned long long)p->kernels[i].calls, k->us, k->blocks,
               k->threads, name);
    }
    if (p->n > SHOWN)
        printf("and %u more\n", p->n - SHOWN);
}

static void name_by_file(struct profile *p, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    snprintf(p->name, sizeof(p->name), "%.*s", (int)strcspn(base, "."), base);
    if (!p->name[0] || strcmp(path, "-") == 0)
        snprintf(p->name, sizeof(p->name), "program");
}

/* 60% or 60 */
static int read_busy(void *to, const char *name, const char *text, struct error *err)
{
    char *end;
    double percent = strtod(text, &end);
    if (end == text || strcmp(*end == '%' ? end + 1 : end, "") != 0 || !(percent > 0) ||
        percent > 100)
        return error_set(err, -EINVAL, "--%s: '%s' is no percentage above 0 and up to 100", name,
                         text);
    *(double *)to = percent / 100;
    return 0;
}

int profile_main(int argc, char **argv)
{
    const char *ncu = NULL, *name = NULL, *output = NULL;
    struct profile p;
    struct error err = {""};
    double busy = 0;
    const struct option_row options[] = {{"ncu", .text = &ncu},
                                         {"busy", .read = read_busy, .to = &busy},
                                         {"name", .text = &name},
                                         {"output", 'o', .text = &output}};
    const struct command_line line = {.program = "cede profile", .help = help};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (!ncu || optind < argc)
        return cli_usage("profile",
                         ncu ? "profile: '%s' is one argument too many"
                             : "profile: no table given: --ncu FILE%.0s",
                         ncu ? argv[optind] : "");
    _cleanup_fclose_ FILE *f = strcmp(ncu, "-") == 0 ? fdopen(0, "r") : fopen(ncu, "re");
    if (!f) {
        cli_error("cannot open %s: %s", ncu, strerror(errno));
        return CLI_USAGE;
    }
    int r = profile_from_ncu(f, ncu, &p, &err);
    if (r == 0) {
        name_by_file(&p, name ? name : ncu);
        if (name)
            snprintf(p.name, sizeof(p.name), "%s", name);
        p.busy = busy;
        if (!output || !out_file_is_output(output))
            show_profile(&p);
        r = output ? profile_save(&p, output, &err) : 0;
        profile_free(&p);
    }
    if (r == 0)
        return CLI_OK;
    cli_error("%s", err.text);
    return r == -EINVAL || r == -ENODEV ? CLI_USAGE : CLI_FAILED;
}
