/* `cede doctor`: checks what this machine can do, what is missing and how to fix it, then measures
 * with two programs that it starts. No change outlasts it. */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#include "api/client.h"
#include "base/json_text.h"
#include "cli/cli.h"
#include "cli/gates.h"
#include "cli/ps_notes.h"
#include "cli/unmanaged.h"
#include "doctor/doctor.h"
#include "doctor/known.h"
#include "doctor/machine.h"
#include "doctor/report.h"
#include "gpu/registry.h"

enum level { OK, WARN, FAIL };
static const char *const levels[] = {"ok", "warn", "fail"};

struct doctor {
    const char *device;
    char where[256]; /* the software GPU that `auto` found; "": none */
    bool json, soft, amd, report;
    unsigned count[3];     /* findings of each level */
    const char *container; /* NULL: doctor does not run in a container */
    bool outside;          /* a ceded outside of the container steers */
    json_t *checks;
};

/* Adds a line to the report. fix: what to do; "": nothing. */
static void PRINTF_LIKE(5, 6) finding(struct doctor *d, enum level level, const char *name,
                                      const char *fix, const char *fmt, ...)
{
    char found[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(found, sizeof(found), fmt, ap);
    va_end(ap);
    d->count[level]++;
    if (d->report && !report_may_show(name)) {
        snprintf(found, sizeof(found), "not shown in a report");
        fix = "";
    }
    json_array_append_new(d->checks, json_pack("{s:s, s:s, s:s, s:s}", "name", name, "status",
                                               levels[level], "found", found, "mend", fix));
    if (d->json)
        return;
    printf("%-5s %-12s %s\n", levels[level], name, found);
    if (fix[0])
        printf("%-5s %-12s -> %s\n", "", "", fix);
    fflush(stdout);
}

/* ---- checks ---- */

static void check_kernel(struct doctor *d)
{
    struct utsname u;
    uname(&u);
    int r = machine_pidfd_getfd();
    if (r == 0)
        finding(d, OK, "kernel", "", "Linux %s: pidfd_getfd works", u.release);
    else if (d->outside)
        finding(d, OK, "kernel", "", "Linux %s: pidfd_getfd is left to ceded outside", u.release);
    else if (r == -ENOSYS)
        finding(d, FAIL, "kernel", "use Linux 5.6 or newer", "Linux %s has no pidfd_getfd",
                u.release);
    else
        finding(d, FAIL, "kernel",
                "run cede on the host, or allow pidfd_getfd in the seccomp filter",
                "Linux %s: pidfd_getfd is forbidden (%s)", u.release, strerror(-r));
}

static void check_rights(struct doctor *d)
{
    int scope = machine_yama_scope();
    if (d->outside && !machine_can_ptrace_all())
        finding(d, OK, "rights", "",
                "cede has no CAP_SYS_PTRACE here and needs none: ceded outside steers");
    else if (scope == 3)
        finding(d, FAIL, "ptrace_scope",
                "sysctl kernel.yama.ptrace_scope cannot be lowered from 3: "
                "change it in /etc/sysctl.d and reboot",
                "kernel.yama.ptrace_scope is 3: no program may reach into another");
    else if (machine_can_ptrace_all())
        finding(d, OK, "rights", "", "cede has CAP_SYS_PTRACE and may steer every user's programs");
    else if (scope == 2)
        finding(d, FAIL, "rights", "run as root, or set kernel.yama.ptrace_scope to 0 or 1",
                "cede has no CAP_SYS_PTRACE, and kernel.yama.ptrace_scope is 2: it may steer no "
                "program");
    else if (scope == 1)
        finding(d, WARN, "rights",
                "to steer programs that run already, be root, or set kernel.yama.ptrace_scope to 0",
                "cede has no CAP_SYS_PTRACE, and kernel.yama.ptrace_scope is 1: it may steer what "
                "`cede run` starts");
    else
        finding(d, WARN, "rights", "to steer other users' programs, be root",
                "cede has no CAP_SYS_PTRACE: it may steer your own programs");
}

static void check_container(struct doctor *d)
{
    char made[40] = "";
    if (!d->container) {
        finding(d, OK, "container", "", "cede sees all processes of this machine");
        return;
    }
    if (strcmp(d->container, "unknown") != 0)
        snprintf(made, sizeof(made), " (%s)", d->container);
    finding(d, WARN, "container",
            "only ceded on the host steers the programs of all containers: `cede doctor` there "
            "measures whether that works",
            "cede runs in a container%s, %s%s", made,
            proc_sees_all() ? "with the machine's pids" : "in a separate pid namespace",
            machine_root_outside() ? ", in which root is an ordinary user of the machine" : "");
    if (machine_has_library("libcede.so.0"))
        finding(d, OK, "libcede", "", "libcede.so.0 is there");
    else
        finding(d, WARN, "libcede",
                "put libcede.so.0 into the image where programs report their requests; others "
                "need no library",
                "libcede.so.0 was not found");
}

/* Tells whether the driver can be reached at all. */
static bool check_files(struct doctor *d)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
    char missing[80] = "", closed[80] = "";
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        if (access(files[i], F_OK) < 0)
            snprintf(missing + strlen(missing), sizeof(missing) - strlen(missing), " %s", files[i]);
        else if (access(files[i], R_OK | W_OK) < 0)
            snprintf(closed + strlen(closed), sizeof(closed) - strlen(closed), " %s", files[i]);
    }
    if (missing[0])
        finding(d, FAIL, "devices",
                d->container
                    ? "start the container with its GPUs: --device nvidia.com/gpu=all (podman), "
                      "--gpus all (docker), --nv (apptainer)"
                    : "install an NVIDIA driver of the 580 series, or load it (modprobe nvidia, "
                      "nvidia-modprobe -u); without a GPU: cede doctor --device soft",
                "these device files are missing:%s", missing);
    else if (closed[0])
        finding(d, FAIL, "devices", "be root, or in the group that owns them",
                "you may not read and write:%s", closed);
    else
        finding(d, OK, "devices", "", "%s and %s are there and open to you", files[0], files[1]);
    return !missing[0] && !closed[0];
}

