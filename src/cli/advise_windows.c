/* What `cede advise` measures; see advise.h. */
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/cli_error.h"
#include "base/json_text.h"
#include "cli/advise.h"
#include "cli/targets.h"

#define SHORT_MS      600 /* without a latency job */
#define BACKGROUND_MS 500
#define OTHERS_BUSY   0.01 /* of a job: it works */

void advise_progress(const char *format, ...)
{
    char text[100] = "";
    static bool shown;
    va_list args;
    if (!isatty(STDERR_FILENO) || (!shown && strcmp(format, " ") == 0))
        return;
    shown = true;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "\r%-78.78s\r", text);
}

static bool is_among(const struct advise *a, const json_t *job)
{
    uint32_t i = 0;
    while (i < a->n && a->jobs[i].number != (uint64_t)json_get_int(job, "number"))
        i++;
    return i < a->n;
}

void advise_others(struct advise *a, const json_t *all)
{
    for_each_json (job, json_object_get(all, "jobs")) {
        const size_t n = strlen(a->others), to = strlen(a->pause);
        char text[TARGET_TEXT];
        if (!json_has_int(json_object_get(job, "gpus"), a->trial.gpu) || is_among(a, job) ||
            !(json_get_number(job, "busy") > OTHERS_BUSY))
            continue;
        snprintf(a->others + n, sizeof(a->others) - n, "%s%s", n ? ", " : "",
                 target_text(text, job));
        snprintf(a->pause + to, sizeof(a->pause) - to, " %%%lld",
                 (long long)json_get_int(job, "number"));
    }
    if (a->others[0])
        cli_error("note: other jobs work on GPU %u too, so that the speeds may be wrong: %s; hold "
                  "them with `cede pause%s`",
                  a->trial.gpu, a->others, a->pause);
}

static uint32_t all_but(const struct advise *a, uint32_t job)
{
    return ((1U << a->n) - 1) & ~(job < a->n ? 1U << job : 0);
}

static bool holds_latency(const struct advise *a, uint32_t held)
{
    bool any = false;
    for (uint32_t i = 0; i < a->n; i++)
        any |= held >> i & 1 && a->jobs[i].latency;
    return any;
}

/* -ENODATA: jobs had the engine, and the counters show no work. Nothing is held for this. */
static int advise_shown(struct advise *a, struct error *err)
{
    const struct trial_way as_is = {.first = TRIAL_NONE};
    struct advice_window w;
    double had = 0;
    advise_progress("what the counters show");
    const int code = trial_window(&a->trial, &as_is, BACKGROUND_MS, &w, err);
    if (code < 0)
        return code;
    for (uint32_t i = 0; i < a->n; i++)
        had += w.had[i];
    if (had < 0.1 || speeds_work(w.parts) > SPEED_NOTHING)
        return 0;
    return error_set(err, -ENODATA,
                     "the counters of GPU %u show nothing of what these jobs do, so nothing was "
                     "tried: on a software GPU start cede-load with --uses (cede-load(1)), "
                     "elsewhere " ADVISE_INSTEAD,
                     a->trial.gpu);
}

int advise_alone(struct advise *a, bool again, struct error *err)
{
    struct advice_window w;
    struct advice_alone beside = {.windows = 0};
    struct trial_way way = {.held = all_but(a, a->n), .first = TRIAL_NONE};
    int code = again ? 0 : advise_shown(a, err);
    if (code == 0 && !again && !holds_latency(a, way.held)) {
        advise_progress("what runs besides");
        code = trial_window(&a->trial, &way, BACKGROUND_MS, &a->background, err);
        if (code == 0)
            advice_add_alone(&beside, &a->background, 0, &(struct advice_window){.idle = 0});
        if (code == 0 && !a->others[0] && !advice_idle(&beside))
            cli_error("note: other programs work on this GPU too, so that the speeds may be wrong: "
                      "name them too, or pause them");
    }
    for (uint32_t i = 0; i < a->n && code == 0; i++) {
        way.held = all_but(a, i);
        const bool brief = holds_latency(a, way.held);
        if (brief && again)
            continue;
        advise_progress("%s alone", a->jobs[i].name);
        code = trial_window(&a->trial, &way,
                            brief   ? SHORT_MS
                            : again ? a->window_ms / 2
                                    : a->window_ms,
                            &w, err);
        if (code < 0)
            break;
        advice_add_alone(&a->alone[i], &w, i, &a->background);
        a->jobs[i].alone_ns[again][0] = w.from_ns;
        a->jobs[i].alone_ns[again][1] = w.to_ns;
    }
    return code;
}

int advise_row(struct advise *a, enum arrangement is, uint32_t first, struct error *err)
{
    struct advice_row *row = &a->rows[a->nrows];
    const struct trial_way way = {.first = is == ARRANGE_FIRST ? first : TRIAL_NONE,
                                  .turns = is == ARRANGE_TURNS};
    *row = (struct advice_row){.is = is, .first = first};
    advise_progress("%s", arrangement_name(is));
    int code = trial_window(&a->trial, &way, a->window_ms * 3 / 2, &row->window, err);
    a->nrows += code == 0;
    return code;
}

int advise_first(struct advise *a, struct error *err)
{
    int code = a->aim.is == AIM_PROTECT ? advise_row(a, ARRANGE_FIRST, a->aim.protect, err) : 0;
    if (code != -EPERM)
        return code;
    cli_error("not tried: %s first: %s", a->jobs[a->aim.protect].name, err->text);
    return 0;
}

int advise_speeds(struct advise *a, struct error *err)
{
    for (uint32_t i = 0; i < a->n; i++) {
        if (advice_idle(&a->alone[i]) && a->others[0])
            return error_set(err, -ENODATA,
                             "what %s uses of the GPU cannot be told while other jobs work there "
                             "(%s): hold them with `cede pause%s`, and repeat",
                             a->jobs[i].name, a->others, a->pause);
        if (advice_idle(&a->alone[i]))
            return error_set(err, -ENODATA,
                             "%s used too little of the GPU to be told (%.1f %%): give it load, or "
                             "a longer --window",
                             a->jobs[i].name, speeds_work(a->alone[i].parts) * 100);
    }
    for (uint32_t r = 0; r < a->nrows; r++)
        advice_speeds(&a->rows[r], a->alone, a->n, &a->background);
    return 0;
}

int advise_remember(struct advise *a, const struct advice_row *row, struct error *err)
{
    const uint32_t together = advice_together(row, a->n);
    return together ? trial_remember(&a->trial, together, err) : 0;
}
