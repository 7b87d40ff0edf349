/* See advice.h. */
#include "plan/advice.h"

#include <math.h>
#include <string.h>

#include "plan/space_sharing.h"

#define TURNS 0.93 /* what turns give at least */

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

void advice_add_alone(struct advice_alone *a, const struct advice_window *w,
                      const struct advice_window *background)
{
    double own[GPU_PARTS], before = speeds_work(a->parts);
    own_parts(w, background, own);
    if (a->windows && before > 0)
        a->varies = fmax(a->varies, fabs(speeds_work(own) / before - 1));
    a->windows++;
    for (unsigned p = 0; p < GPU_PARTS; p++)
        a->parts[p] += (own[p] - a->parts[p]) / a->windows;
}

bool advice_idle(const struct advice_alone *a)
{
    return speeds_work(a->parts) <= SPEED_NOTHING;
}

void advice_speeds(struct advice_row *row, const struct advice_alone *alone, uint32_t n,
                   const struct advice_window *background)
{
    double profiles[ADVICE_JOBS][GPU_PARTS], own[GPU_PARTS], had = 0;
    bool told = true;
    for (uint32_t i = 0; i < n; i++)
        memcpy(profiles[i], alone[i].parts, sizeof(profiles[i]));
    own_parts(&row->window, background, own);
    speeds_estimate(profiles, n, own, row->speed, &row->sum, NULL);
    for (uint32_t i = 0; i < n; i++) {
        told &= row->speed[i].error <= SPEED_ERROR_MAX;
        had += row->window.had[i];
    }
    row->least = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        if (!told && row->is < ARRANGE_TOGETHER && had > 0)
            row->speed[i] =
                (struct speed){row->sum.value * row->window.had[i] / had, row->sum.error};
        row->least = fmin(row->least, row->speed[i].value);
    }
}

uint32_t advice_together(const struct advice_row *row, uint32_t n)
{
    const double sum = row->least < SPACE_FAIR / n ? fmin(row->sum.value, TURNS) : row->sum.value;
    return (uint32_t)fmax(round(sum * 1000), 1);
}

/* What the row is worth; < 0: the aim forbids it, by so much. */
static double worth(const struct advice_row *r, uint32_t n, const struct advice_aim *aim)
{
    double late = 1;
    for (uint32_t i = 0; i < n && aim->p99_us > 0; i++)
        late = fmax(late, r->window.p99_us[i] / aim->p99_us);
    if (late > 1)
        return 1 - late;
    if (aim->is == AIM_FAIR)
        return r->least;
    const double floor = aim->is == AIM_PROTECT ? aim->keeps : SPACE_FAIR / n,
                 is = aim->is == AIM_PROTECT ? r->speed[aim->protect].value : r->least;
    return is < floor ? is - floor : r->sum.value;
}

uint32_t advice_best(const struct advice_row *rows, uint32_t nrows, uint32_t n,
                     const struct advice_aim *aim)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < nrows; i++) {
        if (worth(&rows[i], n, aim) > worth(&rows[best], n, aim) + ADVICE_GAIN)
            best = i;
    }
    return best;
}
