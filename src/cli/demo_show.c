/* See demo.h: results for programs (JSON) and for people. Measures nothing. */
#include <math.h>
#include <string.h>

#include "base/json_text.h"
#include "cli/demo.h"

/* Between two windows of a batch program alone, and of what it has beside others over what it has
 * alone. On a machine at rest they differ by 0.02. */
#define AGAIN_LEAST 0.8
#define SHARE_MOST  1.25

bool demo_busy(const struct demo_result *r, char *why, size_t size)
{
    double most = fmax(fmax(r->normal.batch_share, r->cede.batch_share), r->multi.batch_share);
    bool again = (r->resumed && r->again < AGAIN_LEAST) || r->again > SHARE_MOST;
    snprintf(why, size, "batch did %.2f of what it did alone %s", again ? r->again : most,
             again ? "before" : "in another window");
    return again || most > SHARE_MOST;
}

static json_t *row(const struct demo_row *r)
{
    return json_pack("{s:o, s:o, s:I, s:o}", "p50_us", json_finite(r->latency.p50_us), "p99_us",
                     json_finite(r->latency.p99_us), "requests", (json_int_t)r->latency.n,
                     "batch_share", json_finite(r->batch_share));
}

json_t *demo_json(const struct demo_result *r)
{
    char why[80];
    return json_pack("{s:s, s:s, s:s, s:f, s:I, s:I, s:o, s:o, s:o, s:o, s:{s:[f,f], s:[o,o], s:o},"
                     " s:{s:b, s:b, s:o, s:o}, s:b, s:o, s:b}",
                     "device", r->device, "gpu", r->gpu, "driver", r->driver, "seconds", r->seconds,
                     "batch_kernel_us", (json_int_t)r->batch_kernel_us, "rate", (json_int_t)r->rate,
                     "alone", row(&r->alone), "default", row(&r->normal), "cede", row(&r->cede),
                     "multi", row(&r->multi), "shares", "asked", r->asked[0], r->asked[1], "got",
                     json_finite(r->got[0]), json_finite(r->got[1]), "sum",
                     json_finite(r->got[0] + r->got[1]), "pause", "stopped", r->stopped, "resumed",
                     r->resumed, "suspend_us", json_finite(r->suspend_us), "resume_us",
                     json_finite(r->resume_us), "verified", r->verified, "alone_again",
                     json_finite(r->again), "busy", demo_busy(r, why, sizeof(why)));
}

#define BAR  48 /* columns */
#define ROWS 4

struct demo_shown {
    const char *name, *meaning;
    const struct demo_row *row;
};

/* Draws a bar and the value for each row; the value `whole` fills the bar. With UTF-8 bars end at
 * eighths of a column. */
static void bars(FILE *f, const struct demo_shown *rows, bool latency, double whole, bool utf8)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    for (size_t i = 0; i < ROWS; i++) {
        const double v = latency ? rows[i].row->latency.p99_us : rows[i].row->batch_share;
        const double length = fmin(fmax(v / whole, 0), 1) * BAR;
        const unsigned n = (unsigned)(utf8 ? length : round(length));
        const unsigned eighth = utf8 ? (unsigned)((length - n) * 8) : 0;
        fprintf(f, "%-18s ", rows[i].name);
        for (unsigned k = 0; k < n; k++)
            fputs(utf8 ? "█" : "#", f);
        fputs(n || eighth ? eighths[eighth] : utf8 ? "▏" : "|", f);
        fprintf(f, latency ? " %.0f us\n" : " %.3f\n", v);
    }
}

void demo_print(FILE *f, const struct demo_result *r, bool utf8)
{
    const struct demo_shown rows[ROWS] = {
        {"alone", "each has the GPU for itself", &r->alone},
        {"driver default", "both; requests wait for slices", &r->normal},
        {"cede", "both; batch gives way at once", &r->cede},
        {"cede, 3 batch jobs", "three take turns in one share", &r->multi},
    };
    fprintf(f, "%s, driver %s\n", r->gpu, r->driver);
    if (strcmp(r->device, "soft") == 0)
        fputs("A timing model of an H200 in software: says nothing about this machine.\n", f);
    char why[80];
    if (demo_busy(r, why, sizeof(why)))
        fprintf(f, "THE MACHINE WAS TOO BUSY: %s.\n", why);
    fprintf(f,
            "A latency program (%llu requests/s of 0.1 ms) and batch programs (kernels of\n"
            "%g ms without pause), unmodified, adopted by pid while they ran.\n\n",
            (unsigned long long)r->rate, (double)r->batch_kernel_us / 1e3);

    fprintf(f, "%-18s %8s %8s %6s   %s\n", "", "p50 us", "p99 us", "batch", "");
    double worst = 1;
    for (size_t i = 0; i < ROWS; i++) {
        const struct demo_row *w = rows[i].row;
        worst = fmax(worst, w->latency.p99_us);
        fprintf(f, "%-18s %8.0f %8.0f %6.3f   %s\n", rows[i].name, w->latency.p50_us,
                w->latency.p99_us, w->batch_share, rows[i].meaning);
    }
    fputs("\nLatency p99 (shorter is better)\n", f);
    bars(f, rows, true, worst, utf8);
    fputs("\nBatch work, as a part of what it does alone (longer is better)\n", f);
    bars(f, rows, false, 1, utf8);
    fprintf(f, "\nshares  asked %.2f : %.2f, got %.3f + %.3f = %.3f of one alone\n", r->asked[0],
            r->asked[1], r->got[0], r->got[1], r->got[0] + r->got[1]);
    fprintf(f, "pause   %s in %.2f ms, %s in %.2f ms\n",
            r->stopped ? "stopped the batch program" : "DID NOT STOP the batch program",
            r->suspend_us / 1e3, r->resumed ? "resumed" : "DID NOT RESUME", r->resume_us / 1e3);
    fprintf(f, "results %s\n",
            r->verified ? "of every kernel of every program are right"
                        : "could not be verified for every program");
}
