/* cede-check: ceded's check of a driver that is not known (daemon/driver_check.h). It measures as
 * `cede doctor` does, on two small programs that it starts, and changes nothing else. It prints one
 * line of JSON and always ends within CHECK_LIMIT_S; its programs die with it. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/json_text.h"
#include "doctor/doctor.h"
#include "doctor/machine.h"

#define CHECK_LIMIT_S 60 /* ceded kills it earlier; the limit counts when ceded has gone */

/* Why no program to measure with can be started on the device; NULL: one can. */
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
                     /* ceded does not read these; they are for people */
                     "timeslice_factor", m->timeslices.got, "work_while_suspended_us",
                     m->suspend.work_us, "resumed_of_before",
                     m->timeslices.b > 0 ? m->suspend.rate_after / m->timeslices.b : 0);
}

int check_main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "cede-check is started by ceded: try `cede doctor`\n");
        return 2;
    }
    const char *device = argv[1], *uuid = argv[2], *cannot;
    struct error err = {""};
    struct testbed bed;
    struct measured m = {.timeslices.done = false};
    _cleanup_json_ json_t *o = NULL;
    /* NVIDIA's libraries start threads, which must not take SIGTERM: they inherit this mask. */
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
        fprintf(stderr, "cede-check: cannot print the result\n");
    putchar('\n');
    return 0;
}
