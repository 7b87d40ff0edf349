/* ceded: one thread, one loop (libuv) around the engine.
 *
 * The daemon wakes for the control socket, for what the engine watches (a process of a job has
 * ended), for the time that the engine asked for, for a heartbeat while there are jobs (the
 * restorer takes a daemon without one for hung), and for signals. An idle daemon costs nothing.
 *
 * It must not change anything on a GPU before the restorer stands by, nor release the journal's
 * lock while a change is in effect. */
#include "daemon/ceded.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <uv.h>

#include "acct/feed.h"
#include "api/job_sums.h"
#include "api/rules/job_spec.h"
#include "base/log.h"
#include "base/loop_poll.h"
#include "base/options.h"
#include "base/paths.h"
#include "base/version.h"
#include "daemon/config_reader.h"
#include "daemon/container_socket.h"
#include "daemon/daemonize.h"
#include "daemon/directory.h"
#include "daemon/driver_check.h"
#include "daemon/identify_process.h"
#include "daemon/options.h"
#include "daemon/standby.h"
#include "gpu/registry.h"
#include "journal/other_cedes.h"
#include "journal/restorer.h"
#include "journal/swapper.h"

#define MEND_NS           (50 * NSEC_PER_MSEC) /* before a journal is tried again */
#define HEARTBEAT_NS      (500 * NSEC_PER_MSEC)
#define TRANSIENT_WAIT_NS (5 * NSEC_PER_SEC) /* for the first job */
/* A daemon that started before its GPU, as at boot, looks for one while it has no jobs. */
#define GPU_LOOK_NS (2 * NSEC_PER_SEC)

struct daemon {
    struct options opt;
    char dir[108], socket[128];
    struct config config;
    struct principals principals;
    struct rule_list rules; /* where the engine's rule_fn looks */

    struct journal *journal;
    struct device_driver *driver;
    struct engine *engine;
    struct server *server;
    struct directory directory;
    struct verbs verbs;

    struct children left; /* children that nothing else waits for */
    struct standby restorer;
    struct acct *acct; /* NULL: no accounting */
    struct identifier identifier;
    struct check drivers;

    uv_loop_t loop;
    bool loop_open;
    uv_timer_t timer;
    uv_check_t check;
    uv_signal_t signals[4];
    struct reader reader;   /* of the configuration, after SIGHUP */
    uv_poll_t *reader_poll; /* NULL: no reader runs */
    const char *soft;       /* the software GPU's socket; NULL: the default */
    uint64_t start_ns, wake_ns, acct_ns, mend_ns;
    int mend_failed; /* the last error of journal_mend(); 0: none */
    unsigned jobs;
    bool had_jobs, stopping;
    uint64_t gpu_look_ns; /* when to look for a GPU; 0: never */
    bool again;           /* start anew after the end */
};

static void notify_status(const struct daemon *d, const char *more)
{
    char text[256];
    snprintf(text, sizeof(text), "%sSTATUS=%u job%s on %s, policy %s", more, d->jobs,
             d->jobs == 1 ? "" : "s", device_name(d->driver), engine_policy(d->engine));
    int r = notify_send(text);
    if (r < 0)
        log_say(LOG_DEBUG, "cannot reach the service manager: %s", strerror(-r));
}

static void heartbeat(struct daemon *d)
{
    const uint64_t now = monotonic_ns();
    journal_shared(d->journal)->heartbeat_ns = now;
    if (now < d->mend_ns && (d->mend_failed || !journal_stale(d->journal)))
        return;
    int r = journal_mend(d->journal);
    d->mend_ns = now + (r < 0 ? MEND_NS : HEARTBEAT_NS);
    if (r > 0)
        log_say(LOG_WARNING, "the journal in %s is not as it was written: it is made anew", d->dir);
    else if (r < 0 && r != d->mend_failed)
        log_say(LOG_ERR, "the journal in %s is not as it was written, and cannot be made anew: %s",
                d->dir, strerror(-r));
    d->mend_failed = r < 0 ? r : 0;
}

static void daemon_stop(struct daemon *d);
static void on_timer(uv_timer_t *t);

static void daemon_leave(struct daemon *d, const char *why)
{
    log_say(LOG_INFO, "%s", why);
    daemon_stop(d);
}