static void check_evidence(struct doctor *d, const char *version)
{
    static const char *const says[] = {
        [EVIDENCE_NONE] = "neither its source was read nor was it run",
        [EVIDENCE_READ] = "its source has the controls; it was not run on this GPU",
        [EVIDENCE_RUN] = "measured on this GPU",
    };
    char chip[64] = "", again[32];
    struct error err = {""};
    machine_describe(d->device, chip, sizeof(chip), again, sizeof(again), &err);
    enum evidence e = known_driver(version, chip);
    finding(d, e == EVIDENCE_RUN ? OK : WARN, "driver",
            e == EVIDENCE_RUN ? "" : "the measurement below shows whether the controls work here",
            "the driver is %s: %s", version, says[e]);
}

static void check_driver(struct doctor *d)
{
    char version[32];
    int r = machine_driver_version(version, sizeof(version));
    if (r == -ENOENT)
        finding(d, FAIL, "driver", "install an NVIDIA driver of the 580 series",
                "no NVIDIA driver is loaded");
    else if (r < 0)
        finding(d, WARN, "driver", "", "cannot read /proc/driver/nvidia/version: %s", strerror(-r));
    else
        check_evidence(d, version);
}

static void check_nvml(struct doctor *d)
{
    struct machine_nvml n;
    machine_ask_nvml(&n);
    if (!n.found) {
        finding(d, WARN, "nvml", "install libnvidia-ml.so.1, of the driver's package",
                "NVML was not found: the GPUs' names and their use stay unknown; steering works "
                "without it");
        return;
    }
    finding(d, OK, "nvml", "", "NVML works and shows %u GPU%s", n.gpus, n.gpus == 1 ? "" : "s");
    unsigned devices = n.gpus - n.mig + n.instances;
    if (n.mig)
        finding(
            d, WARN, "mig", "please report what this prints, and what pause and resume do",
            "MIG is on for %u GPU%s with %u instance%s; cede schedules each instance by itself, "
            "but has never run on one",
            n.mig, n.mig == 1 ? "" : "s", n.instances, n.instances == 1 ? "" : "s");
    if (n.mig && devices > DEVICE_GPUS_MAX)
        finding(d, WARN, "mig", "divide fewer GPUs, or into fewer instances",
                "there are %u GPUs and instances; the first %d are scheduled, the others are left "
                "alone",
                devices, DEVICE_GPUS_MAX);
    if (!n.mig)
        finding(d, OK, "mig", "", "MIG is off");
    if (n.exclusive)
        finding(d, FAIL, "compute mode", "nvidia-smi -c DEFAULT",
                "%u GPU%s can be used by one program only, so there is nothing to share",
                n.exclusive, n.exclusive == 1 ? "" : "s");
}

