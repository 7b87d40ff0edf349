/* See cells.h. */
#include "bench/runner/cells.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "bench/runner/cell.h"
#include "doctor/machine.h"

/* One line of the output. */
static void answer(json_t *o)
{
    json_dumpf(o, stdout, JSON_COMPACT);
    putchar('\n');
    fflush(stdout);
    json_decref(o);
}

static json_t *about_json(const struct bench *b)
{
    struct machine_nvml nvml = {.gpus = 0};
    if (!b->soft)
        machine_ask_nvml(&nvml);
    return json_pack("{s:s, s:s, s:I, s:i}", "gpu", b->gpu, "version", b->version, "memory_mib",
                     (json_int_t)b->memory_mib, "gpus", (int)nvml.gpus);
}

static json_t *clocks_json(void)
{
    struct machine_clocks c;
    machine_ask_clocks(&c);
    return !c.known ? NULL
                    : json_pack("{s:i, s:i, s:i, s:i}", "sm_mhz", (int)c.sm_mhz, "sm_max_mhz",
                                (int)c.sm_max_mhz, "memory_mhz", (int)c.memory_mhz,
                                "memory_max_mhz", (int)c.memory_max_mhz);
}

static int run_line(struct bench *b, const char *line, struct error *err)
{
    struct session x;
    json_error_t e;
    json_t *plan = json_loads(line, JSON_REJECT_DUPLICATES, &e), *cells = json_array();
    int r = plan ? plan_read(plan, &x, err) : error_set(err, -EINVAL, "plan: not JSON: %s", e.text);
    if (r == 0)
        r = session_run(b, &x, cells, err);
    if (r == 0) {
        json_t *clocks = b->soft || b->gated ? NULL : clocks_json();
        answer(json_pack("{s:O, s:o*}", "cells", cells, "clocks", clocks));
    }
    json_decref(cells);
    json_decref(plan);
    return r;
}

int cells_serve(const char *device, const char *programs)
{
    struct bench b;
    struct error err = {""};
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    bool calibrated = false;
    /* Whoever gives the plan may be killed in the middle of a session. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int r = bench_init(&b, device, programs);
    if (r < 0)
        error_set(&err, r, "cannot find this program: %s", strerror(-r));
    else
        r = bench_describe(&b, &err);
    if (r == 0)
        answer(about_json(&b));
    while (r == 0 && getline(&line, &size, stdin) > 0) {
        if (!calibrated)
            r = bench_calibrate(&b, &err);
        calibrated = true;
        if (r == 0)
            r = run_line(&b, line, &err);
    }
    if (r == 0)
        return 0;
    answer(json_pack("{s:s, s:i}", "error", err.text, "signal", b.signal));
    return b.signal ? 128 + b.signal : r == -EINVAL || r == -ENOENT ? 2 : 1;
}