static void timer_arm(struct daemon *d)
{
    uint64_t now = monotonic_ns(), next = d->wake_ns;
    if (d->jobs)
        next = min_u64(next, journal_stale(d->journal) ? d->mend_ns : now + HEARTBEAT_NS);
    next = min_u64(next, min_u64(standby_due(&d->restorer), d->acct_ns));
    if (d->gpu_look_ns && !d->jobs)
        next = min_u64(next, d->gpu_look_ns);
    if (d->opt.transient && !d->had_jobs)
        next = min_u64(next, d->start_ns + TRANSIENT_WAIT_NS);
    if (next == TIME_NEVER) {
        uv_timer_stop(&d->timer);
        return;
    }
    /* Rounded up, since a timer that fires early has to be armed again. Never 0, with which libuv
     * runs the timer again before it looks at descriptors, so that requests would starve. */
    uint64_t ms = next <= now ? 1 : (next - now + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC;
    uv_update_time(&d->loop);
    uv_timer_start(&d->timer, on_timer, ms, 0);
}

static void daemon_tick(void *arg)
{
    struct daemon *d = arg;
    if (d->stopping)
        return;
    struct hints *hints = d->verbs.hints;
    uint64_t now = monotonic_ns(), next = hints_report(hints, d->engine, now);
    next = min_u64(next, engine_tick(d->engine, now));
    hints_tell_wanted(hints, d->engine, now);
    next = min_u64(next, hints_tell_share(hints, d->engine, now));
    d->wake_ns = min_u64(next, traces_update(d->verbs.traces, d->engine, hints, monotonic_ns()));
    d->acct_ns = d->acct ? acct_tick(d->acct, d->engine, now) : TIME_NEVER;
    heartbeat(d);
    if (engine_driver_changed(d->engine)) { /* the new start checks it */
        d->again |= !d->stopping;
        daemon_leave(d, "the GPU's driver is another release than before: starting anew");
        return;
    }
    const unsigned jobs_before = d->jobs, jobs = d->jobs = model_jobs(engine_model(d->engine));
    if (jobs != jobs_before)
        notify_status(d, "");
    d->had_jobs |= jobs > 0;
    if (d->opt.transient && d->had_jobs && !jobs) {
        daemon_leave(d, "the last job has ended");
        return;
    }
    timer_arm(d);
}

/* The engine's number of devices is fixed, so a daemon whose GPU has appeared starts anew. */
static bool gpu_appeared(struct daemon *d, uint64_t now)
{
    struct device_driver *gpu;
    if (!d->gpu_look_ns || d->jobs || now < d->gpu_look_ns)
        return false;
    d->gpu_look_ns = now + GPU_LOOK_NS;
    if (device_open("auto", d->soft, &gpu, NULL) < 0)
        return false;
    device_close(gpu);
    return true;
}

static void on_timer(uv_timer_t *t)
{
    struct daemon *d = t->data;
    uint64_t now = monotonic_ns();
    heartbeat(d);
    standby_replace(&d->restorer, now);
    if (d->opt.transient && !d->had_jobs && now >= d->start_ns + TRANSIENT_WAIT_NS) {
        daemon_leave(d, "no job came");
        return;
    }
    if (gpu_appeared(d, now)) {
        d->again |= !d->stopping;
        daemon_leave(d, "a GPU has appeared: starting anew");
        return;
    }
    if (now >= min_u64(d->wake_ns, d->acct_ns))
        daemon_tick(d);
    else
        timer_arm(d);
}

/* Runs after libuv has looked at descriptors: commands may wait, or processes may have ended. */
static void on_check(uv_check_t *c)
{
    struct daemon *d = c->data;
    if (engine_pending(d->engine))
        daemon_tick(d);
}

static void stop_reading(struct daemon *d)
{
    loop_poll_stop(&d->reader_poll);
    reader_stop(&d->reader, &d->left);
}

/* Ends the loop; daemon_run() undoes the changes after it. */
static void daemon_stop(struct daemon *d)
{
    if (d->stopping)
        return;
    d->stopping = true;
    if (d->again)
        process_mask_signals(SIG_BLOCK);
    notify_send("STOPPING=1");
    if (d->server)
        server_stop(d->server);
    d->server = NULL;
    directory_unwatch(&d->directory);
    check_stop(&d->drivers);
    stop_reading(d);
    if (d->loop_open)
        uv_stop(&d->loop);
}

/* late: a program was classified before its answer came, so all are looked at again. */
static void on_identity(void *arg, bool late)
{
    struct daemon *d = arg;
    engine_look_for_jobs(d->engine, late);
    daemon_tick(d);
}

static void apply_config(struct daemon *d, const struct config *c)
{
    if (strcmp(c->device, d->config.device) != 0 ||
        strcmp(c->soft_socket, d->config.soft_socket) != 0 || c->accounts != d->config.accounts ||
        c->driver_check != d->config.driver_check)
        log_say(LOG_WARNING,
                "device, soft_socket, accounts and driver_check are used at the next start");
    struct config old = d->config;
    d->config = *c;
    log_set_level(c->log_level);
    identifier_use(&d->identifier, &d->rules, &d->config, &d->principals);
    rules_use_engine(&d->rules, d->engine);
    config_free(&old);
    server_set_group(d->server, c->admin_gid);
    if (d->acct)
        acct_configure(d->acct, c->admin_gid, c->keep_days);
    /* Both were checked when the file was read. */
    engine_set_policy(d->engine, c->policy);
    engine_set_params(d->engine, &c->params);
    engine_set_swap(d->engine, &c->swap);
    log_say(LOG_INFO, "configuration read again");
    daemon_tick(d);
}

/* c NULL: the configuration could not be read. */
static void config_is_read(struct daemon *d, const struct config *c, const struct error *err)
{
    stop_reading(d);
    if (c)
        apply_config(d, c);
    else
        log_say(LOG_ERR, "%s (the old configuration stays)", err->text);
    if (!d->stopping)
        notify_status(d, "READY=1\n");
}

static void on_config(uv_poll_t *p, int status, int events)
{
    struct daemon *d = p->data;
    struct error err = {""};
    struct config c;
    int r = reader_take(&d->reader, &c, &err);
    if (r != -EAGAIN)
        config_is_read(d, r == 0 ? &c : NULL, &err);
}

/* A reader that is under way may have read the file before it changed, so it is stopped. */
static void reload(struct daemon *d)
{
    struct error err = {""};
    char state[64];
    stop_reading(d);
    snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(monotonic_ns() / NSEC_PER_USEC));
    notify_send(state);
    int r = reader_start(&d->reader, d->opt.config, &err);
    if (r == 0) {
        r = loop_poll_start(&d->loop, d->reader.fd, UV_READABLE | UV_DISCONNECT, on_config, d,
                            &d->reader_poll);
        if (r < 0)
            error_set(&err, r, "cannot watch the reading of the configuration: %s", strerror(-r));
    }
    if (r < 0)
        config_is_read(d, NULL, &err);
}