static void check_gate(struct doctor *d)
{
    char path[GATES_PATH];
    if (gates_opencl(path))
        finding(d, OK, "gate", "",
                "OpenCL programs are scheduled through %s; on processors only with CEDE_GATE_CPU=1",
                path);
    else
        finding(d, WARN, "gate",
                "install the package cede-gate, which `make deb` makes beside cede, where OpenCL "
                "or HIP programs matter",
                "%s is missing, so OpenCL programs are not scheduled", path);
}

static void check_mps(struct doctor *d)
{
    pid_t pid = machine_find_process("nvidia-cuda-mps"); /* cut to 15 bytes: server or control */
    if (pid)
        finding(d, OK, "mps", "",
                "MPS runs (pid %d): clients of one server are steered together, as one job of the "
                "best class among them",
                pid);
    else
        finding(d, OK, "mps", "", "MPS does not run");
}

static bool doctor_gpus(struct doctor *d)
{
    struct device_driver *driver;
    struct error err = {""};
    int r = device_open(d->device, NULL, &driver, &err);
    if (r < 0) {
        finding(d, FAIL, "gpus", "", "%s", err.text);
        return false;
    }
    unsigned n = driver->ops->gpus(driver);
    for (unsigned i = 0; i < n; i++) {
        struct gpu_info g;
        if (driver->ops->info(driver, i, &g) < 0)
            continue;
        char sms[32] = "";
        if (g.sms)
            snprintf(sms, sizeof(sms), ", %u SMs", g.sms);
        finding(d, OK, "gpu", "", "%u: %s%s%s%s%s%s", i, g.name[0] ? g.name : "(name unknown)",
                d->report ? "" : " ", d->report ? "" : g.uuid,
                g.bus_id[0] && !d->report ? " at " : "", d->report ? "" : g.bus_id, sms);
    }
    device_close(driver);
    if (n == 0)
        finding(d, FAIL, "gpus", "in a container, pass the GPU in",
                "the driver is loaded and shows no GPU");
    return n > 0;
}

/* Reports controls that ceded does not use, as they had no effect in its check of the driver. */
static void check_off(struct doctor *d, const json_t *reply)
{
    for_each_json (gpu, json_object_get(reply, "gpus")) {
        char off[96];
        const char *why = json_get_text(gpu, "off_why");
        if (notes_off_words(gpu, off, sizeof(off)))
            finding(d, WARN, "check",
                    "if they take effect below: remove drivers.json from ceded's state directory "
                    "and restart it",
                    "ceded does not use %s on GPU %zu%s%s", off, gpu_i,
                    d->report || !why ? "" : ": ", d->report || !why ? "" : why);
    }
}

/* reply: of ps; NULL: ceded gave none, and err says why. */
static void check_unmanaged(struct doctor *d, const json_t *reply, const struct error *err)
{
    struct unmanaged_words w;
    char names[UNMANAGED_NAMES];
    if (!reply)
        finding(d, WARN, "unmanaged", "", "it is not known which GPU programs are in no job: %s",
                err->text);
    else if (unmanaged_words(reply, NULL, &w))
        finding(d, WARN, "unmanaged", w.command, "%s: %s no job", w.who,
                w.several ? "they yield to" : "it yields to");
    else if (unmanaged_left(reply, true, names, sizeof(names)))
        finding(d, OK, "unmanaged", "", "%s: detached by hand, so left alone", names);
    else
        finding(d, OK, "unmanaged", "", "there are no unmanaged GPU programs");
}

