/* cede-check: ceded's check of a driver that is not known (daemon/check.h), as `cede doctor`
 * measures, on two small programs of its own. Changes nothing else, and ends within CHECK_LIMIT_S
 * however it goes: its programs die with it. Prints one line of JSON. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/doctor.h"
#include "testbed/machine.h"

#define CHECK_LIMIT_S 60 /* ceded does not wait so long; this is for when it is gone */

/* NULL, or why no program can be started there to measure with. */
static const char *unmeasurable(const char *device)
{
    if (strcmp(device, "nvidia") != 0)
        return strcmp(device, "soft") == 0 ? NULL : "there is no program for it to measure with";
    struct machine_nvml n;
    if (!machine_has_library("libcuda.so.1"))
        return "libcuda.so.1 was not found, so no program can use the GPU from here";
    machine_ask_nvml(&n);
    return n.exclusive ? "a GPU's compute mode lets one program in, and two are needed" : NULL;
}

static void check_words(const struct measured *m, char *buf, size_t size)
{
    size_t n = 0;
    buf[0] = '\0';
    if (!m->timeslices.effective)
        n += (size_t)snprintf(buf, size,
                              "exchanging timeslices of 30 ms and 10 ms changed the share by a "
                              "factor of %.2f, not 9",
                              m->timeslices.got);
    const char *suspend = !m->suspend.stops     ? "a suspended program worked on"
                          : !m->suspend.resumes ? "a resumed program did not work on"
                                                : NULL;
    if (suspend && n < size)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? "; " : "", suspend);
    if (m->preempt.error.text[0] && n < size)
        snprintf(buf + n, size - n, "%sthe preemption mode is refused", n ? "; " : "");
}

static json_t *check_result(const struct measured *m)
{
    char why[200];
    check_words(m, why, sizeof(why));
    return json_pack("{s:b, s:b, s:b, s:s, s:f, s:f, s:f}", "timeslice", m->timeslices.effective,
                     "suspend", m->suspend.stops && m->suspend.resumes, "preempt",
                     m->preempt.done && !m->preempt.error.text[0], "why", why,
                     /* for those who look at it */
                     "timeslice_factor", m->timeslices.got, "work_while_suspended_us",
                     m->suspend.work_us, "resumed_of_before",
                     m->timeslices.b > 0 ? m->suspend.rate_after / m->timeslices.b : 0);
}

int check_main(int argc, char **argv)
{
    if (argc != 3) {
        cli_error("cede-check is started by ceded: try `cede doctor`");
        return CLI_USAGE;
    }
    const char *device = argv[1], *uuid = argv[2], *cannot;
    struct error err = {""};
    struct testbed bed;
    struct measured m = {.timeslices.done = false};
    json_t *o = NULL;
    /* Before NVIDIA's libraries start a thread, which would take SIGTERM and end us untidily. */
    sigset_t set;
    testbed_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    alarm(CHECK_LIMIT_S);
    cannot = unmeasurable(device);
    if (uuid[0])
        setenv("CUDA_VISIBLE_DEVICES", uuid, 1);
    /* Clients of one MPS server would share one timeslice. */
    setenv("CUDA_MPS_PIPE_DIRECTORY", "/nonexistent", 1);
    if (cannot) {
        o = json_pack("{s:s}", "unmeasurable", cannot);
    } else {
        int r = testbed_open(&bed, 0, &err);
        if (r == 0)
            r = measure_controls(&bed, device, uuid, &m, &err);
        testbed_close(&bed);
        o = r < 0 ? json_pack("{s:s}", "error", err.text) : check_result(&m);
    }
    if (!o || json_dumpf(o, stdout, JSON_COMPACT) < 0)
        cli_error("cede-check: cannot print the result");
    putchar('\n');
    json_decref(o);
    return CLI_OK;
}