static void on_signal(uv_signal_t *s, int number)
{
    struct daemon *d = s->data;
    switch (number) {
    case SIGHUP:
        reload(d);
        break;
    case SIGCHLD:
        process_reap(&d->left);
        standby_reap(&d->restorer);
        standby_replace(&d->restorer, monotonic_ns());
        if (d->acct)
            acct_reap(d->acct, monotonic_ns());
        identifier_reap(&d->identifier);
        daemon_tick(d);
        break;
    default:
        log_say(LOG_INFO, "signal %d: leaving", number);
        d->again = false;
        daemon_stop(d);
    }
}

static int daemon_open_loop(struct daemon *d, struct error *err)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
    int r = uv_loop_init(&d->loop);
    if (r < 0)
        return error_set(err, r, "cannot start the event loop: %s", uv_strerror(r));
    d->loop_open = true;
    for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
        r = uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        if (r == 0)
            r = uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
    process_mask_signals(SIG_UNBLOCK);
    /* These only set fields, and never fail. */
    uv_timer_init(&d->loop, &d->timer);
    d->timer.data = d;
    uv_check_init(&d->loop, &d->check);
    d->check.data = d;
    uv_check_start(&d->check, on_check);
    return r < 0 ? error_set(err, r, "cannot set up the event loop: %s", uv_strerror(r)) : 0;
}

/* Beginning and leaving */

static int find_dir(struct daemon *d, struct error *err)
{
    if (!d->opt.dir)
        return cede_dir(d->dir, sizeof(d->dir), err);
    if ((size_t)snprintf(d->dir, sizeof(d->dir), "%s", d->opt.dir) >= sizeof(d->dir))
        return error_set(err, -ENAMETOOLONG, "--dir: at most %zu bytes", sizeof(d->dir) - 1);
    return 0;
}

/* The directory, its lock or its socket was removed. A daemon that stays starts anew and keeps jobs
 * if the journal is still there; a transient one leaves, and the next `cede run` starts another. */
static void directory_lost(void *arg)
{
    struct daemon *d = arg;
    log_say(LOG_WARNING, "the socket or the lock in %s was removed", d->dir);
    d->again |= !d->stopping && !d->opt.transient; /* not if it was told to leave */
    daemon_leave(d, d->again ? "starting anew" : "all jobs run by the driver's defaults");
}

