/* See driver_check.h. */
#include "daemon/driver_check.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/child.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/loop_poll.h"
#include "base/paths.h"
#include "base/text.h"
#include "daemon/findings.h"
#include "doctor/known.h"
#include "journal/swapper.h"

#define CHECKED  (GPU_CAP_TIMESLICE | GPU_CAP_SUSPEND | GPU_CAP_PREEMPT)
#define WITHHELD (CHECKED | GPU_CAP_SWAP)
#define LIMIT_MS 30000 /* doctor's whole measurement takes less than 10 s on an H200 */
#define LEAVE_MS 3000  /* from SIGTERM to SIGKILL: it ends its programs meanwhile */
#define KILL_MS  1000  /* from SIGKILL to giving up on it */
/* Before a check without a result is repeated: doubled each time, up to 11 minutes. */
#define AGAIN_MS 10000U
#define DOUBLE   6U

static void check_next(struct check *c);

/* ---- the process ---- */

static int start_program(struct check *c)
{
    sigset_t none;
    sigemptyset(&none);
    const struct child_spec spec = {
        .file = CHILD_SELF,
        .argv = (const char *const[]){"cede-check", c->device, c->info[c->gpu].uuid, NULL},
        .env = c->soft ? (const char *const[]){"CEDE_SOFT_SOCKET", c->soft, NULL} : NULL,
        .session = true,
        .mask = &none,
        .death_signal = SIGTERM, /* at which it ends its programs */
    };
    return child_start_linked(&spec, CHILD_WRITES, STDOUT_FILENO, &c->pid);
}

static void check_end(struct check *c, int signal)
{
    loop_poll_stop(&c->poll);
    close_p(&c->out);
    c->out = -1;
    if (c->pid) {
        kill(c->pid, signal);
        process_leave(c->left, c->pid);
    }
    c->pid = 0;
}

/* ---- what it found ---- */

/* Those of `among`, a bit mask, with this GPU's driver and model: they are checked once. */
static uint32_t same_kind(const struct check *c, unsigned gpu, uint32_t among)
{
    uint32_t same = 0;
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if ((among >> i & 1) && strcmp(c->info[i].driver, c->info[gpu].driver) == 0 &&
            strcmp(c->info[i].name, c->info[gpu].name) == 0)
            same |= 1U << i;
    }
    return same;
}

static void check_withhold(struct check *c, uint32_t gpus, uint32_t off, const char *why)
{
    for (unsigned i = 0; i < DEVICE_GPUS_MAX; i++) {
        if (gpus >> i & 1)
            engine_withhold(c->engine, i, off, why);
    }
}

static struct finding about(const struct check *c, unsigned gpu)
{
    struct finding f = {.off = 0};
    snprintf(f.driver, sizeof(f.driver), "%s", c->info[gpu].driver);
    snprintf(f.chip, sizeof(f.chip), "%s",
             c->info[gpu].name[0] ? c->info[gpu].name : "a GPU of unknown model");
    return f;
}

/* Applies a finding to GPUs, and logs it. */
static void check_use(struct check *c, uint32_t gpus, const struct finding *f, const char *how)
{
    char off[96];
    check_withhold(c, gpus, f->off, f->why);
    finding_names(f->off, off, sizeof(off));
    if (f->off)
        log_say(LOG_WARNING, "driver %s on %s%s: off: %s (%s); `cede doctor` measures more",
                f->driver, f->chip, how, off, f->why);
    else
        log_say(LOG_INFO, "driver %s on %s%s: timeslices and suspension have their effect",
                f->driver, f->chip, how);
}

static void check_keep(const struct check *c, const struct finding *f)
{
    struct error err = {""};
    if (c->state[0] && strcmp(f->driver, "unknown") != 0 && findings_keep(c->state, f, &err) < 0)
        log_say(LOG_WARNING, "the next start checks the driver again: %s", err.text);
}

/* False: the check came to no result, and f says why. */
static bool check_read(const struct check *c, const json_t *o, struct finding *f)
{
    const char *why = json_get_text(o, "why"), *error = json_get_text(o, "error");
    bool complete = !c->stage && json_is_boolean(json_object_get(o, "timeslice")) &&
                    json_is_boolean(json_object_get(o, "suspend")) && why;
    f->off = complete ? 0 : WITHHELD;
    if (complete) {
        f->off |= json_get_true(o, "timeslice") ? 0 : GPU_CAP_TIMESLICE;
        f->off |= json_get_true(o, "suspend") ? 0 : GPU_CAP_SUSPEND;
        f->off |= json_get_true(o, "preempt") ? 0 : GPU_CAP_PREEMPT;
        f->off &= c->info[c->gpu].caps;
    } else {
        why = c->stage            ? "the check did not end in time"
              : error && error[0] ? error
                                  : "the check ended without a result";
    }
    snprintf(f->why, sizeof(f->why), "%.*s", (int)sizeof(f->why) - 1, f->off ? why : "");
    text_printable(f->why);
    if (f->off && !f->why[0])
        snprintf(f->why, sizeof(f->why), "no effect was seen");
    return complete;
}

/* The process has ended, or could not be killed in time. */
static void check_finish(struct check *c)
{
    const uint32_t gpus = same_kind(c, c->gpu, c->due);
    struct finding f = about(c, c->gpu);
    char cannot[160];
    uv_timer_stop(&c->timer);
    check_end(c, SIGKILL);
    _cleanup_json_ json_t *o = json_loadb(c->answer, c->n, 0, NULL);
    const char *text = json_get_text(o, "unmeasurable");
    c->due &= ~gpus;
    if (text) {
        snprintf(cannot, sizeof(cannot), "%s", text);
        text_printable(cannot);
        check_withhold(c, gpus, 0, "");
        log_say(LOG_WARNING,
                "driver %s on %s: its controls are used unchecked, because they cannot be measured "
                "here: %s",
                f.driver, f.chip, cannot);
    } else if (check_read(c, o, &f)) {
        check_use(c, gpus, &f, "");
        check_keep(c, &f);
    } else {
        check_use(c, gpus, &f, "");
        c->failed |= gpus;
    }
    check_next(c);
}

