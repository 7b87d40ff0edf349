/* cede-load as a HIP program on a stand-in for HIP's library, held by the HIP gate as `cede run`
 * preloads it: classes, levels, pause. Nothing here is a time. */
#include "gated.h"

/* `cede run` preloads the gate only where there is an AMD GPU. */
static pid_t hip(const char *name, const char *class, const char *kernel_us)
{
    char gate[256], library[256];
    snprintf(gate, sizeof(gate), "LD_PRELOAD=%s", getenv("CEDE_HIP_GATE"));
    snprintf(library, sizeof(library), "LD_LIBRARY_PATH=%s", getenv("CEDE_HIP_LIBRARY"));
    return SPAWN(name, "cede", "run", "--strict", "-c", class, "-n", name, "--", "env", gate,
                 library, harness_exe(), "load", class, "--device", "hip", "--kernel-us", kernel_us,
                 "--iterations-per-us", "20", "--verify", "--report", "20");
}

E2E(classes_and_pause)
{
    begin();
    pid_t low = hip("low", "batch", "1000");
    AWAIT(level_is("low", 1));
    assert_true(moves("low", "kernels"));
    pid_t lat = hip("lat", "latency", "2000");
    AWAIT(job_int("low", "timeslice_us") == 1); /* a short queue */
    assert_true(moves("lat", "requests") && moves("low", "kernels"));
    CEDE("pause", "low");
    nap_ms(300); /* what was queued, and the report of it */
    double before = last_of("low", "kernels");
    assert_true(moves("lat", "requests"));
    assert_true(last_of("low", "kernels") == before);
    CEDE("resume", "low");
    assert_true(moves("low", "kernels"));
    json_decref(load_end("lat", lat));
    json_decref(load_end("low", low));
}