static int open_devices(struct daemon *d, struct error *err)
{
    const char *device = d->opt.device ? d->opt.device : d->config.device;
    d->soft = d->opt.soft_socket         ? d->opt.soft_socket
              : d->config.soft_socket[0] ? d->config.soft_socket
                                         : NULL;
    char gate[128];
    snprintf(gate, sizeof(gate), "%s/gate", d->dir);
    struct device_address address;
    int r = device_open_list(device, d->soft, gate, &d->driver, &address, err);
    if (r < 0)
        return r;
    /* The restorer opens the same devices to undo changes when this daemon dies. */
    unsigned left = restorer_address(d->journal, d->driver, &address);
    if (left)
        log_say(LOG_WARNING,
                "%u channel groups that an earlier cede changed are on devices that cannot be "
                "reached any more: forgotten",
                left);
    return 0;
}

/* Accounting, without which the daemon works, and sums for metrics. */
static int start_counting(struct daemon *d, struct error *err)
{
    const struct config *c = &d->config;
    struct error why = {""};
    char state[160];
    if (c->accounts && !d->opt.transient &&
        cede_state_dir(d->opt.dir, state, sizeof(state), &why) == 0)
        d->acct = acct_new(&d->loop, d->dir, state, c->admin_gid, c->keep_days, &why);
    if (why.text[0])
        log_say(LOG_WARNING, "no accounting: %s", why.text);
    d->verbs.sums = job_sums_new(d->acct ? acct_job_changed : NULL, d->acct);
    return d->verbs.sums ? 0 : error_set(err, -ENOMEM, "out of memory");
}

/* From now on there may be requests. */
static int open_doors(struct daemon *d, struct error *err)
{
    /* Either is NULL without memory: then programs cannot report requests, or nothing is traced. */
    d->verbs.hints = hints_new();
    d->verbs.traces = traces_new();
    d->verbs.engine = d->engine;
    d->verbs.rules = &d->rules;
    if (d->acct)
        acct_use_hints(d->acct, d->verbs.hints);
    job_sums_use_hints(d->verbs.sums, d->verbs.hints);
    rules_use_engine(&d->rules, d->engine);
    int r = server_start(&d->loop, d->socket, &d->verbs, d->config.admin_gid, &d->server, err);
    if (r < 0)
        return r;
    container_socket_open(d->dir, d->server);
    r = directory_watch(&d->directory, &d->loop, d->dir, journal_lock_id(d->journal),
                        directory_lost, d);
    if (r == -ENOENT)
        return error_set(err, r, "%s was removed while ceded started", d->dir);
    if (r < 0)
        log_say(LOG_WARNING, "cannot watch %s, should it be removed: %s", d->dir, strerror(-r));
    return 0;
}