/* Reports how ceded outside of this container is reached. */
static void check_outside(struct doctor *d, bool guest)
{
    if (guest)
        finding(d, OK, "daemon", "",
                "ceded runs outside of this container; verbs reach the programs in it");
    else
        finding(d, WARN, "daemon",
                "mount the directory /run/cede/container as /run/cede, instead of /run/cede itself",
                "ceded runs outside of this container, and its administrators' socket is mounted: "
                "root in here steers the jobs of all users");
}

static void check_no_daemon(struct doctor *d)
{
    if (d->container)
        finding(
            d, WARN, "daemon",
            "start the container with -v /run/cede/container:/run/cede:ro (CDI: --device "
            "cede.io/socket=verbs); a class alone needs CEDE_CLASS in its environment and no "
            "socket",
            "no socket of ceded is at /run/cede/socket: `cede run` starts a scheduler that sees "
            "this container alone");
    else
        finding(d, OK, "daemon", "",
                "no daemon runs: verbs act directly, and `cede run` starts one");
}

static void check_daemon(struct doctor *d)
{
    struct client c;
    struct error err = {""};
    json_t *reply;
    int r = client_open(&c, &err);
    if (r == 0) {
        if (client_call(&c, &(struct request){.op = OP_PS}, &reply, &err) < 0)
            reply = NULL;
        if (d->outside)
            check_outside(d, json_get_true(reply, "guest"));
        else
            finding(d, OK, "daemon", "", "ceded runs (pid %d, uid %u)", (int)c.daemon_pid,
                    (unsigned)c.daemon_uid);
        check_off(d, reply);
        check_unmanaged(d, reply, &err);
        json_decref(reply);
        client_close(&c);
    } else if (r == -ENOENT) {
        check_no_daemon(d);
    } else {
        finding(d, WARN, "daemon", "", "%s", err.text);
    }
    pid_t pid = machine_find_process("ceded");
    uid_t uid;
    if (pid && r == -ENOENT && proc_owner(pid, &uid) == 0)
        finding(d, WARN, "daemon", "",
                "another ceded runs (pid %d, uid %u): two daemons that steer the same GPU disturb "
                "each other",
                (int)pid, (unsigned)uid);
}

/* Runs first, because rights that a container lacks are no fault if ceded outside has them. */
static void look_around(struct doctor *d)
{
    struct client c;
    d->container = machine_container();
    if (!d->container || client_open(&c, NULL) < 0)
        return;
    d->outside = c.daemon_pid == 0; /* ceded is not in this pid namespace */
    client_close(&c);
}

/* ---- measuring ---- */

/* Reports whether a control that was measured is effective. */
static void verdict(struct doctor *d, bool effective, const char *name, const char *found)
{
    finding(d, effective ? OK : FAIL, name,
            effective
                ? ""
                : "this driver takes the control and does not act on it: please report it with "
                  "the output of cede doctor --json",
            "%s: %s", effective ? "effective" : "no effect", found);
}

/* Reports a control that is not required: its result, or why it could not be measured. */
static void remark(struct doctor *d, bool good, const char *name, const char *fix,
                   const struct error *error, const char *found)
{
    const bool failed = error->text[0];
    finding(d, good && !failed ? OK : WARN, name, good && !failed ? "" : fix, "%s",
            !failed     ? found
            : d->report ? "not shown in a report"
                        : error->text);
}

