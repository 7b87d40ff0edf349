/* What doctor says of GPUs in MIG mode, with a stand-in for the vendor's library (LD_LIBRARY_PATH).
 * Where there is a driver it would go on to measure, so this is for machines without. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

static struct result r;

static void mig(void **state)
{
    (void)state;
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
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
        if (t[i].instances)
            setenv("FAKE_NVML_MIG", t[i].instances, 1);
        RUN(&r, "cede", "doctor", "--device", "nvidia");
        if (!strstr(r.out, t[i].says) || strstr(r.out, t[i].not ))
            fail_msg("%zu: %s", i, r.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(mig)};
    return cmocka_run_group_tests_name("doctor", tests, harness_begin, harness_end);
}
