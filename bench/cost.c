/* See cost.h. */
#include "bench/cost.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int cost_number(void *to, const char *name, const char *text, struct error *err)
{
    const struct cost_number *n = to;
    int r = n->whole ? parse_u64(text, (uint64_t)n->lo, (uint64_t)n->hi, n->whole)
                     : parse_double(text, n->lo, n->hi, n->real);
    return r ? error_set(err, r, "--%s: must be from %.10g to %.10g, not %s", name, n->lo, n->hi,
                         text)
             : 0;
}

int cost_options(int argc, char **argv, const struct command_line *c, const struct option_row *rows,
                 size_t n)
{
    int status = options_read(argc, argv, c, rows, n);
    return status == OPTIONS_GO_ON && optind < argc
               ? options_wrong(c->program, "'%s' is one argument too many", argv[optind])
               : status;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void cost_sort(double *v, size_t n)
{
    qsort(v, n, sizeof(*v), compare);
}

double cost_median(double *v, size_t n)
{
    cost_sort(v, n);
    return n ? v[n / 2] : 0;
}

double cost_quantile(const double *sorted, size_t n, double q)
{
    return n ? sorted[(size_t)(q * (double)(n - 1))] : 0;
}

double cost_of_call(void (*round)(void *arg), void *arg, unsigned calls)
{
    double v[COST_ROUNDS];
    for (size_t i = 0; i < COST_ROUNDS; i++) {
        uint64_t t = monotonic_ns();
        round(arg);
        v[i] = (double)(monotonic_ns() - t) / calls;
    }
    return cost_median(v, COST_ROUNDS);
}

void cost_nap(double us)
{
    nanosleep(&(struct timespec){(time_t)(us / 1e6), (long)(fmod(us, 1e6) * 1e3)}, NULL);
}

int cost_report(const char *program, const char *path, void (*report)(FILE *f))
{
    FILE *f = path ? fopen(path, "we") : NULL;
    report(stdout);
    if (f)
        report(f);
    if (!path || (f && fclose(f) == 0))
        return 0;
    fprintf(stderr, "%s: cannot write %s: %s\n", program, path, strerror(errno));
    return -EIO;
}