static json_t *report_measured(struct doctor *d, const struct measured *m)
{
    json_t *o = json_object();
    char found[200];
    if (m->timeslices.done) {
        snprintf(found, sizeof(found),
                 "30 ms : 10 ms gave %.3f : %.3f (ratio %.2f); a call takes %.0f us",
                 m->timeslices.a, m->timeslices.b, m->timeslices.got, m->timeslices.call_us);
        verdict(d, m->timeslices.effective, "timeslices", found);
        json_object_set_new(o, "timeslices",
                            json_pack("{s:b, s:f, s:o, s:f, s:f, s:f, s:f}", "effective",
                                      m->timeslices.effective, "asked_ratio", m->timeslices.asked,
                                      "got_ratio", json_finite(m->timeslices.got), "rate_alone",
                                      m->timeslices.alone, "rate_a", m->timeslices.a, "rate_b",
                                      m->timeslices.b, "call_us", m->timeslices.call_us));
    }
    if (m->suspend.done) {
        const bool effective = m->suspend.stops && m->suspend.resumes;
        snprintf(found, sizeof(found), "%s in %.0f us, %s in %.0f us",
                 m->suspend.stops ? "stopped" : "DID NOT STOP", m->suspend.suspend_us,
                 m->suspend.resumes ? "resumed" : "DID NOT RESUME", m->suspend.resume_us);
        verdict(d, effective, "suspend", found);
        json_object_set_new(o, "suspend",
                            json_pack("{s:b, s:b, s:b, s:f, s:f, s:f, s:f}", "effective", effective,
                                      "stops", m->suspend.stops, "resumes", m->suspend.resumes,
                                      "suspend_us", m->suspend.suspend_us, "resume_us",
                                      m->suspend.resume_us, "work_while_suspended_us",
                                      m->suspend.work_us, "rate_after", m->suspend.rate_after));
    }
    if (m->latency.done) {
        snprintf(found, sizeof(found),
                 "p99 is %.0f us beside a batch program with the driver's slices, and %.0f us with "
                 "the smallest",
                 m->latency.default_p99_us, m->latency.smallest_p99_us);
        verdict(d, m->latency.effective, "latency", found);
        json_object_set_new(o, "latency",
                            json_pack("{s:b, s:f, s:f}", "effective", m->latency.effective,
                                      "default_p99_us", m->latency.default_p99_us,
                                      "smallest_p99_us", m->latency.smallest_p99_us));
    }
    if (m->preempt.done) {
        snprintf(found, sizeof(found),
                 "p99 is %.0f us where the batch program, of short blocks, yields at their ends",
                 m->preempt.p99_us);
        remark(d, true, "preempt", "do not use --preempt block here", &m->preempt.error, found);
        json_object_set_new(
            o, "preempt_block",
            json_pack("{s:o, s:s}", "p99_us",
                      json_finite(m->preempt.error.text[0] ? NAN : m->preempt.p99_us), "error",
                      m->preempt.error.text));
    }
    if (m->activity.done) {
        snprintf(found, sizeof(found), "the driver's record shows %.0f of %.0f requests/s",
                 m->activity.seen, m->activity.sent);
        remark(d, m->activity.effective, "activity",
               "nothing has to be done: cede notices some seconds later that a job has stopped "
               "working",
               &m->activity.error, found);
        json_object_set_new(o, "activity",
                            json_pack("{s:b, s:f, s:f, s:s}", "effective", m->activity.effective,
                                      "sent_per_s", m->activity.sent, "seen_per_s",
                                      m->activity.seen, "error", m->activity.error.text));
    }
    return o;
}

static void check_amd(struct doctor *d)
{
    struct device_driver *driver;
    struct error err = {""};
    finding(d, WARN, "amd", "please report what this prints, and what pause and resume do",
            "cede's AMD driver has never run on AMD hardware: written from the kernel's source");
    finding(d, WARN, "latency", "docs/amd.md says what helps: device = gate in cede.conf",
            "a latency job gains nothing over one batch job: there are no timeslices");
    if (doctor_gpus(d) && device_open("amd", NULL, &driver, &err) == 0) {
        struct gpu_info g;
        for (unsigned i = 0; driver->ops->info(driver, i, &g) == 0; i++) {
            bool can = g.caps & GPU_CAP_SUSPEND;
            finding(d, can ? OK : FAIL, "suspend",
                    can ? "" : "Linux 6.5 or newer and current firmware (amdgpu) are needed",
                    "GPU %u: the kernel %s its queues be suspended; not measured", i,
                    can ? "lets" : "does not let");
        }
        device_close(driver);
    }
    check_daemon(d);
}

