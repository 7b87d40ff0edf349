/* One daemon over a software GPU and an OpenCL device whose programs hold their own submissions:
 * real OpenCL programs, `cede run`, and everybody killed. Skipped where there is no OpenCL device.
 * How much work a job got is what it reports; nothing here is a time. */
#include "gated.h"
#include "gpu/gate/gate.h"

#define OPENCL(name, class, ...)                                                                   \
    SPAWN(name, "cede", "run", "--strict", "-c", class, "-n", name, "--", harness_exe(), "load",   \
          __VA_ARGS__, "--device", "opencl", "--verify", "--report", "20")

/* What it gets done within so long. */
static double done_in(const char *name, const char *key, unsigned ms)
{
    double before = last_of(name, key);
    nap_ms(ms);
    return last_of(name, key) - before;
}

/* Each device is scheduled by itself, by one policy. */
E2E(mixed_devices)
{
    begin();
    pid_t cl = OPENCL("cl", "batch", "batch", "--kernel-us", "1000"), soft = LOAD("soft", "batch");
    AWAIT(all_have_contexts(&soft, 1)); /* before, it has another name */
    CEDE("set", pid_text(soft), "-c", "batch");
    AWAIT(level_is("cl", 2) && level_is("soft", 3));
    assert_true(moves("cl", "kernels"));
    /* A latency job on the OpenCL device: there, and only there, the queue becomes short. */
    setenv("CEDE_GATE_SLICE", "0", 1);
    pid_t lat = OPENCL("lat", "latency", "latency", "--kernel-us", "2000", "--period-us", "50000");
    unsetenv("CEDE_GATE_SLICE");
    AWAIT(level_is("lat", 1));
    AWAIT(job_int("cl", "timeslice_us") == 1);
    AWAIT(job_int("lat", "timeslice_us") > 100000);
    assert_true(job_int("soft", "timeslice_us") != 1);
    assert_true(moves("cl", "kernels") && moves("lat", "requests"));
    json_decref(load_end("lat", lat));
    AWAIT(job_int("cl", "timeslice_us") > 1);
    json_decref(load_end("cl", cl));
    json_decref(load_end("soft", soft));
}

E2E(paused_and_let_go)
{
    begin();
    pid_t cl = OPENCL("cl", "batch", "batch", "--kernel-us", "1000");
    assert_true(moves("cl", "kernels"));
    CEDE("pause", "cl");
    done_in("cl", "kernels", 300); /* what was queued, and the report of it */
    assert_true(done_in("cl", "kernels", 300) == 0);
    CEDE("resume", "cl");
    assert_true(moves("cl", "kernels"));
    CEDE("pause", "cl");
    CEDE("set", "cl", "-c", "none");
    assert_true(moves("cl", "kernels"));
    json_decref(load_end("cl", cl));
}

/* kill -9 of the daemon while it holds a program, of the program that the others wait for, of one
 * that waits. */
E2E(kills)
{
    struct ceded d = begin();
    pid_t b1 = OPENCL("b1", "batch", "batch", "--kernel-us", "1000"),
          b2 = OPENCL("b2", "batch", "batch", "--kernel-us", "1000"),
          lat = OPENCL("lat", "latency", "latency", "--kernel-us", "2000", "--period-us", "2000");
    assert_true(moves("lat", "requests"));
    CEDE("pause", "b1");
    ceded_kill(&d);
    assert_true(moves("b1", "kernels") && moves("b2", "kernels") && moves("lat", "requests"));

    d = ceded_start(); /* it finds them, and b1 is paused again */
    AWAIT(level_is("b1", 2) && level_is("b2", 2) && level_is("lat", 2));
    AWAIT(done_in("b1", "kernels", 300) == 0);
    CEDE("resume", "b1");

    /* It has the device all the time; without it the others get on. First its runner goes. */
    pid_t program = program_below(lat), other = program_below(b1);
    slay_child(lat);
    assert_true(moves("lat", "requests"));
    slay_child(program); /* an orphan of ours now */
    AWAIT(job_gone("lat"));
    assert_true(moves("b1", "kernels") && moves("b2", "kernels"));

    assert_int_equal(kill(other, SIGKILL), 0);
    assert_int_equal(await_child(b1), 1000 + SIGKILL);
    assert_true(moves("b2", "kernels"));
    json_decref(load_end("b2", b2));
}

/* A latency program that is stopped (^Z, a debugger) while it wants the device cannot say that it
 * does not. Any want of which nothing comes ends after GATE_FRUITLESS_MAX_NS: this one has to end
 * sooner. */
E2E(stopped_and_continued)
{
    begin();
    pid_t low = OPENCL("low", "batch", "batch", "--kernel-us", "1000"),
          lat = OPENCL("lat", "latency", "latency", "--kernel-us", "5000", "--period-us", "1000");
    pid_t program;
    assert_true(moves("lat", "requests"));
    program = program_below(lat);
    for (unsigned i = 0; i < 3; i++) {
        AWAIT(job_int("low", "timeslice_us") == 1);
        nap_ms(7 * i); /* in a request, or between two */
        assert_int_equal(kill(program, SIGSTOP), 0);
        AWAIT(job_is("lat", "state", "stopped"));
        double before = last_of("low", "kernels");
        uint64_t until = monotonic_ns() + GATE_FRUITLESS_MAX_NS / 2;
        while (last_of("low", "kernels") <= before + 5 && monotonic_ns() < until)
            nap_ms(5);
        assert_true(last_of("low", "kernels") > before + 5);
        assert_int_equal(kill(program, SIGCONT), 0);
        assert_true(moves("lat", "requests"));
        AWAIT(job_is("lat", "state", "running"));
    }
    json_decref(load_end("lat", lat));
    json_decref(load_end("low", low));
}

static bool opencl_here(void)
{
    char command[4200];
    snprintf(command, sizeof(command),
             "'%s' load batch --device opencl --kernel-us 100 --seconds 0.1 >/dev/null 2>&1",
             getenv("CEDE_EXE"));
    return system(command) == 0;
}

int main(void)
{
    setenv("CEDE_GATE_CPU", "1", 1);
    if (!opencl_here()) {
        fprintf(stderr, "no OpenCL device: apt-get install pocl-opencl-icd\n");
        return 77;
    }
    return test_run(NULL, NULL);
}