static int start_up(struct daemon *d, struct error *err)
{
    process_raise_priority();
    int r = find_dir(d, err);
    snprintf(d->socket, sizeof(d->socket), "%s/socket", d->dir);
    if (r == 0)
        r = cede_dir_make(d->dir, err);
    if (r == 0)
        r = directory_journal(d->dir, d->opt.transient, &d->journal, err);
    if (r == -EBUSY && d->opt.transient)
        process_say_served();
    if (r < 0)
        return r;
    if (journal_damaged(d->journal))
        log_say(LOG_WARNING,
                "the journal in %s is damaged, or of another boot or version: all GPU programs "
                "are given back the driver's defaults, and some jobs may be forgotten",
                d->dir);

    r = open_devices(d, err);
    if (r < 0)
        return r;
    heartbeat(d);
    r = standby_start(&d->restorer, d->journal, err);
    const struct journal_lock_id lock = journal_lock_id(d->journal);
    if (r == 0)
        r = other_cedes_refuse(journal_shared(d->journal), &lock, d->restorer.pid, err);
    if (r < 0)
        return r;

    r = daemon_open_loop(d, err);
    if (r == 0)
        r = start_counting(d, err);
    if (r < 0)
        return r;
    if (!d->opt.transient && identifier_init(&d->identifier, &d->loop, on_identity, d) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    identifier_use(&d->identifier, &d->rules, &d->config, &d->principals);
    struct engine_options o = {
        .loop = &d->loop,
        .params = d->config.params,
        .policy = d->config.policy,
        .swap = d->config.swap,
        .rule = d->opt.transient ? NULL : rules_fn,
        .rule_arg = &d->rules,
        .experience = d->dir,
        .stays = true,
        .job_changed = job_sums_changed,
        .job_arg = d->verbs.sums,
    };
    r = engine_new(d->driver, d->journal, &o, &d->engine, err);
    return r < 0 ? r : open_doors(d, err);
}

/* Undoes all changes, then dismisses the restorer. Returns the exit status. */
static int shut_down(struct daemon *d)
{
    if (d->acct && d->engine)
        acct_finish(d->acct, d->engine);
    unsigned failed = d->engine ? engine_free(d->engine, true) : 0;
    if (d->journal)
        journal_shared(d->journal)->heartbeat_ns = 0;
    standby_leave(&d->restorer, failed == 0 && d->journal && !swapper_anything(d->journal) &&
                                    !(journal_incomplete(d->journal) & JOURNAL_SWAPS_MISSING));
    acct_free(d->acct);
    identifier_free(&d->identifier);
    if (failed)
        log_say(LOG_ERR,
                "%u channel groups could not be given back what they had; the restorer goes on "
                "trying for ten seconds, and the journal in %s keeps what is left: start ceded "
                "again, or end those programs",
                failed, d->dir);
    hints_free(d->verbs.hints);
    job_sums_free(d->verbs.sums);
    traces_free(d->verbs.traces);
    device_close(d->driver);
    if (d->journal)
        (void)journal_mend(d->journal);
    journal_close(d->journal);
    return failed ? 1 : 0;
}

static void close_handle(uv_handle_t *h, void *arg)
{
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* Runs the last closing callbacks: nothing uses the loop any more. */
static void close_loop(struct daemon *d)
{
    if (!d->loop_open)
        return;
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
}

static int daemon_run(struct daemon *d)
{
    struct error err = {""};
    int r = start_up(d, &err);
    if (r < 0) {
        log_say(LOG_ERR, "%s", err.text);
        daemon_stop(d);
        shut_down(d);
        close_loop(d);
        return 1;
    }
    if (d->opt.transient)
        process_say_served();
    process_reap(&d->left);
    standby_reap(&d->restorer); /* it may have ended before SIGCHLD was watched */
    d->start_ns = monotonic_ns();
    log_say(LOG_INFO, "cede %s: %s, policy %s, socket %s", build_version(), device_name(d->driver),
            engine_policy(d->engine), d->socket);
    const char *device = d->opt.device ? d->opt.device : d->config.device;
    const bool none = strcmp(device, "auto") == 0 && strcmp(device_name(d->driver), "gate") == 0;
    d->verbs.no_gpu = none && access("/dev/dri/renderD128", F_OK) < 0; /* the gate's otherwise */
    if (none && !d->opt.transient) {
        log_say(LOG_INFO, "no GPU is here: only programs that hold their own work are scheduled");
        d->gpu_look_ns = d->start_ns + GPU_LOOK_NS;
    }
    const struct check_options checks = {.mode = (enum driver_check)d->config.driver_check,
                                         .soft = d->soft,
                                         .dir = d->opt.dir,
                                         .left = &d->left,
                                         .changed = daemon_tick,
                                         .arg = d};
    check_begin(&d->drivers, &d->loop, d->engine, &checks);
    daemon_tick(d);
    if (!d->stopping) {
        notify_status(d, "READY=1\n");
        uv_run(&d->loop, UV_RUN_DEFAULT);
    }
    r = shut_down(d);
    close_loop(d);
    return r;
}

int ceded_main(int argc, char **argv)
{
    _cleanup_free_ struct daemon *d = calloc(1, sizeof(*d));
    if (!d)
        return 1;
    struct error err = {""};
    d->restorer.pipe = d->directory.fd = -1;
    d->reader = (struct reader)READER_NONE;
    log_open("ceded", LOG_INFO);
    int r = options_parse(argc, argv, &d->opt);
    if (r != OPTIONS_GO_ON)
        return r;
    process_inherit(&d->left);
    r = reader_wait(d->opt.config, d->opt.dir, &d->config, &d->left, &err);
    if (r < 0) {
        log_say(LOG_ERR, "%s", err.text);
        return error_may_pass(r) ? 1 : 2; /* after 2 its service is not started again */
    }
    log_set_level(d->config.log_level);
    process_become_daemon();
    r = daemon_run(d);
    if (d->again)
        options_start_again(&d->opt); /* returns only if it failed; then ceded just ends */
    config_free(&d->config);
    principals_free(&d->principals);
    return r;
}