/* ---- its time ---- */

static void on_check_late(uv_timer_t *t)
{
    struct check *c = t->data;
    c->stage++;
    if (c->stage <= 2) {
        kill(c->pid, c->stage == 1 ? SIGTERM : SIGKILL);
        uv_timer_start(t, on_check_late, c->stage == 1 ? LEAVE_MS : KILL_MS, 0);
        return;
    }
    check_finish(c); /* SIGKILL had no effect: the process hangs in the driver */
}

static void on_check_answer(uv_poll_t *p, int status, int events)
{
    struct check *c = p->data;
    ssize_t n = read(c->out, c->answer + c->n, sizeof(c->answer) - c->n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        c->n += (size_t)n;
    if (n <= 0 || c->n == sizeof(c->answer))
        check_finish(c);
}

static int check_start(struct check *c)
{
    /* With several drivers at once, the label's beginning names the GPU's driver: "nvidia0". */
    const char *label = c->info[c->gpu].label;
    const char *name = label[0] ? label : device_name(engine_driver(c->engine));
    snprintf(c->device, sizeof(c->device), "%.*s", (int)strcspn(name, "0123456789"), name);
    c->n = 0;
    c->stage = 0;
    c->out = start_program(c);
    if (c->out < 0)
        return c->out;
    uv_timer_start(&c->timer, on_check_late, LIMIT_MS, 0);
    return loop_poll_start(c->loop, c->out, UV_READABLE | UV_DISCONNECT, on_check_answer, c,
                           &c->poll);
}

static void on_again(uv_timer_t *t)
{
    struct check *c = t->data;
    c->due = c->failed;
    c->failed = 0;
    check_next(c);
}

static void check_next(struct check *c)
{
    if (c->due) {
        c->gpu = (unsigned)__builtin_ctz(c->due);
        int r = check_start(c);
        if (r == 0)
            return;
        log_say(LOG_WARNING, "cannot start the check of the driver: %s", strerror(-r));
        check_end(c, SIGKILL);
        check_withhold(c, c->due, WITHHELD, "the check could not be started");
        c->failed |= c->due;
        c->due = 0;
    }
    if (c->failed)
        uv_timer_start(&c->timer, on_again, AGAIN_MS << min_u64(c->repeats++, DOUBLE), 0);
    engine_quiesce(c->engine, false);
    c->changed(c->arg);
}

/* ---- beginning and end ---- */

/* Whether the driver of GPUs of one kind has to be checked. A kept finding is used instead. */
static bool check_is_due(struct check *c, unsigned gpu, uint32_t gpus, enum driver_check mode)
{
    const struct gpu_info *g = &c->info[gpu];
    if (mode != DRIVER_CHECK_AUTO)
        return mode == DRIVER_CHECK_ALWAYS;
    if (known_driver(g->driver, g->name) == EVIDENCE_RUN)
        return false;
    struct finding f = about(c, gpu);
    if (!c->state[0] || !findings_find(c->state, &f))
        return true;
    check_use(c, gpus, &f, " (checked at an earlier start)");
    return false;
}

static void say_begins(const struct check *c, unsigned gpu)
{
    static const char *const says[] = {[EVIDENCE_NONE] = "it is not known",
                                       [EVIDENCE_READ] = "its source was read, but it was not run",
                                       [EVIDENCE_RUN] = "driver_check is always"};
    const struct finding f = about(c, gpu);
    log_say(LOG_INFO, "driver %s on %s is checked before any program is steered: %s", f.driver,
            f.chip, says[known_driver(f.driver, f.chip)]);
}

void check_begin(struct check *c, uv_loop_t *loop, struct engine *e, const struct check_options *o)
{
    struct device_driver *d = engine_driver(e);
    uint32_t all = 0;
    *c = (struct check){.engine = e,
                        .loop = loop,
                        .soft = o->soft,
                        .left = o->left,
                        .out = -1,
                        .changed = o->changed,
                        .arg = o->arg};
    if (cede_state_dir(o->dir, c->state, sizeof(c->state), NULL) < 0)
        c->state[0] = '\0';
    for (unsigned i = 0; i < d->ops->gpus(d) && i < DEVICE_GPUS_MAX; i++) {
        if (d->ops->info(d, i, &c->info[i]) == 0 && c->info[i].driver[0])
            all |= 1U << i;
    }
    while (all) {
        const unsigned gpu = (unsigned)__builtin_ctz(all);
        const uint32_t gpus = same_kind(c, gpu, all);
        all &= ~gpus;
        if (!check_is_due(c, gpu, gpus, o->mode))
            continue;
        say_begins(c, gpu);
        check_withhold(c, gpus, WITHHELD, "its driver is being checked");
        c->due |= gpus;
    }
    if (!c->due)
        return;
    uv_timer_init(loop, &c->timer);
    c->timer.data = c;
    engine_quiesce(e, true);
    check_next(c);
}

void check_stop(struct check *c)
{
    if (!c->engine)
        return;
    if (c->timer.data)
        uv_timer_stop(&c->timer);
    check_end(c, SIGTERM);
    c->engine = NULL;
}
