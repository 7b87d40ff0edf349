/* What doctor says of GPUs in MIG mode, with a stand-in for the vendor's library (LD_LIBRARY_PATH).
 * Where there is a driver it would go on to measure, so this is for machines without. */
#include <jansson.h>
#include <unistd.h>

#include "base/util.h"
#include "harness.h"

static struct result r;

/* The last line says whether it is good. */
TEST(verdict)
{
    SAYS(&r, 0, "\ncede works here: ", "", "cede", "doctor", "--device", "soft");
    assert_null(strstr(r.out, "failed"));
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    SAYS(&r, 1, "\ncede cannot do all of its work here: ", NULL, "cede", "doctor", "--device",
         "nvidia");
}

TEST(mig)
{
    static const struct {
        const char *instances, *says, *not ;
    } t[] = {
        {NULL, "ok    mig          MIG is off\n", "first 16"},
        {"0", "warn  mig          MIG is on for 1 GPU with 0 instances; ", "first 16"},
        {"1",
         "warn  mig          MIG is on for 1 GPU with 1 instance; cede schedules each instance by "
         "itself, but has never run on one\n",
         "first 16"},
        {"16", " with 16 instances; ", "first 16"},
        {"17",
         "warn  mig          there are 17 GPUs and instances; the first 16 are scheduled, the "
         "others are left alone\n",
         "MIG is off"},
    };
    if (access("/dev/nvidiactl", F_OK) == 0)
        skip();
    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        if (t[i].instances)
            setenv("FAKE_NVML_MIG", t[i].instances, 1);
        RUN(&r, "cede", "doctor", "--device", "nvidia");
        if (!strstr(r.out, t[i].says) || strstr(r.out, t[i].not ))
            fail_msg("%zu: %s", i, r.out);
    }
}

/* A bug report names no user, host, directory, program or single GPU, of the environment or of what
 * it measures with. */
TEST(report)
{
    static const char *const keys[] = {
        "cede",         "kernel",       "distribution", "container", "nvidia",
        "gsp_firmware", "mig",          "compute_mode", "mps",       "libcuda",
        "libnvidia_ml", "ptrace_scope", "capabilities", "cgroup"};
    char host[256] = "";
    assert_int_equal(gethostname(host, sizeof(host) - 1), 0);
    RUN(&r, "cede", "doctor", "--device", "soft", "--report", "--json");
    json_t *o = json_loads(r.out, 0, NULL), *all = json_object_get(o, "report");
    if (!o)
        fail_msg("%s%s", r.out, r.err);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        const char *value = json_string_value(json_object_get(all, keys[i]));
        if (!value || !value[0])
            fail_msg("no %s in %s", keys[i], r.out);
    }
    const json_t *check, *measured = json_object_get(o, "measured");
    size_t i;
    json_array_foreach(json_object_get(o, "checks"), i, check)
    {
        const char *name = json_string_value(json_object_get(check, "name"));
        const char *found = json_string_value(json_object_get(check, "found"));
        bool shown = strcmp(found, "not shown in a report") != 0;
        if ((strcmp(name, "daemon") == 0 && shown) || (strcmp(name, "suspend") == 0 && !shown))
            fail_msg("%s: %s", name, found);
    }
    assert_non_null(json_object_get(json_object_get(measured, "timeslices"), "effective"));
    assert_non_null(json_object_get(json_object_get(measured, "suspend"), "effective"));
    json_decref(o);
    const char *const private[] = {harness_dir(), "/tmp", "/home", "/root", "SOFT-0", "GPU-", host};
    for (i = 0; i < ARRAY_SIZE(private); i++) {
        if (strlen(private[i]) > 3 && strstr(r.out, private[i]))
            fail_msg("%s is in %s", private[i], r.out);
    }
}

int main(void)
{
    return test_run(harness_begin, harness_end);
}
