/* See advice.h. */
#include "plan/advice.h"

#include <math.h>
#include <string.h>

#include "plan/space_sharing.h"

#define TURNS      0.93  /* what turns give at least */
#define TIME_ERROR 0.1   /* of a speed by GPU time, as of the least exact counters */
#define BUSY_LEAST 0.5   /* of a job alone, for its GPU time to tell its speed */
#define NOT_KNOWN  (-2.) /* worth of a row: below that of unfair ones, above that of late ones */

const char *arrangement_name(enum arrangement is)
{
    static const char *const names[] = {[ARRANGE_AS_IS] = "as they run",
                                        [ARRANGE_FIRST] = "first",
                                        [ARRANGE_TURNS] = "pool, in turns",
                                        [ARRANGE_TOGETHER] = "pool, together",
                                        [ARRANGE_PARTS] = "pool, parts"};
    return names[is];
}

static void own_parts(const struct advice_window *w, const struct advice_window *background,
                      double own[GPU_PARTS])
{
    for (unsigned p = 0; p < GPU_PARTS; p++)
        own[p] = fmax(w->parts[p] - background->parts[p], 0);
}

void advice_add_alone(struct advice_alone *a, const struct advice_window *w, uint32_t job,
                      const struct advice_window *background)
{
    double own[GPU_PARTS], before = speeds_work(a->parts);
    own_parts(w, background, own);
    if (a->windows && before > 0)
        a->varies = fmax(a->varies, fabs(speeds_work(own) / before - 1));
    a->windows++;
    a->busy = w->busy[job] > 0 ? w->busy[job] : a->busy;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        a->parts[p] += (own[p] - a->parts[p]) / a->windows;
}

bool advice_idle(const struct advice_alone *a)
{
    return speeds_work(a->parts) <= SPEED_NOTHING;
}

bool advice_all_known(const struct advice_row *row, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && speed_known(row->speed[i]))
        i++;
    return i == n;
}

/* Where counters do not tell a job's speed, its GPU time in relation to that alone does, unless it
 * mostly waits for its processor: three such programs had 0.69 to 0.85 of their speed on an H200
 * with more GPU time than alone, since each of their steps waited for its turn. */
static void priors_by_time(const struct advice_row *row, const struct advice_alone *alone,
                           uint32_t n, struct speed *prior)
{
    double all = 0;
    for (uint32_t i = 0; i < n; i++)
        all += row->window.had[i];
    for (uint32_t i = 0; i < n; i++) {
        prior[i] = (struct speed){0.5, 0.5};
        if (speed_known(row->speed[i]) || alone[i].busy < BUSY_LEAST || all <= 0)
            continue;
        const double v = fmin(row->window.had[i] / alone[i].busy, 1);
        prior[i] = (struct speed){v, TIME_ERROR * sqrt(fmax(v, TIME_ERROR))};
    }
}

void advice_speeds(struct advice_row *row, const struct advice_alone *alone, uint32_t n,
                   const struct advice_window *background)
{
    double profiles[ADVICE_JOBS][GPU_PARTS], own[GPU_PARTS];
    struct speed prior[ADVICE_JOBS];
    for (uint32_t i = 0; i < n; i++)
        memcpy(profiles[i], alone[i].parts, sizeof(profiles[i]));
    own_parts(&row->window, background, own);
    speeds_estimate(profiles, n, own, NULL, row->speed, &row->sum, NULL);
    row->estimate = row->sum.value;
    if (!advice_all_known(row, n) && row->is < ARRANGE_TOGETHER) {
        priors_by_time(row, alone, n, prior);
        speeds_estimate(profiles, n, own, prior, row->speed, &row->sum, NULL);
    }
    row->least = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        row->least = fmin(row->least, speed_known(row->speed[i]) ? row->speed[i].value : INFINITY);
}

uint32_t advice_together(const struct advice_row *row, uint32_t n)
{
    const double sum = row->least < SPACE_FAIR / n ? fmin(row->sum.value, TURNS) : row->sum.value;
    return speed_known(row->sum) ? (uint32_t)fmax(round(sum * 1000), 1) : 0;
}

/* What the row is worth; below 0: the aim forbids it, or what the aim goes by is not known. */
static double worth(const struct advice_row *r, uint32_t n, const struct advice_aim *aim, bool sums)
{
    double late = 1;
    for (uint32_t i = 0; i < n && aim->p99_us > 0; i++)
        late = fmax(late, r->window.p99_us[i] / aim->p99_us);
    if (late > 1)
        return NOT_KNOWN - late;
    if (aim->is == AIM_FAIR)
        return advice_all_known(r, n) ? r->least : NOT_KNOWN;
    if (aim->is == AIM_PROTECT && !speed_known(r->speed[aim->protect]))
        return NOT_KNOWN;
    const double floor = aim->is == AIM_PROTECT ? aim->keeps : SPACE_FAIR / n,
                 is = aim->is == AIM_PROTECT ? r->speed[aim->protect].value : r->least;
    return is < floor ? is - floor : sums ? r->sum.value : r->estimate;
}

uint32_t advice_best(const struct advice_row *rows, uint32_t nrows, uint32_t n,
                     const struct advice_aim *aim)
{
    uint32_t best = 0;
    bool sums = true;
    for (uint32_t i = 0; i < nrows; i++)
        sums &= speed_known(rows[i].sum);
    for (uint32_t i = 1; i < nrows; i++) {
        if (worth(&rows[i], n, aim, sums) > worth(&rows[best], n, aim, sums) + ADVICE_GAIN)
            best = i;
    }
    return worth(&rows[best], n, aim, sums) == NOT_KNOWN ? nrows : best;
}