/* Makes all checks. 0, or the signal that interrupted them. */
static int examine(struct doctor *d, json_t **measured)
{
    struct testbed bed;
    struct error err = {""};
    struct measured m;
    *measured = NULL;
    look_around(d);
    check_kernel(d);
    check_container(d);
    if (d->where[0])
        finding(d, OK, "software", "cede doctor --device nvidia says what is missing for a GPU",
                "no NVIDIA or AMD GPU is here, but a software GPU (%s): one like it is measured",
                d->where);
    if (d->amd) {
        check_amd(d);
        return 0;
    }
    const bool usable = d->soft || check_files(d);
    if (!d->soft) {
        check_rights(d);
        if (usable)
            check_driver(d);
        check_nvml(d);
        check_mps(d);
        check_gate(d);
    }
    check_daemon(d);

    int r = testbed_open(&bed, d->soft, &err);
    if (r == 0 && usable && doctor_gpus(d)) {
        fputs(isatty(STDERR_FILENO) ? "measuring for some 8 s\n" : "", stderr);
        r = measure_effects(&bed, d->device, &m, &err);
        *measured = report_measured(d, &m);
    }
    if (r < 0)
        finding(d, FAIL, "measurement", "", "%s", err.text);
    testbed_close(&bed);
    return bed.signal;
}

static const char *const usage =
    "usage: cede doctor [OPTION...]\n"
    "\n"
    "Checks what this machine allows cede to do, names what is missing and how to fix it, and\n"
    "measures with two small programs (under 10 s) whether timeslices and suspension take effect.\n"
    "\n"
    "  --device DEVICE   auto (default), nvidia, amd (nothing is measured), or soft: a\n"
    "                    software GPU that is started for this; auto takes it where one runs and\n"
    "                    there is no GPU\n"
    "  --report          what a bug report needs: versions, checks and measurements, without\n"
    "                    names of users, hosts and programs, UUIDs and paths\n"
    "  --json            one object with all checks and measurements\n"
    "\n"
    "Exit status: 0 if all that is needed is there and takes effect, else 1.\n";

/* OPTIONS_GO_ON, or the exit status. */
static int doctor_parse(int argc, char **argv, struct doctor *d)
{
    const struct option_row options[] = {
        {"device", .text = &d->device}, {"report", .flag = &d->report}, {"json", .flag = &d->json}};
    const struct command_line line = {.program = "cede doctor", .help = usage, .no_operands = true};
    int status = options_read(argc, argv, &line, options, ARRAY_SIZE(options));
    if (status != OPTIONS_GO_ON)
        return status;
    if (strcmp(d->device, "auto") == 0)
        d->device = machine_device(d->where, sizeof(d->where));
    d->amd = strcmp(d->device, "amd") == 0;
    d->soft = strcmp(d->device, "soft") == 0;
    if (!d->amd && !d->soft && strcmp(d->device, "nvidia") != 0)
        return cli_usage("doctor", "unknown device '%s': use auto, nvidia, amd or soft", d->device);
    return OPTIONS_GO_ON;
}

/* The last line: the verdict. */
static void conclude(const struct doctor *d)
{
    const unsigned fails = d->count[FAIL], warns = d->count[WARN];
    printf("\n%s: ", fails ? "cede cannot do all of its work here" : "cede works here");
    if (fails)
        printf("%u check%s failed, ", fails, fails == 1 ? "" : "s");
    printf("%u warning%s, %u ok\n", warns, warns == 1 ? "" : "s", d->count[OK]);
}

int doctor_main(int argc, char **argv)
{
    struct doctor d = {.device = "auto"};
    int status = doctor_parse(argc, argv, &d);
    if (status != OPTIONS_GO_ON)
        return status;
    d.checks = json_array();
    json_t *measured, *report = d.report ? report_machine() : NULL;
    if (report && !d.json)
        report_print(report);
    int sig = examine(&d, &measured);
    if (d.json) {
        _cleanup_json_ json_t *o =
            json_pack("{s:b, s:s, s:o, s:o}", "ok", !d.count[FAIL], "device", d.device, "checks",
                      d.checks, "measured", measured ? measured : json_object());
        if (d.report) /* texts of errors may name files */
            report_clean(measured);
        if (o && report)
            json_object_set(o, "report", report);
        if (!o || json_dumpf(o, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6)) < 0)
            cli_error("doctor: cannot print the result");
        putchar('\n');
    } else {
        if (d.soft)
            puts("The software GPU is a timing model: this says nothing about a real one.");
        conclude(&d);
        json_decref(d.checks);
        json_decref(measured);
    }
    json_decref(report);
    return sig ? 128 + sig : d.count[FAIL] ? CLI_FAILED : CLI_OK;
}
