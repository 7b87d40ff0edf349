/* See advice.h. */
#include "plan/advice.h"

#include <math.h>
#include <stdbool.h>

#define STEP_PERCENT 10U /* finer steps make no difference that is worth telling */

static bool fair_enough(const struct interference *i)
{
    return fmax(i->slowdown[0], i->slowdown[1]) <= 1 / ADVICE_LEAST;
}

/* The sum of both speeds, or 0 if one program starves. */
static double advice_worth(const struct interference *i)
{
    return fair_enough(i) ? interference_sum(i) : 0;
}

void advise(const struct gpu_shape *g, const struct program_kernels pair[2], struct advised *out)
{
    *out = (struct advised){.advice = ADVICE_TURNS};
    interference_with_gaps((double[2]){pair[0].busy, pair[1].busy}, (double[2]){2, 2},
                           out->turns.slowdown);
    interference_of_programs(g, pair, 0, &out->pool);
    for (unsigned percent = STEP_PERCENT; percent < 100; percent += STEP_PERCENT) {
        uint32_t sms = g->sms * percent / 100;
        struct interference split;
        if (!sms || sms == g->sms)
            continue;
        interference_of_programs(g, pair, sms, &split);
        if (!out->split_percent || advice_worth(&split) > advice_worth(&out->split)) {
            out->split = split;
            out->split_percent = percent;
        }
    }
    double pool = advice_worth(&out->pool),
           parts = out->split_percent ? advice_worth(&out->split) : 0;
    if (fmax(pool, parts) > interference_sum(&out->turns) + ADVICE_GAIN)
        out->advice = parts > pool + ADVICE_GAIN ? ADVICE_SPLIT : ADVICE_POOL;
}
