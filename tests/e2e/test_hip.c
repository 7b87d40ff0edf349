/* cede-load as a HIP program on a stand-in for HIP's library, held by the HIP gate as `cede run`
 * preloads it: classes, levels, pause. Nothing here is a time. */
#include "fixture.h"

static struct ceded begin(void)
{
    set_device("soft,gate");
    configure(100, "");
    return ceded_start();
}

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

/* The last number of that name that a load reported. */
static double last_of(const char *name, const char *key)
{
    char file[80], look[32];
    snprintf(file, sizeof(file), "%s.out", name);
    snprintf(look, sizeof(look), "\"%s\":", key);
    const char *text = contents(file), *at = NULL;
    for (const char *p = text; (p = strstr(p, look)); p++)
        at = p;
    return at ? strtod(at + strlen(look), NULL) : 0;
}

static bool moves(const char *name, const char *key)
{
    double before = last_of(name, key);
    return EVENTUALLY(last_of(name, key) > before + 5);
}

E2E(classes_and_pause)
{
    begin();
    pid_t low = hip("low", "batch", "1000");
    AWAIT(job_count("low", "levels") == 1 && job_int("low", "levels.0") == 1);
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
